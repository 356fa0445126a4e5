from __future__ import annotations

import datetime as dt
import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import formualizer
import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.utils import column_index_from_string
from openpyxl.utils.cell import coordinate_to_tuple

from planner.plan import FleetPlan, Reporting
from planner.report.align import align
from planner.report.merge import merge
from planner.report.recalc import recalculate_with_libreoffice
from planner.report.scenarios import IN_SCENARIO, names
from planner.report.sheets.inputs import input_rows
from planner.report.table import Book, Column, Formula, Sheet, Table, Written
from planner.report.workbook import layout, write_workbook
from planner.strict import PADDING
from planner.study import Scenario, Study

SCENARIOS = ("Base", "High", "Low")
Read = Callable[[str, int, int], object]
"""Result of a cell by sheet, row and column."""


@pytest.fixture(scope="module")
def path(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workbook of the study; read-only for tests."""
    target = tmp_path_factory.mktemp("merge") / "plan.xlsx"
    write_workbook(study, target)
    return target


@pytest.fixture(scope="module")
def places(study: Study) -> Book:
    return layout(study)


@pytest.fixture(scope="module")
def written(path: Path) -> Workbook:
    return load_workbook(path)


def _place(address: str) -> tuple[str, int, int]:
    sheet, cell = address.replace("$", "").split("!")
    return sheet, *coordinate_to_tuple(cell)


class Shown:
    """A workbook in memory, with a scenario selected."""

    def __init__(self, path: Path, places: Book) -> None:
        self.book = formualizer.load_workbook(str(path))
        self.selector = _place(places.named["summary/scenario"])

    def select(self, name: str) -> Read:
        self.set(self.selector, name)
        return self.book.get_value

    def set(self, where: tuple[str, int, int], value: object) -> None:
        self.book.set_value(*where, value)
        self.book.evaluate_all()


def _column(read: Read, table: Table, header: str) -> list[object]:
    n = column_index_from_string(table.letter(header))
    return [read(table.sheet, row, n) for row in range(table.first, table.last + 1)]


def _sums(read: Read, table: Table, key: str, header: str) -> dict[str, float]:
    """The column summed by name, without padded rows; those must be 0."""
    found: dict[str, float] = {}
    for name, value in zip(_column(read, table, key), _column(read, table, header), strict=True):
        assert isinstance(value, int | float), (table.name, header, value)
        if name in {PADDING, "", None}:
            assert value == 0, (table.name, header)
        else:
            found[str(name)] = found.get(str(name), 0.0) + value
    return found


def _agrees(read: Read, places: Book, plan: FleetPlan) -> None:
    """Totals by pool, model, GPU type, lot and period are the plan's."""
    tables = places.tables

    def same(table: str, key: str, header: str, wanted: dict[str, float]) -> None:
        found = {name: value for name, value in _sums(read, tables[table], key, header).items() if name[0] != "("}
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6), (table, header)

    def by(rows: object, key: str, value: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for row in rows:
            found[getattr(row, key)] = found.get(getattr(row, key), 0.0) + getattr(row, value)
        return found

    same("tblPlan", "Pool", "Cost, USD", by(plan.pools, "name", "usd"))
    same("tblPlan", "Pool", "GPUs", by(plan.pools, "name", "gpus"))
    same("tblModels", "Model", "Cost, USD", by(plan.pools, "model", "usd"))
    same("tblModels", "Model", "Served, M tokens", by(plan.pools, "model", "served_mtok"))
    same("tblGpuTypes", "GPU", "Cost, USD", by(plan.purchases, "gpu", "usd"))
    same("tblGpuTypes", "GPU", "GPUs bought", by(plan.purchases, "gpu", "gpus_bought"))
    same("tblCost", "Lot", "Cost, USD", by(plan.purchases, "offer_id", "usd"))
    same("tblPeriods", "Period", "Hours", by(plan.periods, "name", "hours"))
    used = {
        period.name: float(sum(pool.tp * place.replicas[t] for pool in plan.pools for place in pool.placements))
        for t, period in enumerate(plan.periods)
    }
    same("tblPeriods", "Period", "GPUs used", used)
    running = {
        period.name: float(sum(p.instances_by_period[t] * p.gpus_per_instance for p in plan.purchases))
        for t, period in enumerate(plan.periods)
    }
    same("tblPeriods", "Period", "GPUs running", running)


def _holds(read: Read, places: Book) -> None:
    table = places.tables["tblChecks"]
    assert set(_column(read, table, "Result")) == {"PASS"}
    assert read("Checks", 3, 1) == 1
    for sheet in places.sheets:
        assert str(read(sheet.name, 3, 2 if sheet.name == "Checks" else 1)).startswith("ALL "), sheet.name


def test_every_scenario_is_its_plan_and_all_checks_hold(study: Study, path: Path, places: Book):
    shown = Shown(path, places)
    for scenario in study.scenarios:
        read = shown.select(scenario.name)
        _agrees(read, places, scenario.plan)
        _holds(read, places)
        assert read(*_place(places.named["run/id"])) == scenario.plan.run_id
        assert read(*_place(places.named["run/scenario"])) == scenario.name


@pytest.mark.libreoffice
@pytest.mark.parametrize("name", SCENARIOS)
def test_libreoffice_shows_the_same(name: str, study: Study, path: Path, places: Book, tmp_path: Path):
    book = load_workbook(path)
    sheet, row, column = _place(places.named["summary/scenario"])
    book[sheet].cell(row, column).value = name
    book.save(tmp_path / "plan.xlsx")
    other = load_workbook(recalculate_with_libreoffice(tmp_path / "plan.xlsx", tmp_path / "out"), data_only=True)
    ours = Shown(path, places).select(name)

    def read(sheet: str, row: int, column: int) -> object:
        return other[sheet].cell(row, column).value

    plan = next(scenario.plan for scenario in study.scenarios if scenario.name == name)
    _agrees(read, places, plan)
    _holds(read, places)
    compared = 0
    for sheet in book.worksheets:
        for cell in (cell for row in sheet.iter_rows() for cell in row if cell.data_type == "f"):
            mine, theirs = ours(sheet.title, cell.row, cell.column), read(sheet.title, cell.row, cell.column)
            if isinstance(mine, int | float) and isinstance(theirs, int | float):
                assert theirs == pytest.approx(mine, rel=1e-6, abs=1e-6), (sheet.title, cell.coordinate)
                compared += 1
    assert compared > 3000


def test_there_and_back_is_as_before(path: Path, written: Workbook, places: Book):
    shown = Shown(path, places)
    formulas = [
        (sheet.title, cell.row, cell.column)
        for sheet in written.worksheets
        for row in sheet.iter_rows()
        for cell in row
        if cell.data_type == "f"
    ]

    def all_of(name: str) -> list[object]:
        read = shown.select(name)
        return [read(*where) for where in formulas]

    first = all_of("Base")
    assert all_of("Low") != first
    assert all_of("High") != first
    assert all_of("Base") == first


def test_what_is_stored_is_the_first_scenario(path: Path, places: Book):
    stored = load_workbook(path, data_only=True)
    read = Shown(path, places).select("Base")
    for sheet in stored.worksheets:
        for cell in (cell for row in sheet.iter_rows() for cell in row if isinstance(cell.value, int | float)):
            assert cell.value == pytest.approx(read(sheet.title, cell.row, cell.column)), (sheet.title, cell.coordinate)


def test_an_edit_of_any_scenarios_input_fails_and_says_why(study: Study, path: Path, places: Book):
    shown, table = Shown(path, places), places.tables["tblInputs"]
    shown.select("Base")
    ids = [str(table.columns[0].cell(i)) for i in range(table.rows)]
    for scenario in study.scenarios:
        column = column_index_from_string(table.letter(f"Value, {scenario.name}"))
        rows = {row.id: row for row in input_rows(scenario.plan)}
        for name in ("demand/code/rate", "plan/horizon_hours", "speed/edge"):
            where = (table.sheet, table.first + ids.index(name), column)
            edited = f"{rows[name].value} " if isinstance(rows[name].value, str) else str(rows[name].value)
            shown.set(where, edited)
            assert str(shown.book.get_value("Summary", 3, 1)).startswith("INPUTS EDITED: "), (scenario.name, name)
            assert shown.book.get_value("Checks", 3, 1) == 0
            shown.set(where, rows[name].value)
    assert shown.book.get_value("Checks", 3, 1) == 1


def test_an_input_that_a_scenario_has_not_is_empty_and_locked(study: Study, written: Workbook, places: Book):
    table = places.tables["tblInputs"]
    for scenario in study.scenarios:
        known = {row.id for row in input_rows(scenario.plan)}
        column = column_index_from_string(table.letter(f"Value, {scenario.name}"))
        absent = 0
        for i in range(table.rows):
            cell = written["Inputs"].cell(table.first + i, column)
            if table.columns[0].cell(i) not in known:
                absent += 1
                assert cell.value is None
                assert cell.protection.locked
        assert absent > 0


def test_the_number_of_the_scenario_is_a_name(written: Workbook, places: Book):
    assert written.defined_names[IN_SCENARIO].attr_text == places.named["summary/scenario_number"]
    assert {sheet.name for sheet in places.sheets} >= {"Runs", "Solved"}
    table = places.tables["tblNames"]
    assert set(table.columns[0].cells) == set(written.defined_names)


def test_a_plan_alone_has_no_solved_sheet_and_no_choice(plan: FleetPlan):
    book = layout(plan)
    assert "Solved" not in [sheet.name for sheet in book.sheets]
    assert "summary/scenario" not in book.named
    assert not any(
        isinstance(column.cell(i), Written)
        for table in book.tables.values()
        for column in table.columns
        for i in range(table.rows)
    )
    assert layout(Study(plan=plan)).named == book.named


def test_equal_scenarios_need_no_solved_sheet_and_change_no_formula(plan: FleetPlan):
    book = layout(Study(plan=plan, others=(Scenario(name="Again", words="nothing", plan=plan),)))
    alone = layout(plan)
    for name in ("tblPlan", "tblCost", "tblLots", "tblMargins"):
        assert book.tables[name].columns == alone.tables[name].columns
    kept = book.tables["tblSolved"]
    columns = {(kept.columns[1].cell(i), kept.columns[2].cell(i)) for i in range(kept.rows)}
    own_name = {("tblFocus", "x_Scenario"), ("tblBase", "Scenario shown"), ("tblBase", "IsBase")}
    assert columns <= own_name


def test_twice_the_same_bytes(study: Study, path: Path, tmp_path: Path):
    write_workbook(study, tmp_path / "again.xlsx")
    digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in (path, tmp_path / "again.xlsx")}
    assert len(digests) == 1


def test_solves_of_every_scenario_stand_on_runs(study: Study, path: Path, places: Book):
    read, table = Shown(path, places).select("High"), places.tables["tblSolves"]
    assert _column(read, table, "Scenario") == list(SCENARIOS)
    assert _column(read, table, "Objective, USD") == [s.plan.solve.objective for s in study.scenarios]
    assert _column(read, table, "Run") == [s.plan.run_id for s in study.scenarios]
    unsolved = places.tables["tblNoPlan"]
    assert _column(read, unsolved, "Scenario") == ["Storm"]


def test_a_solve_that_is_not_optimal_fails_although_it_is_not_shown(study: Study, path: Path, places: Book):
    shown, table = Shown(path, places), places.tables["tblSolves"]
    shown.select("Base")
    shown.set(_place(table.address("Bound, USD", 2)), study.others[1].plan.solve.bound * 0.99)
    assert shown.book.get_value("Checks", 3, 1) == 0


def test_money_is_also_shown_in_the_reporting_currency(plan: FleetPlan, tmp_path: Path):
    money = Reporting(
        currency="EUR", per_usd=0.8, source="ECB reference rate", source_date=dt.date(2026, 11, 27), owner="Treasury"
    )
    write_workbook(plan.model_copy(update={"reporting": money}), tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    summary = {row[0].value: row for row in values["Summary"]["A5:E45"]}
    assert summary["In EUR: Cost of the horizon"][1].value == pytest.approx(0.8 * plan.totals.usd)
    assert "tax excluded" in summary["In EUR: Cost of the horizon"][4].value
    cover = {row[0].value: row[1].value for row in values["Cover"]["A5:B35"]}
    assert cover["Cost, EUR"] == pytest.approx(0.8 * plan.totals.usd)
    assert cover["EUR for one USD"] == 0.8
    assert values["Checks"]["A3"].value == 1


def test_summary_compares_with_last_quarter_and_its_actuals(study: Study, path: Path, places: Book):
    last = study.last
    assert last is not None
    read = Shown(path, places).select("Low")

    def value(name: str) -> object:
        return read(*_place(places.named[name]))

    low = study.others[1].plan
    assert value("summary/last_cost_usd") == pytest.approx(last.plan.totals.usd)
    assert value("summary/change_usd") == pytest.approx(low.totals.usd - last.plan.totals.usd)
    assert value("summary/change_share") == pytest.approx(low.totals.usd / last.plan.totals.usd - 1)
    assert value("summary/run_rate_usd") == pytest.approx(low.totals.usd / low.horizon_hours * 8760)
    peak = max(pool.served_mtok / pool.capacity_mtok for pool in low.pools)
    assert value("summary/peak") == pytest.approx(peak)
    table = places.tables["tblActuals"]
    actual = dict(zip(_column(read, table, "Model"), _column(read, table, "Actual, M tokens"), strict=True))
    assert last.actuals is not None
    wanted = {row.model: row.actual_input_mtok + row.actual_output_mtok for row in last.actuals.models}
    assert actual == pytest.approx(wanted)


def _table(cells: tuple[object, ...], name: str = "tblSome", **keywords: object) -> Table:
    columns = (Column("Pool", 9, cells), Column("N", 5, tuple(range(len(cells)))), Column("M", 5, Formula("=[N]")))
    return Table(name, "One", 4, columns, len(cells), **keywords)


def test_rows_meet_by_name_and_occurrence():
    rows = align([_table(("a", "a", "c")), _table(("a", "b", "c")), _table(("c",))])
    assert rows.rows == 4
    assert rows.places == ((0, 2, 3), (0, 1, 3), (3,))


def test_ranked_rows_and_names_without_anything_in_common_meet_by_position():
    assert align([_table(("a", "b"), ranked=True), _table(("b", "a"), ranked=True)]).rows == 2
    assert align([_table(("a", "b")), _table(("x", "y"))]).places == ((0, 1), (0, 1))


def _book(cells: tuple[object, ...]) -> Book:
    top = Table("tblSome", "One", 4, _table(cells).columns, len(cells), total_label="Total")
    low = Table("tblLow", "One", top.bottom + 3, (Column("X", 5, (Formula("=SUM(tblSome[N])"),)),), 1)
    check = Table("tblChecks", "Checks", 4, (Column("No", 5, (1,)),), 1)
    sheets = (Sheet("One", "t", "p", "h", "000000", (top, low)), Sheet("Checks", "t", "p", "h", "000000", (check,)))
    return Book(sheets, {"total": f"One!$B${top.last + 1}"})


def test_padding_moves_what_stands_below_and_formulas_follow():
    book = merge([_book(("a", "b")), _book(("a", "b", "c"))], ("Base", "More"), IN_SCENARIO)
    some, low = book.tables["tblSome"], book.tables["tblLow"]
    assert (some.rows, low.top, book.named["total"]) == (3, some.bottom + 3, "One!$B$8")
    assert some.columns[0].cell(2) == Written("=INDEX(Solved!$F5:$G5,in_scenario)", texts=(PADDING, "c"))
    assert book.tables["tblSolved"].rows == 2
    assert book.resolve(low.columns[0].cell(0), "One", low, 0) == "=SUM($B$5:$B$7)"


def test_books_of_other_tables_are_refused():
    other = Book(_book(("a",)).sheets[1:], {})
    with pytest.raises(ValueError, match="scenarios have other tables"):
        merge([_book(("a",)), other], ("Base", "Other"), IN_SCENARIO)


def test_names_are_told_apart_as_spreadsheets_look_them_up(plan: FleetPlan):
    twin = [Scenario(name=name, words="", plan=plan) for name in ("base", "High*")]
    assert names(Study(plan=plan, others=tuple(twin))) == ("Base", "base (2)", "Highx")


def test_no_text_of_a_scenario_becomes_a_formula(study: Study, tmp_path: Path):
    hostile = study.others[0].model_copy(update={"name": '=cmd|"/C calc"!A0', "words": "@SUM(1+1)"})
    write_workbook(study.model_copy(update={"others": (hostile,)}), tmp_path / "plan.xlsx")
    book = load_workbook(io.BytesIO((tmp_path / "plan.xlsx").read_bytes()))
    for sheet in book.worksheets:
        for cell in (cell for row in sheet.iter_rows() for cell in row if cell.data_type == "f"):
            assert "cmd" not in cell.value, (sheet.title, cell.coordinate)
