"""Every constraint family: a hand-solved case and a violating point; the ratio; solvers; statuses."""

from __future__ import annotations

import inspect
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import planner.optimise.program as program_module
from planner.errors import SolverError
from planner.optimise.program import build, quota_covers
from planner.optimise.solve import available_solvers, shortages, solve_program, solve_ratio
from planner.optimise.types import Column, Need, ProgramData, SolverSettings
from planner.plan import SolveStatus
from planner.request import Quota
from tests.optimise.world import SETTINGS, offer

HOURS = 100.0


def column(model, offer_, tp, replicas, served, *, first=0, last=1, key="") -> Column:
    config = SimpleNamespace(tp=tp, model=model, family=(offer_.gpu, tp))
    need = Need(config, None, None, replicas, True)
    name = key or f"{model}|{offer_.id}|tp{tp}|{replicas}|{served}|{first}-{last}"
    return Column(name, model, first, last, offer_, need, 0, served)


def data(columns, offers, *, bands=1, quotas=(), budget=None) -> ProgramData:
    models = tuple(dict.fromkeys(c.model for c in columns))
    return ProgramData(models, bands, tuple(offers), tuple(columns), tuple(quotas), budget, HOURS)


SMALL, NODE = offer("H100-SXM", 1, 3.0), offer("H100-SXM", 8, 20.0, provider="q")


def test_routing_takes_the_cheapest_column_once():
    """One model, 6 GPUs at 3 USD or one node of 8 at 20 USD: 18 < 20."""
    columns = [column("m", SMALL, 1, 6, 1e9), column("m", NODE, 1, 6, 1e9)]
    decision = solve_ratio(data(columns, [SMALL, NODE]), SETTINGS)
    assert decision.instances == {SMALL.id: 6}
    assert decision.usd == pytest.approx(1800)
    assert decision.status is SolveStatus.OPTIMAL


def test_routing_path_over_bands():
    """Two bands: two pools of 1 and 2 GPUs beat one pool of 4 for both bands."""
    columns = [
        column("m", SMALL, 1, 4, 2e9, first=0, last=2),
        column("m", SMALL, 1, 1, 1e9, first=0, last=1),
        column("m", SMALL, 1, 2, 1e9, first=1, last=2),
    ]
    decision = solve_ratio(data(columns, [SMALL], bands=2), SETTINGS)
    assert decision.usd == pytest.approx(900)
    assert len(decision.columns) == 2


def test_routing_violated_when_a_band_is_not_served():
    columns = [column("m", SMALL, 1, 1, 1e9, first=0, last=1)]
    assert solve_ratio(data(columns, [SMALL], bands=2), SETTINGS) is None


def test_two_models_share_a_node():
    """3 + 5 GPUs fill one node of 8."""
    columns = [column("a", NODE, 1, 3, 1e9), column("b", NODE, 1, 5, 1e9)]
    assert solve_ratio(data(columns, [NODE]), SETTINGS).instances == {NODE.id: 1}


def test_replicas_are_not_split_over_nodes():
    """Three replicas of 4 GPUs on nodes of 6 need three nodes, not two, whatever 12 / 6 says."""
    six = offer("H100-SXM", 6, 20.0)
    columns = [column("a", six, 4, 3, 1e9)]
    assert solve_ratio(data(columns, [six]), SETTINGS).instances == {six.id: 3}


def test_small_replicas_fill_what_large_ones_leave():
    """Nodes of 6: two replicas of 4 leave 2 + 2, which four of 1 fill; a fifth needs another node."""
    six = offer("H100-SXM", 6, 20.0)
    fits = [column("a", six, 4, 2, 1e9), column("b", six, 1, 4, 1e9)]
    over = [column("a", six, 4, 2, 1e9), column("b", six, 1, 5, 1e9)]
    assert solve_ratio(data(fits, [six]), SETTINGS).instances == {six.id: 2}
    assert solve_ratio(data(over, [six]), SETTINGS).instances == {six.id: 3}


def test_quota_moves_the_rest_elsewhere_and_zero_forbids():
    columns = [column("m", SMALL, 1, 6, 1e9), column("m", NODE, 1, 6, 1e9)]
    quota = Quota(name="small", provider="p", max_gpus=5)
    assert solve_ratio(data(columns, [SMALL, NODE], quotas=[quota]), SETTINGS).instances == {NODE.id: 1}
    nothing = Quota(name="all", gpu="H100-SXM", max_gpus=0)
    short = data(columns, [SMALL, NODE], quotas=[nothing])
    assert solve_ratio(short, SETTINGS) is None
    assert shortages(short, SETTINGS) == {"all": pytest.approx(6)}


def test_budget_binds():
    columns = [column("m", SMALL, 1, 6, 1e9)]
    assert solve_ratio(data(columns, [SMALL], budget=1800.0), SETTINGS).usd == pytest.approx(1800)
    short = data(columns, [SMALL], budget=1799.0)
    assert solve_ratio(short, SETTINGS) is None
    assert shortages(short, SETTINGS) == {"budget": pytest.approx(1.0)}


def test_quota_matching():
    one = offer("H100-SXM", 8, 20.0, provider="aws", region="us-east-1")
    assert quota_covers(Quota(name="q", max_gpus=1), one)
    assert quota_covers(Quota(name="q", provider="aws", gpu="H100-SXM", max_gpus=1), one)
    assert not quota_covers(Quota(name="q", provider="aws", region="eu", max_gpus=1), one)
    assert not quota_covers(Quota(name="q", offer="other", max_gpus=1), one)


def test_every_constraint_family_is_built_and_tested():
    """A new ``add_`` family must be called by `build` and be named here with its tests."""
    tested = {"add_routing", "add_node_packing", "add_quotas", "add_budget"}
    families = {name for name, _ in inspect.getmembers(program_module, inspect.isfunction) if name.startswith("add_")}
    assert families == tested
    source = inspect.getsource(build)
    assert all(f"{name}(program, data)" in source for name in families)


def test_ratio_refuses_tokens_only_when_it_pays():
    """Serving the last 10 % costs one GPU of eleven. It pays while 1 / 11 < 0.1: the ratio keeps it."""
    cheap, full = column("m", SMALL, 1, 10, 0.90e9), column("m", SMALL, 1, 11, 1.0e9)
    decision = solve_ratio(data([cheap, full], [SMALL]), SETTINGS)
    assert decision.columns == (full,)
    dear = column("m", SMALL, 1, 12, 1.0e9)
    decision = solve_ratio(data([cheap, dear], [SMALL]), SETTINGS)
    assert decision.columns == (cheap,)
    assert decision.usd_per_token == pytest.approx(3000 / 0.9e9)
    assert decision.gap == pytest.approx(0, abs=1e-9)


def brute_force(d: ProgramData) -> float:
    """Least ratio by trying every choice of columns; nodes from first fit by decreasing size."""
    best = np.inf
    by_model = [[c for c in d.columns if c.model == m] for m in d.models]
    for choice in product(*by_model):
        usd = 0.0
        bought = {}
        for o in d.offers:
            size = int(o.gpus_per_instance)
            items = sorted(
                (c.need.config.tp for c in choice if c.offer.id == o.id for _ in range(c.replicas)), reverse=True
            )
            bins = []
            for item in items:
                place = next((i for i, room in enumerate(bins) if room >= item), None)
                if place is None:
                    bins.append(size - item)
                else:
                    bins[place] -= item
            bought[o.id] = len(bins) * size
            usd += len(bins) * o.usd_per_h * d.horizon_hours
        for q in d.quotas:
            if sum(bought[o.id] for o in d.offers if quota_covers(q, o)) > q.max_gpus:
                break
        else:
            if d.budget_usd is None or usd <= d.budget_usd:
                best = min(best, usd / sum(c.served_tokens for c in choice))
    return best


def random_instance(rng: np.random.Generator) -> ProgramData:
    offers = [
        offer(f"G{i}", int(rng.choice([1, 2, 4, 8])), float(np.round(rng.uniform(1, 30), 2)), provider=f"p{i % 2}")
        for i in range(int(rng.integers(2, 5)))
    ]
    columns = []
    for m in range(int(rng.integers(1, 4))):
        for o in offers:
            for tp in [t for t in (1, 2, 4, 8) if t <= o.gpus_per_instance]:
                if rng.random() < 0.6:
                    served = 1e9 * (m + 1) * float(rng.choice([1.0, 0.999, 0.95]))
                    columns.append(column(f"m{m}", o, tp, int(rng.integers(1, 6)), served))
    quotas = [Quota(name="p0", provider="p0", max_gpus=int(rng.integers(0, 24)))] if rng.random() < 0.5 else []
    budget = float(rng.uniform(500, 20_000)) if rng.random() < 0.3 else None
    return data(columns, offers, quotas=quotas, budget=budget)


@pytest.mark.parametrize("seed", range(60))
def test_brute_force_agrees_on_tiny_instances(seed):
    d = random_instance(np.random.default_rng(seed))
    if not d.columns:
        pytest.skip("nothing to choose")
    best = brute_force(d)
    decision = solve_ratio(d, replace(SETTINGS, gap=1e-6))
    if np.isinf(best):
        assert decision is None
        return
    assert decision.usd_per_token == pytest.approx(best, rel=1e-6)
    assert decision.usd_per_token_bound <= best * (1 + 1e-9)


@pytest.mark.skipif("cbc" not in available_solvers(), reason="CBC is not installed")
@pytest.mark.parametrize("seed", range(12))
def test_second_solver_agrees(seed):
    d = random_instance(np.random.default_rng(1000 + seed))
    one = solve_ratio(d, SETTINGS)
    two = solve_ratio(d, replace(SETTINGS, name="cbc"))
    assert (one is None) == (two is None)
    if one is not None:
        assert two.usd_per_token == pytest.approx(one.usd_per_token, rel=SETTINGS.gap)


def test_missing_solver_is_said(monkeypatch):
    monkeypatch.setattr("planner.optimise.solve.pulp.listSolvers", lambda **_: [])
    monkeypatch.setattr("planner.optimise.solve._cbc_binary", lambda: None)
    d = data([column("m", SMALL, 1, 1, 1e9)], [SMALL])
    with pytest.raises(SolverError, match="HiGHS is not installed"):
        solve_ratio(d, SETTINGS)
    with pytest.raises(SolverError, match="CBC is not installed"):
        solve_ratio(d, replace(SETTINGS, name="cbc"))


def test_time_limit_is_never_called_optimal():
    """A program that needs branching, stopped at once: either no plan is claimed, or not as optimal."""
    rng = np.random.default_rng(1)
    offers = [offer(f"G{i}", 8, float(rng.uniform(10, 30)), provider=f"p{i}") for i in range(12)]
    columns = [
        column(f"m{m}", o, tp, int(rng.integers(1, 40)), 1e9 * float(rng.uniform(0.9, 1)))
        for m in range(40)
        for o in offers
        for tp in (1, 2, 4)
    ]
    tight = SolverSettings(name="highs", gap=1e-9, time_limit_s=0.001, threads=1, seed=0)
    said = ""
    try:
        certificate = solve_program(build(data(columns, offers), 0.0), tight)
    except SolverError as error:
        said = str(error)
    if said:
        assert "time_limit_s" in said
    else:
        assert certificate.status is SolveStatus.FEASIBLE
        assert certificate.bound < certificate.objective


def test_solver_prints_nothing(capfd):
    solve_ratio(data([column("m", SMALL, 1, 1, 1e9)], [SMALL]), SETTINGS)
    assert capfd.readouterr().out == ""
