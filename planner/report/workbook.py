"""The finance workbook of a plan: only optimiser figures are pasted, every other number is a live formula."""

from __future__ import annotations

import io
import itertools
import os
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

from openpyxl import Workbook
from openpyxl.cell.cell import Cell, MergedCell
from openpyxl.formatting.rule import FormulaRule
from openpyxl.styles import Alignment, Font, PatternFill
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.table import Table as TableObject
from openpyxl.worksheet.table import TableStyleInfo
from openpyxl.worksheet.worksheet import Worksheet

from planner.errors import PlannerError
from planner.plan import FleetPlan
from planner.report import facts, style
from planner.report.calculate import fill_results
from planner.report.package import finish_package
from planner.report.sheets import (
    checks,
    cost,
    cover,
    demand,
    files,
    fit,
    glossary,
    inputs,
    margins,
    periods,
    rejected,
    routing,
    summary,
    warnings,
)
from planner.report.sheets import plan as plan_sheet
from planner.report.style import Kind
from planner.report.table import Book, Column, Formula, Sheet, Table, Value
from planner.report.text import clean_text, looks_like_formula, one_line
from planner.report.view import View, views_of
from planner.study import Study


def of_plan(build: Callable[[FleetPlan], Sheet]) -> Callable[[View], Sheet]:
    """A sheet that needs no more than the scenario's plan."""
    return lambda view: build(view.plan)


SHEETS: tuple[Callable[[View], Sheet], ...] = (
    of_plan(cover.build),
    of_plan(summary.build),
    of_plan(warnings.build),
    of_plan(inputs.build),
    of_plan(demand.build),
    of_plan(plan_sheet.build),
    of_plan(routing.build),
    of_plan(periods.build),
    of_plan(fit.build),
    of_plan(margins.build),
    of_plan(rejected.build),
    of_plan(cost.build),
    checks.build,
    of_plan(files.build),
    of_plan(glossary.build),
)
"""The sheets in reading order; a new sheet is one module and one line here."""

_TITLE_CHARACTERS = 90
_HEADLINE_ROW = 3
_HEADLINE_WIDTH = 26.0
_LINE_PT = 12.0
_MAX_ROW_PT = 100.0
_FLAG = "(1/0)"
_CHARACTERS_PER_UNIT = 1.2
"""Average characters of running text that fit one unit of column width."""
_INDENT = 2.0
_HEADER_ROOM = 3.0
"""Characters that the indent, and the filter button of a header, take from a column's width."""


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
    raw = io.BytesIO()
    _build(plan, book).save(raw)
    filled = fill_results(raw.getvalue(), stamp)
    _write_atomically(finish_package(filled, stamp, summary.CHART_ALT), path)


def layout(report: Study | FleetPlan) -> Book:
    """Where everything stands, before a cell is written."""
    view = views_of(report)[0]
    plan = view.plan
    named = {**inputs.input_addresses(plan), **cover.addresses(plan), **summary.addresses(plan)}
    return Book(tuple(build(view) for build in SHEETS), named)


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
    for item in book.sheets:
        _write_sheet(workbook[item.name], item, book, plan)
    properties = workbook.properties
    properties.title, properties.creator = clean_text(plan.title), f"planner {plan.planner_version}"
    properties.created = properties.modified = facts.created_utc(plan).replace(tzinfo=None)
    return workbook


def _set_width_unit(workbook: Workbook) -> None:
    """Make a font that every system has the default one: its digit is the unit of column widths."""
    normal = next(item for item in workbook._named_styles if item.name == "Normal")  # type: ignore[attr-defined]
    normal.font = Font(name=style.FONT, size=10)
    workbook._fonts[0] = normal.font  # type: ignore[attr-defined]


def _write_sheet(sheet: Worksheet, item: Sheet, book: Book, plan: FleetPlan) -> None:
    write_value(sheet["A1"], one_line(item.title, _TITLE_CHARACTERS))
    write_value(sheet["A2"], item.purpose)
    sheet["A1"].font, sheet["A2"].font = style.TITLE, style.PURPOSE
    sheet.row_dimensions[1].height = 24
    sheet[f"A{_HEADLINE_ROW}"] = "=Checks!$B$3"
    for n, width in enumerate(_widths(item), start=1):
        sheet.column_dimensions[get_column_letter(n)].width = width
    for table in item.tables:
        _write_table(sheet, table, book)
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


def _write_table(sheet: Worksheet, table: Table, book: Book) -> None:
    if table.heading:
        cell = sheet.cell(table.top - 1, 1, table.heading)
        cell.font = style.HEADING
    for n, column in enumerate(table.columns, start=1):
        header = sheet.cell(table.top, n, column.header)
        header.font, header.fill, header.alignment = style.HEADER, style.HEADER_FILL, _header_align(column, table)
        letter = header.column_letter
        for i in range(table.rows):
            _write_cell(_cell(sheet, table.first + i, n), column, i, table, book)
        if column.header.endswith(_FLAG) and column.header != checks.PASS:
            _paint_flags(sheet, f"{letter}{table.first}:{letter}{table.last}", good=_good_flag(column))
        if table.total_label:
            _write_total(_cell(sheet, table.last + 1, n), column, table, n)
    _row_heights(sheet, table)
    if not table.workings:
        _table_object(sheet, table)


def _good_flag(column: Column) -> int:
    """1 where a flag says that something holds, 0 where it points at something (changed, too old)."""
    return 0 if column.header.startswith(("Changed", "Price too old")) else 1


def _paint_flags(sheet: Worksheet, area: str, good: int) -> None:
    first = area.split(":", maxsplit=1)[0]
    _paint(sheet, area, f"{first}={1 - good}", style.FAIL_FONT, style.FAIL_FILL)


def _paint(sheet: Worksheet, area: str, condition: str, font: Font, fill: PatternFill) -> None:
    rule = FormulaRule([condition], font=font, fill=fill)  # type: ignore[no-untyped-call]
    sheet.conditional_formatting.add(area, rule)


def _cell(sheet: Worksheet, row: int, column: int) -> Cell:
    cell = sheet.cell(row, column)
    if isinstance(cell, MergedCell):
        raise TypeError(f"{cell.coordinate} is merged; the workbook has no merged cells")
    return cell


def write_value(cell: Cell, value: Value) -> None:
    """Write a value; text stays text whatever it starts with, only `Formula` templates become formulas."""
    if isinstance(value, str):
        text = clean_text(value)
        cell.value = text or None
        if text:
            cell.data_type = "s"
            cell.quotePrefix = looks_like_formula(text)
    else:
        cell.value = value  # type: ignore[assignment]


def _write_cell(cell: Cell, column: Column, i: int, table: Table, book: Book) -> None:
    value, kind, number = column.cell(i), column.kind_at(i), column.number_at(i)
    if isinstance(value, Formula):
        cell.value = book.resolve(value, table.sheet, table, i)
    else:
        write_value(cell, value)
    numeric = not isinstance(value, str)
    cell.font = style.FONTS[kind]
    cell.border = style.CELL_BORDER
    cell.alignment = _align(column, numeric)
    if kind in style.FILLS:
        cell.fill = style.FILLS[kind]
    if numeric:
        cell.number_format = number
    if kind is Kind.INPUT:
        cell.protection = style.UNLOCKED


def _align(column: Column, numeric: bool) -> Alignment:
    if column.header.endswith(_FLAG):
        return style.FLAG_ALIGN
    return style.NUMBER_ALIGN if numeric and not column.left else style.TEXT_ALIGN


def _header_align(column: Column, table: Table) -> Alignment:
    """As the column's cells stand: a header over numbers stands right."""
    if column.header.endswith(_FLAG):
        return style.FLAG_ALIGN
    numeric = not all(isinstance(column.cell(i), str | None) for i in range(table.rows))
    return style.HEADER_NUMBER_ALIGN if numeric and not column.left else style.HEADER_TEXT_ALIGN


def _write_total(cell: Cell, column: Column, table: Table, n: int) -> None:
    cell.font, cell.border, cell.alignment = style.BOLD, style.TOTAL_BORDER, style.NUMBER_ALIGN
    if n == 1:
        cell.value, cell.alignment = table.total_label, style.TEXT_ALIGN
    elif column.total:
        letter = cell.column_letter
        cell.value, cell.number_format = f"=SUM({letter}{table.first}:{letter}{table.last})", column.number_at(0)


def _row_heights(sheet: Worksheet, table: Table) -> None:
    """Heights that hold the wrapped text: neither Excel nor LibreOffice is asked to guess."""
    deepest = max(_lines(column.header, column.width - _HEADER_ROOM) for column in table.columns)
    sheet.row_dimensions[table.top].height = _LINE_PT * deepest + 8
    for i in range(table.rows):
        lines = 1
        for column in table.columns:
            value = column.cell(i)
            if isinstance(value, str):
                lines = max(lines, _lines(clean_text(value), column.width - _INDENT))
        height = _LINE_PT * lines + 5
        sheet.row_dimensions[table.first + i].height = min(_MAX_ROW_PT, height)
        if height > _MAX_ROW_PT:
            _align_top(sheet, table, i)


def _align_top(sheet: Worksheet, table: Table, i: int) -> None:
    """A text longer than the tallest row starts at the top, so that its beginning is what shows."""
    for n in range(1, len(table.columns) + 1):
        cell = _cell(sheet, table.first + i, n)
        was = cell.alignment
        cell.alignment = Alignment(
            horizontal=was.horizontal, vertical="top", wrap_text=was.wrap_text, indent=was.indent
        )


def _lines(text: str, width: float) -> int:
    """Lines that a text takes in a column of ``width`` characters; a long word (a URL) breaks early and takes more."""
    room = max(4, int(width * _CHARACTERS_PER_UNIT))
    lines = sum(len(textwrap.wrap(line, room)) or 1 for line in text.split("\n"))
    return lines + any(len(word) > 1.5 * room for word in text.split())


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
    page.fitToWidth, page.fitToHeight = 1, 1 if item.name == "Cover" else 0
    if sheet.sheet_properties.pageSetUpPr is not None:
        sheet.sheet_properties.pageSetUpPr.fitToPage = True
    last = get_column_letter(max(len(table.columns) for table in item.tables) + item.extra_columns)
    sheet.print_area = f"A1:{last}{max(sheet.max_row, item.least_rows)}"
    sheet.print_title_rows = f"{first.top}:{first.top}"
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
