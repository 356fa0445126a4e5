"""Baselines: never better than the plan where they hold every limit, sized as the rules say, judged exactly."""

from dataclasses import replace

import numpy as np
import pytest

from planner.cli.baselines import as_data, markdown
from planner.optimise.explain.baselines import Baseline, PoolRisk, baselines_of, by_mean_rule, mean_replicas, risk_of
from planner.optimise.needs.candidate_table import stacked
from planner.optimise.needs.exact import at_rate
from planner.queueing.load import settle
from planner.request import Targets
from tests.optimise.world import SETTINGS, fleet, offer, workload

OFFERS = [offer("L4", 1, 0.8), offer("L4", 2, 1.6), offer("H100-SXM", 1, 3.0)]
SLACK = 1 - SETTINGS.gap


def made(works, **changes):
    whole = fleet(works, OFFERS, **changes)
    decision = whole.solve(SETTINGS)
    assert decision is not None
    return baselines_of(whole, decision, {w.name: 0 for w in works}, SETTINGS, lambda text: None)


@pytest.fixture(scope="module")
def found():
    """Two models: one in bursts of 60, that two pools serve best, and one with a speed target that only H100s keep."""
    bursty = workload("bursty", rate=3.0, idc=60.0, cuts=(1024,), tp_degrees=(1, 2))
    quick = workload("quick", rate=20.0, seed=1, targets=Targets(tpot_ms=12.0), cuts=(1024,))
    return made([bursty, quick], routing={"max_pools": 2, "cuts": [1024]})


def test_the_plan_holds_and_no_baseline_that_holds_is_cheaper(found):
    plan, *others = found
    assert plan.holds
    assert len(others) == 4
    for other in others:
        if other.holds:
            assert other.usd_per_mtok >= plan.usd_per_mtok * SLACK
    one_gpu, one_pool = others[:2]
    assert one_gpu.holds
    assert len({pool.config.split()[0] for pool in one_gpu.pools}) == 1
    assert sorted(pool.model for pool in one_pool.pools) == ["bursty", "quick"]
    assert one_pool.holds


def test_speed_limits_are_held_where_asked(found):
    rule, held = found[3:]
    quick = [next(pool for pool in b.pools if pool.model == "quick") for b in (rule, held)]
    assert "TPOT target" in quick[0].broken
    assert not quick[1].broken


def test_means_do_not_see_bursts():
    """A small pool overflows beyond the limit of 1 % by the rule with single arrivals, more often in bursts of 60."""
    overflow = {}
    for idc in (1.0, 60.0):
        whole = fleet([workload("m", rate=3.0, idc=idc, tp_degrees=(1,))], [offer("L4", 1, 0.8)])
        part = whole.data().columns[0].parts[0]
        n = mean_replicas(part.need, 3.0)
        overflow[idc] = risk_of("m", replace(part, running=(n,))).overflow
    assert 0.01 < overflow[1.0] < overflow[60.0]


def test_replicas_by_means_are_the_least_that_hold():
    """Recounted: 1.5 x requests in the replica (Little) x (P + O / 2) tokens, rounded to nothing, against its pool."""
    whole = fleet([workload("m", rate=40.0)], OFFERS)
    for column in whole.data().columns:
        need = column.parts[0].need
        law, config = need.config.length.law, need.config

        def share(n, need=need, law=law, config=config):
            load = settle(stacked([config]), at_rate(need, 40.0).demand, np.array([float(n)]))
            if not np.isfinite(load.token_s[0]):
                return np.inf
            live = 40.0 / n * float(load.time_in_system_s[0])
            tokens = live * config.marks.holding.of_mean(law.mean_prompt, law.mean_output)
            return 1.5 * max(tokens / config.pool_token_equivalents, live / config.sizing.max_num_seqs)

        n = mean_replicas(need, 40.0)
        assert share(n) <= 1 + 1e-9
        assert n == 1 or share(n - 1) > 1 - 1e-9
        assert mean_replicas(need, 40.0, 3.0) >= n
        assert mean_replicas(need, 0.0) == 0


def test_the_rule_of_means_serves_whole_models_alone():
    data = fleet([workload("m", cuts=(1024,))], OFFERS, routing={"max_pools": 2, "cuts": [1024]}).data()
    ruled = by_mean_rule(data, {"m": 2})
    assert len(ruled.columns) < len(data.columns)
    for column in ruled.columns:
        assert (column.start, column.end) == (0, data.end_node["m"])
        part = column.parts[0]
        assert part.running == tuple(n + 2 for n in part.need.replicas)  # two spares


def test_the_worst_period_is_judged():
    """Replicas that suffice at the mean are too few in a busier period."""
    whole = fleet([workload("m", rate=30.0, idc=20.0, rates=(1.0, 0.2))], [offer("L4", 1, 0.8)])
    part = whole.data().columns[0].parts[0]
    enough = risk_of("m", replace(part, running=(500, 500)))
    few = risk_of("m", replace(part, running=(1, 500)))
    assert enough.overflow < 0.01 < few.overflow
    assert few.replicas == 500


PLAN = Baseline("this plan", 100.0, 2.0, 4, 0.0, True, (PoolRisk("m", "m[0-)", "L4|x", 4, 0.002, 0.01, ()),))
RULE = Baseline("rule", 90.0, 1.8, 3, 0.0, True, (PoolRisk("m", "m[0-)", "L4", 3, 0.25, 0.01, ("TPOT target",)),))


def test_tables_and_json():
    text = markdown((PLAN, RULE, Baseline("one GPU type", why="no GPU type serves every model")))
    assert "| rule | 90 | 1.8000 | -10.0 % | 3 | 25 % | no |" in text
    assert "| this plan | 100 | 2.0000 | +0.0 % | 4 | 0.2 % | yes |" in text
    assert "| one GPU type | none: no GPU type serves every model |" in text
    assert "| rule | m | m[0-) | L4 | 3 | 25 % (1 %) | TPOT target |" in text
    assert "L4/x" in text  # a bar would end the cell
    data = as_data(RULE, PLAN)
    assert (data["cost_over_plan"], data["holds"], data["pools"][0]["holds"]) == (pytest.approx(-0.1), False, False)
