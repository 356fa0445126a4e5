"""The bound is a proof: against brute force, against the whole program, and where no fleet exists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.optimise.program import build
from planner.optimise.recount import recount
from planner.optimise.solve import scale
from planner.optimise.solve.paths import RouteGraph
from planner.optimise.solve.ratio import solve_program, solve_ratio
from planner.optimise.solve.relaxation import lower_bound, relaxed_feasible, spread_price
from planner.optimise.solve.table import most_tokens, table_of
from planner.optimise.types import Caps, Movement, ProgramData
from planner.plan import SolveStatus
from planner.request import Quota
from tests.benchmarks.fleet_synthetic import Size, synthetic
from tests.optimise.brute_force import least_cost, paths
from tests.optimise.small_programs import EXACT, column, data, lot, part
from tests.optimise.test_program_brute_force import random_program
from tests.optimise.test_solve import NODE, ONE_GPU

NOTHING = np.zeros(0, dtype=np.int64)
LIMITS = {"time_limit_s": 30.0, "threads": 1, "seed": 0}


def bound_of(d: ProgramData, theta: float, tolerance: float = 1e-9):
    return lower_bound(d, table_of(d), theta, tolerance=tolerance, start=NOTHING, **LIMITS)


@pytest.mark.parametrize("seed", range(60))
def test_bound_is_at_most_the_least_cost(seed):
    """Over random programs with every family of rows; and no column that its slack rules out is in a cheaper fleet."""
    d, theta = random_program(seed), (0.0, 2e-6)[seed % 2]
    best = least_cost(d, theta)
    bound = bound_of(d, theta)
    assert bound.usd <= best * (1 + 1e-9) + 1e-6
    if np.isinf(best):
        return
    table = table_of(d)
    for i in np.flatnonzero(np.isfinite(bound.slack)):
        with_it = replace(d, columns=tuple(c for c in d.columns if not _rivals(c, table.columns[i])))
        assert bound.usd + bound.slack[i] <= least_cost_of_all(d, with_it, theta) * (1 + 1e-9) + 1e-6


def _rivals(one, other) -> bool:
    """Columns that cannot be on a path with another one: those that overlap its arc."""
    return one.model == other.model and one is not other and one.start < other.end and other.start < one.end


def least_cost_of_all(d: ProgramData, fewer: ProgramData, theta: float) -> float:
    """Least cost with fewer columns, lost tokens counted as over all."""
    moved = theta * (scale.total_most(d) - scale.total_most(fewer))
    return least_cost(fewer, theta) + moved


@pytest.mark.parametrize("seed", range(60))
def test_no_fleet_is_only_said_where_there_is_none(seed):
    d = random_program(seed)
    found = relaxed_feasible(d, table_of(d), start=NOTHING, **LIMITS)
    if np.isfinite(least_cost(d, 0.0)):
        assert found.usd <= scale.LEAST_SHORTAGE
        assert np.isfinite(found.short)


def test_a_quota_that_no_fleet_keeps_is_proven():
    """One model needs 6 GPUs, 5 may be had."""
    d = data([column("m", part("A", 1, 6))], [ONE_GPU], [lot("a", ONE_GPU, 3.0)], quotas=(Quota(name="q", max_gpus=5),))
    found = relaxed_feasible(d, table_of(d), start=NOTHING, **LIMITS)
    assert found.usd == pytest.approx(1 / 6, rel=1e-3)  # a sixth of the stand-in serves what is short


@pytest.mark.parametrize("seed", [s for s in range(40) if s != 13])  # 36 brute forces of 0.3 s each
def test_small_programs_solved_by_columns_agree_with_brute_force(seed, monkeypatch):
    """The path for large fleets on tiny ones: same ratio, same infeasible ones."""
    monkeypatch.setattr(scale, "FEW_COLUMNS", 0)
    monkeypatch.setattr(scale, "FIRST_COLUMNS_PER_MODEL", 1)
    d = random_program(seed)
    decision = solve_ratio(d, replace(EXACT, gap=1e-6))
    best = least_ratio(d)
    if np.isinf(best):
        assert decision is None
        return
    assert decision.usd_per_token == pytest.approx(best, rel=1e-5)
    assert decision.usd_per_token_bound <= best * (1 + 1e-9)
    assert decision.status is SolveStatus.OPTIMAL
    assert recount(d, decision) == []


def least_ratio(d: ProgramData) -> float:
    """Least cost per served token by Dinkelbach on brute force: it ends where the ratio stays."""
    sunk = sum(o.sunk_usd for o in d.lots)
    most = sum(max((sum(c.served_tokens for c in p) for p in paths(d, m, 99)), default=0.0) for m in d.models)
    low, high = 0.0, 1e-4
    if np.isinf(least_cost(d, 0.0)):
        return np.inf
    for _ in range(36):
        middle = (low + high) / 2
        # The best plan's cost + sunk − middle * served, which is 0 at the least ratio.
        if least_cost(d, middle) + sunk - middle * most > 0:
            low = middle
        else:
            high = middle
    return high


@pytest.mark.parametrize("rules", ["plain", "quota", "movement", "budget", "impossible"])
def test_large_path_agrees_with_the_whole_program(rules):
    """6 models, some 350 columns: by columns and as a whole, each within the gap of the other."""
    d = synthetic(Size(6, 3, 12, 2, largest_rate_per_s=60.0), 3)
    if rules == "quota":
        d = replace(d, quotas=tuple(q.model_copy(update={"max_gpus": 8}) for q in d.quotas))
    if rules in ("movement", "impossible"):
        d = replace(d, movement=Movement({}, 100 if rules == "movement" else 40))
    if rules == "budget":
        d = replace(d, caps=Caps(budget_usd=1e6))
    gap = 5e-3
    asked = replace(EXACT, gap=gap, threads=2)
    whole = solve_program(build(d, 0.0), asked)
    if rules == "impossible":
        assert whole.status is SolveStatus.INFEASIBLE
        assert solve_ratio(d, asked) is None
        return
    assert whole.status is SolveStatus.OPTIMAL
    bound = bound_of(d, 0.0, 1e-5)
    assert bound.usd <= whole.objective
    decision = solve_ratio(d, asked, usd_per_token=0.0)
    assert recount(d, decision) == []
    assert len(d.columns) > scale.FEW_COLUMNS
    assert decision.status is SolveStatus.OPTIMAL
    lossless = whole.objective / decision.served_tokens
    assert decision.usd_per_token_bound <= lossless * (1 + 2e-3)


def test_bound_of_a_relaxation_by_hand():
    """Two models of 3 and 5 GPUs on nodes of 8 at 20 USD/h for 100 h: one node, 2000 USD; relaxed, the same."""
    d = data([column("a", part("B", 1, 3)), column("b", part("B", 1, 5))], [NODE], [lot("n", NODE, 20.0)])
    bound = bound_of(d, 0.0)
    assert bound.usd == pytest.approx(2000.0)
    assert bound.slack == pytest.approx([0.0, 0.0], abs=1e-6)


def test_bound_shares_a_node_that_the_program_must_buy_whole():
    """3 GPUs of 8: the program buys a node for 2000 USD, the relaxation 3/8 of it, 750 USD."""
    d = data([column("a", part("B", 1, 3))], [NODE], [lot("n", NODE, 20.0)])
    assert bound_of(d, 0.0).usd == pytest.approx(750.0)


@given(
    costs=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=5),
    needed=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_spread_price_is_the_least_cost_of_a_spread_unit(costs, needed):
    """No whole-number spread that survives the loss of any one region is cheaper; with two it is c1 + c2."""
    price = float(spread_price(np.array(costs)[:, None])[0])
    if len(costs) == 2:
        assert price == pytest.approx(sum(costs))
    for seed in range(20):
        counts = np.random.default_rng(seed).integers(0, needed + 1, len(costs))
        if counts.sum() - counts.max() >= needed:
            assert counts @ np.array(costs) >= needed * price * (1 - 1e-9)


def test_spread_needs_two_regions():
    assert np.isinf(spread_price(np.array([[1.0]]))).all()


def test_cheapest_routes_keep_the_limit_on_pools():
    """Three bands at 1 each by themselves, 2.5 for two of them, 4 for all: with 3, 2, 1 pools the cost is 3, 3.5, 4."""
    columns = [column("m", part("A", 1, 1), 1e9 * (b - a), a, b) for a in range(3) for b in range(a + 1, 4)]
    for pools, expected in ((3, 3.0), (2, 3.5), (1, 4.0)):
        d = data(columns, [ONE_GPU], [lot("a", ONE_GPU, 1.0)], max_pools=pools)
        table = table_of(d)
        costs = np.array([{1: 1.0, 2: 2.5, 3: 4.0}[c.end - c.start] for c in table.columns])
        routes = RouteGraph(table, d).routes(costs)
        assert routes.cost == pytest.approx([expected])
        whole = next(i for i, c in enumerate(table.columns) if c.end - c.start == 3)
        assert routes.slack[whole] == pytest.approx(4.0 - expected)


def test_lost_tokens_are_the_same_sum_on_every_path():
    """One pool for both bands serves 1.9e9 of the 2e9 that two pools serve: 0.1e9 are lost whichever way one counts."""
    columns = [
        column("m", part("A", 1, 1), 1e9, 0, 1),
        column("m", part("A", 1, 1), 0.95e9, 1, 2),
        column("m", part("A", 1, 2), 1e9, 1, 2),
        column("m", part("A", 1, 1), 1.9e9, 0, 2),
    ]
    d = data(columns, [ONE_GPU], [lot("a", ONE_GPU, 1.0)])
    assert most_tokens(d.models, columns)["m", 2] == pytest.approx(2e9)
    table = table_of(d)
    lost = {c.key: tokens for c, tokens in zip(table.columns, table.lost_tokens, strict=True)}
    assert [lost[c.key] / 1e9 for c in columns] == pytest.approx([0.0, 0.05, 0.0, 0.1])
