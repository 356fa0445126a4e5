"""The joint length law: sums per cell of prompt and output bucket."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from planner.traffic.buckets import EDGES, upper_edge
from planner.traffic.schema import LENGTHS, Coupling
from planner.traffic.tables.rows import Column, Names, Rows

BUCKETS = len(EDGES)
_EDGES = np.asarray(EDGES, dtype=np.int64)
_TABLE_TOKENS = 1 << 20
_TABLE = np.repeat(np.arange(BUCKETS - 1, dtype=np.uint8), np.diff(np.minimum(_EDGES, _TABLE_TOKENS)))
"""Bucket of every length that is met often."""
_MOST_LOOKUPS = 25_000_000
"""Keys above this are looked up by search rather than in a table of 8 bytes each."""
_HALF = 32
_EXACT, _HALF_FULL = 1 << 62, 1 << 31
SUMS = ("n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")
PRODUCTS = ("sum_pp", "sum_po", "sum_oo")
_RECENT = 2 + len(PRODUCTS)
MAXIMA = ("max_prompt", "max_output", "max_total")


def bucket(tokens: Column) -> Column:
    """Place in `EDGES` of each length."""
    if len(tokens) and int(tokens.max()) >= _TABLE_TOKENS:
        return np.searchsorted(_EDGES, tokens, side="right") - 1
    return _TABLE.take(tokens)


class CellSums:
    """Exact whole-number sums and maxima of each cell that occurs.

    A cell is named by ``(pair * BUCKETS + prompt bucket) * BUCKETS + output bucket``. Batches are summed in whole
    numbers of 64 bits as long as these suffice, and then moved to two halves, so that neither the order of rows nor
    their number shows.
    """

    def __init__(self) -> None:
        self._lookup = np.full(0, -1, dtype=np.int64)
        self._searched = False
        self._keys = np.empty(0, dtype=np.int64)
        """By slot."""
        self._recent = np.zeros((_RECENT, 0), dtype=np.int64)
        """Number and prompts in the halves of one whole number, outputs and cached in those of another; squares."""
        self._low = np.zeros((len(SUMS), 0), dtype=np.int64)
        self._high = np.zeros((len(SUMS), 0), dtype=np.int64)
        """In units of 2^32."""
        self._maxima = np.zeros((len(MAXIMA), 0), dtype=np.int32)
        self._half_bound = self._bound = 0
        """No recent sum in a half is above the first, and none of products above the second."""

    def add(self, rows: Rows) -> None:
        """Add kept rows."""
        if not len(rows):
            return
        most = max(int(rows.prompt.max()), int(rows.output.max()), int(rows.cached.max()), 1)
        added = len(rows) * most * most
        tokens = sum((int(part.sum(dtype=np.int64)) for part in (rows.prompt, rows.output, rows.cached)), len(rows))
        if (added >= _EXACT or tokens >= _HALF_FULL) and len(rows) > 1:
            half = len(rows) // 2
            self.add(rows.take(slice(half)))
            self.add(rows.take(slice(half, None)))
            return
        slot = self._slots(_keys(rows))
        if self._bound + added >= _EXACT or self._half_bound + tokens >= _HALF_FULL:
            self._carry()
        self._bound += added
        self._half_bound += tokens
        prompt, output, cached = (part.astype(np.int64) for part in (rows.prompt, rows.output, rows.cached))
        # Two sums in one number: each pass over the rows costs as much as all arithmetic.
        halves = prompt | (1 << _HALF), output << _HALF | cached
        parts = (*halves, prompt * prompt, prompt * output, output * output)
        # With one dimension and equal types `add.at` is as fast as `bincount`, and needs no array of all cells.
        for total, part in zip(self._recent, parts, strict=True):
            np.add.at(total, slot, part)
        for largest, part in zip(self._maxima, (rows.prompt, rows.output, rows.prompt + rows.output), strict=True):
            larger = np.flatnonzero(part > largest.take(slot))
            if len(larger):
                np.maximum.at(largest, slot[larger], part[larger])

    def _slots(self, keys: Column) -> Column:
        """Slot of each key; a key that was not met before gets the next one."""
        top = int(keys.max()) + 1
        self._searched = self._searched or top > _MOST_LOOKUPS
        if self._searched:  # and from now on: the table does not know the keys that are added here
            unique, inverse = np.unique(keys, return_inverse=True)
            order = np.argsort(self._keys)
            places = np.searchsorted(self._keys, unique, sorter=order)
            known = places < len(order)
            found = np.full(len(unique), -1, dtype=np.int64)
            found[known] = order[places[known]]
            found[known] = np.where(self._keys[found[known]] == unique[known], found[known], -1)
            found[found < 0] = self._grow(unique[found < 0])
            return np.asarray(found[inverse])
        if top > len(self._lookup):
            old, self._lookup = self._lookup, np.full(max(top, 2 * len(self._lookup)), -1, dtype=np.int64)
            self._lookup[: len(old)] = old
        slots = self._lookup.take(keys)
        unknown = np.flatnonzero(slots < 0)
        if len(unknown):
            new = np.unique(keys[unknown])
            self._lookup[new] = self._grow(new)
            slots[unknown] = self._lookup[keys[unknown]]
        return slots

    def _grow(self, new: Column) -> Column:
        first, used = len(self._keys), len(self._keys) + len(new)
        self._keys = np.concatenate([self._keys, new])
        if used > self._recent.shape[1]:
            size = max(4096, 2 * used)
            for name in ("_recent", "_low", "_high", "_maxima"):
                old = getattr(self, name)
                wider = np.zeros((len(old), size), dtype=old.dtype)
                wider[:, : old.shape[1]] = old
                setattr(self, name, wider)
        return np.arange(first, used)

    def _carry(self) -> None:
        high, low = self._recent >> _HALF, self._recent & ((1 << _HALF) - 1)
        self._low[: len(SUMS) - len(PRODUCTS)] += (high[0], low[0], high[1], low[1])
        # Low halves alone, as the sum of two whole numbers may be above 2^63.
        self._low[-len(PRODUCTS) :] += low[2:]
        self._high[-len(PRODUCTS) :] += high[2:]
        self._recent[:] = 0
        self._high += self._low >> _HALF
        self._low &= (1 << _HALF) - 1
        self._half_bound = self._bound = 0

    def table(self, names: Names, period: str) -> pa.Table:
        """Rows of `LENGTHS` for one period, by model, class and bucket."""
        self._carry()
        used = len(self._keys)
        pair, rest = np.divmod(self._keys, BUCKETS * BUCKETS)
        prompt_lo, output_lo = _EDGES[rest // BUCKETS], _EDGES[rest % BUCKETS]
        pairs = list(names.pairs)
        place = np.empty(len(pairs), dtype=np.int64)
        place[sorted(range(len(pairs)), key=pairs.__getitem__)] = np.arange(len(pairs))
        order = np.lexsort((output_lo, prompt_lo, place[pair]))
        pair, prompt_lo, output_lo = pair[order], prompt_lo[order], output_lo[order]
        sums = {name: self._exact(row, order) for row, name in enumerate(SUMS)}
        columns: dict[str, object] = {
            "model": pa.array([model for model, _ in pairs], type=pa.string()).take(pa.array(pair)),
            "traffic_class": pa.array([name for _, name in pairs], type=pa.string()).take(pa.array(pair)),
            "period": pa.repeat(period, used),
            "coupling": pa.repeat(Coupling.JOINT.value, used),
            "prompt_lo": prompt_lo,
            "prompt_hi": upper_edge(prompt_lo),
            "output_lo": output_lo,
            "output_hi": upper_edge(output_lo),
            **sums,
            **{name: values[:used][order] for name, values in zip(MAXIMA, self._maxima, strict=True)},
        }
        return pa.table({name: columns[name] for name in LENGTHS.names}).cast(LENGTHS)

    def _exact(self, row: int, order: Column) -> Column:
        """Whole numbers; products as the doubles nearest to them."""
        used = len(self._keys)
        low, high = self._low[row, :used][order], self._high[row, :used][order]
        product = SUMS[row] in PRODUCTS
        if int(high.max(initial=0)) < 1 << (62 - _HALF):
            whole = low + (high << _HALF)
            return whole.astype(np.float64) if product else whole
        exact = [a + (b << _HALF) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        return np.array(exact, dtype=np.float64 if product else np.int64)


def _keys(rows: Rows) -> Column:
    key = rows.pair * np.int64(BUCKETS * BUCKETS)
    key += bucket(rows.prompt) * np.int32(BUCKETS)
    key += bucket(rows.output)
    return key
