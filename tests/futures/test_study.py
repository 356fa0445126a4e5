"""A study: the base is today's plan, every other future a true re-solve of the same inputs, in a fixed order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.catalog.load import load_catalog
from planner.errors import InfeasibleError, InputError, SolverError
from planner.futures import futures, shared_out
from planner.futures.adjust import adjust
from planner.futures.futures import Beside, Failed, Future
from planner.inputs import Inputs
from planner.pipeline import Planned, decide, plan_inputs, plan_quarter, prepare
from planner.plan import FleetPlan, plan_to_json
from planner.preparing import prepare_beside
from planner.request_study import Adjustments
from planner.solve_options import AS_REQUESTED
from planner.study import Side, Study, read_study, study_to_json
from tests.futures.world import NOW, OWNED, QUOTA, SITE, inputs_of, request, study_of

FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TARGETS = "{ tpot_ms = 40 }"
TABLES = (
    QUOTA.format(gpus=60)
    + """
[[scenario]]
name = "Low"
growth = 0.5
source = "forecast"
source_date = 2026-11-01
[[scenario]]
name = "No GPUs"
quotas = 0
why = "nothing is granted"
[[scenario]]
name = "Dear"
price = 1.5
[[sensitivity]]
driver = "quotas"
low = 0.001
high = 2
[[sensitivity]]
driver = "growth"
name = "Arrivals"
models = ["chat"]
low = 0.5
high = 2
owner = "product"
"""
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return request(tmp_path_factory.mktemp("study"), TABLES, targets=TARGETS)


@pytest.fixture(scope="module")
def study(path) -> Study:
    return study_of(path)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    tables = QUOTA.format(gpus=60) + SITE + OWNED
    return inputs_of(request(tmp_path_factory.mktemp("beside"), tables, targets=TARGETS))


@pytest.fixture(scope="module")
def base(inputs) -> Planned:
    return plan_inputs(inputs, created_at=NOW)


def answer(base: Planned, change: Adjustments, factor: float | None = 1.0) -> FleetPlan | Side | Failed:
    return Beside(base, NOW, AS_REQUESTED).answer(Future("F", change, factor))


def test_the_base_is_the_plan_that_there_was_before(path, study):
    assert plan_to_json(study.plan) == plan_to_json(plan_quarter(path, load_catalog(), created_at=NOW))


def test_a_request_without_futures_has_none(tmp_path):
    found = study_of(request(tmp_path))
    assert found == Study(plan=found.plan)


def test_base_only_leaves_the_futures_out(path, study):
    assert study_of(path, base_only=True) == Study(plan=study.plan)


def test_scenarios_are_whole_plans_in_the_order_of_the_request(study):
    assert [each.name for each in study.scenarios] == ["Base", "Low", "Dear"]
    low, dear = study.others
    assert (low.words, low.source, str(low.source_date)) == ("arrivals x 0.5", "forecast", "2026-11-01")
    assert low.plan.totals.usd < study.plan.totals.usd
    assert {pool.growth for pool in low.plan.pools} == {0.5}
    assert len({each.plan.run_id for each in study.scenarios}) == 3
    assert "planned for scenario Low: arrivals x 0.5, not for the request as it stands" in low.plan.warnings
    assert {pool.runner_up for pool in low.plan.pools} == {None}
    assert all(pool.why.endswith("the next best was not looked for") for pool in low.plan.pools)
    assert {limit.worth_usd for limit in low.plan.quotas} == {None}
    assert dear.plan.inputs == study.plan.inputs


def test_what_is_adjusted_stands_so_in_the_plan_with_a_note(study):
    low, dear = study.others
    rows = {row.id: row for row in low.plan.assumptions}
    assert rows["growth_chat"].value == 0.5
    assert rows["growth_chat"].note == "scenario Low: arrivals x 0.5 (request: 1)"
    changed = {row.id for row in low.plan.assumptions if "scenario" in row.note}
    assert changed == {"growth_chat", "growth_code"}
    for purchase in dear.plan.purchases:
        listed = next(offer for offer in load_catalog().offers if offer.id == purchase.offer_id)
        assert purchase.used_usd_per_h == pytest.approx(1.5 * listed.usd_per_h)
        assert f"scenario Dear: prices x 1.5 (catalogue: {listed.usd_per_h:g} USD/h)" in purchase.notes


def test_a_future_without_a_fleet_is_told_and_no_failure(study):
    (none,) = study.unsolved
    assert (none.name, none.words) == ("No GPUs", "quotas x 0 (nothing is granted)")
    assert "quota 'all': short by" in none.why
    quotas = next(driver for driver in study.sensitivities if driver.driver == "quotas")
    assert quotas.low.usd is None
    assert "quota 'all': short by" in quotas.low.note
    assert quotas.high.usd == pytest.approx(study.plan.totals.usd)


def test_drivers_come_by_swing_with_re_solved_costs(study):
    assert [driver.name for driver in study.sensitivities] == ["Arrivals", "quotas"]
    arrivals = study.sensitivities[0]
    assert (arrivals.words, arrivals.owner) == ("arrivals of chat", "product")
    assert arrivals.low.factor == 0.5
    assert arrivals.low.usd < study.plan.totals.usd < arrivals.high.usd
    assert arrivals.high.gap <= 0.001


def test_every_fleet_meets_every_future(study):
    names = [each.name for each in study.scenarios]
    assert [(cell.fleet, cell.future) for cell in study.regret.cells] == [(a, b) for a in names for b in names]
    for cell in study.regret.cells:
        if cell.fleet == cell.future:
            plan = next(each.plan for each in study.scenarios if each.name == cell.future)
            assert cell.usd == round(plan.totals.usd, 2)
        assert cell.regret_usd is None or cell.regret_usd >= 0


def test_same_bytes_however_many_processes(path, study, tmp_path):
    text = study_to_json(study)
    assert study_to_json(study_of(path, processes=2)) == text
    (tmp_path / "study.json").write_text(text)
    assert read_study(tmp_path / "study.json") == study


@FEW
@given(growth=st.floats(1.0, 3.0))
def test_more_arrivals_never_cost_less(base, growth):
    found = answer(base, Adjustments(growth=growth))
    assert found.usd >= base.plan.totals.usd * (1 - base.plan.solve.gap_target)


@pytest.fixture(scope="module")
def rented(tmp_path_factory) -> Planned:
    return plan_inputs(inputs_of(request(tmp_path_factory.mktemp("rented"))), created_at=NOW)


@FEW
@given(price=st.floats(0.1, 5.0))
def test_cost_scales_with_all_prices(rented, price):
    assert answer(rented, Adjustments(price=price)).usd == pytest.approx(price * rented.plan.totals.usd)


CHANGES = {
    "price": Adjustments(price=0.5, gpus=("L40S",)),
    "quotas": Adjustments(quotas=0.2),
    "electricity": Adjustments(electricity=3),
    "growth": Adjustments(growth=1.4, models=("chat",)),
    "targets": Adjustments(targets=0.8),
    "tail": Adjustments(tail=2),
    "engine": Adjustments(engine_version="0.33.0"),
    "edge": Adjustments(speed_edge="middle"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_future_costs_what_its_request_costs_alone(inputs, base, change):
    """What is taken over from the base changes nothing, within both gaps."""
    other = adjust(inputs, change)
    alone = decide(prepare(other), other.request)
    found = answer(base, change)
    assert found.usd_per_mtok == pytest.approx(alone.usd_per_token * 1e6, rel=2 * inputs.request.solver.gap)


@pytest.mark.parametrize(
    ("change", "kept"),
    [("price", ["chat", "code"]), ("quotas", ["chat", "code"]), ("electricity", ["chat", "code"]), ("growth", ["code"]),
     ("targets", []), ("engine", []), ("edge", [])],
)  # fmt: skip
def test_only_candidates_that_may_differ_are_looked_for_again(inputs, base, change, kept):
    said: list[str] = []
    made = prepare_beside(base.quarter, inputs, adjust(inputs, CHANGES[change]), said.append)
    looked = [line.split(", ")[-1] for line in said if line.startswith("candidates")]
    assert sorted(looked) == sorted({"chat", "code"} - set(kept))
    for name in kept:
        before = base.quarter.fleet.needs(name)
        assert all(a is b for a, b in zip(made.fleet.needs(name), before, strict=True))


def test_prices_prune_no_candidate(inputs):
    """The configurations of a quarter are the same at any price, one by one."""
    plain, dear = prepare(inputs), prepare(adjust(inputs, Adjustments(price=7, gpus=("H100-SXM",))))
    for model in ("chat", "code"):
        labels = [[need.config.label for need in quarter.fleet.needs(model)] for quarter in (plain, dear)]
        assert labels[0] == labels[1]


def test_the_solvers_threads_do_not_hold_up_processes(path, study, tmp_path):
    """Two threads by default ask for two processes, forked after the base was solved with threads."""
    other = tmp_path / "quarter.toml"
    (tmp_path / "log.csv").write_bytes((path.parent / "log.csv").read_bytes())
    other.write_text(path.read_text() + "\n[solver]\nthreads = 2\n")
    found = study_of(other)
    assert found.plan.solve.threads == 2
    assert [each.plan.totals.usd for each in found.others] == [each.plan.totals.usd for each in study.others]


def test_what_one_future_finds_out_another_does_not_see(base):
    beside = Beside(base, NOW, AS_REQUESTED)
    first = beside.answer(Future("F", Adjustments(price=2), 2.0))
    beside.answer(Future("G", Adjustments(growth=2), 2.0))
    assert beside.answer(Future("F", Adjustments(price=2), 2.0)) == first


def test_a_solver_that_gives_no_answer_is_told(base, monkeypatch):
    def none(*_: object) -> None:
        raise SolverError("No plan was found within 1 s")

    monkeypatch.setattr(futures, "decide", none)
    assert answer(base, Adjustments(growth=2), 2.0) == Side(factor=2.0, note="No plan was found within 1 s")
    assert answer(base, Adjustments(growth=2), None) == Failed("No plan was found within 1 s")


def test_an_infeasible_base_ends_the_study(tmp_path):
    path = request(tmp_path, QUOTA.format(gpus=0) + '[[scenario]]\nname = "More"\ngrowth = 2\n')
    with pytest.raises(InfeasibleError, match="quota 'all'"):
        study_of(path)


def test_processes_pass_on_what_is_wrong_with_the_input():
    def refuse(piece: int) -> int:
        raise InputError([])

    assert list(shared_out.each(lambda piece: piece * 2, [1, 2, 3], 2)) == [2, 4, 6]
    with pytest.raises(InputError):
        list(shared_out.each(refuse, [1, 2], 2))
