"""Token buckets: eight per octave, on whole numbers, by one table of edges."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np

from planner.traffic.types import IntArray

MAX_TOKENS = 10_000_000
"""More tokens than this in one request is a logging error: the longest advertised context is 10 M tokens."""

PER_OCTAVE = 8


def _edges() -> tuple[int, ...]:
    """Whole-number lower edges ``ceil(2^(k/8))``, with 0 as a cell of its own, up to `MAX_TOKENS`."""
    found = {0}
    top = math.ceil(math.log2(MAX_TOKENS)) * PER_OCTAVE
    with localcontext() as context:
        context.prec = 40
        for k in range(top + 1):
            # A whole power of two is exact; the others are irrational, so the ceiling is never in doubt.
            power = Decimal(2 ** (k // PER_OCTAVE)) * (Decimal(2) ** (Decimal(k % PER_OCTAVE) / PER_OCTAVE))
            found.add(2 ** (k // PER_OCTAVE) if k % PER_OCTAVE == 0 else math.ceil(power))
    return tuple(sorted(found))


EDGES: tuple[int, ...] = _edges()
"""Lower edges; bucket ``i`` holds the whole numbers ``EDGES[i] <= tokens < EDGES[i + 1]``."""

_EDGE_ARRAY = np.asarray(EDGES, dtype=np.int64)


def lower_edge(tokens: IntArray) -> IntArray:
    """Lower edge of the bucket of each token count."""
    return _EDGE_ARRAY[np.searchsorted(_EDGE_ARRAY, tokens, side="right") - 1]


def upper_edge(lower: IntArray) -> IntArray:
    """Upper edge (exclusive) of the buckets whose lower edges are given."""
    return _EDGE_ARRAY[np.searchsorted(_EDGE_ARRAY, lower) + 1]


def lower_edge_sql(column: str) -> str:
    """SQL for `lower_edge`: a binary search over the same table, so that no engine's logarithm matters."""

    def search(low: int, high: int) -> str:
        if high - low == 1:
            return str(EDGES[low])
        middle = (low + high) // 2
        return f"CASE WHEN {column} < {EDGES[middle]} THEN {search(low, middle)} ELSE {search(middle, high)} END"

    return search(0, len(EDGES) - 1)
