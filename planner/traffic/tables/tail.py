"""The longest requests of each model, exact."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from planner.traffic.buckets import EDGES
from planner.traffic.schema import TAIL
from planner.traffic.tables.cells import BUCKETS, bucket
from planner.traffic.tables.definitions import TAIL_SIZE
from planner.traffic.tables.rows import Column, Names, Rows

_PRUNE_ROWS = 200_000
_MANY_ROWS = 20_000


class LongestTotals:
    """The `TAIL_SIZE` largest totals of each pair of model and class, with every tie of the last one.

    A request stays a candidate while fewer than `TAIL_SIZE` of its pair are longer, so what is dropped could never
    have been in the table, whatever the order of rows.
    """

    def __init__(self) -> None:
        self._least = np.zeros(0, dtype=np.int64)
        """By pair: shorter totals are no candidates."""
        self._found: list[tuple[Column, Column, Column, Column]] = []
        self._rows = 0

    def add(self, rows: Rows) -> None:
        """Add kept rows."""
        if not len(rows):
            return
        most = int(rows.pair.max()) + 1
        if most > len(self._least):
            self._least = np.concatenate([self._least, np.zeros(most - len(self._least), dtype=np.int64)])
        total = rows.prompt + rows.output
        places = np.flatnonzero(total >= self._least.take(rows.pair))
        if len(places) > _MANY_ROWS:
            self._raise_least(rows.pair[places], total[places])
            places = places[total[places] >= self._least.take(rows.pair[places])]
        if not len(places):
            return
        group, prompt, output = (column[places].astype(np.int64) for column in (rows.pair, rows.prompt, rows.output))
        self._found.append((group, prompt, output, np.ones(len(places), dtype=np.int64)))
        self._rows += len(places)
        if self._rows > _PRUNE_ROWS:
            kept = _largest(*self._all())
            self._found, self._rows = [(kept[0], kept[1], kept[2], kept[3])], len(kept[0])
            self._least = np.maximum(self._least, _by_group(kept[0], kept[4], len(self._least)))

    def _raise_least(self, pair: Column, total: Column) -> None:
        """A lower bound from counts by bucket: cheaper than sorting many rows."""
        counts = np.bincount(pair * BUCKETS + bucket(total), minlength=len(self._least) * BUCKETS)
        longer = np.cumsum(counts.reshape(-1, BUCKETS)[:, ::-1], axis=1)[:, ::-1]
        enough = (longer >= TAIL_SIZE).sum(axis=1)
        least = np.where(enough > 0, np.asarray(EDGES)[enough - 1], 0)
        self._least[: len(least)] = np.maximum(self._least[: len(least)], least)

    def _all(self) -> tuple[Column, Column, Column, Column]:
        empty = np.empty(0, dtype=np.int64)
        parts = [(empty, empty, empty, empty), *self._found]
        group, prompt, output, n = (np.concatenate([part[i] for part in parts]) for i in range(4))
        return group, prompt, output, n

    def table(self, names: Names) -> pa.Table:
        """Rows of `TAIL`: by model, longest total first, then longest prompt; equal requests are counted in ``n``."""
        group, prompt, output, n = self._all()
        model, prompt, output, n, _ = _largest(names.model_of_pair()[group], prompt, output, n)
        columns = {"model": [names.models[m] for m in model.tolist()], "prompt": prompt, "output": output, "n": n}
        return pa.table({name: pa.array(columns[name], type=TAIL.field(name).type) for name in TAIL.names})


def _largest(group: Column, prompt: Column, output: Column, n: Column) -> tuple[Column, ...]:
    """Equal requests merged, the largest of each group kept; and, per row, the least total that its group keeps."""
    order = np.lexsort((-prompt, -(prompt + output), group))
    group, prompt, output, n = group[order], prompt[order], output[order], n[order]
    new = np.ones(len(group), dtype=bool)
    new[1:] = (np.diff(group) != 0) | (np.diff(prompt) != 0) | (np.diff(output) != 0)
    first = np.flatnonzero(new)
    if not len(first):
        return group, prompt, output, n, n
    group, prompt, output, n = group[first], prompt[first], output[first], np.add.reduceat(n, first)
    ends = np.flatnonzero(np.append(np.diff(group) != 0, True))
    starts = np.concatenate([[0], ends[:-1] + 1])
    before = np.cumsum(n) - n
    length = ends - starts + 1
    rank = before - np.repeat(before[starts], length)
    """How many requests of the group stand before this one."""
    total = prompt + output
    last = np.maximum.reduceat(np.where(rank < TAIL_SIZE, np.arange(len(group)), -1), starts)
    full = np.add.reduceat(n, starts) >= TAIL_SIZE
    least = np.repeat(np.where(full, total[last], 0), length)
    keep = total >= least
    return group[keep], prompt[keep], output[keep], n[keep], least[keep]


def _by_group(group: Column, value: Column, size: int) -> Column:
    out = np.zeros(size, dtype=np.int64)
    out[group] = value
    return out
