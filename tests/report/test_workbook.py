from __future__ import annotations

import builtins
import datetime as dt
import hashlib
import re
import zipfile
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import formualizer
import pandas as pd
import pytest
from openpyxl import Workbook, load_workbook

from planner.errors import PlannerError
from planner.plan import FleetPlan
from planner.report import facts
from planner.report.sheets import checks
from planner.report.sheets.inputs import input_rows, number_format
from planner.report.style import Kind
from planner.report.view import views_of
from planner.report.workbook import layout, write_workbook

SHEETS = [
    "Cover",
    "Summary",
    "Warnings",
    "Inputs",
    "Catalogue",
    "Commitments",
    "Demand",
    "Plan",
    "Routing",
    "Periods",
    "Fit",
    "Margins",
    "Rejected",
    "Cost",
    "Showback",
    "Bridge",
    "Sensitivity",
    "Data_FOCUS",
    "Runs",
    "Checks",
    "Files",
    "Glossary",
    "ChangeLog",
]
POINTS_PER_INCH = 72
PAPER_WIDTH_PT = {9: 841.9, 8: 1190.6}
"""A4 and A3 landscape."""
VOLATILE = ("TODAY(", "NOW(", "OFFSET(", "INDIRECT(", "RAND", "CELL(", "INFO(")


def _formulas(book: Workbook) -> list[tuple[str, str, str]]:
    return [
        (sheet.title, cell.coordinate, cell.value)
        for sheet in book.worksheets
        for row in sheet.iter_rows()
        for cell in row
        if cell.data_type == "f"
    ]


def test_sheets_follow_the_reading_order_and_share_their_head(book):
    assert book.sheetnames == SHEETS
    for sheet in book.worksheets:
        assert sheet["A1"].value
        assert sheet["A2"].value
        assert sheet["A4"].value
        assert sheet.freeze_panes in {"A5", "B5"}
        assert sheet.sheet_properties.tabColor.rgb[2:] in {"1F3864", "FFC000", "548235", "7F7F7F", "C00000"}
        assert sheet.page_setup.orientation == "landscape"
        assert sheet.sheet_properties.pageSetUpPr.fitToPage
        assert sheet.page_setup.fitToWidth == (2 if sheet.title == "Data_FOCUS" else 1)
        assert sheet.print_title_rows == "$4:$4"
        assert sheet.oddFooter.right.text == "Page &P of &N"
        assert sheet.oddFooter.left.text.startswith("R&&D fleet")


def test_print_is_readable_and_footers_have_room(book):
    """At least 7 pt in print: columns are in units of 7 px plus 5 px at 96 dpi, cells in 9 pt."""
    for sheet in book.worksheets:
        page, edges = sheet.page_setup, sheet.page_margins
        width_px = sum(int(7 * column.width + 5) for column in sheet.column_dimensions.values())
        room = page.fitToWidth * (PAPER_WIDTH_PT[int(page.paperSize)] - POINTS_PER_INCH * (edges.left + edges.right))
        assert 9 * min(1, room / (width_px * 0.75)) >= 7, sheet.title
        assert edges.bottom - edges.footer >= 0.4, sheet.title
        assert edges.footer >= 0.4, sheet.title


def test_nothing_is_merged_hidden_linked_or_password_protected(xlsx, book):
    for sheet in book.worksheets:
        assert not sheet.merged_cells.ranges
        assert sheet.sheet_state == "visible"
        assert not any(item.hidden for item in sheet.row_dimensions.values())
        assert not any(item.hidden for item in sheet.column_dimensions.values())
        assert sheet.protection.sheet
        assert not sheet.protection.password
    names = zipfile.ZipFile(xlsx).namelist()
    assert not any("externalLink" in name or "vba" in name.lower() for name in names)


def test_tables_are_named_once_have_text_headers_and_stand_in_the_first_column(book, plan: FleetPlan):
    tables = [table for sheet in book.worksheets for table in sheet.tables.values()]
    names = [table.displayName for table in tables]
    places = layout(plan).tables
    assert sorted(names) == sorted(name for name, table in places.items() if not table.workings)
    assert sum(len(table.tableColumns) for sheet in book for table in sheet.tables.values()) <= 256
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"tbl[A-Z][A-Za-z]+", name) for name in names)
    for item in layout(plan).sheets:
        assert item.tables[0].top == 4, item.name
    for sheet in book.worksheets:
        for table in sheet.tables.values():
            header = [cell.value for cell in sheet[table.ref][0]]
            assert header == [column.name for column in table.tableColumns]
            assert all(isinstance(text, str) for text in header)
            for row in sheet[table.ref][1:]:
                assert row[0].value is not None, (sheet.title, row[0].coordinate)


def test_formulas_are_short_plain_and_free_of_constants(book):
    formulas = _formulas(book)
    assert len(formulas) > 300
    for sheet, cell, text in formulas:
        assert len(text) < 120, (sheet, cell, text)
        assert text.count("IF(") - text.count("SUMIF(") - text.count("COUNTIF(") <= 1, (sheet, cell, text)
        assert not any(word in text for word in VOLATILE), (sheet, cell, text)
        assert "[" not in text, (sheet, cell, text)
        bare = re.sub(r'"[^"]*"', "", re.sub(r"\$?[A-Z]{1,3}\$?\d+", "", text))
        assert set(re.findall(r"\d+\.?\d*", bare)) <= {"0", "1"}, (sheet, cell, text)


def test_every_column_of_formulas_is_filled_down_alike(book):
    for name, headers in {"tblPlan": ("GPUs", "Cost, USD"), "tblCost": ("GPUs bought", "Cost, USD")}.items():
        sheet = next(s for s in book.worksheets if name in s.tables)
        rows = sheet[sheet.tables[name].ref]
        for n, header in enumerate(cell.value for cell in rows[0]):
            if header in headers:
                texts = [re.sub(rf"(?<![$\d]){row[n].row}\b", "#", row[n].value) for row in rows[1:]]
                assert all(a == b for a, b in pairwise(texts)), (name, header)


def test_money_is_never_pasted(book, plan: FleetPlan):
    """Every number in a USD column is a formula; figures of a re-solve, and of the solver on the Cover, say so."""
    places = layout(plan)
    for table in places.tables.values():
        for column in table.columns:
            if "USD" not in column.header or "re-solve" in column.header or table.name in {"tblSolves", "tblLast"}:
                continue
            for i in range(table.rows):
                cell = book[table.sheet][table.address(column.header, i).split("!")[1].replace("$", "")]
                assert cell.data_type == "f" or cell.value == 0, (table.name, column.header, cell.value)


def test_no_amount_of_money_hides_in_a_text(book, plan: FleetPlan):
    """The extra cost of the next best is a number of its own, in green; prices in an offer's own notes are its text."""
    fit = layout(plan).tables["tblFit"]
    for i, pool in enumerate(plan.pools):
        cell = book["Fit"][fit.address("Extra USD, re-solve", i).split("!")[1].replace("$", "")]
        assert cell.value == pool.runner_up.extra_usd
        assert cell.fill.start_color.rgb[2:] == "E2EFDA"
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                if isinstance(cell.value, str) and cell.data_type != "f":
                    assert not re.search(r"\d USD|USD \d", cell.value), (sheet.title, cell.coordinate, cell.value)
    notes = {cell.column for row in book["Cover"].iter_rows() for cell in row if "solver result" in str(cell.value)}
    assert notes == {3}


def test_pandas_and_previewers_see_numbers(xlsx, book, values, plan: FleetPlan):
    cost = pd.read_excel(xlsx, sheet_name="Cost", header=3, nrows=len(plan.purchases))
    assert cost["Cost, USD"].tolist() == pytest.approx([p.usd for p in plan.purchases])
    pools = pd.read_excel(xlsx, sheet_name="Plan", header=3, nrows=len(plan.pools))
    assert pools["GPUs"].tolist() == [p.gpus for p in plan.pools]
    assert pools["Cost, USD"].tolist() == pytest.approx([p.usd for p in plan.pools])
    assert not pools.select_dtypes("number").isna().any().any()
    for sheet, cell, _ in _formulas(book):
        assert values[sheet][cell].value is not None, (sheet, cell)


def test_stored_results_are_current(xlsx, book):
    """What ``formualizer recalc --check`` asks: calculating again changes nothing."""
    again = formualizer.recalculate_xlsx_bytes(xlsx.read_bytes())
    assert again["cache_cells_changed"] == 0
    assert again["summary"]["total_errors"] == 0
    assert again["formula_cells"] == len(_formulas(book))


def test_totals_equal_the_plan_and_the_objective(values, plan: FleetPlan):
    places = layout(plan)

    def total(table: str, header: str) -> float:
        place = places.tables[table].place(header, "#total", 0).replace("$", "")
        return values[places.tables[table].sheet][place].value

    assert total("tblCost", "Cost, USD") == pytest.approx(plan.totals.usd, abs=0.01)
    assert total("tblCost", "Cost, USD") == pytest.approx(plan.solve.objective, abs=0.01)
    assert total("tblModels", "Cost, USD") == pytest.approx(plan.totals.usd, abs=0.01)
    assert total("tblGpuTypes", "Cost, USD") == pytest.approx(plan.totals.usd, abs=0.01)
    assert total("tblCost", "GPUs bought") == plan.totals.gpus
    assert total("tblSupplies", "GPU-hours paid") == plan.totals.gpu_hours
    summary = {row[0].value: row[1].value for row in values["Summary"]["A5:B45"]}
    assert summary["USD per 1M input tokens"] == pytest.approx(plan.totals.usd_per_mtok_input)
    assert summary["USD per 1M output tokens"] == pytest.approx(plan.totals.usd_per_mtok_output)
    assert summary["Paid in any case"] == 8_496 + 2_592
    assert summary["Still to be paid after the horizon"] == 198_000
    assert summary["USD per 1M served tokens, by use"] == pytest.approx(plan.totals.usd_per_mtok_by_use)
    assert summary["USD per 1M served tokens, by reservation"] == pytest.approx(plan.totals.usd_per_mtok_by_reservation)
    refused = sum(p.offered_requests * p.refused_request_share for p in plan.pools)
    assert summary["Requests refused"] == pytest.approx(refused / sum(p.offered_requests for p in plan.pools))
    offered = [p.offered_requests * (p.mean_prompt_tokens + p.mean_output_tokens) for p in plan.pools]
    tokens = sum(p.refused_token_share * n for p, n in zip(plan.pools, offered, strict=True)) / sum(offered)
    assert summary["Tokens refused"] == pytest.approx(tokens)
    assert summary["Tokens refused"] > summary["Requests refused"]
    assert summary["Oldest price paid"] == dt.datetime(2026, 7, 20)
    assert summary["Its age when planned"] == 132
    assert values["Cover"]["A3"].value == f"ALL {len(checks.checks(views_of(plan)[0]))} CHECKS PASS"
    assert values["Cover"]["B3"].value == "USD 369,924 for 53 GPUs; USD 0.8484 per 1M tokens"


def _column(values: Workbook, plan: FleetPlan, name: str, header: str) -> list:
    table = layout(plan).tables[name]
    letter = table.letter(header)
    return [values[table.sheet][f"{letter}{table.first + i}"].value for i in range(table.rows)]


def test_a_supplys_cost_is_borne_by_gpu_hours(xlsx, values, plan: FleetPlan):
    """H100: 64,800 + 158,515.2 USD. GPU-hours: chat/1 12 x 720 + 4 x 1440 = 14,400, chat/2 4 x 2160 = 8,640,
    code 3 x 720 + 2 x 1440 = 5,040; in all 28,080 used of 8 x (2160 + 2880) = 40,320 paid."""
    pools = pd.read_excel(xlsx, sheet_name="Plan", header=3, nrows=6).set_index("Pool")
    h100 = 64_800 + 158_515.2
    for name, hours in (("chat/1", 14_400), ("chat/2", 8_640), ("code", 5_040)):
        assert pools.loc[name, "GPU-hours"] == hours
        assert pools.loc[name, "Cost, USD"] == pytest.approx(h100 * hours / 28_080)
        assert pools.loc[name, "Cost of GPUs held, USD"] == pytest.approx(h100 * hours / 40_320)
    idle = dict(zip(*(_column(values, plan, "tblSupplies", h) for h in ("Supply", "Of which idle, USD")), strict=True))
    assert idle["H100-SXM x8"] == pytest.approx(h100 * (1 - 28_080 / 40_320))
    assert idle["H200-SXM x8"] == pytest.approx(0)


def test_a_contract_that_nobody_uses_is_a_line_of_its_own(values, plan: FleetPlan):
    cost = dict(zip(*(_column(values, plan, "tblModels", h) for h in ("Model", "Cost, USD")), strict=True))
    assert cost["(supplies that no pool uses)"] == 2_592
    assert sum(cost.values()) == pytest.approx(plan.totals.usd)


def test_lots_are_paid_by_reserved_and_used_hours(values, plan: FleetPlan):
    """1 x 2160 h x 30 USD reserved; on demand 2 x 720 + 1 x 1440 = 2,880 h x 55.04 USD; the held one is sunk."""
    rows = {
        lot: (reserved, used, sunk)
        for lot, reserved, used, sunk in zip(
            *(_column(values, plan, "tblCost", h) for h in ("Lot", "Reserved, USD", "In use, USD", "In any case, USD")),
            strict=True,
        )
    }
    assert rows["aws/p5.48xlarge/us-east-1/commit_1y"] == (64_800, 0, 0)
    assert rows["aws/p5.48xlarge/us-east-1/on_demand"] == pytest.approx((0, 158_515.2, 0))
    assert rows["held/aws/g6e.12xlarge/us-east-1/commit_1y/2027-03-01"] == (0, 0, 8_496)


def test_two_pools_of_one_model_are_added_and_routed(values, plan: FleetPlan):
    gpus = dict(zip(*(_column(values, plan, "tblModels", h) for h in ("Model", "GPUs")), strict=True))
    assert gpus["chat"] == 12 + 4
    assert _column(values, plan, "tblPlan", "Prompts routed here, tokens")[:2] == ["0 to 4,095", "4,096 and more"]
    assert _column(values, plan, "tblRoutes", "Pool") == [pool.name for pool in plan.pools]
    assert _column(values, plan, "tblRoutes", "To, tokens")[:2] == [4096, "no limit"]


def test_periods_show_replicas_and_hours(values, plan: FleetPlan):
    """chat/1: 3 replicas for 720 h and 1 for 1440 h; 19 of 24 H100 in the busy hours, 10 of 16 in the others."""
    pools, hours = (_column(values, plan, "tblPoolPeriods", h) for h in ("Pool", "Replica-hours"))
    assert (pools[0], hours[:2]) == ("chat/1", [2160, 1440])
    assert _column(values, plan, "tblNodes", "Supply")[:2] == ["H100-SXM x8", "H100-SXM x8"]
    assert _column(values, plan, "tblNodes", "GPUs used")[:2] == [19, 10]
    assert _column(values, plan, "tblNodes", "GPUs idle")[:2] == [24 - 19, 16 - 10]


def test_worth_of_a_quota_and_rejected_classes_are_shown(values, plan: FleetPlan):
    worth = _column(values, plan, "tblUses", "One more is worth, USD, re-solve")
    assert worth == [210.5, 0, "not looked for", "not looked for"]
    assert _column(values, plan, "tblRejected", "Configurations") == [31, 4]


def test_a_plan_without_routes_or_rejections_still_has_its_sheets(plan: FleetPlan, tmp_path: Path):
    write_workbook(plan.model_copy(update={"rejected": (), "quotas": ()}), tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    assert values["Rejected"]["A5"].value == "(none)"
    assert values["Checks"]["A3"].value == 1


def test_hostile_text_stays_text(book, sample: ModuleType, plan: FleetPlan):
    texts = {
        cell.value: cell
        for sheet in book.worksheets
        for row in sheet.iter_rows()
        for cell in row
        if isinstance(cell.value, str) and cell.data_type != "f"
    }
    note = '=HYPERLINK("http://evil.example","click") [31m'
    assert texts[note].data_type == "s"
    assert texts[note].quotePrefix
    assert texts["-2+3"].data_type == "s"
    assert texts["=1+1"].data_type == "s"
    assert texts[sample.HOSTILE_ASSUMPTION].data_type == "s"
    assert texts["+1-555 call me"].data_type == "s"
    long = next(text for text in texts if text.startswith("=long note"))
    assert len(long) == 32_767
    assert long.endswith(f" [cut: {len(sample.VERY_LONG):,} characters in the plan]")
    for _, _, formula in _formulas(book):
        assert "HYPERLINK" not in formula
        assert "cmd" not in formula


def test_charts_have_titles_axes_alternative_text_and_values(xlsx, book):
    package = zipfile.ZipFile(xlsx)
    drawing = package.read("xl/drawings/drawing1.xml").decode()
    assert 'name="Cost by GPU type" descr="Bar chart' in drawing
    assert 'name="Cost by model" descr="Bar chart' in drawing
    for number, names in ((1, ("H100-SXM", "A100-SXM-80GB")), (2, ("chat", "vision"))):
        chart = package.read(f"xl/charts/chart{number}.xml").decode()
        assert chart.count('<delete val="0"') == 2
        assert chart.count("<title>") == 3
        assert "numCache" in chart
        assert "strCache" in chart
        assert all(f"<v>{name}</v>" in chart for name in names)
    assert len(book["Summary"]._charts) == 2


def test_models_and_charts_are_sorted_by_cost(values, plan: FleetPlan):
    places = layout(plan)

    def column(name: str, header: str, rows: int) -> list:
        table = places.tables[name]
        letter = table.letter(header)
        return [values[table.sheet][f"{letter}{table.first + i}"].value for i in range(rows)]

    for name, rows in (("tblModels", 5), ("tblGpuTypes", 5)):
        cost = column(name, "Cost, USD", rows)
        assert cost == sorted(cost, reverse=True), name
    assert sum(column("tblGpuTypes", "Share of cost", 5)) == pytest.approx(1)
    assert sum(column("tblModels", "Share of cost", 6)) == pytest.approx(1), "with the supplies that no pool uses"
    assert column("tblBinding", "Pool", 6) == ["chat/1", "chat/2", "agents", "code", "search", "vision"]
    pools = {pool.name: pool for pool in plan.pools}
    for model, cost, unit in zip(
        *(column("tblBinding", header, 6) for header in ("Pool", "Cost, USD", "USD per 1M tokens")), strict=True
    ):
        assert cost == pytest.approx(pools[model].usd)
        assert unit == pytest.approx(cost / pools[model].served_mtok)


def test_cover_says_basis_digest_and_what_the_bound_proves(values, plan: FleetPlan):
    cover = {row[0].value: row[1:3] for row in values["Cover"]["A5:C28"]}
    assert cover["Currency"][1].value == "nominal, no inflation applied; tax excluded"
    assert cover["Prices"][0].value == "list prices, before any discount"
    lines = "".join(f"{file.role}\t{file.path}\t{file.sha256}\n" for file in plan.inputs)
    assert cover["Inputs, sha256"][0].value == hashlib.sha256(lines.encode()).hexdigest()
    assert cover["Inputs, sha256"][0].data_type == "s"
    assert cover["Proven bound, USD (solver)"][1].value == f"solver result: {facts.CLAIM}"
    assert cover["Oldest price paid"][0].value == dt.datetime(2026, 7, 20)
    assert cover["Its age when planned, days"][0].value == 132
    for value, _ in cover.values():
        numeric = isinstance(value.value, int | float | dt.datetime)
        assert value.alignment.horizontal == ("right" if numeric else "left"), value.coordinate


def test_undated_inputs_are_named_counted_and_warned_about(xlsx, values, plan: FleetPlan, tmp_path: Path):
    """The plan knows no date of the source of the largest work share."""
    inputs = pd.read_excel(xlsx, sheet_name="Inputs", header=3).set_index("Id")
    assert inputs.loc["limit/work_share/0.85", "Source date"] == "undated"
    assert inputs.loc["limit/work_share/0.85", "Age, days"] == "undated"
    warnings = [cell.value for cell in values["Warnings"]["B"]]
    assert "Inputs without a source date: 1; sheet Inputs shows them as undated" in warnings
    summary = {row[0].value: row[1].value for row in values["Summary"]["A5:B45"]}
    assert summary["Inputs without a source date"] == 1
    assert summary["Warnings to read"] == len(plan.warnings) + 1
    write_workbook(plan.model_copy(update={"assumptions": (), "warnings": ()}), tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    assert re.fullmatch(r"Inputs without a source date: \d\d; .*", values["Warnings"]["B5"].value)
    assert values["Checks"]["A3"].value == 1


def test_dated_inputs_without_warnings_leave_nothing_to_read(plan: FleetPlan, tmp_path: Path):
    dated = tuple(a.model_copy(update={"source_date": dt.date(2026, 10, 1)}) for a in plan.assumptions)
    write_workbook(plan.model_copy(update={"assumptions": dated, "warnings": ()}), tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    assert values["Warnings"]["B5"].value == "No warnings."
    summary = {row[0].value: row[1].value for row in values["Summary"]["A5:B45"]}
    assert summary["Warnings to read"] == 0
    assert summary["Inputs without a source date"] == 0


def test_glossary_explains_the_terms_of_finance(xlsx):
    glossary = pd.read_excel(xlsx, sheet_name="Glossary", header=3).set_index("Term")
    wanted = "Replica|TP|KV cache|Live tokens|TPOT|TTFT|max_model_len|Work share|Capacity|Bound and gap"
    for term in (*wanted.split("|"), "USD per 1M by reservation", "USD per 1M by use"):
        assert len(glossary.loc[term, "Meaning"]) > 40, term


def test_a_replica_without_steady_state_has_words_and_fails(plan: FleetPlan, tmp_path: Path):
    """The slow edge of a band may be infinite: a cell cannot hold that."""
    first = plan.pools[0]
    ttft = first.speed.ttft_ms.model_copy(update={"high": float("inf"), "used": float("inf")})
    margins = tuple(
        m.model_copy(update={"planned": float("inf"), "satisfied": False}) if m.constraint == "TTFT target" else m
        for m in first.margins
    )
    pool = first.model_copy(update={"speed": first.speed.model_copy(update={"ttft_ms": ttft}), "margins": margins})
    changed = plan.model_copy(update={"pools": (pool, *plan.pools[1:])})
    write_workbook(changed, tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    words = [cell.value for row in values["Margins"].iter_rows() for cell in row]
    assert words.count("no steady state") == 3
    assert values["Checks"]["B3"].value == "2 OF 59 CHECKS FAIL"


def test_numbers_of_inputs_have_no_more_digits_than_they_are_worth(plan: FleetPlan):
    pool = plan.pools[0].model_copy(update={"mean_prompt_tokens": 13620.3736, "stated_rate_per_s": 5.75})
    rows = {row.id: row for row in input_rows(plan.model_copy(update={"pools": (pool, *plan.pools[1:])}))}
    assert number_format(rows["demand/chat/1/mean_prompt"]) == "#,##0.0"
    assert number_format(rows["demand/chat/rate"]) == "#,##0.00##"
    assert number_format(rows["tail/chat/1"]) == "0.0##%"
    assert number_format(rows["target/chat/1/tpot"]) == "#,##0"


def test_index_links_stay_inside_and_reach_every_sheet(book):
    cover = book["Cover"]
    links = {cell.value: cell.hyperlink for row in cover.iter_rows() for cell in row if cell.hyperlink}
    assert sorted(links) == sorted(SHEETS)
    assert all(link.location == f"'{name}'!A1" and link.target is None for name, link in links.items())


def test_inputs_are_unlocked_and_the_rest_is_not(book, plan: FleetPlan):
    """Also locked: the day of planning, shares that the optimiser decided, constants."""
    inputs = book["Inputs"]
    locked = {row.id for row in input_rows(plan) if row.kind is not Kind.INPUT}
    assert locked == {
        "plan/created",
        *(f"demand/{p.name}/refused_{what}" for p in plan.pools for what in ("requests", "input", "output")),
        *(f"demand/{p.name}/share" for p in plan.pools),
    }
    for row in inputs.iter_rows(min_row=5):
        for cell in row:
            yellow = cell.fill.start_color.rgb[2:] == "FFF9D6"
            assert cell.protection.locked is not yellow, cell.coordinate
            wanted = cell.column_letter == "E" and row[0].value in {r.id for r in input_rows(plan)} - locked
            assert yellow is wanted, cell.coordinate
    assert inputs["E6"].font.color.rgb == "000000FF"


def test_same_plan_gives_the_same_bytes_at_any_time(plan: FleetPlan, tmp_path: Path, xlsx):
    again = tmp_path / "again.xlsx"
    write_workbook(plan, again)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(xlsx.read_bytes()).digest()
    package = zipfile.ZipFile(again)
    assert {item.date_time for item in package.infolist()} == {(2026, 11, 29, 16, 40, 6)}
    core = package.read("docProps/core.xml").decode()
    assert core.count("2026-11-29T16:40:07Z") == 2


def test_the_stamp_is_converted_to_utc(plan: FleetPlan, tmp_path: Path):
    zone = dt.timezone(dt.timedelta(hours=2))
    write_workbook(plan.model_copy(update={"created_at": plan.created_at.astimezone(zone)}), tmp_path / "a.xlsx")
    cover = load_workbook(tmp_path / "a.xlsx")["Cover"]
    assert {row[0].value: row[1].value for row in cover["A5:B30"]}["Generated"] == "2026-11-29 16:40 UTC"


def test_missing_formualizer_is_one_clear_error_and_no_file(plan: FleetPlan, tmp_path: Path, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name == "formualizer":
            raise ImportError("No module named 'formualizer'")
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PlannerError, match="needs formualizer"):
        write_workbook(plan, tmp_path / "plan.xlsx")
    assert not list(tmp_path.iterdir())


def test_failure_of_formualizer_keeps_the_old_file(plan: FleetPlan, tmp_path: Path, monkeypatch):
    target = tmp_path / "plan.xlsx"
    target.write_bytes(b"old")

    def fails(*_arguments, **_keywords):
        raise OSError("boom")

    monkeypatch.setattr("formualizer.load_workbook_bytes", fails)
    with pytest.raises(PlannerError, match="could not calculate the workbook: boom"):
        write_workbook(plan, target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.xlsx"]


def test_a_pool_without_purchase_is_refused(plan: FleetPlan, tmp_path: Path):
    changed = plan.model_copy(update={"purchases": plan.purchases[2:]})
    with pytest.raises(PlannerError, match=r"supply H100-SXM x8 is not bought"):
        write_workbook(changed, tmp_path / "plan.xlsx")


def test_two_inputs_with_one_id_are_refused(plan: FleetPlan, tmp_path: Path):
    changed = plan.model_copy(update={"assumptions": (*plan.assumptions, plan.assumptions[1])})
    with pytest.raises(PlannerError, match="overflow: two inputs have the same id"):
        write_workbook(changed, tmp_path / "plan.xlsx")


def test_an_assumption_behind_a_row_gives_it_source_and_owner_once(xlsx):
    inputs = pd.read_excel(xlsx, sheet_name="Inputs", header=3).set_index("Id")
    assert "max_price_age_days" not in inputs.index
    assert "growth_chat" not in inputs.index
    assert inputs.loc["limit/max_price_age_days", "Source"] == "FinOps"
    assert inputs.loc["limit/max_price_age_days", "Owner"] == "Platform"
    assert inputs.loc["demand/chat/growth", "Source"] == "+1-555 call me"
    assert inputs.loc["demand/chat/rate", "Source"] == "product team"
    assert inputs.loc["demand/chat/1/mean_prompt", "Source"] == "traffic log catalogs/example/traffic/chat"
    assert inputs.loc["demand/code/mean_prompt", "Source"] == "traffic log of code"
    assert str(inputs.loc["demand/chat/1/mean_prompt", "Source date"])[:10] == "2026-10-01"
    assert inputs.index.is_unique


def test_without_a_stated_price_age_the_default_is_labelled(plan: FleetPlan, tmp_path: Path):
    write_workbook(plan.model_copy(update={"assumptions": ()}), tmp_path / "plan.xlsx")
    inputs = pd.read_excel(tmp_path / "plan.xlsx", sheet_name="Inputs", header=3).set_index("Id")
    assert inputs.loc["limit/max_price_age_days", "Value"] == 400
    assert inputs.loc["limit/max_price_age_days", "Source"].startswith("default of the planner")


def test_unwritable_folder_is_a_clear_error(plan: FleetPlan, tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(PlannerError, match="cannot be written"):
        write_workbook(plan, tmp_path / "file" / "plan.xlsx")


def test_a_peak_of_the_week_says_so_and_is_locked(plan: FleetPlan):
    """Stated 1.28; a pool whose hours of the week peak at 2 is not the request's word."""
    pool = plan.pools[0].model_copy(update={"peak_factor": 2.0})
    rows = {row.id: row for row in input_rows(plan.model_copy(update={"pools": (pool, *plan.pools[1:])}))}
    assert rows["demand/chat/1/peak"].source == "planner run 3fa9c1d20b7e, from the hours of the week"
    assert rows["demand/chat/1/peak"].kind is Kind.RESULT
    assert rows["demand/chat/2/peak"].source == "product team"
    assert rows["demand/chat/2/peak"].kind is Kind.INPUT
