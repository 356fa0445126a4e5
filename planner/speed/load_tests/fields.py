"""Figures out of a run's object: each is checked, and what is wrong is collected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

from planner import units
from planner.speed.load_tests.types import Spread

TIMES_MS = {"ms": 1.0, "s": float(units.MS_PER_S), "sec": float(units.MS_PER_S), "us": 1e-3, "ns": 1e-6}
"""Milliseconds of a unit, as tools spell it."""
MOST = 10**300
"""Beyond it a whole number is none that a float can hold."""


class Fields:
    """The members of one object. A member that is absent or null is ``None``; one of a wrong kind is noted."""

    def __init__(self, data: Mapping[str, object], wrong: list[str] | None = None, prefix: str = "") -> None:
        self._data = data
        self._prefix = prefix
        self.wrong: list[str] = [] if wrong is None else wrong

    def __contains__(self, name: str) -> bool:
        return self._data.get(name) is not None

    def number(self, *names: str) -> float | None:
        """The first of these members that is there: a finite number, not negative."""
        for name in names:
            value = self._data.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                self._note(name, f"is {value!r:.30}, not a number")
            elif isinstance(value, int) and abs(value) > MOST:
                self._note(name, "is too large a number")
            elif not math.isfinite(value):
                self._note(name, f"is {value}")
            elif value < 0:
                self._note(name, f"is negative: {value:g}")
            else:
                return float(value)
            return None
        return None

    def signed(self, name: str) -> float | None:
        """A figure that may be negative and that nothing depends on: ``None`` if it is none."""
        value = self._data.get(name)
        return float(value) if isinstance(value, int | float) and abs(value) <= MOST else None

    def positive(self, *names: str) -> float | None:
        """As `number`; a zero is what tools write where nothing was measured."""
        return self.number(*names) or None

    def text(self, *names: str) -> str:
        """The first of these members that is there and no object, as text."""
        for name in names:
            value = self._data.get(name)
            if value is not None and not isinstance(value, dict | list):
                return str(value).strip()
        return ""

    def part(self, *path: str) -> Fields:
        """The object inside this one; empty where there is none."""
        here = self
        for name in path:
            value = here._data.get(name)
            if value is not None and not isinstance(value, dict):
                here._note(name, f"is {value!r:.30}, not an object")
            inner = value if isinstance(value, dict) else {}
            here = Fields(inner, self.wrong, f"{here._prefix}{name}.")
        return here

    def items(self, name: str) -> list[Mapping[str, object]]:
        """The objects of a list."""
        value = self._data.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self._note(name, "is no list of objects")
            return []
        return value

    def names(self, name: str) -> list[str]:
        """The texts of a list, or the names of its objects."""
        value = self._data.get(name)
        found = (
            [item.get("name") if isinstance(item, dict) else item for item in value] if isinstance(value, list) else []
        )
        return [item for item in found if isinstance(item, str)]

    def spread(
        self, mean: str, p50: str, p90: str, p99: str, unit_ms: float = 1.0, others: Fields | None = None
    ) -> Spread:
        """Mean and percentiles in a unit of so many milliseconds; ``others`` is where the upper percentiles are."""
        upper = self if others is None else others
        found = [self.positive(mean), self.positive(p50), upper.positive(p90), upper.positive(p99)]
        values = [None if value is None else value * unit_ms for value in found]
        percentiles = [value for value in values[1:] if value is not None]
        if any(low > high * (1 + 1e-9) for low, high in pairwise(percentiles)):
            self._note(p50, "is above a higher percentile")
        return Spread(*values)

    def _note(self, name: str, what: str) -> None:
        self.wrong.append(f"{self._prefix}{name} {what}")
