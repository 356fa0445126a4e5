"""Lengths that pile up at their maximum: the limit at which they were cut."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.traffic.tables.definitions import CAP_COUNT, CAP_EXCESS, CAP_TOKENS
from planner.traffic.tables.rows import Column, Names, Rows

_PRUNE_ROWS = 500_000
SIDES = ("prompt", "output")
Caps = dict[str, dict[str, dict[str, float]]]


class NearMaximum:
    """Exact counts of the lengths of one side within 1 % of the largest length of their pair."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._most = np.zeros(0, dtype=np.int64)
        """By pair."""
        self._near = np.zeros(0, dtype=np.int32)
        """By pair: the least length within 1 % of that."""
        self._found: list[tuple[Column, Column, Column]] = []
        self._rows = 0

    def add(self, rows: Rows) -> None:
        """Add kept rows."""
        if not len(rows):
            return
        value, pairs = getattr(rows, self._side), int(rows.pair.max()) + 1
        if pairs > len(self._most):
            self._most = np.concatenate([self._most, np.zeros(pairs - len(self._most), dtype=np.int64)])
            self._near = _within(self._most, 99, 100).astype(np.int32)
        places = np.flatnonzero(value >= self._near.take(rows.pair))
        if not len(places):
            return
        pair, value = rows.pair[places].astype(np.int64), value[places].astype(np.int64)
        np.maximum.at(self._most, pair, value)
        self._near = _within(self._most, 99, 100).astype(np.int32)
        near = value >= self._near[pair]
        self._found.append(_merged(pair[near], value[near]))
        self._rows += len(self._found[-1][0])
        if self._rows > _PRUNE_ROWS:
            self._prune()

    def _prune(self) -> None:
        pair, value, n = (np.concatenate([part[i] for part in self._found]) for i in range(3))
        near = value >= self._near[pair]
        merged = _merged(pair[near], value[near], n[near])
        self._found, self._rows = [merged], len(merged[0])

    def caps(self, names: Names, requests: Mapping[str, int]) -> dict[str, dict[str, float]]:
        """By model, the cap, how many requests sit at it and their share; see `caps`."""
        if not self._found:
            return {}
        self._prune()
        pair, value, n = self._found[0]
        model_of_pair = names.model_of_pair()[: len(self._most)]
        most = np.zeros(len(names.models), dtype=np.int64)
        np.maximum.at(most, model_of_pair, self._most)
        model = model_of_pair[pair]
        at_cap, wide = (
            np.bincount(model, weights=np.where(value >= _within(most, share, of)[model], n, 0), minlength=len(most))
            for share, of in ((999, 1000), (99, 100))
        )
        found = {}
        for place, name in enumerate(names.models):
            near, below = int(at_cap[place]), int(wide[place] - at_cap[place])
            total = requests.get(name, 0)
            if most[place] >= CAP_TOKENS and near < total and near >= max(CAP_COUNT, CAP_EXCESS * below):
                found[name] = {"tokens": int(most[place]), "n": near, "share": near / total}
        return found


def _within(most: Column, share: int, of: int) -> Column:
    """The least whole number that is at least ``share / of`` of the maximum."""
    return -(-most.astype(np.int64) * share // of)


def _merged(pair: Column, value: Column, n: Column | None = None) -> tuple[Column, Column, Column]:
    """Equal lengths of one pair as one row with their count."""
    key, inverse = np.unique((pair << 32) | value, return_inverse=True)
    counts = np.bincount(inverse, weights=n, minlength=len(key)).astype(np.int64)
    return key >> 32, key & 0xFFFFFFFF, counts


def caps(sides: Mapping[str, NearMaximum], names: Names, requests: Mapping[str, int]) -> Caps:
    """Lengths that pile up at their maximum, per model and side: the old limit, at which lengths were cut.

    A pile is at least 5 requests within 0.1 % of the largest length, and three times as many as in the ten times
    wider band below: a natural tail thins out towards its end, a cut one does not. Maxima below 100 tokens, where
    such bands hold no whole number, are not judged; nor are lengths that are all alike, which nothing has cut.
    """
    found: Caps = {}
    for side, near in sides.items():
        for model, cap in near.caps(names, requests).items():
            found.setdefault(model, {})[side] = cap
    return found
