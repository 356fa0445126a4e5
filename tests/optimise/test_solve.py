"""Statuses that tell the truth, the ratio, time limits, warm starts, and data that span many orders of magnitude."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pulp
import pytest

from planner.errors import SolverError
from planner.optimise.explain.relax import elastic
from planner.optimise.program import build
from planner.optimise.recount import recount
from planner.optimise.solve import ratio as solve_module
from planner.optimise.solve import solvers
from planner.optimise.solve.ratio import available_solvers, solve_program, solve_ratio
from planner.optimise.types import Certificate, LotKind, SolverSettings, Supply
from planner.plan import SolveStatus
from planner.request import Quota
from tests.benchmarks.fleet_synthetic import Size, synthetic
from tests.optimise.small_programs import EXACT, TWO, column, data, lot, part

ONE_GPU = Supply("small", "A", 1)
NODE = Supply("node", "B", 8)


def one_model(**rules):
    """One model on 6 GPUs at 3 USD/h for 100 h: 1800 USD."""
    return data([column("m", part("A", 1, 6))], [ONE_GPU], [lot("a", ONE_GPU, 3.0)], **rules)


@cache
def hard():
    """A program that needs branching."""
    return synthetic(Size(12, 3, 12, 3, largest_rate_per_s=60.0), 1)


# ------------------------------------------------------------------------------------------------------------ statuses


@pytest.mark.parametrize("name", available_solvers())
def test_optimal_and_infeasible(name):
    asked = replace(EXACT, name=name)
    certificate = solve_program(build(one_model(), 0.0), asked)
    assert certificate.status is SolveStatus.OPTIMAL
    assert certificate.objective == pytest.approx(1800.0)
    assert certificate.bound <= certificate.objective
    short = one_model(quotas=(Quota(name="q", max_gpus=5),))
    assert solve_program(build(short, 0.0), asked).status is SolveStatus.INFEASIBLE
    assert solve_ratio(short, asked) is None


@pytest.mark.parametrize("name", available_solvers())
def test_unbounded_is_said(name):
    """A negative price: every further instance earns money."""
    d = data([column("m", part("A", 1, 6))], [ONE_GPU], [lot("a", ONE_GPU, -3.0)])
    with pytest.raises(SolverError, match="unbounded"):
        solve_program(build(d, 0.0), replace(EXACT, name=name))


def test_missing_solver_is_said(monkeypatch):
    monkeypatch.setattr(solvers.pulp, "listSolvers", lambda **_: [])
    monkeypatch.setattr(solvers, "_cbc_binary", lambda: None)
    with pytest.raises(SolverError, match="HiGHS is not installed"):
        solve_ratio(one_model(), EXACT)
    with pytest.raises(SolverError, match="CBC is not installed"):
        solve_ratio(one_model(), replace(EXACT, name="cbc"))
    assert available_solvers() == []


@pytest.mark.parametrize("limit_s", [1e-3, 0.05, 0.3])
def test_time_limit_is_never_called_optimal(limit_s):
    """Stopped early: either there is no plan and the advice is to allow more time, or the gap is told as it is."""
    asked = SolverSettings(name="highs", gap=1e-9, time_limit_s=limit_s, threads=1, seed=0)
    said, certificate = "", None
    try:
        certificate = solve_program(build(hard(), 0.0), asked)
    except SolverError as error:
        said = str(error)
    assert (certificate is None) == ("solver.time_limit_s" in said)
    if certificate is not None:
        assert certificate.status is SolveStatus.FEASIBLE
        assert certificate.bound < certificate.objective


def test_ratio_under_a_time_limit_keeps_its_plan_and_says_the_gap():
    d = hard()
    decision = solve_ratio(d, SolverSettings(name="highs", gap=1e-9, time_limit_s=3.0, threads=1, seed=0))
    assert decision.status is SolveStatus.FEASIBLE
    assert 0 < decision.gap < 0.5
    assert "solver.time_limit_s" in decision.notes[0]
    assert recount(d, decision) == []


def test_status_follows_from_the_gap_alone():
    assert solvers.proven_status(100.0, 99.0, 0.01) is SolveStatus.OPTIMAL
    assert solvers.proven_status(100.0, 98.9, 0.01) is SolveStatus.FEASIBLE
    assert solvers.proven_status(0.0, 0.0, 0.01) is SolveStatus.OPTIMAL


def test_gap_of_a_report():
    assert solvers.relative_gap(100.0, 90.0) == pytest.approx(0.1)
    assert solvers.relative_gap(float("inf"), 90.0) == float("inf")
    assert solvers.relative_gap(0.0, 0.0) == 0.0
    assert solvers.relative_gap(0.0, -5.0) == 1.0


# ----------------------------------------------------------------------------------------------------------- the ratio


def test_tokens_are_refused_only_when_it_pays():
    """Serving the last 10 % takes one GPU of 11: 1/11 < 0.1, so it is served; with two GPUs of 12 it is not."""
    cheap, full, dear = (
        column("m", part("A", 1, 10), 0.9e9), column("m", part("A", 1, 11), 1e9), column("m", part("A", 1, 12), 1e9),
    )  # fmt: skip
    lots = [lot("a", ONE_GPU, 3.0)]
    assert solve_ratio(data([cheap, full], [ONE_GPU], lots), EXACT).columns == (full,)
    decision = solve_ratio(data([cheap, dear], [ONE_GPU], lots), EXACT)
    assert decision.columns == (cheap,)
    assert decision.usd_per_token == pytest.approx(3000 / 0.9e9)
    assert decision.gap == pytest.approx(0, abs=1e-9)


def test_sunk_cost_makes_serving_worth_more():
    """The choice above, 12 GPUs or 10, with 3000 USD paid anyway: 6600 / 1e9 < 6000 / 0.9e9, so all is served."""
    cheap, dear = column("m", part("A", 1, 10), 0.9e9), column("m", part("A", 1, 12), 1e9)
    own = lot("own", ONE_GPU, sunk=3000.0, available=(0,), kind=LotKind.OWNED)
    decision = solve_ratio(data([cheap, dear], [ONE_GPU], [lot("a", ONE_GPU, 3.0), own]), EXACT)
    assert decision.columns == (dear,)
    assert decision.usd == pytest.approx(6600.0)
    assert decision.gap == pytest.approx(0, abs=1e-9)


def test_a_fleet_that_costs_nothing():
    """All on owned hardware: the ratio is 0, so is its gap, and nothing is divided by it."""
    columns = [column("m", part("A", 1, 6), 0.9e9), column("m", part("A", 1, 7), 1e9)]
    d = data(columns, [ONE_GPU], [lot("own", ONE_GPU, available=(8,), kind=LotKind.OWNED)])
    decision = solve_ratio(d, EXACT)
    assert decision.usd == 0.0
    assert decision.gap == 0.0
    assert decision.status is SolveStatus.OPTIMAL
    assert recount(d, decision) == []


def test_one_solve_where_nothing_is_lost_and_few_where_something_is(monkeypatch):
    solves = []

    def counted(*args, **kwargs):
        solves.append(1)
        return solve_at(*args, **kwargs)

    solve_at = solve_module.solve_at
    monkeypatch.setattr(solve_module, "solve_at", counted)
    assert solve_ratio(one_model(), EXACT).ratio_iterations == len(solves) == 1
    columns = [column(m, part("A", 1, n), s) for m in "ab" for n, s in ((10, 0.99e9), (11, 1e9))]
    d = data(columns, [ONE_GPU], [lot("a", ONE_GPU, 3.0)])
    assert solve_ratio(d, replace(EXACT, gap=1e-3)).ratio_iterations <= 2


@pytest.mark.parametrize("theta", [0.0, 1e-9, 1e-3])
def test_bound_holds_from_any_first_theta(theta):
    """The first theta decides how many solves it takes, never what is proven."""
    columns = [column("m", part("A", 1, 10), 0.9e9), column("m", part("A", 1, 12), 1e9)]
    decision = solve_ratio(data(columns, [ONE_GPU], [lot("a", ONE_GPU, 3.0)]), EXACT, usd_per_token=theta)
    assert decision.usd_per_token == pytest.approx(3000 / 0.9e9)
    assert decision.usd_per_token_bound <= 3000 / 0.9e9 * (1 + 1e-12)


def test_decision_counts_what_runs_and_what_is_reserved():
    """Day 6 GPUs, night 2, of 60 and 40 h. Reserved at 1 USD/h or on demand at 2: 2 reserved, the other 4 by day.

    A reserved GPU costs 100, on demand by day 120, by night 80: those of day and night 200, so 2 are reserved. By day
    alone, 100 reserved beats 120. So 6 are reserved: 600 USD.
    """
    lots = [lot("r", ONE_GPU, reserved=1.0, kind=LotKind.NEW_COMMITMENT), lot("d", ONE_GPU, 2.0)]
    d = data([column("m", part("A", 1, 6, 2))], [ONE_GPU], lots, periods=TWO)
    decision = solve_ratio(d, EXACT)
    assert decision.reserved == {"r": 6}
    assert decision.usd == pytest.approx(600.0)
    # On demand at 1.5: by day alone 90 < 100, so 2 are reserved and 4 rented by day: 200 + 360 USD.
    cheaper = replace(d, lots=(lots[0], lot("d", ONE_GPU, 1.5)))
    decision = solve_ratio(cheaper, EXACT)
    assert decision.reserved == {"r": 2}
    assert decision.running["d"] == (4, 0)
    assert decision.usd == pytest.approx(560.0)


# ------------------------------------------------------------------------------------------ how it is asked, watched


def test_solver_prints_nothing(capfd):
    solve_ratio(hard(), replace(EXACT, gap=0.05))
    assert capfd.readouterr().out == ""


def test_progress_reports_incumbent_bound_and_time():
    reports = []
    solve_program(build(hard(), 0.0), replace(EXACT, gap=1e-3, time_limit_s=2.0), progress=reports.append)
    assert reports
    assert all(r.bound <= r.incumbent * (1 + 1e-9) for r in reports)
    assert [r.seconds for r in reports] == sorted(r.seconds for r in reports)
    assert reports[-1].incumbent < float("inf")


def test_warm_start_is_what_highs_begins_from():
    """A start that is optimal is the first incumbent that HiGHS reports."""
    d = hard()
    best = solve_ratio(d, replace(EXACT, gap=0.02))
    keys = [c.key for c in best.columns]
    reports = []
    solve_program(build(d, 0.0), replace(EXACT, gap=0.02), progress=reports.append, warm_start=keys)
    first = next(r.incumbent for r in reports if np.isfinite(r.incumbent))
    assert first <= best.usd * 1.02


def test_a_warm_start_that_is_none_does_no_harm():
    decision = solve_ratio(one_model(), EXACT, warm_start=["no such column"])
    assert decision.usd == pytest.approx(1800.0)


def test_same_settings_same_decision():
    d = synthetic(Size(4, 2, 12, 2, largest_rate_per_s=60.0), 5)
    backwards = replace(d, columns=d.columns[::-1])
    asked = replace(EXACT, gap=1e-2)
    one, two = solve_ratio(d, asked), solve_ratio(d, asked)
    assert one == two
    assert {c.key for c in solve_ratio(backwards, asked).columns} == {c.key for c in one.columns}


def test_lp_file_is_the_program_that_was_solved(tmp_path):
    path = tmp_path / "fleet.lp"
    solve_ratio(one_model(), EXACT, lp_file=path)
    assert "Minimize" in path.read_text()
    assert "6" in path.read_text()


def test_shortages():
    short, _, _ = elastic(one_model(quotas=(Quota(name="q", max_gpus=4),)), EXACT)
    assert short == {"quota[q]": pytest.approx(2.0)}


# ------------------------------------------------------------------------------------------------------- nasty numbers


def nasty():
    """Prices from 0.001 to 30,000 USD/h, needs of 1 and of a million replicas."""
    big, tiny = Supply("big", "A", 1), Supply("tiny", "B", 8)
    columns = [
        column("a", part("A", 1, 1_000_000)), column("a", part("B", 1, 1_000_003)),
        column("b", part("B", 8, 1)), column("b", part("C", 1, 7)),
    ]  # fmt: skip
    other = Supply("other", "C", 1)
    lots = [lot("big", big, 0.001), lot("tiny", tiny, 30_000.0), lot("other", other, 7.0)]
    return data(columns, [big, tiny, other], lots)


def test_many_orders_of_magnitude():
    """1,000,000 GPUs at 0.001 USD/h and 7 at 7 USD/h for 100 h: 100,000 + 4,900 USD."""
    decision = solve_ratio(nasty(), EXACT)
    assert decision.usd == pytest.approx(104_900.0, rel=1e-12)
    assert decision.running == {"big": (1_000_000,), "other": (7,)}


def test_a_choice_that_is_not_quite_whole_is_mended(monkeypatch):
    """HiGHS may choose 0.9999999 of a column with a million replicas and leave an instance out.

    Its solution is tampered with so: one instance fewer. The rows are found broken and the instance is bought.
    """
    program = build(nasty(), 0.0)
    real = solvers._rounded
    calls = []

    def short_of_one(values, whole):
        rounded = real(values, whole)
        if not calls:
            rounded = np.where(rounded == 1_000_000, 999_999, rounded)
        calls.append(1)
        return rounded

    monkeypatch.setattr(solvers, "_rounded", short_of_one)
    certificate = solve_program(program, EXACT)
    assert len(calls) == 2
    assert certificate.objective == pytest.approx(104_900.0, rel=1e-12)
    assert round(program.x["big", 0].value()) == 1_000_000


def test_what_cannot_be_mended_is_an_error(monkeypatch):
    monkeypatch.setattr(solvers, "_broken_rows", lambda *_: 3)
    with pytest.raises(SolverError, match="3 rows"):
        solve_program(build(nasty(), 0.0), EXACT)


def test_a_value_far_from_whole_is_an_error():
    with pytest.raises(SolverError, match="whole number"):
        solvers._rounded(np.array([0.5, 2.0]), np.array([True, True]))


def test_threads_may_change_from_one_solve_to_the_next():
    """HiGHS keeps the threads of a process's first run, and refuses to run with others."""
    for threads in (1, 2, 1):
        certificate = solve_program(build(one_model(), 0.0), replace(EXACT, threads=threads))
        assert certificate.status is SolveStatus.OPTIMAL


def test_certificate_says_which_solver():
    certificate = solve_program(build(one_model(), 0.0), EXACT)
    assert isinstance(certificate, Certificate)
    assert certificate.solver == "HiGHS"
    assert certificate.solver_version[0].isdigit()


class Started:
    """The six rows on which HiGHS 1.16.0 states 4,644 after a start, and the optimum is 13,251.60."""

    def __init__(self) -> None:
        self.problem = pulp.LpProblem("start", pulp.LpMinimize)
        cost = (0.0, 0.0, 4644.0, 4644.0, 8607.6, 8607.6, 9633.6, 9633.6)
        made = [self.problem.add_variable(f"v({i})", 0, 1 if i < 2 else None, pulp.LpInteger) for i in range(len(cost))]
        self.y = {str(i): made[i] for i in range(2)}
        self.problem += pulp.lpSum(c * v for c, v in zip(cost, made, strict=True))
        self.problem += made[0] + made[1] == 1, "serve"
        self.problem += made[0] + made[1] <= 1, "pools"
        for name, terms in (
            ("a", {0: 4, 2: -2, 4: -4}), ("b", {0: 2, 3: -2, 5: -4}), ("c", {1: 2, 6: -4}), ("d", {1: 2, 7: -4}),
        ):  # fmt: skip
            self.problem += pulp.lpSum(c * made[i] for i, c in terms.items()) <= 0, name


@pytest.mark.parametrize("start", [(), ("0",), ("1",)])
def test_a_start_never_makes_the_answer_worse(start):
    """8,607.60 for four GPUs and 4,644 for two: the first choice costs 13,251.60, the second twice 9,633.60."""
    certificate = solve_program(Started(), EXACT, warm_start=start)
    assert certificate.objective == pytest.approx(13_251.6)
    assert certificate.status is SolveStatus.OPTIMAL
