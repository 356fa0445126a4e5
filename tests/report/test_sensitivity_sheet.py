"""Sensitivity: drivers, tornado and regret against the study's own figures."""

from __future__ import annotations

import re
import zipfile

import pytest

from planner.plan import FleetPlan
from planner.report.sheets import sensitivity
from planner.report.sheets.regret import CANNOT, ONE_FUTURE
from planner.report.sheets.sensitivity import ALL_SOLVED, NO_PLAN, NONE_ASKED
from planner.report.view import View
from planner.study import RegretCell, Study
from tests.report.sample_study import HOSTILE_DRIVER, HOSTILE_NAME
from tests.report.sheet_reader import Read


@pytest.fixture(scope="module")
def asked(study: Study) -> Study:
    """The study as the workbook of scenario Base shows it."""
    return study.model_copy(update={"others": ()})


@pytest.fixture(scope="module")
def read(asked: Study, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return Read(asked, tmp_path_factory.mktemp("sensitivity") / "plan.xlsx")


def test_deltas_and_swings_follow_from_the_re_solves(asked: Study, read: Read):
    base = asked.plan.totals.usd
    low, high, swing = (read.column("tblSensitivity", h) for h in ("DeltaLow", "DeltaHigh", "Swing"))
    for i, row in enumerate(asked.sensitivities):
        for side, delta in ((row.low, low[i]), (row.high, high[i])):
            if side.usd is None:
                assert delta == NO_PLAN
            else:
                assert delta == pytest.approx(side.usd - base)
        assert swing[i] == pytest.approx(row.swing_usd(base))
    assert swing == sorted(swing, reverse=True)
    assert read.column("tblSensitivity", "LowValue") == [row.low.factor for row in asked.sensitivities]
    assert read.column("tblSensitivity", "Owner")[0] == "Product"
    assert read.headline().startswith("ALL ")


def test_hostile_names_of_drivers_stay_text(read: Read):
    place = read.book.tables["tblSensitivity"]
    cells = [read.cells["Sensitivity"][f"{place.letter('Driver')}{place.first + i}"] for i in range(2)]
    assert [cell.value for cell in cells] == [HOSTILE_NAME, HOSTILE_DRIVER.replace("\x07", "")]
    assert all(cell.data_type == "s" and cell.quotePrefix for cell in cells)


def test_the_tornado_has_two_bars_told_apart_and_a_description(read: Read):
    package = zipfile.ZipFile(read.path)
    drawings = [package.read(n).decode() for n in sorted(package.namelist()) if n.startswith("xl/drawings/drawing")]
    assert sum('descr="Tornado: two bars' in text for text in drawings) == 1
    charts = [package.read(n).decode() for n in package.namelist() if n.startswith("xl/charts/chart")]
    tornado = next(text for text in charts if "driver at its low value" in text)
    assert tornado.count("<ser>") == 2
    colours = re.findall(r'<solidFill><a:srgbClr val="(\w{6})"', tornado.replace("<a:solidFill>", "<solidFill>"))
    assert {"1F3864", "C9CED6"} <= set(colours)
    assert tornado.count('<delete val="0"') == 2
    assert "=1+1 &amp; &lt;Low&gt;" in tornado
    assert NO_PLAN not in tornado, "a bar's cached value is a number"


def test_regret_is_cost_over_the_cheapest_fleet_and_the_choice_is_least(asked: Study, read: Read):
    assert asked.regret is not None
    fleets = read.column("tblRegret", "Fleet")
    for cell in asked.regret.cells:
        header = next(c.header for c in read.book.tables["tblRegret"].columns if c.header.endswith(f" {cell.future}"))
        shown = read.column("tblRegret", header)[fleets.index(cell.fleet)]
        assert shown == CANNOT if cell.regret_usd is None else shown == pytest.approx(cell.regret_usd)
    assert read.column("tblChoice", "Fleet chosen") == [asked.regret.choice]
    assert read.column("tblChoice", "LargestRegret") == [pytest.approx(asked.regret.largest_usd)]
    assert read.column("tblRegret", "Chosen") == [int(fleet == asked.regret.choice) for fleet in fleets]
    assert "65,536" in read.column("tblRegret", "Note")[fleets.index("Low")]
    assert read.column("tblUnsolved", "Future") == ["Storm"]


def test_where_no_fleet_serves_all_those_that_serve_most_are_compared(asked: Study, tmp_path):
    """Base and High serve two futures each, Low one; Base regrets 100 at most, High 50."""
    usd = {("Base", "Base"): 10.0, ("Base", "High"): 600.0, ("High", "High"): 500.0, ("High", "Low"): 150.0,
           ("Low", "Low"): 100.0}  # fmt: skip
    names = ("Base", "High", "Low")
    cells = tuple(RegretCell(fleet=a, future=f, usd=usd.get((a, f)), regret_usd=None) for a in names for f in names)
    assert asked.regret is not None
    regret = asked.regret.model_copy(update={"cells": cells, "choice": "High", "largest_usd": 50.0})
    found = Read(asked.model_copy(update={"regret": regret}), tmp_path / "plan.xlsx")
    assert found.column("tblRegret", "LargestRegret") == [100, 50, CANNOT]
    assert found.column("tblChoice", "Fleet chosen") == ["High"]
    assert found.headline().startswith("ALL ")


def test_without_any_one_row_says_so(plan: FleetPlan, tmp_path):
    found = Read(plan, tmp_path / "plan.xlsx")
    assert found.column("tblSensitivity", "Driver") == [NONE_ASKED]
    assert found.column("tblSensitivity", "Swing") == [0]
    assert found.column("tblRegret", "Fleet") == [ONE_FUTURE]
    assert found.column("tblUnsolved", "Future") == [ALL_SOLVED]
    assert found.headline().startswith("ALL ")
    assert not found.cells["Sensitivity"]._charts


def test_drivers_out_of_order_fail_the_check(asked: Study, tmp_path):
    first, second, *rest = asked.sensitivities
    found = Read(asked.model_copy(update={"sensitivities": (second, first, *rest)}), tmp_path / "plan.xlsx")
    assert found.column("tblSensitivity", "Sorted (1/0)")[:3] == [1, 0, 1]
    assert found.headline().startswith("1 OF ")


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (("tblSensitivity", "CostHigh", 4, 9e6), "Sensitivities that do not stand in the order of their swing"),
        (("tblBase", "Base, USD, re-solve", 0, 1.0), "Base cost of the sensitivities equals the solve"),
        (("tblRegretCost", "2 High", 0, 1.0), "Regret of a fleet in its own future is 0 within the solver's gap"),
        (("tblRegretCost", "2 High", 0, 430_000.0), "Least largest regret equals the study's"),
        (("tblChoice", "LargestAsSolved", 0, 1.0), "Least largest regret equals the study's"),
    ],
)
def test_each_check_can_fail(edit, text: str, read: Read):
    assert text in read.failed_after(*edit)


def test_another_scenario_compares_with_base_as_it_was_solved(study: Study):
    """Sensitivities are of Base whichever scenario is shown."""
    sheet = sensitivity.build(View(study, 1))
    base = next(table for table in sheet.tables if table.name == "tblBase")
    cells = {column.header: column.cell(0) for column in base.columns}
    assert (cells["Scenario shown"], cells["IsBase"]) == ("High", 0)
    assert cells["Base, USD, re-solve"] == study.plan.solve.objective
