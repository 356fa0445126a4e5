"""Point 11: the selector offers the scenarios that were solved, and every sheet follows it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.utils import range_boundaries

from planner.plan import FleetPlan
from planner.report.table import Book, Table
from planner.report.workbook import layout, write_workbook
from planner.study import Study
from tests.report.acceptance.conftest import SCENARIOS
from tests.report.acceptance.reading import Calculated, Place, cells, formulas, name_of, precedents, selector

Cells = Callable[[str, int, int], object]
"""Result of a cell by sheet, row and column."""


def _offered(book: Workbook) -> tuple[Place, list[str]]:
    """The selector and the names that it offers."""
    found = selector(book)
    assert found, "no cell offers the scenarios"
    where, formula = found
    text = formula.removeprefix("=")
    if text.startswith('"'):
        return where, text.strip('"').split(",")
    sheet, area = text.rsplit("!", maxsplit=1) if "!" in text else (where[0], text)
    left, top, right, bottom = range_boundaries(area.replace("$", ""))
    rows = book[sheet.strip("'")].iter_rows(top, bottom, left, right)
    return where, [str(cell.value) for row in rows for cell in row if cell.value is not None]


def test_the_selector_offers_the_solved_scenarios_only(study: Study, study_xlsx: Path):
    book = load_workbook(study_xlsx)
    where, offered = _offered(book)
    assert offered == [scenario.name for scenario in study.scenarios]
    cell = book[where[0]].cell(where[1], where[2])
    assert cell.value == SCENARIOS[0]
    assert not cell.protection.locked
    rule = next(iter(book[where[0]].data_validations.dataValidation))
    assert rule.showErrorMessage, "another name is refused"
    assert not rule.allow_blank
    for unsolved in study.unsolved:
        assert unsolved.name not in offered


def test_a_plan_alone_has_nothing_to_select(tmp_path: Path, plan: FleetPlan):
    write_workbook(plan, tmp_path / "plan.xlsx")
    found = selector(load_workbook(tmp_path / "plan.xlsx"))
    if found:
        assert _offered(load_workbook(tmp_path / "plan.xlsx"))[1] == [SCENARIOS[0]]


def _numbers(read: Cells, table: Table, header: str) -> list[float]:
    n = [column.header for column in table.columns].index(header) + 1
    found = (read(table.sheet, table.first + i, n) for i in range(table.rows))
    return [float(value) for value in found if isinstance(value, int | float)]


def _by_name(read: Cells, table: Table, key: str, header: str) -> dict[str, object]:
    columns = [column.header for column in table.columns]
    k, n = columns.index(key) + 1, columns.index(header) + 1
    rows = range(table.first, table.first + table.rows)
    found = {str(read(table.sheet, row, k)): read(table.sheet, row, n) for row in rows}
    return {name: value for name, value in found.items() if name not in {"", "None", "(none)"}}


def equals_its_plan(read: Cells, places: Book, plan: FleetPlan) -> None:
    """Every total of the plan, in the tables of the workbook."""
    tables, totals = places.tables, plan.totals
    exact = {"rel": 1e-9, "abs": 1e-6}

    def total(name: str, header: str) -> float:
        return sum(_numbers(read, tables[name], header))

    assert total("tblCost", "Cost, USD") == pytest.approx(totals.usd, **exact)
    assert total("tblCost", "Cost, USD") == pytest.approx(plan.solve.objective, **exact)
    assert total("tblCost", "GPUs bought") == totals.gpus
    assert total("tblPlan", "GPUs") == sum(pool.gpus for pool in plan.pools)
    assert total("tblSupplies", "GPU-hours paid") == pytest.approx(totals.gpu_hours, **exact)
    assert total("tblTokens", "Served input, M tokens") == pytest.approx(totals.served_input_mtok, **exact)
    assert total("tblTokens", "Served output, M tokens") == pytest.approx(totals.served_output_mtok, **exact)
    assert total("tblCost", "After the horizon, USD") == pytest.approx(totals.liability_after_usd, **exact)
    assert total("tblCost", "In any case, USD") == pytest.approx(totals.sunk_usd, **exact)
    assert total("tblShowback", "TotalCost") == pytest.approx(totals.usd, **exact)
    assert total("tblFocus", "EffectiveCost") == pytest.approx(totals.usd, **exact)
    cost = _by_name(read, tables["tblPlan"], "Pool", "Cost, USD")
    assert cost == pytest.approx({pool.name: pool.usd for pool in plan.pools}, **exact)
    for header, wanted in (
        ("GPU", {pool.name: pool.gpu for pool in plan.pools}),
        ("TP", {pool.name: pool.tp for pool in plan.pools}),
        ("max_model_len", {pool.name: pool.max_model_len for pool in plan.pools}),
        ("Replicas", {pool.name: pool.replicas for pool in plan.pools}),
        ("Weight dtype", {pool.name: pool.weight_dtype for pool in plan.pools}),
    ):
        assert _by_name(read, tables["tblPlan"], "Pool", header) == wanted, header
    lots = _by_name(read, tables["tblCost"], "Lot", "Cost, USD")
    assert lots == pytest.approx({p.offer_id: p.usd for p in plan.purchases}, **exact)
    summary = _by_name(read, tables["tblSummary"], "Measure", "Value")
    assert summary["Cost of the horizon"] == pytest.approx(totals.usd, **exact)
    assert summary["USD per 1M served tokens, by reservation"] == pytest.approx(totals.usd_per_mtok_by_reservation)
    assert summary["USD per 1M served tokens, by use"] == pytest.approx(totals.usd_per_mtok_by_use)
    assert summary["USD per 1M input tokens"] == pytest.approx(totals.usd_per_mtok_input)
    assert summary["USD per 1M output tokens"] == pytest.approx(totals.usd_per_mtok_output)
    run = _by_name(read, tables["tblRun"], "Item", "Value")
    assert run["Run"] == plan.run_id
    assert run["Objective, USD (solver)"] == pytest.approx(plan.solve.objective)
    warnings = [str(value) for value in _by_name(read, tables["tblWarnings"], "No", "Warning").values()]
    assert sum(value not in {"None", ""} for value in warnings) >= len(plan.warnings)


def checks_pass(read: Cells, places: Book) -> None:
    table = places.tables["tblChecks"]
    failing = {text: result for text, result in _by_name(read, table, "Check", "Result").items() if result != "PASS"}
    assert not failing
    assert read("Checks", 3, 1) == 1
    for sheet in places.sheets:
        if sheet.name != "Checks":
            assert str(read(sheet.name, 3, 1)).endswith("CHECKS PASS"), sheet.name


@pytest.mark.parametrize("name", SCENARIOS)
def test_formualizer_shows_the_selected_scenario(name: str, study: Study, study_xlsx: Path, study_places: Book):
    plan = next(scenario.plan for scenario in study.scenarios if scenario.name == name)
    book = Calculated(study_xlsx)
    found = selector(load_workbook(study_xlsx))
    assert found
    book.set(found[0], name)

    def read(sheet: str, row: int, column: int) -> object:
        return book.get((sheet, row, column))

    checks_pass(read, study_places)
    equals_its_plan(read, study_places, plan)


@pytest.mark.libreoffice
@pytest.mark.parametrize("name", SCENARIOS)
def test_libreoffice_shows_the_selected_scenario(
    name: str, study: Study, study_places: Book, selected: Callable[[str], Workbook]
):
    plan, book = next(s.plan for s in study.scenarios if s.name == name), selected(name)

    def read(sheet: str, row: int, column: int) -> object:
        return book[sheet].cell(row, column).value

    checks_pass(read, study_places)
    equals_its_plan(read, study_places, plan)


@pytest.mark.libreoffice
@pytest.mark.parametrize("name", SCENARIOS)
def test_both_programs_agree_on_every_cell_of_every_scenario(
    name: str, study_xlsx: Path, selected: Callable[[str], Workbook]
):
    again, book = selected(name), Calculated(study_xlsx)
    written = load_workbook(study_xlsx)
    found = selector(written)
    assert found
    book.set(found[0], name)
    for cell in formulas(written):
        one, other = book.at(cell.parent.title, cell.coordinate), again[cell.parent.title][cell.coordinate].value
        other = 0 if isinstance(other, dt.time) else other
        if isinstance(one, int | float) and isinstance(other, int | float):
            assert one == pytest.approx(other, rel=1e-9, abs=1e-9), name_of(cell)
        elif not hasattr(other, "year"):
            assert (one or "") == (other or ""), (name_of(cell), cell.value)


def test_every_sheet_that_shows_a_plan_follows_the_selector(study: Study, study_xlsx: Path):
    """Back to the first scenario, everything is as it was; in the others, every sheet of the plan is different."""
    written = load_workbook(study_xlsx)
    found = selector(written)
    assert found
    book, every = Calculated(study_xlsx), list(formulas(written))

    def shown() -> dict[str, object]:
        return {name_of(cell): book.at(cell.parent.title, cell.coordinate) for cell in every}

    first = shown()
    fixed = {"Glossary", "Files", "Runs", "Solved"}
    for scenario in study.others:
        book.set(found[0], scenario.name)
        other = shown()
        differ = {place.split("!")[0] for place, value in other.items() if value != first[place]}
        assert set(written.sheetnames) - differ <= fixed, scenario.name
    book.set(found[0], SCENARIOS[0])
    assert shown() == first


def test_each_scenario_looks_as_it_would_alone(study: Study, study_xlsx: Path, study_places: Book):
    """Without padded rows, the figures of a scenario are those of a workbook of that scenario alone."""
    written = load_workbook(study_xlsx)
    found = selector(written)
    assert found
    book = Calculated(study_xlsx)
    for scenario in study.scenarios:
        book.set(found[0], scenario.name)
        alone = layout(scenario.plan)
        for name in ("tblPlan", "tblCost", "tblModels", "tblGpuTypes", "tblFit", "tblMargins", "tblFocus"):
            mine, own = study_places.tables[name], alone.tables[name]
            rows = [book.get((mine.sheet, row, 1)) for row in range(mine.first, mine.first + mine.rows)]
            shown = [str(value) for value in rows if value not in (None, "", "(none)")]
            assert len(shown) == own.rows, (scenario.name, name)


@pytest.mark.parametrize("value", ["Storm", "", "=1+1", 7])
def test_another_name_in_the_selector_is_no_plan_and_fails(value: object, study_xlsx: Path):
    """Validation can be got round by pasting: then nothing may look right."""
    found = selector(load_workbook(study_xlsx))
    assert found
    book = Calculated(study_xlsx)
    book.set(found[0], value)
    headline = str(book.at("Summary", "A3"))
    assert "PASS" not in headline or book.at("Checks", "A3") != 1


def test_no_formula_reads_a_cell_of_a_scenario_past_its_table(study_xlsx: Path):
    """References stay inside the written area."""
    book = load_workbook(study_xlsx)
    size = {sheet.title: (sheet.max_row, sheet.max_column) for sheet in book.worksheets}
    for cell in formulas(book):
        for sheet, row, column in precedents(cell.value, cell.parent.title):
            assert row <= size[sheet][0], (name_of(cell), cell.value)
            assert column <= size[sheet][1], (name_of(cell), cell.value)
    assert sum(1 for _ in cells(book)) > 3000
