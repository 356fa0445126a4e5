"""Judged rows as columns of numbers, a few hundred thousand at a time: what the engine's passes work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.traffic.rules import CODES, TREATMENTS, Rule

KEPT = -1
"""Verdict of a kept row; dropped rows carry the code of their rule."""
NO_RANK = np.iinfo(np.int64).min
"""Rank of a row that has none: the lowest."""
Column = np.ndarray[Any, np.dtype[Any]]

OFFERED = np.array([TREATMENTS[rule].offered for rule in CODES] + [True])
"""By verdict, whether the row counts as an arrival; the last entry is that of `KEPT`, which is -1."""
SEEN = OFFERED | np.array([rule is Rule.OTHER_MODEL for rule in CODES] + [False])
"""By verdict, whether the row shows the clock of the log."""
TIMELESS = (Rule.MALFORMED, Rule.BAD_TIMESTAMP, Rule.IMPLAUSIBLE_TIMESTAMP, Rule.OUTSIDE_WINDOW)
TIMED = np.array([rule not in TIMELESS for rule in CODES] + [True])
"""By verdict, whether the row shows how long the log ran."""


@dataclass
class Names:
    """Models and traffic classes, each pair by a small number in the order in which they were met."""

    pairs: dict[tuple[str, str], int] = field(default_factory=dict)

    def code(self, model: str, traffic_class: str) -> int:
        """The number of a pair; a new pair gets the next one."""
        return self.pairs.setdefault((model, traffic_class), len(self.pairs))

    @property
    def models(self) -> tuple[str, ...]:
        """Models by name."""
        return tuple(sorted({model for model, _ in self.pairs}))

    def model_of_pair(self) -> Column:
        """Place in `models` of each pair."""
        places = {model: place for place, model in enumerate(self.models)}
        return np.array([places[model] for model, _ in self.pairs], dtype=np.int64)

    def class_of_pair(self) -> Column:
        """Place of each pair's traffic class among the sorted classes."""
        places = {name: place for place, name in enumerate(sorted({name for _, name in self.pairs}))}
        return np.array([places[name] for _, name in self.pairs], dtype=np.int64)


def taken(column: Column, places: Column | slice) -> Column:
    """Part of a column; NumPy takes places twice as fast as it indexes with them."""
    return column[places] if isinstance(places, slice) else column.take(places)


@dataclass(frozen=True)
class Rows:
    """Judged rows; see `planner.traffic.readers.judge.JUDGED`."""

    pair: Column
    """`Names.code`, int64: what NumPy takes as an index without a copy."""
    ts_us: Column
    """Int64; meaningless where the verdict says that there is no good time stamp."""
    prompt: Column
    output: Column
    cached: Column
    """Int32; 0 in dropped rows."""
    verdict: Column | None = None
    """Int16; none when every row is kept."""
    adjusted: Column | None = None
    """Uint16; none when no row was adjusted."""
    id_hash: Column | None = None
    """Uint64; none when no row has a request id."""
    has_id: Column | None = None
    """Booleans; none when every row has a request id, or none has."""
    rank: Column | None = None
    """Int64, `NO_RANK` where there is none; none when no row has one."""
    logical_hash: Column | None = None
    """Uint64; none when no row says which logical request it belongs to."""
    has_logical: Column | None = None
    """As `has_id`, for `logical_hash`."""

    def __len__(self) -> int:
        return len(self.ts_us)

    def take(self, places: Column | slice) -> Rows:
        """The rows at these places."""
        columns: dict[str, Any] = {
            name: None if value is None else taken(value, places) for name, value in vars(self).items()
        }
        return Rows(**columns)

    def kept(self) -> Rows:
        """The rows that no rule dropped."""
        if self.verdict is None:
            return self
        places = np.flatnonzero(self.verdict == KEPT)
        return self if len(places) == len(self) else self.take(places)

    def lost(self) -> Rows:
        """The arrivals that are not kept."""
        if self.verdict is None:
            return self.take(slice(0))
        return self.take(np.flatnonzero(OFFERED[self.verdict] & (self.verdict != KEPT)))

    def offered(self) -> Rows:
        """The rows that count as arrivals."""
        if self.verdict is None:
            return self
        places = np.flatnonzero(OFFERED[self.verdict])
        return self if len(places) == len(self) else self.take(places)
