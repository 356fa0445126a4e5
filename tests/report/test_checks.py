from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Iterable
from pathlib import Path

import formualizer
import pytest
from openpyxl import load_workbook
from openpyxl.utils.cell import column_index_from_string, coordinate_to_tuple

from planner.plan import FleetPlan, SolveStatus
from planner.report.recalc import recalculate_with_libreoffice
from planner.report.sheets import checks, cover, input_ids
from planner.report.sheets.inputs import input_rows
from planner.report.style import Kind
from planner.report.table import Book
from planner.report.view import views_of
from planner.report.workbook import layout, write_workbook

Edit = tuple[str, str, int, object]
"""Table, column, row, new value."""


def _input(plan: FleetPlan, name: str, value: object, column: str = "Value") -> Edit:
    ids = [row.id for row in input_rows(plan)]
    return "tblInputs", column, ids.index(name), value


def _cover(plan: FleetPlan, name: str, value: object) -> Edit:
    return "tblRun", "Value", [fact.id for fact in cover.run_facts(views_of(plan)[0])].index(name), value


def _margin(plan: FleetPlan, pool: str, constraint: str, planned: float) -> Edit:
    names = [(p.name, m.constraint) for p in plan.pools for m in p.margins]
    return "tblMargins", "Planned", names.index((pool, constraint)), planned


def _errors(plan: FleetPlan) -> dict[str, Edit]:
    """For each check one deliberate error that it must catch."""
    price = input_ids.price_id(plan.purchases[1])
    limit = {row.name: input_ids.quota_id(row) for row in plan.quotas}
    return {
        "Cost equals the solver's objective": _input(plan, price, 60.0),
        "Cost by supply equals cost by purchase": ("tblCost", "Supply", 6, "nowhere"),
        "Cost by model equals cost by purchase": ("tblPlan", "Model", 0, "somebody else"),
        "Cost by pool equals cost by purchase": ("tblPlan", "Cost, USD", 0, 1.0),
        "Cost by GPU type equals cost by purchase": ("tblCost", "GPU", 0, "B200"),
        "What is due after the horizon equals the plan's": ("tblCost", "After the horizon, USD", 0, 1.0),
        "USD per 1M tokens by use equals the plan's": ("tblFit", "Capacity, M tokens", 0, 1e7),
        "USD per 1M input tokens equals the plan's": ("tblFit", "Prompts' share of work", 0, 0.9),
        "USD per 1M output tokens equals the plan's": ("tblFit", "Prompts' share of work", 3, 0.1),
        "Cost is within the budget": _input(plan, limit["budget"], 300_000),
        "Power is within its limit, kW": _input(plan, limit["power"], 51),
        "GPUs bought equal the plan's": _input(plan, input_ids.size_id(plan.purchases[0]), 9),
        "GPUs of all pools equal the plan's": ("tblPlan", "Replicas", 0, 4),
        "GPU-hours paid equal the plan's": ("tblLots", "Instances paid", 0, 2),
        "Supplies where pools use more GPUs than run": ("tblLots", "Instances running", 2, 1),
        "Replicas that do not fit the instances": ("tblPlan", "TP", 3, 16),
        "Pools with fewer replicas than needed and spare": ("tblPlan", "Replicas", 2, 2),
        "Lots that run more than is reserved": ("tblCost", "Reserved instances", 0, 0),
        "Quotas and stocks exceeded in a period": ("tblCovers", "GPUs", 0, 25),
        "Limits exceeded when the plan was recomputed": ("tblUses", "Most used, as solved", 3, 17.0),
        "Hours of the periods are the horizon's": ("tblPeriods", "Hours", 0, 719),
        "Pools short of replicas in a period": ("tblRuns", "Replicas", 0, 2),
        "Lots that run more than can be had": ("tblLots", "Instances to be had", 6, 0),
        "Lots that run more than is paid": ("tblLots", "Instances paid", 2, 1),
        "Pools whose requests by period are not their demand": ("tblPoolPeriods", "Mean rate, requests/s", 0, 1.0),
        "Prompt lengths that are not routed once": ("tblRoutes", "From, tokens", 1, 5000),
        "Pools that nothing is routed to": ("tblRoutes", "Pool", 1, "chat/1"),
        "Limits exceeded by pool chat/1": _margin(plan, "chat/1", "token pool", 1_390_001),
        "Limits exceeded by pool chat/2": _margin(plan, "chat/2", "TTFT target", 1500.1),
        "Limits exceeded by pool code": _margin(plan, "code", "concurrent sequences", 257),
        "Limits exceeded by pool agents": _margin(plan, "agents", "work share", 0.851),
        "Limits exceeded by pool search": _margin(plan, "search", "TPOT target", 30.1),
        "Limits exceeded by pool vision": _margin(plan, "vision", "TTFT target", 2000.1),
        "Limits broken when the plan was recomputed": ("tblMargins", "Held when recomputed (1/0)", 3, 0),
        "Predicted times outside their error band": ("tblBands", "Used, ms", 0, 38.2),
        "Pools that serve more than their capacity": ("tblFit", "Capacity, M tokens", 1, 1.0),
        "Pools that refuse more than the tail budget": _input(plan, "demand/chat/1/refused_requests", 0.0011),
        "Served tokens equal what the optimiser served, M tokens": _input(plan, "demand/chat/rate", 1.0),
        "Pools whose served tokens differ from the optimiser's": _input(plan, "demand/code/mean_output", 28),
        "Pools whose planning rate differs from the optimiser's": _input(plan, "demand/code/peak", 2.0),
        "Inputs that differ from the solved ones": _input(plan, "speed/edge", "middle"),
        "Inputs without source, source date or owner": _input(plan, "speed/edge", None, "Source date"),
        "Prices older than the limit": _input(plan, price, dt.date(2025, 10, 1), "Source date"),
        "Solver status is optimal (1/0)": _cover(plan, cover.STATUS, "feasible"),
        "Gap to the proven bound is within the target": _cover(plan, cover.BOUND, plan.solve.bound * 0.99),
        "No error values: cells of cost and GPU-hours that are numbers": ("tblRuns", "Replicas", 0, "three"),
        "Solves that are not optimal within their gap": ("tblSolves", "Optimal within gap (1/0)", 0, 0),
        "Commitments whose used and unused hours are not those committed": ("tblCommit", "Quantity", 0, 2),
        "Hours that commitments run are not more than are held": ("tblLots", "Instances running", 0, 9),
        "Capital, operation and power of hardware are its cost": ("tblHardware", "Cost of the lot, USD", 0, 1.0),
        "Showback by workload equals cost by purchase": ("tblShowback", "DirectCost", 0, 1.0),
        "Showback by cost centre equals cost by purchase": ("tblCentres", "CentreNo", 0, 9),
        "Sensitivities that do not stand in the order of their swing": ("tblSensitivity", "Sorted (1/0)", 0, 0),
        "Base cost of the sensitivities equals the solve": ("tblBase", "Base, USD, re-solve", 0, 1.0),
        "Regret of a fleet in its own future is 0 within the solver's gap": ("tblRegret", "OwnFuture", 0, 5.0),
        "Least largest regret equals the study's": ("tblChoice", "LargestAsSolved", 0, 1.0),
        "EffectiveCost of Data_FOCUS equals cost by purchase": ("tblFocus", "EffectiveCost", 0, 1.0),
        "Showback of Data_FOCUS equals Showback": ("tblCharges", "Borne by none", 30, 0),
        "BilledCost of Data_FOCUS equals what is billed by the Commitments and Cost sheets": (
            "tblCharges", "Purchase", 8, 0,
        ),
    }  # fmt: skip


def _edited(xlsx: Path, plan: FleetPlan, edit: Edit) -> bytes:
    table, column, row, value = edit
    sheet, cell = layout(plan).tables[table].address(column, row).replace("$", "").split("!")
    book = load_workbook(xlsx)
    book[sheet][cell] = value
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def places(plan: FleetPlan) -> Book:
    return layout(plan)


@pytest.fixture(scope="module")
def errors(plan: FleetPlan) -> dict[str, Edit]:
    return _errors(plan)


def _judged(cells: Callable[[str], object], places: Book) -> dict[str, str]:
    """Result of each check: PASS, HOLDS (with edited inputs) or FAIL; the headline agrees with them."""
    table = places.tables["tblChecks"]
    result = table.letter("Result")
    found = {str(cells(f"B{row}")): str(cells(f"{result}{row}")) for row in range(table.first, table.last + 1)}
    failed = sum(result == "FAIL" for result in found.values())
    words = f"INPUTS EDITED: {failed} FAIL" if found[checks.INPUTS_AS_SOLVED] == "FAIL" else None
    expected = f"ALL {len(found)} CHECKS PASS" if not failed else words or f"{failed} OF {len(found)} CHECKS FAIL"
    assert cells("B3") == expected
    assert cells("A3") == (0 if failed else 1)
    return found


def _results(source: object, plan: FleetPlan) -> dict[str, str]:
    """The results that are stored in a file."""
    sheet = load_workbook(source, data_only=True)["Checks"]
    return _judged(lambda cell: sheet[cell].value, layout(plan))


class Calculated:
    """A workbook in memory; every edit calculates all of it again, once."""

    def __init__(self, path: Path) -> None:
        self.book = formualizer.load_workbook(str(path))
        self.book.evaluate_all()

    def set(self, sheet: str, row: int, column: int, value: object) -> None:
        self.book.set_value(sheet, row, column, value)
        self.book.evaluate_all()

    def value(self, sheet: str, cell: str) -> object:
        return self.book.get_value(sheet, *coordinate_to_tuple(cell))

    def column(self, sheet: str, rows: Iterable[int], column: int) -> list[object]:
        return [self.book.get_value(sheet, row, column) for row in rows]


def test_calculated_in_memory_is_what_a_recalculated_file_stores(xlsx, plan: FleetPlan, places: Book, errors):
    """One edit, both ways: in memory as most tests here do it, and as a file is recalculated."""
    edit = errors["Cost equals the solver's objective"]
    stored = formualizer.recalculate_xlsx_bytes(_edited(xlsx, plan, edit))["bytes"]
    assert _results(io.BytesIO(stored), plan) == _recalculated(xlsx, places, edit)


def _recalculated(xlsx: Path, places: Book, edit: Edit) -> dict[str, str]:
    """The results after one edit."""
    table, column, row, value = edit
    sheet, cell = places.tables[table].address(column, row).replace("$", "").split("!")
    book = Calculated(xlsx)
    book.set(sheet, *coordinate_to_tuple(cell), value)
    return _judged(lambda cell: book.value("Checks", cell), places)


def test_all_checks_pass_and_each_has_a_deliberate_error(xlsx, plan: FleetPlan, errors):
    found = _results(xlsx, plan)
    assert set(found.values()) == {"PASS"}
    assert [check.text for check in checks.checks(views_of(plan)[0])] == list(errors)


@pytest.mark.parametrize("number", range(59))
def test_each_check_can_fail(number: int, xlsx, places: Book, errors):
    text, edit = list(errors.items())[number]
    found = _recalculated(xlsx, places, edit)
    assert found[text] == "FAIL"
    assert sum(result == "FAIL" for result in found.values()) < 15, "one error should not fail everything"


def test_every_limit_of_every_pool_can_trip_the_check_of_its_pool(xlsx, plan: FleetPlan, places: Book):
    book, margins, fit = Calculated(xlsx), places.tables["tblMargins"], places.tables["tblFit"]
    planned = column_index_from_string(margins.letter("Planned"))
    counted = column_index_from_string(fit.letter("Limits exceeded"))
    row = margins.first
    for i, pool in enumerate(plan.pools):
        for margin in pool.margins:
            book.set("Margins", row, planned, margin.limit * 1.0001 + 1e-6)
            counts = book.column("Fit", range(fit.first, fit.first + len(plan.pools)), counted)
            assert counts == [int(n == i) for n in range(len(plan.pools))], (pool.name, margin.constraint)
            book.set("Margins", row, planned, margin.planned)
            row += 1
    assert row == margins.last + 1


def _bad(plan: FleetPlan) -> FleetPlan:
    """A plan that breaks as much as it can: what an edit of a yellow cell might want to hide."""
    first, second, *rest = plan.pools
    over = tuple(m.model_copy(update={"planned": m.limit * 2 + 1, "satisfied": False}) for m in first.margins)
    tpot = first.speed.tpot_ms.model_copy(update={"used": first.speed.tpot_ms.high * 2})
    first = first.model_copy(
        update={
            "margins": over,
            "speed": first.speed.model_copy(update={"tpot_ms": tpot}),
            "load": first.load.model_copy(update={"planning_rate_per_s": 99.0}),
            "capacity_mtok": 1.0,
            "served_input_mtok": 1.0,
            "refused_request_share": 0.5,
            "replicas_needed": 9,
        }
    )
    second = second.model_copy(update={"tp": 16})
    old = plan.purchases[0].model_copy(update={"price_as_of": dt.date(2024, 1, 1)})
    quota = plan.quotas[0].model_copy(update={"used": 99.0})
    budget = plan.quotas[2].model_copy(update={"limit": 1000.0})
    unowned = plan.assumptions[0].model_copy(update={"source": ""})
    solve = plan.solve.model_copy(update={"objective": 1e6, "bound": 1.0, "status": SolveStatus.FEASIBLE})
    totals = plan.totals.model_copy(update={"usd_per_mtok_by_use": 9.0, "served_input_mtok": 5.0})
    return plan.model_copy(
        update={
            "pools": (first, second, *rest),
            "purchases": (old, *plan.purchases[1:]),
            "quotas": (quota, plan.quotas[1], budget, *plan.quotas[3:]),
            "assumptions": (unowned, *plan.assumptions[1:]),
            "solve": solve,
            "totals": totals,
        }
    )


def test_no_edit_of_a_yellow_cell_turns_a_failing_check_into_pass(plan: FleetPlan, tmp_path: Path):
    bad = _bad(plan)
    path = tmp_path / "bad.xlsx"
    write_workbook(bad, path)
    table = layout(bad).tables["tblChecks"]
    column = column_index_from_string(table.letter("Result"))
    failing = {text for text, result in _results(path, bad).items() if result == "FAIL"}
    assert len(failing) >= 19, failing
    rows = [table.first + i for i, check in enumerate(checks.checks(views_of(bad)[0])) if check.text in failing]
    yellow = [
        (sheet.title, cell.row, cell.column, cell.value)
        for sheet in load_workbook(path).worksheets
        for line in sheet.iter_rows()
        for cell in line
        if not cell.protection.locked
    ]
    assert {sheet for sheet, *_ in yellow} == {"Cover", "Inputs", "ChangeLog"}
    assert len(yellow) > 60
    book = Calculated(path)
    for sheet, row, number, solved in yellow:
        for value in (None, 0, 1e12, -1e12, "anything", str(solved)):
            book.set(sheet, row, number, value)
            assert "PASS" not in book.column("Checks", rows, column), (sheet, row, value)
            assert book.value("Checks", "A3") == 0, (sheet, row, value)
        book.set(sheet, row, number, solved)


def test_an_edited_input_leaves_no_check_at_pass_and_the_headline_fails(xlsx, plan: FleetPlan, places: Book):
    """Even an edit that changes no formula, or one that only changes the type of a value, is noticed."""
    book, table, results = Calculated(xlsx), places.tables["tblInputs"], places.tables["tblChecks"]
    column = column_index_from_string(results.letter("Result"))
    for i, row in enumerate(input_rows(plan)):
        if row.kind is not Kind.INPUT:
            continue
        edited = f"{row.value} " if isinstance(row.value, str) else str(row.value)
        book.set("Inputs", table.first + i, 5, edited)
        assert book.value("Checks", "A3") == 0, row.id
        assert str(book.value("Summary", "A3")).startswith("INPUTS EDITED: "), row.id
        assert "PASS" not in book.column("Checks", range(results.first, results.last + 1), column), row.id
        book.set("Inputs", table.first + i, 5, row.value)
    assert book.value("Checks", "A3") == 1


def test_twice_the_rate_doubles_served_tokens_and_halves_the_cost_of_one(xlsx, plan: FleetPlan, places: Book):
    book = Calculated(xlsx)

    def value(name: str) -> float:
        sheet, cell = places.named[name].replace("$", "").split("!")
        return float(str(book.value(sheet, cell)))

    served, unit = value("summary/tokens"), value("summary/usd_per_mtok_by_reservation")
    ids = [row.id for row in input_rows(plan)]
    table = places.tables["tblInputs"]
    for pool in plan.pools:
        row = table.first + ids.index(f"demand/{pool.model}/rate")
        book.set("Inputs", row, 5, 2 * pool.stated_rate_per_s)
    assert value("summary/tokens") == pytest.approx(2 * served)
    assert value("summary/usd_per_mtok_by_reservation") == pytest.approx(unit / 2)
    assert value("summary/cost_usd") == pytest.approx(plan.totals.usd)
    result = column_index_from_string(places.tables["tblChecks"].letter("Result"))
    texts = [check.text for check in checks.checks(views_of(plan)[0])]
    words = dict(zip(texts, book.column("Checks", range(5, 5 + len(texts)), result), strict=True))
    assert words["Inputs that differ from the solved ones"] == "FAIL"
    assert words["Served tokens equal what the optimiser served, M tokens"] == "FAIL"
    assert words["Pools that serve more than their capacity"] == "FAIL"
    assert words["Cost equals the solver's objective"] == "HOLDS"


def test_tolerances_are_locked_and_counts_have_none(book, values, plan: FleetPlan, places: Book):
    constants = places.tables["tblConstants"]
    for i in range(constants.rows):
        cell = book["Inputs"][constants.address("Value", i).split("!")[1].replace("$", "")]
        assert cell.protection.locked
    texts = [check.text for check in checks.checks(views_of(plan)[0])]
    as_solved = checks.checks(views_of(plan)[0])[texts.index("Inputs that differ from the solved ones")]
    assert as_solved.tolerance == input_ids.EXACT
    assert values["Inputs"][places.named[input_ids.EXACT].split("!")[1]].value == 0


def test_without_budget_and_quota_there_is_no_such_check(plan: FleetPlan):
    texts = [check.text for check in checks.checks(views_of(plan.model_copy(update={"quotas": ()}))[0])]
    assert "Cost is within the budget" not in texts
    assert len(texts) == 57


def test_all_checks_is_a_name_of_the_workbook(book):
    assert book.defined_names["all_checks"].attr_text == "Checks!$A$3"


@pytest.mark.libreoffice
def test_libreoffice_agrees_with_every_formula(xlsx, book, values, plan: FleetPlan, tmp_path: Path):
    other = load_workbook(recalculate_with_libreoffice(xlsx, tmp_path / "out"), data_only=True)
    compared = 0
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type != "f":
                    continue
                ours, theirs = values[sheet.title][cell.coordinate].value, other[sheet.title][cell.coordinate].value
                where = (sheet.title, cell.coordinate, cell.value)
                if isinstance(ours, int | float):
                    assert theirs == pytest.approx(ours, rel=1e-6, abs=1e-6), where
                else:
                    assert theirs == ours, where
                compared += 1
    assert compared > 300
    total = layout(plan).tables["tblCost"].place("Cost, USD", "#total", 0).replace("$", "")
    assert other["Cost"][total].value == pytest.approx(plan.totals.usd, abs=0.01)
    assert other["Cost"][total].value == pytest.approx(plan.solve.objective, abs=0.01)


@pytest.mark.libreoffice
def test_libreoffice_sees_the_same_failures(xlsx, plan: FleetPlan, tmp_path: Path):
    text = "Cost equals the solver's objective"
    source = tmp_path / "edited.xlsx"
    source.write_bytes(_edited(xlsx, plan, _errors(plan)[text]))
    ours = io.BytesIO(formualizer.recalculate_xlsx_bytes(source.read_bytes())["bytes"])
    theirs = recalculate_with_libreoffice(source, tmp_path / "out")
    assert _results(theirs, plan) == _results(ours, plan)
    assert _results(theirs, plan)[text] == "FAIL"


@pytest.mark.libreoffice
def test_an_error_value_fails_checks_in_libreoffice_too(xlsx, plan: FleetPlan, tmp_path: Path):
    """formualizer's SUMIFS skips error values, LibreOffice's does not; the count of numbers fails in both."""
    text = "No error values: cells of cost and GPU-hours that are numbers"
    source = tmp_path / "edited.xlsx"
    source.write_bytes(_edited(xlsx, plan, _errors(plan)[text]))
    found = _results(recalculate_with_libreoffice(source, tmp_path / "out"), plan)
    assert found[text] == "FAIL"
    assert found["Cost by model equals cost by purchase"] == "FAIL"
