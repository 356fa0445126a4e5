"""Points 4, 10 and 14 to 20: what finance asks of the figures, on the scenario that is shown first."""

from __future__ import annotations

import datetime as dt
import hashlib
import re

import pytest
from openpyxl import Workbook

from planner.plan import FleetPlan
from planner.report.sheets.inputs import UNDATED
from planner.report.table import Book
from planner.study import Study
from tests.report.acceptance.reading import GREEN, fill

NOTHING = ("", None, "(none)")


def column(values: Workbook, places: Book, name: str, header: str) -> list[object]:
    """Stored results of a column."""
    table = places.tables[name]
    letter = table.letter(header)
    return [values[table.sheet][f"{letter}{table.first + i}"].value for i in range(table.rows)]


def numbers(values: Workbook, places: Book, name: str, header: str) -> list[float]:
    """Stored results of a column that are numbers."""
    found = column(values, places, name, header)
    return [float(value) for value in found if isinstance(value, int | float)]


def total(values: Workbook, places: Book, name: str, header: str) -> float:
    """Stored result of a total."""
    table = places.tables[name]
    value = values[table.sheet][table.place(header, "#total", 0).replace("$", "")].value
    assert isinstance(value, int | float)
    return float(value)


def facts(values: Workbook, places: Book, name: str, key: str = "Item") -> dict[str, object]:
    """A table of single figures, by name."""
    keys = (str(text) for text in column(values, places, name, key))
    return dict(zip(keys, column(values, places, name, "Value"), strict=True))


def words(values: Workbook, sheet: str) -> str:
    """All text of a sheet."""
    return "\n".join(
        str(cell.value) for row in values[sheet].iter_rows() for cell in row if isinstance(cell.value, str)
    )


def test_point_4_the_cover_says_which_plan_this_is(values: Workbook, places: Book, base: FleetPlan):
    cover, text = facts(values, places, "tblRun"), words(values, "Cover")
    assert cover["Status"] == "DRAFT"
    assert cover["Run"] == base.run_id
    assert f"planner {base.planner_version}" in text
    assert cover["Generated"] == "2026-11-29 16:40 UTC"
    lines = "".join(f"{file.role}\t{file.path}\t{file.sha256}\n" for file in base.inputs)
    assert cover["Inputs, sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    assert cover["Solver"] == f"{base.solve.solver} {base.solve.solver_version}"
    assert cover["Gap to the bound"] == pytest.approx(base.solve.gap)
    assert cover["Currency"] == "USD"
    assert "tax excluded" in text
    assert "nominal" in text
    assert cover["Owner"] == base.owner
    assert re.search(r"Prepared by.*Reviewed by.*Approved by", text, re.DOTALL)
    assert re.fullmatch(r"ALL \d+ CHECKS PASS", str(values["Cover"]["A3"].value))


def test_point_10_every_input_has_unit_source_date_and_owner(values: Workbook, places: Book):
    def of(header: str) -> list[object]:
        return column(values, places, "tblInputs", header)

    live = next(c.header for c in places.tables["tblInputs"].columns if c.header in {"Value", "Live"})
    undated = 0
    for name, unit, value, source, day, owner in zip(
        *(of(header) for header in ("Id", "Unit", live, "Source", "Source date", "Owner")), strict=True
    ):
        if name in NOTHING:
            continue
        assert unit or isinstance(value, str), f"{name} has no unit"
        assert source, f"{name} has no source"
        assert owner, f"{name} has no owner"
        assert isinstance(day, dt.date) or day == UNDATED, f"{name} has no date, and does not say so"
        undated += day == UNDATED
    assert sum(numbers(values, places, "tblInputs", "Price too old (1/0)")) == 0
    assert facts(values, places, "tblSummary", "Measure")["Inputs without a source date"] == undated


def test_point_14_cost_is_the_objective(values: Workbook, places: Book, base: FleetPlan):
    assert total(values, places, "tblCost", "Cost, USD") == pytest.approx(base.solve.objective, abs=0.01)
    assert facts(values, places, "tblRun")["Objective, USD (solver)"] == base.solve.objective


def test_point_14_every_view_of_the_cost_adds_up_to_it(values: Workbook, places: Book, base: FleetPlan):
    for name, header in (
        ("tblModels", "Cost, USD"), ("tblSupplies", "Cost, USD"), ("tblGpuTypes", "Cost, USD"),
        ("tblShowback", "TotalCost"), ("tblCentres", "TotalCost"), ("tblFocus", "EffectiveCost"),
    ):  # fmt: skip
        assert sum(numbers(values, places, name, header)) == pytest.approx(base.totals.usd, abs=0.01), (name, header)


def _steps(values: Workbook, places: Book) -> dict[str, float]:
    names = [str(name) for name in column(values, places, "tblBridge", "Step")]
    return dict(zip(names, numbers(values, places, "tblBridge", "USD"), strict=True))


def test_point_15_the_bridge_closes_to_the_cent_in_a_printed_order(
    values: Workbook, places: Book, report: Study | FleetPlan
):
    if not isinstance(report, Study) or report.last is None:
        assert "last quarter" in words(values, "Bridge")
        return
    steps = _steps(values, places)
    assert list(steps) == [
        "Last quarter", "Volume", "Efficiency", "Mix", "FX", "Price", "Commitments", "This quarter"
    ]  # fmt: skip
    *_, now = steps.values()
    assert steps["Last quarter"] == pytest.approx(report.last.plan.totals.usd, abs=0.005)
    assert now == pytest.approx(report.plan.totals.usd, abs=0.005)
    assert sum(steps.values()) - now == pytest.approx(now, abs=0.005)
    assert all(len(str(text)) > 20 for text in column(values, places, "tblBridge", "Meaning"))
    assert "order of the steps is fixed" in words(values, "Bridge")


def _gpu_hours(plan: FleetPlan) -> dict[str, tuple[float, float]]:
    """GPU-hours of running instances and their cost by GPU type, unused contracts left out; worked out anew."""
    found: dict[str, tuple[float, float]] = {}
    for p in plan.purchases:
        hours = p.instance_hours * p.gpus_per_instance
        paid = sum(n * t.hours for n, t in zip(p.paid_by_period, plan.periods, strict=True)) * p.gpus_per_instance
        unused = p.usd * (paid - hours) / paid if paid and p.used_usd_per_h == 0 else 0.0
        was = found.get(p.gpu, (0.0, 0.0))
        found[p.gpu] = (was[0] + hours, was[1] + p.usd - unused)
    return found


def test_point_15_each_step_is_its_formula(values: Workbook, places: Book, report: Study | FleetPlan):
    """Volume (Q1-Q0) H0/Q0 p, efficiency (H1 - Q1 H0/Q0) p, mix sum h1 p0 - H1 p, price sum h1 (p1 - p0)."""
    if not isinstance(report, Study) or report.last is None:
        pytest.skip("no last quarter")
    steps, last, now = _steps(values, places), report.last.plan, report.plan
    was, runs = _gpu_hours(last), _gpu_hours(now)
    tokens = [plan.totals.served_input_mtok + plan.totals.served_output_mtok for plan in (last, now)]
    hours = [sum(h for h, _ in found.values()) for found in (was, runs)]
    mean = sum(usd for _, usd in was.values()) / hours[0]
    needed = tokens[1] * hours[0] / tokens[0]
    old = {
        gpu: was[gpu][1] / was[gpu][0] if was.get(gpu, (0, 0))[0] else usd / h for gpu, (h, usd) in runs.items() if h
    }
    at_old = sum(runs[gpu][0] * rate for gpu, rate in old.items())
    assert steps["Volume"] == pytest.approx((needed - hours[0]) * mean, abs=0.005)
    assert steps["Efficiency"] == pytest.approx((hours[1] - needed) * mean, abs=0.005)
    assert steps["Mix"] == pytest.approx(at_old - hours[1] * mean, abs=0.005)
    assert steps["Price"] == pytest.approx(sum(usd for _, usd in runs.values()) - at_old, abs=0.005)
    unused = [plan.totals.usd - sum(u for _, u in found.values()) for plan, found in ((last, was), (now, runs))]
    assert steps["Commitments"] == pytest.approx(unused[1] - unused[0], abs=0.005)


def test_point_16_last_quarter_is_the_file_that_was_issued(
    values: Workbook, book: Workbook, places: Book, report: Study | FleetPlan
):
    if not isinstance(report, Study) or report.last is None:
        assert report.run_id in words(values, "Cover")
        return
    last = report.last
    everywhere = "\n".join(words(values, sheet.title) for sheet in values.worksheets)
    assert last.sha256 in everywhere
    assert last.path in everywhere
    assert last.plan.run_id in words(values, "Bridge")
    rows = list(zip(*(column(values, places, "tblLast", header) for header in ("Figure", "Of", "Value")), strict=True))
    stated = {(figure, of): value for figure, of, value in rows}
    assert stated["Cost, USD", "all"] == pytest.approx(last.plan.totals.usd, abs=0.005)
    for pool in last.plan.pools:
        assert stated["Cost of a model, USD", pool.model] == pytest.approx(pool.usd, abs=0.005)
    table = places.tables["tblLast"]
    assert fill(book[table.sheet][f"{table.letter('Value')}{table.first}"]) == GREEN
    assert all(
        book[table.sheet][f"{table.letter('Value')}{row}"].protection.locked
        for row in range(table.first, table.last + 1)
    )


def test_point_17_the_denominator_of_a_unit_cost_is_defined(values: Workbook, places: Book, base: FleetPlan):
    summary = facts(values, places, "tblSummary", "Measure")
    tokens = base.totals.served_input_mtok + base.totals.served_output_mtok
    assert summary["USD per 1M served tokens, by reservation"] == pytest.approx(base.totals.usd / tokens)
    meanings = dict(zip(summary, column(values, places, "tblSummary", "Meaning"), strict=True))
    assert "input and output tokens served" in str(meanings["USD per 1M served tokens, by reservation"])
    assert "cached" in str(meanings["of which input"])
    assert "Generated" in str(meanings["of which output"])


def test_point_18_commitments_show_coverage_waste_and_expiry(values: Workbook, places: Book, base: FleetPlan):
    coverage = facts(values, places, "tblCoverage", "Measure")
    held = [p for p in base.purchases if p.kind in {"new commitment", "existing commitment"}]
    lots = [name for name in column(values, places, "tblCommit", "CommitmentDiscountId") if name not in NOTHING]
    assert lots == [p.offer_id for p in held]
    hours = [sum(n * t.hours for n, t in zip(p.paid_by_period, base.periods, strict=True)) for p in held]
    assert total(values, places, "tblCommit", "HoursInQuarter") == pytest.approx(sum(hours))
    assert total(values, places, "tblCommit", "UsedHours") == pytest.approx(sum(p.instance_hours for p in held))
    unused = sum(p.usd * (h - p.instance_hours) / h for p, h in zip(held, hours, strict=True))
    assert coverage["Unused cost"] == pytest.approx(unused)
    covered = sum(p.instance_hours * p.gpus_per_instance for p in held)
    used = sum(p.instance_hours * p.gpus_per_instance for p in base.purchases)
    assert coverage["Coverage"] == pytest.approx(covered / used)
    for header in ("ListCost", "ContractedCost", "BilledCost", "EffectiveCost", "UnusedCost"):
        assert header in {c.header for c in places.tables["tblCommit"].columns}
    ends = dict(zip(column(values, places, "tblCommit", "CommitmentDiscountId"),
                    column(values, places, "tblCommit", "EndDate"), strict=True))  # fmt: skip
    assert all(ends[lot] for lot in lots)
    assert "Next end" in coverage


def test_point_18_list_contracted_and_effective_prices_stand_apart(values: Workbook, places: Book):
    headers = {c.header for c in places.tables["tblGpu"].columns}
    assert {"ListUnitPrice", "NegotiatedDiscount", "ContractedUnitPrice", "EffectiveUnitPrice"} <= headers
    for name in ("ListCost", "ContractedCost", "EffectiveCost", "BilledCost"):
        assert name in {c.header for c in places.tables["tblFocus"].columns}


def test_point_19_capex_depreciation_and_operation_are_separate(values: Workbook, places: Book):
    headers = {c.header for c in places.tables["tblHardware"].columns}
    assert {
        "Capex cash, USD", "Depreciation, USD", "Return on capital, USD", "Maintenance, USD", "Hosting, USD",
        "Power, USD", "Life, years", "Residual",
    } <= headers  # fmt: skip
    assert {"CapexPerGpu", "DeprPerHour", "PowerPerHour", "OtherPerHour"} <= {
        c.header for c in places.tables["tblGpu"].columns
    }
    assert "Capex cash" in facts(values, places, "tblCoverage", "Measure")


def test_point_20_sensitivities_are_re_solves_sorted_by_swing(
    values: Workbook, book: Workbook, places: Book, report: Study | FleetPlan
):
    rows = report.sensitivities if isinstance(report, Study) else ()
    names = [name for name in column(values, places, "tblSensitivity", "Driver") if name not in NOTHING]
    if not rows:
        assert "(none" in str(names or "(none)") or len(names) == 1
        return
    usd = report.plan.totals.usd if isinstance(report, Study) else 0.0
    swings = numbers(values, places, "tblSensitivity", "Swing")
    assert swings == pytest.approx([row.swing_usd(usd) for row in rows])
    assert swings == sorted(swings, reverse=True)
    table = places.tables["tblSensitivity"]
    for i, row in enumerate(rows):
        for header, side in (("CostLow", row.low), ("CostHigh", row.high)):
            cell = book[table.sheet][f"{table.letter(header)}{table.first + i}"]
            assert cell.value == (pytest.approx(side.usd) if side.usd is not None else "no plan")
            assert fill(cell) == GREEN
    charts = book["Sensitivity"]._charts
    assert charts, "a tornado"


def test_point_25_the_change_log_is_filled(values: Workbook, places: Book, base: FleetPlan):
    rows = list(
        zip(*(column(values, places, "tblChange", h) for h in ("Version", "Author", "Change", "Reason")), strict=True)
    )
    assert rows[0][0] == base.run_id
    assert rows[0][1] == base.owner
    written = [row for row in rows if row[0] not in NOTHING]
    assert all(change and reason for _, _, change, reason in written)
