"""Token buckets: eight per octave, on whole numbers, by one table of edges."""

from __future__ import annotations

import math

import numpy as np

from planner.traffic.types import IntArray

MAX_TOKENS = 10_000_000
"""More tokens than this in one request is a logging error: the longest advertised context is 10 M tokens."""

PER_OCTAVE = 8


def _edges() -> tuple[int, ...]:
    """Whole-number lower edges ``ceil(2^(k/8))``, with 0 as a cell of its own, up to `MAX_TOKENS`."""
    found = {0}
    top = math.ceil(math.log2(MAX_TOKENS)) * PER_OCTAVE
    for k in range(top + 1):
        root = math.isqrt(math.isqrt(math.isqrt(2**k)))  # the whole part of the eighth root, exact
        found.add(root if root**PER_OCTAVE == 2**k else root + 1)
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
