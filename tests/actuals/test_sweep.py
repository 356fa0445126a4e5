"""The event sweep against a second-by-second loop over requests, hand-made cases, and conservation of tokens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.actuals.sweep import Live, Pace, Swept, arrivals, sweep

Request = tuple[int, int, int, int]
"""Arrival in s, prompt, seconds of decoding, replica."""


def live_of(requests: list[Request], pace: Pace) -> Live:
    columns = np.array(requests, dtype=float).reshape(-1, 4).T
    return arrivals(columns[0], columns[1], columns[2] * pace.decode_per_s, columns[3].astype(np.int64), pace)


def by_second(requests: list[Request], start: int, end: int, replicas: int, limit: float, pace: Pace) -> Swept:
    """One loop a second, a replica and a request: nothing in common with the sweep but the law of growth."""
    over = token_s = most = 0.0
    for replica in range(replicas):
        for second in range(start, end):
            level, slope = 0.0, 0.0
            for arrival, prompt, decode_s, own in requests:
                first = arrival + int(pace.ttft_s)
                if own != replica or not arrival <= second < first + decode_s:
                    continue
                level += prompt + pace.extra_tokens
                if second >= first:
                    level += pace.decode_per_s * (second - first)
                    slope += pace.decode_per_s
            top = level + slope
            over += 1.0 if level > limit else (top - limit) / slope if top > limit else 0.0
            token_s += (level + top) / 2
            most = max(most, top)
    return Swept(float(replicas * (end - start)), over, token_s, most)


requests = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 40), st.integers(0, 12), st.integers(0, 2)), max_size=25
)


@settings(max_examples=300, deadline=None)
@given(requests, st.integers(0, 20), st.integers(1, 25), st.integers(1, 3), st.integers(0, 160), st.integers(0, 4))
def test_against_a_loop(
    given_requests: list[Request], start: int, length: int, replicas: int, limit: int, ttft: int
) -> None:
    pace = Pace(float(ttft), 3.0, 2.0)
    found = sweep(live_of(given_requests, pace), start, start + length, replicas, limit, pace)
    expected = by_second(given_requests, start, start + length, replicas, limit, pace)
    assert found.replica_s == expected.replica_s
    assert found.over_s == pytest.approx(expected.over_s, abs=1e-5)
    assert found.token_s == pytest.approx(expected.token_s, abs=1e-6)
    assert found.most_tokens == pytest.approx(expected.most_tokens, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(requests, st.lists(st.integers(1, 45), max_size=4), st.integers(0, 160))
def test_in_pieces(given_requests: list[Request], cuts: list[int], limit: int) -> None:
    """Any cut of the time gives the same sums, with only the live requests carried over."""
    pace = Pace(2.0, 3.0, 0.0)
    live = live_of(given_requests, pace)
    whole = sweep(live, 0, 60, 3, limit, pace)
    borders = [0, *sorted(set(cuts)), 60]
    parts = Swept()
    for start, end in itertools.pairwise(borders):
        parts += sweep(live.after(start), start, end, 3, limit, pace)
    assert parts.over_s == pytest.approx(whole.over_s, abs=1e-5)
    assert parts.token_s == pytest.approx(whole.token_s, abs=1e-6)


@given(requests)
def test_token_seconds_are_conserved(given_requests: list[Request]) -> None:
    """Sum over requests of (prompt + extra) x stay + output x decoding / 2: what all of them hold, added up."""
    pace = Pace(1.0, 3.0, 2.0)
    found = sweep(live_of(given_requests, pace), 0, 100, 3, 1e9, pace)
    held = sum((p + 2.0) * (1.0 + d) + 3.0 * d * d / 2 for _, p, d, _ in given_requests)
    assert found.token_s == pytest.approx(held, abs=1e-6)


def test_by_hand() -> None:
    """100 tokens for 2 s, then 10/s for 4 s: above 120 from second 4 on, so 2 of 10 s; two at once: 8 + 8 of 20 s.

    The second replica holds 2 x 100 from 0 to 2 s and 200 + 20/s until 6 s: all 6 s above 120.
    """
    pace = Pace(2.0, 10.0, 0.0)
    one = arrivals(np.array([0.0]), np.array([100.0]), np.array([40.0]), np.array([0]), pace)
    assert sweep(one, 0, 10, 1, 120, pace) == Swept(10.0, pytest.approx(2.0, abs=1e-6), 680.0, 140.0)
    three = arrivals(np.zeros(3), np.full(3, 100.0), np.full(3, 40.0), np.array([0, 1, 1]), pace)
    found = sweep(three, 0, 10, 2, 120, pace)
    assert (found.replica_s, found.most_tokens) == (20.0, 280.0)
    assert found.over_s == pytest.approx(8.0, abs=1e-6)


def test_a_full_pool_does_not_overflow() -> None:
    pace = Pace(1.0, 10.0, 0.0)
    live = arrivals(
        np.linspace(0, 1e-9, 1000), np.full(1000, 7.0), np.zeros(1000), np.zeros(1000, dtype=np.int64), pace
    )
    assert sweep(live, 0, 5, 1, 7000, pace).over_s == 0
    assert sweep(live, 0, 5, 1, 6999, pace).over_s == pytest.approx(1.0)


def test_nothing_runs() -> None:
    assert sweep(live_of([(0, 5, 1, 0)], Pace(1.0, 3.0, 0.0)), 0, 10, 0, 1, Pace(1.0, 3.0, 0.0)) == Swept()
