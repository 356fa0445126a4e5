"""The example quarter: golden plan with a one-command refresh, and the bars that it must meet.

Refresh after a wanted change (prices and code in separate commits):

    planner plan catalogs/example/quarter.toml --now 2026-11-30T12:00:00Z
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from openpyxl import load_workbook

from planner.assemble import verify
from planner.catalog.load import load_catalog
from planner.cli.plan_files import files_of, write_outputs
from planner.errors import PlannerError
from planner.pipeline import plan_quarter
from planner.plan import FleetPlan, SolveStatus, plan_to_json, read_plan
from planner.report.recalc import recalculate_with_libreoffice
from planner.report.workbook import write_workbook
from planner.request import read_request
from planner.study import Study, read_study

ROOT = Path(__file__).parents[1]
REQUEST = ROOT / "catalogs" / "example" / "quarter.toml"
GOLDEN = ROOT / "reports" / "example"
NOW = read_plan(GOLDEN / "plan.json").created_at  # whoever plans the example anew sets another stamp
REFRESH = f"refresh with: planner plan {REQUEST.relative_to(ROOT)} --now 2026-11-30T12:00:00Z"


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    return plan_quarter(REQUEST, load_catalog(), created_at=NOW)


@pytest.fixture(scope="module")
def study(plan: FleetPlan) -> Study:
    """The committed study; its scenarios and sensitivities are not solved again here, its base plan is."""
    return read_study(GOLDEN / "study.json").model_copy(update={"plan": plan})


@pytest.fixture(scope="module")
def xlsx(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workbook of the study; read-only for tests."""
    path = tmp_path_factory.mktemp("example") / "plan.xlsx"
    write_workbook(study, path)
    return path


def differences(one: object, two: object, path: str = "") -> list[str]:
    """Where two JSON trees differ; floats may differ in their last digits between machines."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        return [line for key in one for line in differences(one[key], two[key], f"{path}.{key}")]
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [
            line for i, pair in enumerate(zip(one, two, strict=True)) for line in differences(*pair, f"{path}[{i}]")
        ]
    if isinstance(one, int | float) and isinstance(two, int | float):
        return [] if one == pytest.approx(two, rel=1e-6, abs=1e-9) else [f"{path}: {one} != {two}"]
    return [] if one == two else [f"{path}: {one} != {two}"]


def test_committed_plan_is_current(plan):
    committed = json.loads((GOLDEN / "plan.json").read_text())
    assert differences(json.loads(plan_to_json(plan)), committed) == [], REFRESH


def test_committed_workbook_is_current(xlsx):
    for data_only in (True, False):
        new, old = (load_workbook(path, data_only=data_only) for path in (xlsx, GOLDEN / "plan.xlsx"))
        trees = [
            {ws.title: [list(row) for row in ws.iter_rows(values_only=True)] for ws in book} for book in (new, old)
        ]
        assert differences(*trees) == [], REFRESH


def test_committed_study_is_of_the_committed_plan_and_request():
    study, plan = read_study(GOLDEN / "study.json"), read_plan(GOLDEN / "plan.json")
    request = read_request(REQUEST)
    assert study.plan == plan
    assert [s.name for s in study.others] == [s.name for s in request.scenario]
    assert {s.name for s in study.sensitivities} == {s.name or s.driver for s in request.sensitivity}
    assert study.last is not None
    assert study.last.plan == read_plan(REQUEST.parent / request.last_quarter.plan)
    for other in study.others:
        verify(other.plan)
        assert other.plan.solve.status is SolveStatus.OPTIMAL


def test_committed_files_are_those_of_the_study(study, tmp_path):
    write_outputs(study, tmp_path, ("html", "csv"))
    for name in files_of(("html", "csv")):
        assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes(), f"{name}: {REFRESH}"


def test_json_round_trip(plan, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(plan_to_json(plan))
    assert read_plan(path) == plan


def test_proven_gap(plan):
    assert plan.solve.status is SolveStatus.OPTIMAL
    assert plan.solve.gap <= 0.01
    assert plan.solve.bound <= plan.solve.objective


def test_no_pool_is_exceeded(plan):
    """The live-token quantile at 1 % fits every pool, and one more token of load would be counted."""
    for pool in plan.pools:
        assert pool.load.overflow_probability == 0.01
        assert pool.load.quantile_live_tokens <= pool.memory.pool_tokens
        assert pool.load.expected_overflow <= 0.01
        assert all(margin.satisfied for margin in pool.margins)
        assert pool.binding_constraint


def test_cost_is_the_objective(plan):
    """Reserved instances in every hour, others in the hours in which they run, and what is paid in any case."""
    hours = [period.hours for period in plan.periods]
    recomputed = sum(
        p.reserved_usd_per_h * p.reserved_instances * plan.horizon_hours
        + p.used_usd_per_h * sum(n * h for n, h in zip(p.instances_by_period, hours, strict=True))
        + p.sunk_usd
        for p in plan.purchases
    )
    assert recomputed == pytest.approx(plan.solve.objective, abs=0.01)
    assert plan.totals.usd == pytest.approx(plan.solve.objective, abs=0.01)


def test_models_of_different_kinds_and_enough_choice(plan):
    catalog = load_catalog()
    shapes = [catalog.model_shape(pool.weights) for pool in plan.pools]
    assert {s.family.value for s in shapes} >= {"GQA", "MLA"}
    assert any(s.is_moe for s in shapes)
    assert any(s.head_dim * s.attention_heads != s.hidden_size for s in shapes)
    assert len(plan.pools) >= 5


def test_offers_span_twelve_gpu_types_and_five_providers():
    from planner.optimise.supply.offers import allowed_offers
    from planner.request import read_request

    offers = allowed_offers(load_catalog().offers, read_request(REQUEST), NOW.date(), "quarter.toml").usable
    assert len({o.gpu for o in offers}) >= 12
    assert len({o.provider for o in offers}) >= 5


def test_tampering_is_noticed(plan):
    cheaper = plan.model_copy(update={"totals": plan.totals.model_copy(update={"usd": plan.totals.usd - 1})})
    with pytest.raises(PlannerError, match="is not the sum of the purchases"):
        verify(cheaper)
    purchase = plan.purchases[0].model_copy(update={"gpus_used": plan.purchases[0].gpus_bought + 1})
    with pytest.raises(PlannerError, match="GPUs used of"):
        verify(plan.model_copy(update={"purchases": (purchase, *plan.purchases[1:])}))
    margin = plan.pools[0].margins[0].model_copy(update={"satisfied": False})
    pool = plan.pools[0].model_copy(update={"margins": (margin,)})
    with pytest.raises(PlannerError, match="token pool"):
        verify(plan.model_copy(update={"pools": (pool, *plan.pools[1:])}))


@pytest.mark.libreoffice
@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_libreoffice_gets_the_same_cost(plan, xlsx, tmp_path):
    """Cost in the workbook, recalculated by LibreOffice = FleetPlan = objective, within 0.01 USD."""
    sheet = load_workbook(recalculate_with_libreoffice(xlsx, tmp_path / "out"), data_only=True)["Summary"]
    values = {row[0]: row[1] for row in sheet.iter_rows(values_only=True) if row[0]}
    assert values["Cost of the horizon"] == pytest.approx(plan.solve.objective, abs=0.01)
    assert values["Cost of the horizon"] == pytest.approx(plan.totals.usd, abs=0.01)
    by_use = values["USD per 1M served tokens, by use"]
    assert by_use == pytest.approx(plan.totals.usd_per_mtok_by_use, rel=1e-6)
