from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.traffic.buckets import EDGES, MAX_TOKENS, lower_edge, upper_edge


def test_zero_has_its_own_cell_and_edges_rise() -> None:
    assert EDGES[:5] == (0, 1, 2, 3, 4)
    assert all(a < b for a, b in itertools.pairwise(EDGES))
    assert EDGES[-1] > MAX_TOKENS


def test_every_power_of_two_is_an_edge_and_eight_edges_make_an_octave() -> None:
    assert all(2**k in EDGES for k in range(24))
    for k in range(6, 23):
        assert sum(2**k <= edge < 2 ** (k + 1) for edge in EDGES) == 8


def test_edges_are_the_ceilings_of_the_eighth_powers() -> None:
    # x >= 2^(k/8) if and only if x^8 >= 2^k: exact in whole numbers.
    for edge in EDGES[2:]:
        assert any((edge - 1) ** 8 < 2**k <= edge**8 for k in range(200))


@given(st.integers(0, MAX_TOKENS))
def test_a_count_lies_in_its_bucket(tokens: int) -> None:
    low = lower_edge(np.array([tokens]))
    assert low[0] <= tokens < upper_edge(low)[0]
    assert tokens < 64 or upper_edge(low)[0] <= np.ceil(low[0] * 2 ** (1 / 8) + 1)
