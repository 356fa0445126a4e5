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
from openpyxl import load_workbook

from planner.errors import PlannerError
from planner.plan import FleetPlan
from planner.report import facts
from planner.report.sheets.inputs import input_rows, number_format
from planner.report.style import Kind
from planner.report.workbook import layout, write_workbook

SHEETS = [
    "Cover",
    "Summary",
    "Warnings",
    "Inputs",
    "Demand",
    "Plan",
    "Fit",
    "Margins",
    "Cost",
    "Checks",
    "Files",
    "Glossary",
]
POINTS_PER_INCH = 72
PAPER_WIDTH_PT = {9: 841.9, 8: 1190.6}
"""A4 and A3 landscape."""
VOLATILE = ("TODAY(", "NOW(", "OFFSET(", "INDIRECT(", "RAND", "CELL(", "INFO(")


def _formulas(path: Path) -> list[tuple[str, str, str]]:
    return [
        (sheet.title, cell.coordinate, cell.value)
        for sheet in load_workbook(path).worksheets
        for row in sheet.iter_rows()
        for cell in row
        if cell.data_type == "f"
    ]


def test_sheets_follow_the_reading_order_and_share_their_head(xlsx):
    book = load_workbook(xlsx)
    assert book.sheetnames == SHEETS
    for sheet in book.worksheets:
        assert sheet["A1"].value
        assert sheet["A2"].value
        assert sheet["A4"].value
        assert sheet.freeze_panes in {"A5", "B5"}
        assert sheet.sheet_properties.tabColor.rgb[2:] in {"1F3864", "FFC000", "548235", "7F7F7F", "C00000"}
        assert sheet.page_setup.orientation == "landscape"
        assert sheet.sheet_properties.pageSetUpPr.fitToPage
        assert sheet.page_setup.fitToWidth == 1
        assert sheet.print_title_rows == "$4:$4"
        assert sheet.oddFooter.right.text == "Page &P of &N"
        assert sheet.oddFooter.left.text.startswith("R&&D fleet")


def test_print_is_readable_and_footers_have_room(xlsx):
    """At least 7 pt in print: columns are in units of 7 px plus 5 px at 96 dpi, cells in 9 pt."""
    for sheet in load_workbook(xlsx).worksheets:
        page, edges = sheet.page_setup, sheet.page_margins
        width_px = sum(int(7 * column.width + 5) for column in sheet.column_dimensions.values())
        room = PAPER_WIDTH_PT[int(page.paperSize)] - POINTS_PER_INCH * (edges.left + edges.right)
        assert 9 * min(1, room / (width_px * 0.75)) >= 7, sheet.title
        assert edges.bottom - edges.footer >= 0.4, sheet.title
        assert edges.footer >= 0.4, sheet.title


def test_nothing_is_merged_hidden_linked_or_password_protected(xlsx):
    book = load_workbook(xlsx)
    for sheet in book.worksheets:
        assert not sheet.merged_cells.ranges
        assert sheet.sheet_state == "visible"
        assert not any(item.hidden for item in sheet.row_dimensions.values())
        assert not any(item.hidden for item in sheet.column_dimensions.values())
        assert sheet.protection.sheet
        assert not sheet.protection.password
    names = zipfile.ZipFile(xlsx).namelist()
    assert not any("externalLink" in name or "vba" in name.lower() for name in names)


def test_tables_are_named_once_have_text_headers_and_stand_in_the_first_column(xlsx, plan: FleetPlan):
    tables = [table for sheet in load_workbook(xlsx).worksheets for table in sheet.tables.values()]
    names = [table.displayName for table in tables]
    assert sorted(names) == sorted(layout(plan).tables)
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"tbl[A-Z][A-Za-z]+", name) for name in names)
    book = load_workbook(xlsx)
    for sheet in book.worksheets:
        assert min(int(re.findall(r"\d+", table.ref)[0]) for table in sheet.tables.values()) == 4
        for table in sheet.tables.values():
            header = [cell.value for cell in sheet[table.ref][0]]
            assert header == [column.name for column in table.tableColumns]
            assert all(isinstance(text, str) for text in header)
            for row in sheet[table.ref][1:]:
                assert row[0].value is not None, (sheet.title, row[0].coordinate)


def test_formulas_are_short_plain_and_free_of_constants(xlsx):
    formulas = _formulas(xlsx)
    assert len(formulas) > 300
    for sheet, cell, text in formulas:
        assert len(text) < 120, (sheet, cell, text)
        assert text.count("IF(") - text.count("SUMIF(") - text.count("COUNTIF(") <= 1, (sheet, cell, text)
        assert not any(word in text for word in VOLATILE), (sheet, cell, text)
        assert "[" not in text, (sheet, cell, text)
        bare = re.sub(r'"[^"]*"', "", re.sub(r"\$?[A-Z]{1,3}\$?\d+", "", text))
        assert set(re.findall(r"\d+\.?\d*", bare)) <= {"0", "1"}, (sheet, cell, text)


def test_every_column_of_formulas_is_filled_down_alike(xlsx):
    book = load_workbook(xlsx)
    for name, headers in {"tblPlan": ("GPUs", "Cost, USD"), "tblCost": ("GPUs used", "Cost, USD")}.items():
        sheet = next(s for s in book.worksheets if name in s.tables)
        rows = sheet[sheet.tables[name].ref]
        for n, header in enumerate(cell.value for cell in rows[0]):
            if header in headers:
                texts = [re.sub(rf"(?<![$\d]){row[n].row}\b", "#", row[n].value) for row in rows[1:]]
                assert all(a == b for a, b in pairwise(texts)), (name, header)


def test_money_is_never_pasted(xlsx, plan: FleetPlan):
    """Every number in a USD column is a formula; figures of a re-solve, and of the solver on the Cover, say so."""
    book, places = load_workbook(xlsx), layout(plan)
    for table in places.tables.values():
        for column in table.columns:
            if "USD" not in column.header or "re-solve" in column.header:
                continue
            for i in range(table.rows):
                cell = book[table.sheet][table.address(column.header, i).split("!")[1].replace("$", "")]
                assert cell.data_type == "f" or cell.value == 0, (table.name, column.header, cell.value)


def test_no_amount_of_money_hides_in_a_text(xlsx, plan: FleetPlan):
    """The extra cost of the next best is a number of its own, in green; prices in an offer's own notes are its text."""
    book, fit = load_workbook(xlsx), layout(plan).tables["tblFit"]
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


def test_pandas_and_previewers_see_numbers(xlsx, plan: FleetPlan):
    cost = pd.read_excel(xlsx, sheet_name="Cost", header=3, nrows=len(plan.purchases))
    assert cost["Cost, USD"].tolist() == pytest.approx([p.usd for p in plan.purchases])
    pools = pd.read_excel(xlsx, sheet_name="Plan", header=3, nrows=len(plan.pools))
    assert pools["GPUs"].tolist() == [p.gpus for p in plan.pools]
    assert pools["Cost, USD"].sum() == pytest.approx(plan.totals.usd)
    assert not pools.select_dtypes("number").isna().any().any()
    values = load_workbook(xlsx, data_only=True)
    for sheet, cell, _ in _formulas(xlsx):
        assert values[sheet][cell].value is not None, (sheet, cell)


def test_stored_results_are_current(xlsx):
    """What ``formualizer recalc --check`` asks: calculating again changes nothing."""
    again = formualizer.recalculate_xlsx_bytes(xlsx.read_bytes())
    assert again["cache_cells_changed"] == 0
    assert again["summary"]["total_errors"] == 0
    assert again["formula_cells"] == len(_formulas(xlsx))


def test_totals_equal_the_plan_and_the_objective(xlsx, plan: FleetPlan):
    values, places = load_workbook(xlsx, data_only=True), layout(plan)

    def total(table: str, header: str) -> float:
        place = places.tables[table].place(header, "#total", 0).replace("$", "")
        return values[places.tables[table].sheet][place].value

    assert total("tblCost", "Cost, USD") == pytest.approx(plan.totals.usd, abs=0.01)
    assert total("tblCost", "Cost, USD") == pytest.approx(plan.solve.objective, abs=0.01)
    assert total("tblModels", "Cost, USD") == pytest.approx(plan.totals.usd, abs=0.01)
    assert total("tblGpuTypes", "Cost, USD") == pytest.approx(plan.totals.usd, abs=0.01)
    assert total("tblCost", "GPUs bought") == plan.totals.gpus
    assert total("tblCost", "GPU-hours") == plan.totals.gpu_hours
    summary = {row[0].value: row[1].value for row in values["Summary"]["A5:B22"]}
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
    assert values["Cover"]["A3"].value == "ALL 30 CHECKS PASS"
    assert values["Cover"]["B3"].value == "USD 410,066 for 42 GPUs; USD 1.0265 per 1M tokens"


def test_idle_gpus_are_shown_and_charged_by_gpu_share(xlsx, plan: FleetPlan):
    """Of 16 H100 bought 15 are used: 12 by chat, 3 by code; the idle one is split 12:3."""
    models = pd.read_excel(xlsx, sheet_name="Plan", header=3, nrows=5).set_index("Pool")
    h100 = plan.purchases[0].usd
    assert models.loc["chat", "Cost, USD"] == pytest.approx(h100 * 12 / 15)
    assert models.loc["code", "Cost, USD"] == pytest.approx(h100 * 3 / 15)
    assert models.loc["chat", "Idle charged, USD"] == pytest.approx(h100 / 16 * 12 / 15)
    cost = pd.read_excel(xlsx, sheet_name="Cost", header=3, nrows=4)
    assert cost["GPUs idle"].tolist() == [1, 0, 2, 0]


def test_offers_without_pools_stay_visible(plan: FleetPlan, tmp_path: Path):
    unused = plan.purchases[3].model_copy(update={"offer_id": "spare/offer", "gpus_used": 0})
    usd = plan.totals.usd + unused.usd
    changed = plan.model_copy(
        update={
            "purchases": (*plan.purchases, unused),
            "totals": plan.totals.model_copy(update={"usd": usd}),
            "solve": plan.solve.model_copy(update={"objective": usd, "bound": usd}),
        }
    )
    write_workbook(changed, tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    models = layout(changed).tables["tblModels"]
    last = models.address("Cost, USD", models.rows - 1).split("!")[1]
    assert values["Cost"][last.replace("$", "")].value == pytest.approx(unused.usd)
    assert values["Checks"]["A3"].value == 1


def test_two_pools_of_one_model_are_added(plan: FleetPlan, tmp_path: Path):
    first, second, *rest = plan.pools
    first = first.model_copy(update={"prompt_hi_tokens": 4096})
    second = second.model_copy(update={"model": first.model, "prompt_lo_tokens": 4096})
    changed = plan.model_copy(update={"pools": (first, second, *rest)})
    write_workbook(changed, tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    assert values["Checks"]["B3"].value == "ALL 30 CHECKS PASS"
    models, pools = layout(changed).tables["tblModels"], layout(changed).tables["tblPlan"]
    assert models.rows == 5
    assert values["Cost"][f"C{models.first}"].value == 15
    band = pools.letter("Prompts routed here, tokens")
    assert [values["Plan"][f"{band}{row}"].value for row in (5, 6)] == ["0 to 4,095", "4,096 and more"]
    binding = layout(changed).tables["tblBinding"]
    names = [values["Summary"][f"A{row}"].value for row in range(binding.first, binding.last + 1)]
    assert names[:2] == ["chat", "chat (code)"]


def test_hostile_text_stays_text(xlsx, sample: ModuleType, plan: FleetPlan):
    book = load_workbook(xlsx)
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
    for _, _, formula in _formulas(xlsx):
        assert "HYPERLINK" not in formula
        assert "cmd" not in formula


def test_charts_have_titles_axes_alternative_text_and_values(xlsx):
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
    assert len(load_workbook(xlsx)["Summary"]._charts) == 2


def test_models_and_charts_are_sorted_by_cost(xlsx, plan: FleetPlan):
    values, places = load_workbook(xlsx, data_only=True), layout(plan)

    def column(name: str, header: str, rows: int) -> list:
        table = places.tables[name]
        letter = table.letter(header)
        return [values[table.sheet][f"{letter}{table.first + i}"].value for i in range(rows)]

    for name, rows in (("tblBinding", 5), ("tblModels", 5), ("tblGpuTypes", 4)):
        cost = column(name, "Cost, USD", rows)
        assert cost == sorted(cost, reverse=True), name
        assert sum(column(name, "Share of cost", rows)) == pytest.approx(1)
    assert column("tblBinding", "Model", 5) == ["chat", "agents", "code", "search", "vision"]
    pools = {pool.name: pool for pool in plan.pools}
    for model, cost, unit in zip(
        *(column("tblBinding", header, 5) for header in ("Model", "Cost, USD", "USD per 1M tokens")), strict=True
    ):
        assert cost == pytest.approx(facts.pool_usd(plan, pools[model]))
        assert unit == pytest.approx(cost / pools[model].served_mtok)


def test_cover_says_basis_digest_and_what_the_bound_proves(xlsx, plan: FleetPlan):
    book = load_workbook(xlsx, data_only=True)
    cover = {row[0].value: row[1:3] for row in book["Cover"]["A5:C24"]}
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


def test_undated_inputs_are_named_counted_and_warned_about(xlsx, plan: FleetPlan, tmp_path: Path):
    """The plan knows no date of the source of the largest work share."""
    inputs = pd.read_excel(xlsx, sheet_name="Inputs", header=3).set_index("Id")
    assert inputs.loc["limit/work_share/0.85", "Source date"] == "undated"
    assert inputs.loc["limit/work_share/0.85", "Age, days"] == "undated"
    values = load_workbook(xlsx, data_only=True)
    warnings = [cell.value for cell in values["Warnings"]["B"]]
    assert "Inputs without a source date: 1; sheet Inputs shows them as undated" in warnings
    summary = {row[0].value: row[1].value for row in values["Summary"]["A5:B22"]}
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
    summary = {row[0].value: row[1].value for row in values["Summary"]["A5:B22"]}
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
    assert values["Checks"]["B3"].value == "2 OF 30 CHECKS FAIL"


def test_numbers_of_inputs_have_no_more_digits_than_they_are_worth(plan: FleetPlan):
    pool = plan.pools[0].model_copy(update={"mean_prompt_tokens": 13620.3736, "stated_rate_per_s": 5.75})
    rows = {row.id: row for row in input_rows(plan.model_copy(update={"pools": (pool, *plan.pools[1:])}))}
    assert number_format(rows["demand/chat/mean_prompt"]) == "#,##0.0"
    assert number_format(rows["demand/chat/rate"]) == "#,##0.00##"
    assert number_format(rows["tail/chat"]) == "0.0##%"
    assert number_format(rows["target/chat/tpot"]) == "#,##0"


def test_index_links_stay_inside_and_reach_every_sheet(xlsx):
    cover = load_workbook(xlsx)["Cover"]
    links = {cell.value: cell.hyperlink for row in cover.iter_rows() for cell in row if cell.hyperlink}
    assert sorted(links) == sorted(SHEETS)
    assert all(link.location == f"'{name}'!A1" and link.target is None for name, link in links.items())


def test_inputs_are_unlocked_and_the_rest_is_not(xlsx, plan: FleetPlan):
    """Also locked: the day of planning, shares that the optimiser decided, constants."""
    inputs = load_workbook(xlsx)["Inputs"]
    locked = {row.id for row in input_rows(plan) if row.kind is not Kind.INPUT}
    assert locked == {
        "plan/created",
        *(f"demand/{p.name}/refused_{what}" for p in plan.pools for what in ("requests", "input", "output")),
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
    assert load_workbook(tmp_path / "a.xlsx")["Cover"]["B10"].value == "2026-11-29 16:40 UTC"


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

    monkeypatch.setattr("formualizer.recalculate_xlsx_bytes", fails)
    with pytest.raises(PlannerError, match="could not calculate the workbook: boom"):
        write_workbook(plan, target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.xlsx"]


def test_a_pool_without_purchase_is_refused(plan: FleetPlan, tmp_path: Path):
    changed = plan.model_copy(update={"purchases": plan.purchases[1:]})
    with pytest.raises(PlannerError, match=r"pool chat runs on aws/p5\.48xlarge.*not bought"):
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
    assert inputs.loc["demand/chat/mean_prompt", "Source"] == "traffic log catalogs/example/traffic/chat"
    assert inputs.loc["demand/code/mean_prompt", "Source"] == "traffic log of code"
    assert str(inputs.loc["demand/chat/mean_prompt", "Source date"])[:10] == "2026-10-01"
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
