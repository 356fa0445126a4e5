"""Buckets by octave and step are those of the edges."""

from __future__ import annotations

import ibis
import numpy as np
import pyarrow as pa

from planner.traffic.buckets import EDGES, MAX_TOKENS
from planner.traffic.buckets import lower_edge as by_search
from planner.traffic.warehouse.cells import lower_edge
from planner.traffic.warehouse.numbers import octave, step


def test_both_sides_of_every_edge_lie_in_their_buckets():
    # Both ways never fall with the tokens, so where they agree at the edges they agree between them.
    tokens = np.array(sorted({t for edge in EDGES for t in (edge - 1, edge) if 0 <= t <= MAX_TOKENS} | {MAX_TOKENS}))
    with_octave = ibis.memtable(pa.table({"tokens": tokens})).mutate(octave=lambda t: octave(t.tokens))
    with_step = with_octave.mutate(step=lambda t: step(t.tokens, t.octave)).order_by("tokens")
    found = ibis.duckdb.connect().to_pyarrow(with_step).to_pylist()
    assert [lower_edge(row["octave"], row["step"]) for row in found] == by_search(tokens).tolist()
