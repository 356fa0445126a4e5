"""What the traffic room returns: the canonical distribution of one model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LengthLaw:
    """The joint law of prompt and output lengths: one entry per non-empty cell, with exact sums.

    All arrays have the same length; sums are over the cell's requests.
    """

    n: IntArray
    sum_prompt: FloatArray
    sum_output: FloatArray
    sum_cached: FloatArray
    sum_pp: FloatArray
    sum_po: FloatArray
    sum_oo: FloatArray
    max_prompt: IntArray
    max_output: IntArray
    max_total: IntArray
    prompt_lo: IntArray | None = None
    """Least prompt of each cell; without it, the lower edge of the bucket of its largest prompt."""
    output_lo: IntArray | None = None
    """The same of outputs."""

    @property
    def requests(self) -> int:
        """Requests in the law."""
        return int(self.n.sum())

    @property
    def mean_prompt(self) -> float:
        """Exact mean prompt length, tokens (cached tokens included)."""
        return float(self.sum_prompt.sum() / self.n.sum())

    @property
    def mean_output(self) -> float:
        """Exact mean output length, tokens."""
        return float(self.sum_output.sum() / self.n.sum())


@dataclass(frozen=True)
class Tail:
    """The largest total lengths, exact, longest first."""

    prompt: IntArray
    output: IntArray
    n: IntArray

    @property
    def total(self) -> IntArray:
        """Prompt plus output, tokens."""
        return self.prompt + self.output


@dataclass(frozen=True)
class Burst:
    """Counts in windows of ``scale_s`` seconds inside stationary one-hour blocks."""

    scale_s: FloatArray
    mean_n: FloatArray
    var_n: FloatArray
    idc: FloatArray
    max_n: FloatArray
    resolution_ok: npt.NDArray[np.bool_]
    """False where the log's time stamps are too coarse for the scale, or the window too short to measure a variance
    (then ``var_n`` and ``idc`` are NaN)."""
    poisson_sd: FloatArray | None = None
    """Standard deviation that the index of a Poisson process would have in a log of this length; none is certainty."""
    resolution_s: float = 0.0
    """Resolution of the log's clock."""


@dataclass(frozen=True)
class PromptBursts:
    """How the counts of prompt-length bands vary together: the bursts of every stretch of these bands follow.

    Counts are those of `Burst`, by band; variances of a stretch are sums over its bands' covariances.
    """

    edges: IntArray
    """Least prompt of each band, ascending, the first 0; shape (bands,)."""
    scale_s: FloatArray
    """Shape (scales,)."""
    mean_n: FloatArray
    """Mean count of a window, shape (scales, bands)."""
    covariance: FloatArray
    """Of the counts of two bands in the same window, shape (scales, bands, bands); NaN where the log is too short."""


@dataclass(frozen=True)
class Cap:
    """Lengths that pile up at their maximum: they were cut at an old limit and will grow if it is raised."""

    side: str
    """``prompt`` or ``output``."""
    tokens: int
    """The largest length."""
    requests: int
    """Requests within 0.1 % of it."""
    share: float


@dataclass(frozen=True)
class Traffic:
    """The canonical distribution of one model: lengths, tail, rates, bursts, and where they come from."""

    model: str
    law: LengthLaw
    tail: Tail
    burst: Burst
    minute_counts: IntArray
    """Arrivals per minute of the window, zeros and failed requests included."""
    window_s: float
    """Length of the observed window."""
    source: str
    """Format and file names, for the plan's provenance."""
    sha256: str
    """Digest of the raw or canonical files."""
    caps: tuple[Cap, ...] = ()
    """Where the lengths were censored."""
    notes: tuple[str, ...] = ()
    """What was filtered or drawn, for the plan's provenance."""
    window_start_us: int = 0
    """Start of the observed window: microseconds since 1970, or since the start of the log."""
    calendar_time: bool = False
    """Whether times are UTC; false where the log counts time from its own start."""
    sampling_fraction: float = 1.0
    """Share of the requests that the log holds; counts, rates and bursts here are those of all requests."""
    marginals: bool = False
    """Whether only the laws of prompts and of outputs are known, and how they hang together is assumed."""
    prompt_bursts: PromptBursts | None = None
    """Bursts by band of prompt lengths, where the source shows them."""

    @property
    def offered_rate_per_s(self) -> float:
        """Arrivals per second over the observed window, failed ones included."""
        return float(self.minute_counts.sum() / self.window_s)

    @property
    def observed_rate_per_s(self) -> float:
        """Requests of the length law per second over the observed window (failed ones are not in it)."""
        return self.law.requests / self.sampling_fraction / self.window_s
