"""`planner.observe`: the plan's own figures are within the plan, and one assumption that changes is named first."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.actuals.timetable import timetable_of
from planner.observe.expected import Expected, expected_of, period_at
from planner.observe.explain import Assumption, explained
from planner.observe.live import Window
from planner.observe.observed import Observed
from planner.observe.verdicts import PoolWatch, Verdict, Watch
from planner.observe.watch import Ask, watched
from planner.plan import FleetPlan
from planner.plan_file import plan_at
from planner.prometheus import answers, exposed
from tests.observe.exposition import SECONDS, START_S, State, answer_of, fleet, loaded, planned, text_of
from tests.report.sample import sample_plan

PLAN = plan_at(Path("tests/data/fleet/plan.json"))
BUSY = period_at(timetable_of(PLAN), START_S + SECONDS)
LIGHT_S = 1_800_154_800.0
"""2027-01-17 03:00 UTC, a Sunday: the lightest period."""
ALL = Window(-math.inf, math.inf)


def look(states: list[State], start_s: float = START_S, ask: Ask | None = None, plan: FleetPlan = PLAN) -> Watch:
    series = answers([("here", json.loads(answer_of(states, start_s)))])
    return watched(plan, series, ALL, ask or Ask())


def alone(state: State, start_s: float = START_S) -> PoolWatch:
    found = look([state], start_s, Ask(pools=(state.pool.name,)))
    return found.pools[0]


def test_the_moment_is_of_the_busiest_and_of_the_lightest_period() -> None:
    assert BUSY == 3
    assert period_at(timetable_of(PLAN), LIGHT_S + SECONDS) == 0
    assert period_at(timetable_of(PLAN), 0.0) is None


@pytest.mark.parametrize(("start_s", "period"), [(START_S, 3), (LIGHT_S, 0)])
def test_the_plan_itself_is_within(start_s: float, period: int) -> None:
    found = look(fleet(PLAN, period), start_s)
    assert found.within
    for pool in found.pools:
        assert pool.period == PLAN.periods[period].name
        assert pool.off == ()
        assert pool.missing == ()
        assert pool.deviation == pytest.approx(0.0, abs=1e-9)
        assert pool.unexplained == pytest.approx(0.0, abs=1e-9)
        assert {row.verdict for row in pool.rows} <= {Verdict.WITHIN, Verdict.UNPLANNED}


def test_the_mean_rate_is_within_too() -> None:
    states = [
        loaded(replace(s, rate_per_s=s.pool.periods[3].mean_rate_per_s * (1 - s.pool.refused_request_share)), 1.0)
        for s in fleet(PLAN, 3)
    ]
    assert look(states).within


CHANGES = {
    "demand is 30% above the planning rate": lambda s: loaded(replace(s, rate_per_s=1.3 * s.rate_per_s), 1.0),
    "prompts are 30% longer than planned": lambda s: loaded(replace(s, prompt=1.3 * s.prompt), 1.0),
    "prompts are 30% shorter than planned": lambda s: loaded(replace(s, prompt=0.7 * s.prompt), 1.0),
    "outputs are 30% longer than planned": lambda s: loaded(replace(s, output=1.3 * s.output), 1.0),
    "outputs are 30% shorter than planned": lambda s: loaded(replace(s, output=0.7 * s.output), 1.0),
    "a token takes 30% longer than the plan has at this load": lambda s: loaded(s, 1.3),
    "first tokens come 30% later than planned": lambda s: replace(s, ttft_s=1.3 * s.ttft_s),
    "the KV cache is 30% smaller than planned": lambda s: loaded(replace(s, blocks=0.7 * s.blocks), 1.0),
}


@pytest.mark.parametrize("words", CHANGES)
def test_one_assumption_that_changes_is_named_first(words: str) -> None:
    for state in fleet(PLAN, 3):
        found = alone(CHANGES[words](state))
        assert found.off, state.pool.name
        assert found.off[0].startswith(words), (state.pool.name, found.off)


def test_demand_below_the_planned_mean() -> None:
    for state in fleet(PLAN, 3):
        mean = state.pool.periods[3].mean_rate_per_s
        found = alone(loaded(replace(state, rate_per_s=0.7 * mean), 1.0))
        assert found.off[0].startswith("demand is 30% below the planned mean"), (state.pool.name, found.off)


def test_missing_replicas() -> None:
    for state in fleet(PLAN, 3):
        if state.replicas > 2:
            found = alone(loaded(replace(state, replicas=state.replicas - 1), 1.0))
            assert found.off[0] == f"1 of {state.replicas} planned replicas is missing"


def test_fewer_cache_hits_where_some_are_planned() -> None:
    state = replace(fleet(PLAN, 3)[0], hits=0.21)
    found = look([state], ask=Ask(pools=(state.pool.name,), cached_share=0.3)).pools[0]
    assert found.off[0].startswith("cache hits are 30% fewer than planned (0.21 where the plan has 0.3)")
    assert alone(state).off == ()


def test_preemptions_beyond_the_overflow() -> None:
    state = fleet(PLAN, 3)[1]
    found = alone(replace(state, preemptions_per_s=0.5))
    assert found.off == ("preemptions: 0.5 per s where the plan has at most 0.3515",)


def test_of_two_changes_the_larger_comes_first() -> None:
    state = next(s for s in fleet(PLAN, 3) if s.pool.name == "assistant/2")
    both = loaded(replace(state, rate_per_s=1.15 * state.rate_per_s, output=1.5 * state.output), 1.0)
    off = alone(both).off
    assert [words.split(" ", 1)[0] for words in off[:2]] == ["outputs", "demand"]


EXPECTED = expected_of(PLAN, PLAN.pools[1], 3)
RATIO = st.floats(0.5, 1.8)


def seen(rate: float, n: int, prompt: float, output: float, slow: float, size: float, each: float) -> Observed:
    """A state that follows from ratios to the plan, by the same laws but with its own arithmetic."""
    e = EXPECTED
    more = rate * e.planning_rate_per_s / n / e.rate_per_replica_per_s
    work = more * (e.prefill_work_share * prompt + (e.work_share - e.prefill_work_share) * output)
    tpot = slow * e.tpot_s * (1 - e.work_share) / (1 - min(work, 0.99))
    before = e.stay_s - e.output_tokens * e.tpot_s
    live = more * e.rate_per_replica_per_s * (before + output * e.output_tokens * tpot)
    held = (prompt * e.prompt_tokens + output * e.output_tokens / 2) / (e.prompt_tokens + e.output_tokens / 2)
    usage = live * each * held * e.live_tokens / e.live_requests / (e.pool_tokens * size)
    return Observed(
        replicas=n, rate_per_s=rate * e.planning_rate_per_s, prompt_tokens=prompt * e.prompt_tokens,
        output_tokens=output * e.output_tokens, tpot_s=tpot, ttft_s=None, live_requests=live, waiting=None,
        kv_usage=usage, pool_ratio=size, preemptions_per_s=None, cached_share=None, output_tokens_per_s=None,
        seconds=None, notes=(),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(RATIO, st.integers(3, 8), RATIO, RATIO, RATIO, RATIO, RATIO)
def test_the_terms_add_up(r: float, n: int, p: float, o: float, v: float, size: float, each: float) -> None:
    """Nothing is left but what no assumption covers: here the mix of lengths, made ``each`` times as large."""
    found = explained(EXPECTED, seen(r, n, p, o, v, size, each))
    assert found.deviation is not None
    assert sum(found.effects.values()) + found.rest == pytest.approx(found.deviation)
    assert found.rest == pytest.approx(math.log(each), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 1.45), RATIO)
def test_a_slower_decode_is_not_blamed_on_load(r: float, v: float) -> None:
    """At whatever load that has a steady state: decode speed is off by what it is."""
    found = explained(EXPECTED, seen(r, EXPECTED.replicas, 1.0, 1.0, v, 1.0, 1.0))
    off = seen(r, EXPECTED.replicas, 1.0, 1.0, v, 1.0, 1.0).tpot_s or 0.0
    assert off / found.tpot_by_load_s == pytest.approx(v)
    assert (found.effects[Assumption.DECODE] > 1e-9) == (v > 1.0 + 1e-9)


def test_work_slows_tokens_by_hand() -> None:
    """At work 0.5 a step takes fixed / 0.5; with half as much work again, fixed / 0.25: twice as long."""
    half: Expected = replace(EXPECTED, work_share=0.5, prefill_work_share=0.2)
    assert half.work_at(1.5) == pytest.approx(0.75)
    assert half.tpot_ratio(half.work_at(1.5)) == pytest.approx(2.0)
    assert half.work_at(1.0, prompt=2.0) == pytest.approx(0.7)


def test_one_scrape_has_no_rates() -> None:
    states = fleet(PLAN, 3)[:1]
    found = watched(PLAN, exposed("here", text_of(states), math.nan), ALL, Ask(pools=(states[0].pool.name,)))
    pool = found.pools[0]
    assert found.within
    assert (found.start, found.end) == (None, None)
    why = "two scrapes, or one with its time and process_start_time_seconds"
    assert f"demand (vllm:request_success_total: {why})" in pool.missing
    assert found.notes[0].startswith("the time of the scrape is not known")


def test_one_scrape_since_a_known_start() -> None:
    """Counters stand at 10,000 and 900 s of the rate; read as if all of it came in that time."""
    state = fleet(PLAN, 3)[1]
    start = "".join(
        f'process_start_time_seconds{{pool="{state.pool.name}",instance="{state.pool.name}-{k}:8000"}} {START_S}\n'
        for k in range(state.replicas)
    )
    series = exposed("here", text_of([state]) + start, START_S + SECONDS)
    found = watched(PLAN, series, ALL, Ask(pools=(state.pool.name,))).pools[0]
    demand = next(row for row in found.rows if row.figure == Assumption.DEMAND)
    assert demand.observed == pytest.approx((10_000 * state.replicas + 900 * state.rate_per_s) / 900)


def test_a_pool_without_series_is_not_zero() -> None:
    found = look(fleet(PLAN, 3)[:1])
    other = found.pools[1]
    assert found.within
    assert {row.observed for row in other.rows} == {None}
    assert other.notes == ("no series of this pool was found",)
    assert other.missing[0].startswith("demand (vllm:request_success_total")


def test_a_window_over_two_periods_says_so() -> None:
    """Friday 10:00 in Berlin the busiest hours end; the window begins before."""
    found = look(fleet(PLAN, 2)[:1], START_S + 3000.0, Ask(pools=("code-complete",)))
    assert found.pools[0].period == PLAN.periods[2].name
    assert "the window begins in another period: planned figures are those of its end" in found.notes


def test_beyond_saturation_the_load_is_to_blame() -> None:
    """Ten times the demand has no steady state by the plan: whatever time a token takes then is no fault of decode."""
    state = fleet(PLAN, 3)[1]
    found = alone(replace(state, rate_per_s=10 * state.rate_per_s))
    assert found.off == ("demand is 900% above the planning rate (351.5 where the plan has 35.15)",)


def test_a_pool_that_is_not_planned_to_run() -> None:
    """Its tokens have nothing to be compared with: that is said without a percentage."""
    plan = sample_plan()
    none = {"replicas": 0, "offered_requests": 0.0, "served_input_mtok": 0.0, "served_output_mtok": 0.0, "periods": ()}
    idle = plan.pools[0].model_copy(update=none)
    state = replace(planned(plan.pools[0], 0), pool=idle, replicas=1)
    found = look([state], plan=plan.model_copy(update={"pools": (idle,)})).pools[0]
    assert "1 replicas run where 0 are planned" in found.off
    assert "output length: 289.9 where the plan has none" in found.off
