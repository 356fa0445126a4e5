"""A time limit for a whole call."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """A time limit for a whole call."""

    ends: float

    @classmethod
    def of(cls, limit_s: float) -> Clock:
        """Starts now."""
        return cls(time.monotonic() + limit_s)

    @property
    def left_s(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.ends - time.monotonic())
