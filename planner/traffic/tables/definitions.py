"""The figures that define the canonical tables: the same for every engine that computes them."""

from __future__ import annotations

from dataclasses import dataclass

TAIL_SIZE = 1000
"""Largest total lengths kept exactly, per model; ties with the last of them are kept too."""
SCALES_S = (1, 5, 15, 60, 300, 3600)
"""Each one divides the next, and the last is the block."""
BLOCK_S = 3600
"""Rates are taken as stationary within blocks of one hour; variance between blocks is no burst."""
MIN_FREEDOM = 7
"""Fewer degrees of freedom than this say nothing about a variance."""
PEAK_SHARE = 0.05
CAP_RATIO = 0.999
"""Lengths within 0.1 % of the largest count as sitting at the cap."""
BELOW_CAP_RATIO = 0.99
CAP_COUNT = 5
CAP_EXCESS = 3
CAP_TOKENS = 100
MINUTE_US = 60_000_000
BLOCK_US = BLOCK_S * 1_000_000


@dataclass(frozen=True)
class Window:
    """The observed window in microseconds, and the resolution of the time stamps."""

    start_us: int
    end_us: int
    resolution_us: int
    exact_ticks: bool
    """True where every stamp is a whole multiple of the resolution."""

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_us - self.start_us) / 1e6
