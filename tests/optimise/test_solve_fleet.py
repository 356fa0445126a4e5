"""The loop around the program: chosen needs are exact, the plan is that of exact needs throughout, shortage splits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import SolverError
from planner.optimise.needs.exact import exact_need
from planner.optimise.recount import recount
from planner.optimise.solve import fleet as fleets
from planner.optimise.solve import scale
from planner.optimise.solve.fleet import Fleet
from planner.optimise.solve.ratio import solve_ratio
from planner.plan import SolveStatus
from planner.request import Quota
from tests.optimise.world import SETTINGS, fleet, offer, workload

H100, L40S = offer("H100-SXM", 8, 20.0), offer("L40S", 1, 1.2, provider="q")


POOLS = {"max_pools": 2}


def two_models(**changes) -> Fleet:
    works = [workload("a", rate=30.0, seed=1), workload("b", rate=8.0, seed=2, rates=(1.0,))]
    return fleet(works, [H100, L40S], **changes)


def test_every_chosen_need_is_exact_and_the_plan_holds():
    world = two_models()
    found = world.solve(SETTINGS)
    assert all(p.need.exact for c in found.columns for p in c.parts)
    assert recount(world.data(), found) == []
    assert 2 <= world.rounds <= 6
    assert found.status is SolveStatus.OPTIMAL


def test_plan_is_that_of_exact_needs_throughout():
    """Lazy exactness changes the work, not the result: all needs made exact first give the same cost."""
    world = two_models()
    lazy = world.solve(SETTINGS)
    eager = two_models()
    needs = {name: [exact_need(n) for n in found] for name, found in eager._needs.items()}
    whole = Fleet(list(eager._workloads.values()), needs, eager._spares, eager._data, lambda text: None)
    best = solve_ratio(whole.data(), SETTINGS)
    assert lazy.usd == pytest.approx(best.usd, rel=2 * SETTINGS.gap)
    assert lazy.usd_per_token_bound <= best.usd_per_token * (1 + 1e-9)


def test_drafts_of_the_relaxation_change_the_work_not_the_plan(monkeypatch):
    """By columns, the relaxed program says first what is made exact: the same plan within the gap, in fewer rounds."""
    plain, drafted = two_models(routing=POOLS), two_models(routing=POOLS)
    asked = replace(SETTINGS, gap=1e-5)
    monkeypatch.setattr(scale, "FEW_COLUMNS", 0)
    monkeypatch.setattr(fleets, "DRAFTING", 0.0)
    undrafted = plain.solve(asked)
    monkeypatch.setattr(fleets, "DRAFTING", 0.3)
    found = drafted.solve(asked)
    assert found.usd == pytest.approx(undrafted.usd, rel=2e-5)
    assert drafted.rounds <= plain.rounds
    assert drafted.rounds <= 2
    monkeypatch.undo()
    whole = two_models(routing=POOLS).solve(asked)
    assert found.usd == pytest.approx(whole.usd, rel=2e-5)
    assert found.usd_per_token_bound <= whole.usd_per_token * (1 + 1e-9)


def test_what_is_known_stays_known():
    """A second solve needs one round, under other rules too; needs are made exact once."""
    world = two_models()
    first = world.solve(SETTINGS)
    again = world.solve(SETTINGS)
    assert world.rounds == 1
    assert again.usd == first.usd
    wider = world.with_rules(quotas=(Quota(name="plenty", gpu="L40S", max_gpus=10_000),))
    assert wider.solve(SETTINGS).usd == first.usd
    assert wider.rounds == 1


def test_keep_leaves_configurations_out():
    world = two_models()
    found = world.solve(SETTINGS, lambda need: need.config.gpu.id == "H100-SXM")
    assert {p.placement.gpu for c in found.columns for p in c.parts} == {"H100-SXM"}
    assert world.solve(SETTINGS, lambda need: False) is None


def test_a_short_type_is_mixed_with_another():
    """A model that needs more L40S than may be had, with A100 at a dearer price: both serve it."""
    free = fleet([workload("a", rate=30.0, seed=1)], [H100, L40S])
    wanted = max(n for counts in free.solve(SETTINGS).running.values() for n in counts)
    quota = Quota(name="few", gpu="L40S", max_gpus=wanted - 1)
    short = fleet(
        [workload("a", rate=30.0, seed=1)],
        [offer("A100-80GB-SXM", 1, 2.0), L40S],
        quota=[quota.model_dump()],
        routing=POOLS,
    )
    found = short.solve(SETTINGS)
    used = {p.placement.gpu for c in found.columns for p in c.parts}
    assert used == {"L40S", "A100-80GB-SXM"}
    assert sum(p.load_share for c in found.columns for p in c.parts) == pytest.approx(1.0)
    assert all(p.need.exact for c in found.columns for p in c.parts)
    whole = short.solve(SETTINGS, lambda need: need.config.gpu.id == "A100-80GB-SXM")
    assert found.usd < whole.usd


def test_only_together_is_it_feasible():
    """Neither type alone may be had in the number needed."""
    works = [workload("a", rate=30.0, seed=1)]
    cheap = offer("A100-80GB-SXM", 1, 2.0)
    alone = {
        gpu: max(n for counts in fleet(works, [o]).solve(SETTINGS).running.values() for n in counts)
        for gpu, o in (("L40S", L40S), ("A100-80GB-SXM", cheap))
    }
    quotas = [Quota(name=gpu, gpu=gpu, max_gpus=n - 1).model_dump() for gpu, n in alone.items()]
    both = fleet(works, [cheap, L40S], quota=quotas, routing=POOLS)
    for gpu in alone:
        assert both.solve(SETTINGS, lambda need, gpu=gpu: need.config.gpu.id == gpu) is None
    found = both.solve(SETTINGS)
    assert found is not None
    assert recount(both.data(), found) == []


def test_needs_that_do_not_settle_in_time(monkeypatch):
    world = two_models()
    clock = iter(range(0, 10_000, 40))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    with pytest.raises(SolverError, match=r"did not settle|within"):
        world.solve(replace(SETTINGS, time_limit_s=70.0))
