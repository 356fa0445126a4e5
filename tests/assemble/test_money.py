from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.assemble.money import pool_costs, totals_of
from planner.errors import PlannerError
from tests.report.sample import PERIODS, sample_plan

PLAN = sample_plan()


def test_a_supplys_cost_follows_gpu_hours():
    """g costs 100: 3 of 4 hours to a; h costs 10, all to b."""
    costs = pool_costs([{"g": 30.0}, {"g": 10.0, "h": 5.0}], {"g": 100.0, "h": 10.0, "idle": 7.0})
    assert costs == pytest.approx((75.0, 25.0 + 10.0))


def test_replicas_on_what_is_not_bought_are_a_bug():
    with pytest.raises(PlannerError, match="of which nothing is bought"):
        pool_costs([{"g": 1.0}], {})


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(0.1, 1e4), min_size=1), min_size=1, max_size=6))
def test_nothing_of_a_used_supplys_cost_is_lost(pools):
    cost = {"a": 10.0, "b": 200.0, "c": 3e4}
    used = {supply for pool in pools for supply in pool}
    assert sum(pool_costs(pools, cost)) == pytest.approx(sum(cost[supply] for supply in used))


def test_totals_by_hand():
    """All but the unused contract's 2,592 USD is borne by pools; 40 % of every pool's work is prompts'."""
    totals = PLAN.totals
    assert sum(pool.usd for pool in PLAN.pools) == pytest.approx(totals.usd - 2_592)
    assert totals.gpu_hours == 8 * (2160 + 2880) + 8 * 4320 + 4 * (2160 + 720) + 5040 + 2 * 2160
    assert totals.usd_per_mtok_input * totals.served_input_mtok == pytest.approx(0.4 * totals.usd)
    assert totals.usd_per_mtok_output * totals.served_output_mtok == pytest.approx(0.6 * totals.usd)
    assert totals.sunk_usd == 8_496 + 2_592
    assert totals.liability_after_usd == 198_000


def test_input_and_output_follow_each_pools_own_work():
    """Only agents (120,960 USD of 367,331.50 borne) spends work on prompts: its share of the cost is input's."""
    pools = tuple(
        pool.model_copy(update={"load": pool.load.model_copy(update={"prefill_work_share": share})})
        for pool in PLAN.pools
        for share in [pool.load.work_share if pool.name == "agents" else 0.0]
    )
    totals = totals_of(pools, PLAN.purchases, PERIODS)
    borne = PLAN.totals.usd - 2_592
    assert totals.usd_per_mtok_input * totals.served_input_mtok == pytest.approx(PLAN.totals.usd * 120_960 / borne)
    spent = (
        totals.usd_per_mtok_input * totals.served_input_mtok + totals.usd_per_mtok_output * totals.served_output_mtok
    )
    assert spent == pytest.approx(totals.usd)


def test_a_full_pool_costs_its_own_gpu_hours_by_use():
    """With capacity equal to what is served, by use is the cost of the GPU-hours held, idle ones left out."""
    pools = tuple(pool.model_copy(update={"capacity_mtok": pool.served_mtok}) for pool in PLAN.pools)
    totals = totals_of(pools, PLAN.purchases, PERIODS)
    h100 = (64_800 + 158_515.2) * 28_080 / 40_320
    l40s = (8_496 + 7_554.7008) * (6 * 720 + 3 * 1440) / (4 * 2880)
    a100 = 7_005.6 * (2 * 720 + 1 * 1440) / 5040
    served = totals.served_input_mtok + totals.served_output_mtok
    assert totals.usd_per_mtok_by_use * served == pytest.approx(h100 + 120_960 + l40s + a100)
