"""Sheets Bridge and ChangeLog: live formulas that equal the bridge in every scenario, checks that can fail, a chart."""

from __future__ import annotations

import datetime as dt
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import formualizer
import pytest
from openpyxl import load_workbook
from openpyxl.utils.cell import coordinate_to_tuple

from planner.compare.bridge import MEANINGS, bridge
from planner.compare.changes import changes
from planner.plan import FleetPlan, Reporting
from planner.report.sheets import bridge as bridge_sheet
from planner.report.sheets import changelog, last_quarter
from planner.report.sheets.waterfall import ALT, TITLE
from planner.report.table import Book
from planner.report.view import View, views_of
from planner.report.workbook import layout, write_workbook
from planner.study import Study
from tests.report.acceptance.reading import edited, selector

CLOSES = "Bridge closes: last quarter's cost and all steps are this quarter's"
ISSUED = "Last quarter's hours at their rates, and unused, are its issued cost"
UNCHANGED = "Last quarter's figures that differ from the issued file"
ADDS_UP = "Changes add up to the difference from last quarter's cost"


class Calculated:
    """A workbook in memory, read by table, header and row; an edit is taken back."""

    def __init__(self, path: Path, places: Book) -> None:
        self.book = formualizer.load_workbook(str(path))
        self.places = places
        self.book.evaluate_all()

    def _cell(self, table: str, header: str, row: int) -> tuple[str, int, int]:
        sheet, cell = self.places.tables[table].address(header, row).replace("$", "").split("!")
        return sheet, *coordinate_to_tuple(cell)

    def get(self, table: str, header: str, row: int) -> object:
        return self.book.get_value(*self._cell(table, header, row))

    @contextmanager
    def edited(self, table: str, header: str, row: int, change: Callable[[float], float]) -> Iterator[Calculated]:
        cell, was = self._cell(table, header, row), self.get(table, header, row)
        self._set(cell, change(float(str(was))))
        yield self
        self._set(cell, was)

    def _set(self, cell: tuple[str, int, int], value: object) -> None:
        self.book.set_value(*cell, value)
        self.book.evaluate_all()

    def column(self, table: str, header: str) -> list[object]:
        return [self.get(table, header, i) for i in range(self.places.tables[table].rows)]

    def results(self) -> dict[str, object]:
        return dict(zip(self.column("tblChecks", "Check"), self.column("tblChecks", "Result"), strict=True))


@pytest.fixture(scope="module")
def alone(study: Study) -> Study:
    """One scenario and last quarter."""
    return Study(plan=study.plan, last=study.last)


@pytest.fixture(scope="module")
def written(alone: Study, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Its workbook, with the places of its tables; read-only."""
    path = tmp_path_factory.mktemp("bridge") / "plan.xlsx"
    write_workbook(alone, path)
    return SimpleNamespace(path=path, places=layout(alone), values=load_workbook(path, data_only=True))


@pytest.fixture(scope="module")
def book(written: SimpleNamespace) -> Calculated:
    """The same in memory; an edit is taken back."""
    return Calculated(written.path, written.places)


def _amounts(study: Study, plan: FleetPlan) -> list[float]:
    assert study.last
    found = bridge(study.last.plan, plan)
    return [found.last.amount, *(step.amount for step in found.steps), found.now.amount]


def test_every_step_is_a_formula_that_equals_the_bridge(written: SimpleNamespace, alone: Study):
    table, sheet = written.places.tables["tblBridge"], load_workbook(written.path)["Bridge"]
    letter = table.letter("USD")
    cells = [f"{letter}{table.first + i}" for i in range(table.rows)]
    assert all(str(sheet[cell].value).startswith("=") for cell in cells)
    assert [written.values["Bridge"][cell].value for cell in cells] == pytest.approx(
        _amounts(alone, alone.plan), abs=1e-6
    )
    assert [sheet[f"A{table.first + i}"].value for i in range(table.rows)] == [
        "Last quarter",
        *MEANINGS,
        "This quarter",
    ]
    assert min(abs(amount) for amount in _amounts(alone, alone.plan) if amount) > 1000, (
        "a bridge of nothing proves none"
    )


def test_levels_of_the_waterfall_meet(book: Calculated):
    """A rise starts where the step before ended; a fall ends where the next one starts."""
    usd, base, up, down = (book.column("tblBridge", header) for header in ("USD", "Base", "Up", "Down"))
    level = 0.0
    for i, amount in enumerate(usd[:-1]):
        assert base[i] == pytest.approx(min(level, level + amount))
        assert up[i] - down[i] == pytest.approx(amount)
        assert min(up[i], down[i]) == 0
        level += amount
    assert (base[-1], up[-1], down[-1]) == pytest.approx((0, level, 0))


def test_hours_and_rates_by_gpu_type_are_live(book: Calculated, alone: Study):
    assert alone.last
    found = {row.gpu: row for row in bridge(alone.last.plan, alone.plan).gpus}
    for i, gpu in enumerate(book.column("tblTypes", "GPU")):
        row = found[gpu]
        figures = [book.get("tblTypes", header, i) for header in
                   ("Hours, last", "USD/h, last", "Hours, this", "USD/h, this", "Compared rate")]  # fmt: skip
        assert figures == pytest.approx(
            [row.last_hours, row.last_usd_per_h, row.now_hours, row.now_usd_per_h, row.compared_usd_per_h]
        )
        words = book.get("tblTypes", "Last quarter's rate as compared", i)
        assert words.startswith("last quarter's own" if row.last_hours else "not in use last quarter")


def test_unused_money_is_that_of_sheet_commitments(book: Calculated, alone: Study):
    of_bridge = sum(float(str(value)) for value in book.column("tblUnused", "Unused, USD"))
    of_sheet = sum(float(str(value)) for value in book.column("tblCommit", "UnusedCost"))
    assert of_bridge == pytest.approx(of_sheet)
    assert alone.last
    assert of_bridge == bridge(alone.last.plan, alone.plan).now.unused_usd == 2_592


def test_a_price_that_is_edited_moves_the_step_for_prices_alone(book: Calculated, alone: Study):
    """The on-demand H100 runs 2,880 instance-hours: 1 USD more is 2,880 USD of Price, and of the whole."""
    before = book.column("tblBridge", "USD")
    ids = book.column("tblInputs", "Id")
    row = ids.index(f"price/{alone.plan.purchases[1].offer_id}")
    with book.edited("tblInputs", "Value", row, lambda price: price + 1):
        moved = [b - a for a, b in zip(before, book.column("tblBridge", "USD"), strict=True)]
        assert book.results()[CLOSES] == "HOLDS"
    steps = dict(zip(book.column("tblBridge", "Step"), moved, strict=True))
    assert steps.pop("Price") == pytest.approx(2_880)
    assert steps.pop("This quarter") == pytest.approx(2_880)
    assert list(steps.values()) == pytest.approx([0] * 6, abs=1e-6)


def test_all_checks_pass_and_name_the_four(book: Calculated):
    found = book.results()
    assert set(found.values()) == {"PASS"}
    assert {CLOSES, ISSUED, UNCHANGED, ADDS_UP} <= set(found)


@pytest.mark.parametrize(
    ("figure", "failing"),
    [
        (last_quarter.COST, {CLOSES, UNCHANGED, ADDS_UP}),
        (last_quarter.TOKENS, {UNCHANGED}),
        (last_quarter.UNUSED, {CLOSES, ISSUED, UNCHANGED}),
        (last_quarter.RATE, {UNCHANGED}),
        (last_quarter.HORIZON, {UNCHANGED}),
        (last_quarter.GPU_HOURS, {CLOSES, ISSUED, UNCHANGED}),
        (last_quarter.GPU_RATE, {CLOSES, ISSUED, UNCHANGED}),
        (last_quarter.MODEL, {ADDS_UP, UNCHANGED}),
    ],
)
def test_a_figure_of_last_quarter_that_is_edited_fails_its_checks(figure: str, failing: set[str], book: Calculated):
    row = book.column("tblLast", "Figure").index(figure)
    with book.edited("tblLast", "Value", row, lambda value: 1.01 * value):
        found = {text for text, result in book.results().items() if result == "FAIL"}
        assert book.get("tblLast", "Changed (1/0)", row) == 1
    assert found == failing


def test_the_bridge_stops_closing_when_a_step_is_overwritten(written: SimpleNamespace):
    with Calculated(written.path, written.places).edited("tblBridge", "USD", 3, lambda _: 0.0) as book:
        assert {text for text, result in book.results().items() if result == "FAIL"} == {CLOSES}


def test_last_quarters_figures_are_locked_and_name_their_file(written: SimpleNamespace, alone: Study):
    assert alone.last
    table, sheet = written.places.tables["tblLast"], load_workbook(written.path)["Bridge"]
    for i in range(table.rows):
        for header in ("Value", "As issued"):
            assert sheet[f"{table.letter(header)}{table.first + i}"].protection.locked
        source = sheet[f"{table.letter('Source')}{table.first + i}"].value
        assert alone.last.path in source
        assert f"sha256 {alone.last.sha256}" in source


def test_the_change_log_has_a_row_for_each_change(written: SimpleNamespace, book: Calculated, alone: Study):
    assert alone.last
    found = changes(alone.last.plan, alone.plan)
    effects, texts = book.column("tblChange", "CostEffectUSD"), book.column("tblChange", "Change")
    assert texts[1:] == [change.text for change in found]
    assert effects[1:] == pytest.approx([change.usd or 0 for change in found], abs=1e-6)
    assert effects[0] == pytest.approx(alone.plan.totals.usd - alone.last.plan.totals.usd)
    assert set(book.column("tblChange", "Version")) == {alone.plan.run_id}
    assert all(book.column("tblChange", "Reason"))
    sheet, table = load_workbook(written.path)["ChangeLog"], written.places.tables["tblChange"]
    for i in range(table.rows):
        for header in ("ApprovedBy", "ApprovedOn"):
            cell = sheet[f"{table.letter(header)}{table.first + i}"]
            assert cell.value is None
            assert not cell.protection.locked
    dates = {written.values["ChangeLog"][f"B{table.first + i}"].value for i in range(table.rows)}
    assert dates == {dt.datetime(2026, 11, 29)}
    assert not any(re.search(r"\d USD|USD \d", str(text)) for text in texts)


def test_the_chart_has_its_words_and_tells_bars_apart_without_colour(written: SimpleNamespace):
    package = zipfile.ZipFile(written.path)
    drawings = [package.read(n).decode() for n in package.namelist() if n.startswith("xl/drawings/drawing")]
    assert sum(f'name="{TITLE}" descr="{ALT[TITLE]}"'.replace("'", "&apos;") in d.replace("'", "&apos;")
               for d in drawings) == 1  # fmt: skip
    charts = [package.read(name).decode() for name in package.namelist() if name.startswith("xl/charts/chart")]
    (chart,) = [text for text in charts if "pattFill" in text]
    assert 'prst="wdUpDiag"' in chart
    assert 'prst="narHorz"' in chart
    assert "<v>Volume 128,663</v>" in chart
    assert chart.count('<delete val="0"') == 2


def test_without_last_quarter_there_is_one_row_and_no_check(plan: FleetPlan):
    view = views_of(plan)[0]
    sheet = bridge_sheet.build(view)
    (table,) = sheet.tables
    assert table.rows == 1
    assert "no plan of last quarter" in str(table.columns[5].cell(0))
    assert not sheet.charts
    assert bridge_sheet.checks(view) == changelog.checks(view) == ()
    (log,) = changelog.build(view).tables
    assert log.rows == 1
    assert "no plan of last quarter is named" in str(log.columns[4].cell(0))


def test_a_reporting_currency_is_that_of_the_bridge(alone: Study, tmp_path: Path):
    rate = Reporting(currency="EUR", per_usd=0.95, source="ECB", source_date=dt.date(2026, 11, 27), owner="CFO")
    assert alone.last
    then = alone.last.plan.model_copy(update={"reporting": rate.model_copy(update={"per_usd": 0.9})})
    study = Study(
        plan=alone.plan.model_copy(update={"reporting": rate}), last=alone.last.model_copy(update={"plan": then})
    )
    write_workbook(study, tmp_path / "plan.xlsx")
    book = Calculated(tmp_path / "plan.xlsx", layout(study))
    assert book.column("tblBridge", "EUR") == pytest.approx(_amounts(study, study.plan), abs=1e-6)
    assert set(book.results().values()) == {"PASS"}
    assert abs(float(str(book.get("tblBridge", "EUR", list(MEANINGS).index("FX") + 1)))) > 1000
    with book.edited("tblLast", "Value", last_quarter.SINGLE.index(last_quarter.RATE), lambda _: 0.91):
        assert book.results()[UNCHANGED] == "FAIL"


def test_currencies_that_differ_are_said_on_the_sheet(alone: Study):
    rate = Reporting(currency="EUR", per_usd=0.95, source="ECB", source_date=dt.date(2026, 11, 27), owner="CFO")
    study = Study(plan=alone.plan.model_copy(update={"reporting": rate}), last=alone.last)
    sheet = bridge_sheet.build(View(study))
    assert "the bridge is in USD" in str(sheet.purpose)
    assert sheet.tables[0].columns[1].header == "USD"


@pytest.fixture(scope="module")
def three(study: Study, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The workbook of three futures; read-only."""
    path = tmp_path_factory.mktemp("three") / "plan.xlsx"
    write_workbook(study, path)
    where = selector(load_workbook(path))
    assert where, "no cell offers the scenarios"
    return SimpleNamespace(path=path, places=layout(study), selector=where[0])


@pytest.mark.parametrize("name", ["High", "Low"])
def test_the_bridge_follows_the_scenario_that_is_selected(
    name: str, study: Study, three: SimpleNamespace, tmp_path: Path
):
    (tmp_path / "chosen.xlsx").write_bytes(edited(three.path, {three.selector: name}))
    book = Calculated(tmp_path / "chosen.xlsx", three.places)
    chosen = next(scenario.plan for scenario in study.scenarios if scenario.name == name)
    assert book.column("tblBridge", "USD") == pytest.approx(_amounts(study, chosen), abs=1e-6)
    assert study.last
    found = changes(study.last.plan, chosen)
    assert [text for text in book.column("tblChange", "Change")[1:] if text] == [change.text for change in found]
    effects = book.column("tblChange", "CostEffectUSD")
    assert effects[1 : 1 + len(found)] == pytest.approx([change.usd or 0 for change in found], abs=1e-6)
    results = book.results()
    assert {results[text] for text in (CLOSES, ISSUED, UNCHANGED, ADDS_UP)} == {"PASS"}
