"""Arrivals and tokens per UTC minute, and which minutes are the busiest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from planner.traffic.schema import RATES
from planner.traffic.tables.definitions import MINUTE_US, PEAK_SHARE
from planner.traffic.tables.rows import Column, Names, Rows

_MERGE_ROWS = 2_000_000
_MOST_CELLS = 4_000_000
"""Minutes times pairs of one batch that are counted in a dense array."""
_DENSE_PER_ROW = 4
"""Minutes times groups per row up to which rows are merged in a dense array."""
_MOST_LOOKUPS = 50_000_000
"""Minutes times models above this are searched rather than looked up in a table."""


@dataclass(frozen=True)
class Minutes:
    """One row per group and minute with traffic, by group and minute."""

    group: Column
    minute: Column
    """Since 1970."""
    n: Column
    """Arrivals, those of failed requests included."""
    prompt: Column
    output: Column
    """Tokens of the kept requests."""

    def merged(self) -> Minutes:
        """Rows of the same group and minute as one."""
        if not len(self.n):
            return self
        first, groups = int(self.minute.min()), int(self.group.max()) + 1
        width = int(self.minute.max()) - first + 1
        if groups * width <= _DENSE_PER_ROW * len(self.n):  # sums in a table of all minutes are cheaper than a sort
            key = self.group * width + (self.minute - first)
            sums = [np.zeros(groups * width, dtype=np.int64) for _ in range(3)]
            for total, values in zip(sums, (self.n, self.prompt, self.output), strict=True):
                np.add.at(total, key, values)
            met = np.flatnonzero(sums[0])
            return Minutes(met // width, met % width + first, *(total[met] for total in sums))
        order = np.lexsort((self.minute, self.group))
        group, minute = self.group[order], self.minute[order]
        new = np.ones(len(group), dtype=bool)
        new[1:] = (np.diff(group) != 0) | (np.diff(minute) != 0)
        starts = np.flatnonzero(new)
        parts = (np.add.reduceat(values[order], starts) for values in (self.n, self.prompt, self.output))
        return Minutes(group[starts], minute[starts], *parts)


class MinuteCounts:
    """Counts per pair and minute, kept only for minutes with traffic."""

    def __init__(self) -> None:
        self._parts: list[Minutes] = []
        self._rows = 0

    def add(self, part: Minutes) -> None:
        """Add the counts of a batch."""
        self._parts.append(part)
        self._rows += len(part.n)
        if self._rows > _MERGE_ROWS:
            merged = _joined(self._parts).merged()
            # A long table must not be merged again with every batch.
            self._parts, self._rows = [merged], min(len(merged.n), _MERGE_ROWS // 2)

    def minutes(self, names: Names) -> Minutes:
        """By model (its place in ``names.models``) and minute."""
        found = _joined(self._parts)
        group = names.model_of_pair()[found.group] if len(found.group) else found.group
        return Minutes(group, found.minute, found.n, found.prompt, found.output).merged()


def counted(rows: Rows) -> tuple[Minutes, Column]:
    """Counts of one batch per pair and minute, and the cached tokens; dropped rows have no tokens."""
    if not len(rows):
        return _joined([]), np.empty(0, dtype=np.int64)
    minute = rows.ts_us // MINUTE_US
    first = int(minute.min())
    width = int(minute.max()) - first + 1
    minute -= first
    pairs = int(rows.pair.max()) + 1
    key = rows.pair * np.int64(width)
    key += minute
    if pairs * width <= _MOST_CELLS:
        size, slot = pairs * width, key
        names = np.arange(size)
    else:
        names, slot = np.unique(key, return_inverse=True)
        size = len(names)
    n = np.bincount(slot, minlength=size)
    met = np.flatnonzero(n)
    # The sums of one batch stay far below 2^53, so the doubles of `bincount` are exact.
    prompt, output, cached = (
        np.bincount(slot, column, minlength=size)[met].astype(np.int64)
        for column in (rows.prompt, rows.output, rows.cached)
    )
    names = names[met]
    return Minutes(names // width, names % width + first, n[met], prompt, output), cached


def _joined(parts: list[Minutes]) -> Minutes:
    empty = np.empty(0, dtype=np.int64)
    columns = ("group", "minute", "n", "prompt", "output")
    return Minutes(*(np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in columns))


def rates(minutes: Minutes, names: Names) -> pa.Table:
    """Per model and UTC minute: arrivals (failed ones included) and the tokens of the kept ones."""
    models = pa.array(names.models, type=pa.string())
    return pa.table(
        {
            "model": models.take(pa.array(minutes.group)),
            "minute_utc": pa.array(minutes.minute * MINUTE_US).cast(RATES.field("minute_utc").type),
            "n": pa.array(minutes.n),
            "sum_prompt": pa.array(minutes.prompt),
            "sum_output": pa.array(minutes.output),
        }
    ).cast(RATES)


class PeakMinutes:
    """The busiest minutes of each model: those of the `PEAK_SHARE` with the most tokens.

    Minutes are ranked by tokens, then by arrivals; equal ones share the better rank. A minute is of the peak when
    ``(rank - 1) / (minutes with traffic - 1)`` is below `PEAK_SHARE`.
    """

    def __init__(self, minutes: Minutes, model_of_pair: Column) -> None:
        self._model_of_pair = model_of_pair
        busy = _busiest(minutes)
        self._first = int(minutes.minute.min())
        self._width = int(minutes.minute.max()) - self._first + 1
        self._keys = minutes.group[busy] * self._width + (minutes.minute[busy] - self._first)
        size = (int(minutes.group.max()) + 1) * self._width
        self._dense = np.zeros(0, dtype=bool)
        """By pair and minute, so that rows need not be told their model first."""
        if size + len(model_of_pair) * self._width <= _MOST_LOOKUPS:
            by_model = np.zeros((len(model_of_pair), self._width), dtype=bool)
            by_model.reshape(-1)[self._keys] = True
            self._dense = by_model[model_of_pair].reshape(-1)

    def holds(self, pair: Column, ts_us: Column) -> Column:
        """Whether each row falls into a busy minute of its model; False for rows outside all minutes with traffic."""
        key = ts_us // MINUTE_US
        key -= self._first
        inside = None
        if int(key.min()) < 0 or int(key.max()) >= self._width:
            inside = (key >= 0) & (key < self._width)
            np.clip(key, 0, self._width - 1, out=key)
        if len(self._dense):
            key += pair * self._width
            found = self._dense.take(key)
        else:
            key += self._model_of_pair.take(pair) * self._width
            found = self._keys[np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)] == key
        return found if inside is None else found & inside


def _busiest(minutes: Minutes) -> Column:
    """Places of the busiest minutes of all models, in their order."""
    tokens = minutes.prompt + minutes.output
    ends = np.flatnonzero(np.append(np.diff(minutes.group) != 0, True)) + 1
    starts = np.concatenate([[0], ends[:-1]])
    found = [_busiest_of_one(tokens, minutes.n, *part) for part in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.sort(np.concatenate(found))


def _busiest_of_one(tokens: Column, n: Column, start: int, end: int) -> Column:
    """Places of the busiest minutes of one model; only those that can be among them are sorted."""
    several = max(end - start - 1, 1)
    enough = min(int(PEAK_SHARE * several) + 2, end - start)
    least = np.partition(tokens[start:end], end - start - enough)[end - start - enough]
    near = np.flatnonzero(tokens[start:end] >= least) + start
    order = near[np.lexsort((-n[near], -tokens[near]))]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(tokens[order]) != 0) | (np.diff(n[order]) != 0)
    rank = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    return order[rank / several < PEAK_SHARE]
