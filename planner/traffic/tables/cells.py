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
_TABLE = np.searchsorted(_EDGES, np.arange(_TABLE_TOKENS), side="right").astype(np.uint8) - np.uint8(1)
"""Bucket of every length that is met often."""
_MOST_LOOKUPS = 50_000_000
"""Keys above this are looked up by search rather than in a table of 4 bytes each."""
_HALF = 32
_EXACT = 2.0**52
"""Far enough below 2^53 that rounding in the bound itself does not matter."""
SUMS = ("n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")
PRODUCTS = ("sum_pp", "sum_po", "sum_oo")
MAXIMA = ("max_prompt", "max_output", "max_total")


def bucket(tokens: Column) -> Column:
    """Place in `EDGES` of each length."""
    if len(tokens) and int(tokens.max()) >= _TABLE_TOKENS:
        return np.searchsorted(_EDGES, tokens, side="right") - 1
    return _TABLE.take(tokens)


class CellSums:
    """Exact whole-number sums and maxima of each cell that occurs.

    A cell is named by ``(pair * BUCKETS + prompt bucket) * BUCKETS + output bucket``. Batches are summed in doubles as
    long as these hold whole numbers exactly, and then moved to whole numbers of 64 bits in two halves, so that neither
    the order of rows nor their number shows.
    """

    def __init__(self) -> None:
        self._lookup = np.full(0, -1, dtype=np.int32)
        self._searched = False
        self._keys = np.empty(0, dtype=np.int64)
        """By slot."""
        self._recent = np.zeros((len(SUMS), 0))
        """Sums below 2^53."""
        self._low = np.zeros((len(SUMS), 0), dtype=np.int64)
        self._high = np.zeros((len(SUMS), 0), dtype=np.int64)
        """In units of 2^32."""
        self._maxima = np.zeros((len(MAXIMA), 0), dtype=np.int32)
        self._bound = 0.0
        """No recent sum is above this."""

    def add(self, rows: Rows) -> None:
        """Add kept rows."""
        if not len(rows):
            return
        prompt, output = rows.prompt.astype(np.float64), rows.output.astype(np.float64)
        squares = prompt * prompt, output * output
        added = sum(float(square.sum()) for square in squares) + len(rows)
        if added >= _EXACT and len(rows) > 1:
            half = len(rows) // 2
            self.add(rows.take(slice(half)))
            self.add(rows.take(slice(half, None)))
            return
        slot = self._slots(_keys(rows))
        if self._bound + added >= _EXACT:
            self._carry()
        self._bound += added
        used = len(self._keys)
        self._recent[0, :used] += np.bincount(slot, minlength=used)
        parts = (prompt, output, rows.cached, squares[0], prompt * output, squares[1])
        for total, part in zip(self._recent[1:], parts, strict=True):
            total[:used] += np.bincount(slot, part, minlength=used)
        for most, part in zip(self._maxima, (rows.prompt, rows.output, rows.prompt + rows.output), strict=True):
            larger = np.flatnonzero(part > most.take(slot))
            if len(larger):
                np.maximum.at(most, slot[larger], part[larger])

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
            old, self._lookup = self._lookup, np.full(max(top, 2 * len(self._lookup)), -1, dtype=np.int32)
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
        self._low += self._recent.astype(np.int64)
        self._recent[:] = 0
        self._high += self._low >> _HALF
        self._low &= (1 << _HALF) - 1
        self._bound = 0.0

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
    key = rows.pair.astype(np.int64)
    key *= BUCKETS
    key += bucket(rows.prompt)
    key *= BUCKETS
    key += bucket(rows.output)
    return key
