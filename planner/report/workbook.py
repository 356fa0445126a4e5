"""The finance workbook of a plan: only optimiser figures are pasted, every other number is a live formula."""

from __future__ import annotations

import io
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from openpyxl import Workbook
from openpyxl.cell.cell import Cell
from openpyxl.formatting.rule import FormulaRule
from openpyxl.styles import Font, PatternFill
from openpyxl.utils import get_column_letter
from openpyxl.utils.cell import coordinate_to_tuple
from openpyxl.worksheet.table import Table as TableObject
from openpyxl.worksheet.table import TableStyleInfo
from openpyxl.worksheet.worksheet import Worksheet

from planner.errors import PlannerError
from planner.plan import FleetPlan
from planner.report import facts, style
from planner.report.calculate import results_of
from planner.report.cells import (
    FLAG,
    MAX_ROW_PT,
    Looks,
    cell_at,
    header_align,
    header_height,
    row_heights,
    write_content,
    write_value,
)
from planner.report.lookup import with_lookups
from planner.report.merge import merge
from planner.report.package import finish_package
from planner.report.scenarios import IN_SCENARIO, names
from planner.report.sheets import (
    bridge,
    catalogue,
    changelog,
    checks,
    commitments,
    cost,
    cover,
    demand,
    files,
    fit,
    focus,
    glossary,
    inputs,
    margins,
    periods,
    rejected,
    replay,
    routing,
    runs,
    sensitivity,
    showback,
    summary,
    warnings,
)
from planner.report.sheets import plan as plan_sheet
from planner.report.table import Book, Column, Formula, Sheet, Table
from planner.report.text import clean_text, one_line
from planner.report.view import View, views_of
from planner.study import Study


def of_plan(build: Callable[[FleetPlan], Sheet]) -> Callable[[View], Sheet]:
    """A sheet that needs no more than the scenario's plan."""
    return lambda view: build(view.plan)


SHEETS: tuple[Callable[[View], Sheet | None], ...] = (
    cover.build,
    summary.build,
    warnings.build,
    inputs.build,
    catalogue.build,
    commitments.build,
    of_plan(demand.build),
    of_plan(plan_sheet.build),
    of_plan(routing.build),
    of_plan(periods.build),
    of_plan(fit.build),
    of_plan(margins.build),
    replay.build,
    of_plan(rejected.build),
    of_plan(cost.build),
    showback.build,
    bridge.build,
    sensitivity.build,
    focus.build,
    runs.build,
    checks.build,
    of_plan(files.build),
    glossary.build,
    changelog.build,
)
"""The sheets in reading order; a new sheet is one module and one line here. ``None``: this study has no such sheet."""

_TITLE_CHARACTERS = 90
_HEADLINE_ROW = 3
_HEADLINE_WIDTH = 26.0


def write_workbook(report: Study | FleetPlan, path: Path) -> None:
    """Write the workbook of a study, or of a plan alone, to ``path``; equal ones give equal bytes.

    Raises
    ------
    PlannerError
        If the plan contradicts itself, the formulas cannot be calculated, or the file cannot be written; nothing is
        left at ``path`` then.
    """
    book, plan = layout(report), views_of(report)[0].plan
    stamp = facts.created_utc(plan)
    workbook, raw = _build(plan, book), io.BytesIO()
    workbook.save(raw)
    results = results_of(raw.getvalue(), workbook, stamp)
    charts = [item.charts for item in book.sheets if item.charts]
    _write_atomically(finish_package(raw.getvalue(), results, stamp, charts), path)


def layout(report: Study | FleetPlan) -> Book:
    """Where everything stands, before a cell is written."""
    views = views_of(report)
    books = [_of_view(view) for view in views]
    return books[0] if len(books) == 1 else merge(books, names(views[0].study), IN_SCENARIO)


def _of_view(view: View) -> Book:
    """The workbook of one scenario alone."""
    named = {**inputs.input_addresses(view), **cover.addresses(view), **summary.addresses(view)}
    sheets = (build(view) for build in SHEETS)
    return Book(tuple(with_lookups(sheet) for sheet in sheets if sheet is not None), named)


def _write_atomically(data: bytes, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise PlannerError(f"{path} cannot be written: {error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise PlannerError(f"{path} cannot be written: {error}") from None


def _build(plan: FleetPlan, book: Book) -> Workbook:
    workbook = Workbook()
    workbook.remove(workbook.worksheets[0])
    _set_width_unit(workbook)
    for item in book.sheets:
        workbook.create_sheet(item.name)
    looks = Looks(workbook.worksheets[0])
    for item in book.sheets:
        _write_sheet(workbook[item.name], item, book, plan, looks)
    properties = workbook.properties
    properties.title, properties.creator = clean_text(plan.title), f"planner {plan.planner_version}"
    properties.created = properties.modified = facts.created_utc(plan).replace(tzinfo=None)
    return workbook


def _set_width_unit(workbook: Workbook) -> None:
    """Make a font that every system has the default one: its digit is the unit of column widths."""
    normal = next(item for item in workbook._named_styles if item.name == "Normal")  # type: ignore[attr-defined]
    normal.font = Font(name=style.FONT, size=10)
    workbook._fonts[0] = normal.font  # type: ignore[attr-defined]


def _write_sheet(sheet: Worksheet, item: Sheet, book: Book, plan: FleetPlan, looks: Looks) -> None:
    title = item.title if isinstance(item.title, Formula) else one_line(item.title, _TITLE_CHARACTERS)
    for place, value in (("A1", title), ("A2", item.purpose)):
        write_content(cell_at(sheet, *coordinate_to_tuple(place)), value, book)
    sheet["A1"].font, sheet["A2"].font = style.TITLE, style.PURPOSE
    sheet.row_dimensions[1].height = 24
    sheet[f"A{_HEADLINE_ROW}"] = "=Checks!$B$3"
    for n, width in enumerate(_widths(item), start=1):
        sheet.column_dimensions[get_column_letter(n)].width = width
    for table in item.tables:
        _write_table(sheet, table, book, looks)
    if item.finish:
        item.finish(sheet, book)
    _headline(sheet, item)
    _set_up(sheet, item, plan)


def _widths(item: Sheet) -> list[float]:
    """Width of each column: the widest that a table of the sheet asks for."""
    columns = itertools.zip_longest(*(table.columns for table in item.tables))
    return [max(column.width for column in row if column is not None) for row in columns]


def _headline(sheet: Worksheet, item: Sheet) -> None:
    """Whether all checks pass, on every sheet, in words and colour."""
    reach = itertools.accumulate(_widths(item))
    columns = 1 + next(n for n, width in enumerate(reach) if width >= _HEADLINE_WIDTH)
    for n in range(1, columns + 1):
        cell = sheet.cell(_HEADLINE_ROW, n)
        cell.font, cell.alignment = style.BIG, style.HEADLINE_ALIGN
    area = f"A{_HEADLINE_ROW}:{get_column_letter(columns)}{_HEADLINE_ROW}"
    passes = "$A$3=1" if item.name == "Checks" else 'LEFT($A$3,3)="ALL"'
    _paint(sheet, area, passes, style.PASS_FONT, style.PASS_FILL)
    _paint(sheet, area, f"NOT({passes})", style.FAIL_FONT, style.FAIL_FILL)
    sheet.row_dimensions[_HEADLINE_ROW].height = 20


def _write_table(sheet: Worksheet, table: Table, book: Book, looks: Looks) -> None:
    if table.heading:
        cell = cell_at(sheet, table.top - 1, 1)
        write_content(cell, table.heading, book)
        cell.font = style.HEADING
    heights = row_heights(table)
    for n, column in enumerate(table.columns, start=1):
        header = sheet.cell(table.top, n, column.header)
        header.font, header.fill, header.alignment = style.HEADER, style.HEADER_FILL, header_align(column, table)
        letter = header.column_letter
        _write_column(sheet, n, column, table, book, looks, heights)
        if column.header.endswith(FLAG) and column.header != checks.PASS:
            _paint_flags(sheet, f"{letter}{table.first}:{letter}{table.last}", good=_good_flag(column))
        if table.total_label:
            _write_total(cell_at(sheet, table.last + 1, n), column, table, n)
    sheet.row_dimensions[table.top].height = header_height(table)
    for row, height in enumerate(heights, start=table.first):
        sheet.row_dimensions[row].height = min(MAX_ROW_PT, height)
    if not table.workings:
        _table_object(sheet, table)


def _write_column(
    sheet: Worksheet, n: int, column: Column, table: Table, book: Book, looks: Looks, heights: list[float]
) -> None:
    """The cells of a column; a text longer than the tallest row starts at the top, so that its beginning shows."""
    filled = book.fill(column.cells, table.sheet, table) if isinstance(column.cells, Formula) else None
    for i, height in enumerate(heights):
        cell, value = cell_at(sheet, table.first + i, n), column.cell(i)
        if filled is not None:
            cell.value = filled(i)
        elif isinstance(value, Formula):
            cell.value = book.resolve(value, table.sheet, table, i)
        else:
            write_value(cell, value)
        looks.put_on(cell, column, i, value, top=height > MAX_ROW_PT)


def _good_flag(column: Column) -> int:
    """1 where a flag says that something holds, 0 where it points at something (changed, too old)."""
    return 0 if column.header.startswith(("Changed", "Price too old")) else 1


def _paint_flags(sheet: Worksheet, area: str, good: int) -> None:
    first = area.split(":", maxsplit=1)[0]
    _paint(sheet, area, f"{first}={1 - good}", style.FAIL_FONT, style.FAIL_FILL)


def _paint(sheet: Worksheet, area: str, condition: str, font: Font, fill: PatternFill) -> None:
    rule = FormulaRule([condition], font=font, fill=fill)  # type: ignore[no-untyped-call]
    sheet.conditional_formatting.add(area, rule)


def _write_total(cell: Cell, column: Column, table: Table, n: int) -> None:
    cell.font, cell.border, cell.alignment = style.BOLD, style.TOTAL_BORDER, style.NUMBER_ALIGN
    if n == 1:
        cell.value, cell.alignment = table.total_label, style.TEXT_ALIGN
    elif column.total:
        letter = cell.column_letter
        cell.value, cell.number_format = f"=SUM({letter}{table.first}:{letter}{table.last})", column.number_at(0)


def _table_object(sheet: Worksheet, table: Table) -> None:
    item = TableObject(displayName=table.name, name=table.name, ref=table.ref)
    item.tableStyleInfo = TableStyleInfo(name="TableStyleLight1", showRowStripes=False, showColumnStripes=False)
    sheet.add_table(item)


def _set_up(sheet: Worksheet, item: Sheet, plan: FleetPlan) -> None:
    """Tab, frozen header, print set-up and protection without a password."""
    first = item.tables[0]
    sheet.sheet_properties.tabColor = item.tab
    sheet.sheet_view.showGridLines = False
    sheet.sheet_view.zoomScale = 90
    sheet.freeze_panes = f"B{first.first}" if item.wide else f"A{first.first}"
    page = sheet.page_setup
    page.orientation, page.paperSize = "landscape", 8 if item.wide else 9
    page.fitToWidth, page.fitToHeight = item.pages_wide, 1 if item.name == "Cover" else 0
    if sheet.sheet_properties.pageSetUpPr is not None:
        sheet.sheet_properties.pageSetUpPr.fitToPage = True
    last = get_column_letter(max(len(table.columns) for table in item.tables) + item.extra_columns)
    sheet.print_area = f"A1:{last}{max(sheet.max_row, item.least_rows)}"
    sheet.print_title_rows = f"{first.top}:{first.top}"
    if item.pages_wide > 1:
        sheet.print_title_cols = "A:A"
    edges = sheet.page_margins
    edges.left = edges.right = 0.4
    edges.top, edges.bottom = 0.5, 0.9
    edges.header, edges.footer = 0.3, 0.45
    _footer(sheet, plan)
    protection = sheet.protection
    protection.sheet = True
    protection.autoFilter = protection.sort = protection.formatColumns = protection.formatRows = False


def _footer(sheet: Worksheet, plan: FleetPlan) -> None:
    title = one_line(f"{plan.title}, run {plan.run_id}, planner {plan.planner_version}", 90).replace("&", "&&")
    footer = sheet.oddFooter
    if footer is not None:
        footer.left.text, footer.center.text, footer.right.text = title, "&A", "Page &P of &N"
