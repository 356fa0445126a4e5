"""Points 5, 6, 21, 23 and 24: every sheet has the same head, prints one page wide, and hides or cuts nothing off."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from openpyxl import Workbook
from openpyxl.utils import range_boundaries

from planner.plan import FleetPlan
from planner.report.style import AMBER, MEANING, Kind
from planner.report.table import Book
from tests.report.acceptance.reading import YELLOW, cells, fill, formulas, name_of, parts, plain, selector, xml

A4, A3 = 9, 8
WIDER = frozenset({"Data_FOCUS", "Inputs"})
"""Sheets that may be two pages wide: names of FOCUS in a row, and a value for each scenario. The first column stands on
both pages."""
POINTS_PER_INCH = 72
PAPER_PT = {A4: 841.9, A3: 1190.6}
"""Width of landscape paper."""
LEAST_PT = 7.0
"""Smallest print."""
CELL_PT, LINE_PT = 9.0, 12.0
TALLEST_PT = 100.0
"""A row never grows above it: the beginning of a longer text shows."""
PAGE = re.compile(r"Page\s+(\d+)\s+of\s+(\d+)")


def test_point_5_every_sheet_has_title_purpose_header_and_a_link_on_the_cover(book: Workbook, places: Book):
    links = {cell.value for row in book["Cover"].iter_rows() for cell in row if cell.hyperlink}
    assert links == set(book.sheetnames)
    for item in places.sheets:
        sheet = book[item.name]
        assert 3 <= len(str(sheet["A1"].value)) <= 90, item.name
        assert len(str(sheet["A2"].value)) > 40, item.name
        assert sheet["A3"].data_type == "f", "whether all checks pass"
        top = item.tables[0].top
        assert top == 4, item.name
        assert [sheet.cell(top, n).value for n in range(1, len(item.tables[0].columns) + 1)] == [
            column.header for column in item.tables[0].columns
        ]
        assert sheet.freeze_panes in {"A5", "B5"}, item.name
        assert sheet.sheet_view.showGridLines is False
    assert book.sheetnames == [item.name for item in places.sheets]


def test_point_5_units_stand_in_headers_or_a_column_of_units(places: Book):
    """A header of money, time or size names its unit; a table of mixed figures has a column of units."""
    bare = re.compile(r"^(?:Cost|Price|Power|Carbon|Tokens|Rate|Hours in use)$")
    for table in places.tables.values():
        headers = [column.header for column in table.columns]
        mixed = any(isinstance(column.number, tuple) and len(set(column.number)) > 1 for column in table.columns)
        if mixed and table.name not in {"tblRun", "tblChecks", "tblSolved"}:
            assert any(header in {"Unit", "Constraint", "Figure"} for header in headers), (table.name, headers)
        assert not [header for header in headers if bare.match(header)], table.name


def test_point_6_inputs_stand_on_their_own_sheets_and_the_legend_is_printed(book: Workbook):
    found = selector(book)
    chosen = {found[0]} if found else set()
    yellow = {
        cell.parent.title
        for sheet in book.worksheets
        for row in sheet.iter_rows()
        for cell in row
        if fill(cell) == YELLOW and (sheet.title, cell.row, cell.column) not in chosen
    }
    assert yellow == {"Cover", "Inputs", "ChangeLog"}, "besides the legend and the signatures, only Inputs"
    assert book["Inputs"].sheet_properties.tabColor.rgb[2:] == AMBER
    texts = [cell.value for row in book["Cover"].iter_rows() for cell in row if cell.value]
    for kind in (Kind.INPUT, Kind.RESULT, Kind.FORMULA, Kind.LINK):
        assert MEANING[kind] in texts


def test_point_6_only_what_may_be_edited_is_unlocked(book: Workbook):
    for sheet in book.worksheets:
        assert sheet.protection.sheet
        assert not sheet.protection.password
        for row in sheet.iter_rows():
            for cell in row:
                assert cell.protection.locked is not (fill(cell) == YELLOW and cell.value != "1,234"), name_of(cell)
                if not cell.protection.locked:
                    assert cell.data_type != "f", name_of(cell)


def test_point_21_nothing_is_hidden_or_merged(book: Workbook):
    for sheet in book.worksheets:
        assert not sheet.merged_cells.ranges
        assert sheet.sheet_state == "visible"
        assert not any(item.hidden or item.outlineLevel for item in sheet.row_dimensions.values())
        assert not any(item.hidden or item.outlineLevel for item in sheet.column_dimensions.values())
        assert all((item.height is None or item.height > 3) for item in sheet.row_dimensions.values())
        assert all(item.width > 1 for item in sheet.column_dimensions.values())
        assert not any(item.filterColumn for item in [sheet.auto_filter])
        for cell in (cell for row in sheet.iter_rows() for cell in row):
            assert cell.number_format != ";;;", name_of(cell)
            assert fill(cell) != str(cell.font.color.rgb if cell.font.color else "")[2:] or not fill(cell), name_of(
                cell
            )


def test_point_23_print_set_up(book: Workbook, base: FleetPlan):
    for sheet in book.worksheets:
        page, edges = sheet.page_setup, sheet.page_margins
        assert page.orientation == "landscape"
        assert sheet.sheet_properties.pageSetUpPr.fitToPage
        pages = int(page.fitToWidth)
        assert pages == 1 or (pages == 2 and sheet.title in WIDER), sheet.title
        assert sheet.print_title_cols == ("$A:$A" if pages == 2 else None), sheet.title
        assert sheet.print_title_rows == "$4:$4"
        assert sheet.oddFooter.right.text == "Page &P of &N"
        assert sheet.oddFooter.center.text == "&A"
        assert base.run_id in sheet.oddFooter.left.text
        left, top, right, bottom = range_boundaries(sheet.print_area.split("!")[-1].replace("$", ""))
        assert (left, top) == (1, 1)
        assert right >= max(c.column for row in sheet.iter_rows() for c in row if c.value is not None), sheet.title
        assert bottom >= sheet.max_row
        widths = [sheet.column_dimensions[letter].width for letter in sheet.column_dimensions]
        room = PAPER_PT[int(page.paperSize)] - POINTS_PER_INCH * (edges.left + edges.right)
        scale = min(1.0, pages * room / (sum(int(7 * width + 5) for width in widths) * 0.75))
        assert CELL_PT * scale >= LEAST_PT, (sheet.title, CELL_PT * scale)


@pytest.fixture(scope="session")
def pages(pdf: Path) -> list[str]:
    """Text of every printed page."""
    program = shutil.which("pdftotext")
    assert program, "poppler-utils"
    done = subprocess.run([program, "-layout", str(pdf), "-"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split("\f")[:-1]


@pytest.mark.libreoffice
def test_point_23_every_page_is_numbered_and_names_its_sheet(pages: list[str], book: Workbook):
    numbers = [match for text in pages for match in PAGE.findall(text)]
    assert numbers == [(str(n), str(len(pages))) for n in range(1, len(pages) + 1)]
    seen = [re.findall(r"(\S+)\s+Page\s+\d+ of", text)[0] for text in pages]
    assert list(dict.fromkeys(seen)) == book.sheetnames
    assert seen.count("Cover") == 1, "one printed page"


@pytest.mark.libreoffice
def test_point_23_the_first_page_of_a_sheet_holds_all_its_columns(pages: list[str], places: Book):
    """One page wide: the last column's header stands on the page of the first."""
    for item in places.sheets:
        first = next(text for text in pages if re.search(rf"{item.name}\s+Page\s+\d+ of", text))
        shown = re.sub(r"\s+", "", first)
        shown_there = item.tables[0].columns[: 4 if item.name in WIDER else None]
        for column in shown_there:
            assert column.header.split()[0][:4] in shown, (item.name, column.header)


@pytest.mark.libreoffice
def test_point_24_no_number_is_too_wide_for_its_column(pages: list[str]):
    for number, text in enumerate(pages, start=1):
        assert "###" not in text, (number, [line for line in text.splitlines() if "###" in line][:3])
        assert not re.search(r"#(?:REF|VALUE|NAME|DIV/0|N/A|NUM)", text), number


def test_point_24_every_chart_has_its_own_title_and_description(xlsx: Path, book: Workbook):
    charts = sum(len(sheet._charts) for sheet in book.worksheets)
    described = {}
    for name, data in parts(xlsx).items():
        if re.fullmatch(r"xl/drawings/drawing\d+\.xml", name):
            for element in xml(data).iter():
                if plain(element.tag) == "cNvPr":
                    described[name, element.get("name")] = element.get("descr", "")
    assert len(described) == charts
    assert charts >= 2
    for (_, title), text in described.items():
        assert title
        assert not re.fullmatch(r"Chart \d+", title)
        assert len(text) > 40, title
    assert len(set(described.values())) == charts


def test_point_24_charts_hold_the_values_that_they_show(xlsx: Path):
    """Previewers draw from the cache; a chart without numbers would be empty there."""
    found = [xml(data) for name, data in parts(xlsx).items() if re.fullmatch(r"xl/charts/chart\d+\.xml", name)]
    for chart in found:
        kinds = [plain(element.tag) for element in chart.iter()]
        assert kinds.count("numCache") == kinds.count("numRef") > 0
        assert kinds.count("strCache") == kinds.count("strRef") > 0
        deleted = [element.get("val") for element in chart.iter() if plain(element.tag) == "delete"]
        assert deleted
        assert "title" in kinds


def test_point_24_colour_is_never_the_only_sign(book: Workbook, values: Workbook):
    """A painted cell says the same in words or as 1 and 0."""
    for sheet in book.worksheets:
        for area in sheet.conditional_formatting:
            left, top, _, bottom = range_boundaries(str(area.sqref).split()[0])
            for row in range(top, bottom + 1):
                assert values[sheet.title].cell(row, left).value is not None, (sheet.title, str(area.sqref))
    flags = [cell for cell in cells(values) if cell.row == 3 and cell.column in {1, 2}]
    assert any("CHECKS" in str(cell.value) for cell in flags)


def _lines(text: str, width: float) -> int:
    room = max(4, int((width - 2) * 1.2))
    return sum(len(textwrap.wrap(line, room)) or 1 for line in text.split("\n"))


def test_point_24_wrapped_text_has_the_height_that_it_needs(book: Workbook, values: Workbook):
    """Also text that a formula brings, which nobody measured when the row was made."""
    for cell in cells(values):
        if not isinstance(cell.value, str) or not cell.alignment.wrap_text:
            continue
        sheet = book[cell.parent.title]
        width = sheet.column_dimensions[cell.column_letter].width
        height = sheet.row_dimensions[cell.row].height or 15
        needed = LINE_PT * _lines(cell.value, width)
        assert height + 0.1 >= min(needed, TALLEST_PT), (name_of(cell), height, needed, cell.value[:80])


def test_point_24_text_that_does_not_wrap_has_room_to_its_right(book: Workbook, values: Workbook):
    for cell in cells(values):
        if not isinstance(cell.value, str) or cell.alignment.wrap_text or cell.row < 4:
            continue
        sheet, room, column = book[cell.parent.title], 0.0, cell.column
        last = range_boundaries(sheet.print_area.split("!")[-1].replace("$", ""))[2]
        while column <= last and (column == cell.column or sheet.cell(cell.row, column).value is None):
            room += sheet.column_dimensions[sheet.cell(1, column).column_letter].width
            column += 1
        bold = 1.15 if cell.font.bold else 1.0
        size = (cell.font.size or CELL_PT) / CELL_PT
        assert len(cell.value) * bold * size <= room * 1.25, (name_of(cell), cell.value, room)


def test_point_24_the_numbers_of_a_column_stand_right(book: Workbook):
    for cell in formulas(book):
        assert cell.alignment.horizontal in {"right", "center", "left", None}, name_of(cell)


def test_point_24_title_and_purpose_fit_the_width_of_the_sheet(book: Workbook, values: Workbook):
    """They do not wrap, and print stops at the last column."""
    for sheet in book.worksheets:
        room = sum(item.width for item in sheet.column_dimensions.values())
        assert len(str(values[sheet.title]["A2"].value)) <= 1.38 * room, sheet.title
        assert 2.1 * len(str(values[sheet.title]["A1"].value)) <= 1.38 * room, sheet.title


def test_point_24_dates_look_like_dates_and_other_numbers_do_not(values: Workbook):
    for cell in cells(values):
        if isinstance(cell.value, dt.date | dt.time) and not isinstance(cell.value, str):
            assert isinstance(cell.value, dt.datetime), f"{name_of(cell)} is 0 or a count in the format of a date"
            assert cell.value.year > 2000, f"{name_of(cell)}: a count in the format of a date"
