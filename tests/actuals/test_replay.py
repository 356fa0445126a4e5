"""A model's replay over pools, periods and parts against a loop over seconds and requests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.actuals.replay import extra_tokens, pace_of, replay, replicas_in
from planner.actuals.route import routing_of
from planner.actuals.store import Part
from planner.actuals.timetable import Piece
from planner.traffic.grid import Span
from tests.actuals.plans import Spec, plan_of, pool_of
from tests.report.sample import sample_plan

START, END = dt.date(2026, 1, 5), dt.date(2026, 1, 6)
S = 1_000_000
REPLICAS = {"m/1": (1, 2), "m/2": (2, 1)}
SPECS = [
    Spec("m/1", "m", (1.0, 1.0), (1, 2), high=20, pool_tokens=60, max_model_len=30, ttft_s=1.0, decode_per_s=2.0),
    Spec("m/2", "m", (1.0, 1.0), (2, 1), low=20, pool_tokens=70, max_model_len=60, ttft_s=2.0, decode_per_s=3.0),
]
PLAN = plan_of(SPECS, START, END, periods=[(12.0, "Mon-Sun 00-12"), (12.0, "Mon-Sun 12-24")], zone="UTC")


@dataclass(frozen=True)
class Parts:
    """Requests in parts, as a store hands them out."""

    rows: list[tuple[int, int, int]]
    edges: list[int]

    def parts(self, _: str) -> Iterator[Part]:
        for start, end in zip(self.edges[:-1], self.edges[1:], strict=True):
            mine = sorted((row for row in self.rows if start <= row[0] < end), key=lambda row: row[0])
            columns = np.array(mine, dtype=np.int64).reshape(-1, 3).T
            tenant = np.zeros(len(mine), dtype=np.int64)
            yield Part(Span(start * S, end * S), columns[0] * S, columns[1], columns[2], tenant)


def by_second(rows: list[tuple[int, int, int]], pieces: list[tuple[int, int, int]]) -> dict[str, tuple[float, float]]:
    """Over-time and replica-time of each pool in s: routed, refused, dealt out and grown one request at a time."""
    found = {}
    for spec in SPECS:
        live: list[tuple[int, int, int, int]] = []
        turn = 0
        for arrival, prompt, output in sorted(rows, key=lambda row: row[0]):
            if (prompt < 20) is not (spec.high == 20) or prompt + output > spec.max_model_len:
                continue
            period = next(k for start, end, k in pieces if start <= arrival < end)
            live.append((arrival, prompt, output, turn % REPLICAS[spec.name][period]))
            turn += 1
        over = time = 0.0
        for start, end, period in pieces:
            for second in range(start, end):
                for replica in range(REPLICAS[spec.name][period]):
                    time += 1
                    over += _over(spec, [row[:3] for row in live if row[3] == replica], second)
        found[spec.name] = over, time
    return found


def _over(spec: Spec, rows: list[tuple[int, int, int]], second: int) -> float:
    """Share of a second above the pool: all events lie on sixths of it, and within a sixth tokens grow evenly."""
    above = 0.0
    for sixth in range(6):
        start = Fraction(6 * second + sixth, 6)
        tokens = slope = Fraction(0)
        for arrival, prompt, output in rows:
            first = arrival + int(spec.ttft_s)
            if arrival <= start < first + Fraction(output, int(spec.decode_per_s)):
                tokens += prompt + int(spec.decode_per_s) * max(start - first, Fraction(0))
                slope += int(spec.decode_per_s) if start >= first else 0
        top = tokens + slope / 6
        if tokens > spec.pool_tokens:
            above += 1.0
        elif top > spec.pool_tokens:
            above += float((top - spec.pool_tokens) / (top - tokens))
    return above / 6


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 59), st.integers(1, 50), st.integers(0, 30)), max_size=40),
    st.sets(st.integers(1, 59), max_size=3),
    st.integers(5, 55),
)
def test_against_a_loop(rows: list[tuple[int, int, int]], cuts: set[int], change: int) -> None:
    """Exactly: refusals, turns, changes of the count of replicas, parts, and what lives on from one to the next."""
    pieces = [(0, change, 0), (change, 60, 1)]
    # Of requests in the same second the order is that of the log.
    store = Parts(rows, [0, *sorted(cuts), 60])
    given_pieces = [Piece(Span(start * S, end * S), period) for start, end, period in pieces]
    found = replay(store, "m", PLAN.pools, routing_of(PLAN, "m"), given_pieces)  # type: ignore[arg-type]
    expected = by_second(rows, pieces)
    assert found.requests == len(rows)
    fits = [(p, o) for _, p, o in rows if p + o <= (30 if p < 20 else 60)]
    assert (found.fitted_input_tokens, found.fitted_output_tokens) == (sum(p for p, _ in fits), sum(o for _, o in fits))
    assert found.refused_share == pytest.approx(1 - len(fits) / len(rows) if rows else 0.0)
    for run in found.pools:
        over, time = expected[run.pool.name]
        assert run.swept is not None
        assert run.swept.replica_s == time
        assert run.swept.over_s == pytest.approx(over, abs=1e-5)


def test_a_gap_between_logs() -> None:
    """What arrives before a gap drains in it, and the gap's time does not count.

    A replica of 5 tokens; 10 + 2 tokens for 1 + 1 s from second 9 on: in seconds 9 to 10 over, the rest in the gap.
    """
    specs = [Spec("m", "m", (1.0,), (1,), pool_tokens=5, ttft_s=1.0, decode_per_s=2.0)]
    plan = plan_of(specs, START, END)
    pieces = [Piece(Span(0, 10 * S), 0), Piece(Span(20 * S, 30 * S), 0)]
    found = replay(Parts([(9, 10, 2)], [0, 60]), "m", plan.pools, routing_of(plan, "m"), pieces)  # type: ignore[arg-type]
    assert found.pools[0].swept is not None
    assert (found.pools[0].swept.over_s, found.pools[0].swept.replica_s) == (1.0, 20.0)
    with pytest.raises(AssertionError, match="1 requests outside the hours"):
        replay(Parts([(40, 10, 2)], [0, 60]), "m", plan.pools, routing_of(plan, "m"), pieces)  # type: ignore[arg-type]


def test_extra_tokens() -> None:
    """The plan's product of means less the tokens of a request halfway through its output."""
    assert extra_tokens(pool_of(Spec("m", "m", (1.0,), (1,), extra=7.5), (24.0,))) == pytest.approx(7.5)
    refusing = Spec("m", "m", (1.0,), (1,), extra=7.5, refused=0.25)
    assert extra_tokens(pool_of(refusing, (24.0,))) == pytest.approx(7.5)
    assert extra_tokens(pool_of(Spec("m", "m", (0.0,), (1,)), (24.0,))) == 0
    code = next(pool for pool in sample_plan().pools if pool.name == "code")
    assert extra_tokens(code) == 0  # its made-up product of means is smaller than the tokens
    pace = pace_of(pool_of(Spec("m", "m", (1.0,), (1,), ttft_s=0.25, decode_per_s=40.0), (24.0,)))
    assert (pace.ttft_s, pace.decode_per_s) == (0.25, 40.0)


def test_replicas_in() -> None:
    pool = PLAN.pools[0]
    assert [replicas_in(pool, period) for period in (0, 1, None)] == [1, 2, None]
    assert replicas_in(pool.model_copy(update={"periods": ()}), None) == pool.replicas
