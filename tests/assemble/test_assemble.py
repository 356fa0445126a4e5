"""Small fleets, decided and assembled: `assemble` ends in `verify`, so a plan that comes out holds."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from planner.assemble import Context, Reasons, assemble
from planner.assemble.replica import capacity_tokens
from planner.catalog.offer import Offer, Term
from planner.errors import PlannerError
from planner.optimise.needs.exact import capacity_per_s, holds_exactly
from planner.optimise.types import Decision, Workload
from planner.plan import FleetPlan, RunnerUp
from planner.request import Targets
from planner.units import hours_to_s
from tests.optimise.world import SETTINGS, fleet, offer, request_of, workload

NOW = dt.datetime(2026, 11, 29, tzinfo=dt.UTC)
Solved = tuple[Context, Decision]


def solved(workloads: list[Workload], offers: list[Offer], **changes: object) -> Solved:
    made = fleet(workloads, offers, **changes)
    decision = made.solve(SETTINGS)
    assert decision is not None
    request = request_of(workloads, **changes)
    return (
        Context(request, {w.name: w for w in workloads}, made.data(), SETTINGS, (), (), ("a caveat",), "0" * 12, NOW),
        decision,
    )


def planned(found: Solved, reasons: Reasons | None = None) -> FleetPlan:
    return assemble(*found, reasons or Reasons({}, {}))


@pytest.fixture(scope="module")
def two() -> Solved:
    """Two models, a busy and a quiet half; the first may cut its prompts at 664; a commitment beside on demand."""
    h100 = offer("H100-SXM", 2, 6.0)
    year = h100.model_copy(update={"id": "p/year", "term": Term.COMMIT_1Y, "usd_per_h": 4.0})
    models = [
        workload("a", rate=40.0, rates=(1.5, 0.5), cuts=(664,), idc=3.0, targets=Targets(tpot_ms=40, ttft_ms=500)),
        workload("b", rate=9.0, rates=(1.2, 0.8), seed=1),
    ]
    return solved(models, [h100, year, offer("L4", 1, 0.8)], routing={"max_pools": 2, "cuts": [664]})


@pytest.fixture(scope="module")
def plan(two: Solved) -> FleetPlan:
    return planned(two)


def test_every_pool_has_its_periods_and_its_share(two: Solved, plan: FleetPlan):
    context, decision = two
    assert {pool.model for pool in plan.pools} == {"a", "b"}
    assert [period.hours for period in plan.periods] == [1080.0, 1080.0]
    for model in ("a", "b"):
        mine = [pool for pool in plan.pools if pool.model == model]
        assert sum(pool.request_share for pool in mine) == pytest.approx(1)
        offered = sum(pool.offered_requests for pool in mine)
        assert offered == pytest.approx(context.workloads[model].rates.mean_rate_per_s * hours_to_s(2160))
    assert plan.totals.usd == pytest.approx(decision.usd)
    assert sum(pool.usd for pool in plan.pools) == pytest.approx(decision.usd)
    assert sum(pool.served_mtok for pool in plan.pools) == pytest.approx(decision.served_tokens / 1e6)


def test_the_busy_half_has_more_replicas_and_its_peak_is_that_of_the_request(plan: FleetPlan):
    for pool in plan.pools:
        counts = [period.replicas for period in pool.periods]
        assert pool.replicas == max(counts) == counts[0]
        assert pool.peak_factor == pytest.approx({"a": 1.5, "b": 1.2}[pool.model])
    assert any(pool.periods[0].replicas > pool.periods[1].replicas for pool in plan.pools)


def test_plans_are_the_same_twice(two: Solved, plan: FleetPlan):
    assert planned(two) == plan
    context, decision = two
    turned = replace(decision, columns=decision.columns[::-1], placed=dict(reversed(decision.placed.items())))
    assert planned((context, turned)) == plan


def test_reasons_reach_the_plan(two: Solved):
    runner = RunnerUp(description="9 x L4 tp1", extra_usd=1.0)
    made = planned(two, Reasons({"a": runner, "b": None}, {}))
    why = {pool.model: pool.why for pool in made.pools}
    assert why["a"].endswith("; next best: 9 x L4 tp1")
    assert why["b"].endswith("; nothing else is feasible")
    assert made.warnings == ("a caveat", *two[1].notes)


def test_input_and_output_take_all_that_is_paid(plan: FleetPlan):
    t = plan.totals
    paid = t.usd_per_mtok_input * t.served_input_mtok + t.usd_per_mtok_output * t.served_output_mtok
    assert paid == pytest.approx(t.usd)
    assert all(0 < pool.load.prefill_work_share < pool.load.work_share for pool in plan.pools)
    assert 0 < t.usd_per_mtok_by_use < t.usd_per_mtok_by_reservation


def test_capacity_counts_the_replicas_of_each_period(two: Solved, plan: FleetPlan):
    """At one number of replicas it is that number's rate; with a second, quieter one it lies between the two."""
    need = two[1].columns[0].parts[0].need
    periods = two[0].data.periods
    law = need.config.length.law
    tokens = law.mean_prompt + law.mean_output

    def at(n: int) -> float:
        return capacity_per_s(need, n) * tokens * hours_to_s(2160)

    assert capacity_tokens(need, (3, 3), periods) == pytest.approx(at(3))
    assert capacity_tokens(need, (3, 1), periods) == pytest.approx((at(3) + at(1)) / 2)
    assert capacity_tokens(need, (0, 0), periods) == 0
    between = capacity_tokens(need, (4, 2, 1), (*periods[:1], *periods))
    exact = (at(4) + at(2) + at(1)) / 2
    assert between == pytest.approx(exact, rel=0.05)


def test_a_decision_that_cheats_is_not_assembled(two: Solved):
    context, decision = two
    lot = next(iter(decision.running))
    fewer = {**decision.running, lot: tuple(max(0, n - 1) for n in decision.running[lot])}
    for cheat in (replace(decision, usd=decision.usd * 0.9), replace(decision, running=fewer)):
        with pytest.raises(PlannerError, match="does not hold when recounted"):
            planned((context, cheat))


def test_needs_of_the_plan_are_least_and_exact(two: Solved, plan: FleetPlan):
    for column in two[1].columns:
        for part in column.parts:
            need = part.need
            assert holds_exactly(need, need.replicas[need.busiest])
    for pool in plan.pools:
        assert all(margin.satisfied for margin in pool.margins)


def test_a_model_that_survives_the_loss_of_a_region_stands_in_two():
    """Each region alone holds what is asked for: with two regions twice the replicas run."""
    models = [workload("m", rate=12.0, survives_region_loss=True)]
    offers = [offer("H100-SXM", 1, 3.0, region=region) for region in ("east", "west")]
    (pool,) = planned(solved(models, offers)).pools
    assert len(pool.placements) == 2
    assert all(place.replicas[0] >= pool.replicas_needed for place in pool.placements)
    assert pool.replicas == sum(place.replicas[0] for place in pool.placements)
