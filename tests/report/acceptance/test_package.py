"""Points 1 to 3, 22 and 25: the file opens without repair, shows numbers, and is the same whenever it is made."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import posixpath
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import formualizer
import pandas as pd
import pytest
from openpyxl import Workbook
from openpyxl.utils import range_boundaries
from openpyxl.utils.cell import coordinate_to_tuple

from planner.plan import FleetPlan
from planner.report.table import Book
from planner.report.workbook import write_workbook
from planner.study import Study
from tests.report.acceptance.reading import cells, formulas, name_of, parts, plain, xml

LONGEST = {"cell": 32_767, "formula": 8_192, "header": 255, "footer": 255, "list": 255, "sheet": 31, "styles": 64_000}
"""Characters, and cell styles, that Excel takes (Excel specifications and limits)."""
_RELATIONSHIPS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_SHEET_NAME = re.compile(r"[^\[\]:*?/\\']{1,31}")
_TABLE_NAME = re.compile(r"tbl[A-Z][A-Za-z]+")
"""Neither a cell (A1, R1C1) nor a name of one letter."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def _xml_parts(xlsx: Path) -> dict[str, ElementTree.Element]:
    return {name: xml(data) for name, data in parts(xlsx).items() if name.endswith((".xml", ".rels"))}


def _named(xlsx: Path, tag: str) -> list[tuple[str, ElementTree.Element]]:
    return [
        (name, element)
        for name, root in _xml_parts(xlsx).items()
        for element in root.iter()
        if plain(element.tag) == tag
    ]


def test_point_1_every_part_is_well_formed_and_has_a_content_type(xlsx: Path):
    found = parts(xlsx)
    assert zipfile.ZipFile(xlsx).testzip() is None
    assert len(_xml_parts(xlsx)) == len(found), "parts that are no XML"
    types = xml(found["[Content_Types].xml"])
    stated = {element.get("PartName", "").lstrip("/") for element in types if plain(element.tag) == "Override"}
    defaults = {element.get("Extension") for element in types if plain(element.tag) == "Default"}
    assert stated <= set(found), stated - set(found)
    for name in found:
        assert name in stated or name.rsplit(".", 1)[-1] in defaults, name
    assert len(found) == len({name.casefold() for name in found})


def test_point_1_relationships_stay_in_the_package(xlsx: Path):
    found = parts(xlsx)
    for name, data in found.items():
        if not name.endswith(".rels"):
            continue
        folder = posixpath.dirname(posixpath.dirname(name))
        ids = [item.get("Id") for item in xml(data).iter(_RELATIONSHIPS)]
        assert len(ids) == len(set(ids)), name
        for item in xml(data).iter(_RELATIONSHIPS):
            assert item.get("TargetMode") != "External", (name, item.get("Target"))
            target = item.get("Target", "")
            path = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
            assert path in found, (name, target)


def test_point_1_no_macro_link_connection_or_embedded_object(xlsx: Path):
    for name in parts(xlsx):
        lower = name.casefold()
        for word in (
            "vba",
            "externallink",
            "connection",
            "embedding",
            "activex",
            "ctrlprop",
            "querytable",
            "oleobject",
        ):
            assert word not in lower, name


def test_point_1_tables_agree_with_their_header_cells_and_do_not_overlap(xlsx: Path, book: Workbook):
    ids, taken = [], []
    for sheet in book.worksheets:
        for table in sheet.tables.values():
            ids.append(table.id)
            left, top, right, bottom = range_boundaries(table.ref)
            assert bottom > top, table.name
            header = [sheet.cell(top, column).value for column in range(left, right + 1)]
            assert header == [column.name for column in table.tableColumns], table.name
            assert all(isinstance(text, str) and 0 < len(text) <= LONGEST["header"] for text in header)
            assert len({str(text).casefold() for text in header}) == len(header), table.name
            assert [column.id for column in table.tableColumns] == list(range(1, len(header) + 1))
            assert table.autoFilter is None or table.autoFilter.ref == table.ref
            taken += [(sheet.title, row, column) for row in range(top, bottom + 1) for column in range(left, right + 1)]
    assert len(set(ids)) == len(ids)
    assert len(set(taken)) == len(taken)
    assert len(_named(xlsx, "table")) == len(ids)


def test_point_1_nothing_is_longer_than_excel_takes(xlsx: Path, book: Workbook):
    for cell in cells(book):
        if cell.data_type == "f":
            assert len(cell.value) <= LONGEST["formula"], name_of(cell)
        elif isinstance(cell.value, str):
            assert len(cell.value) <= LONGEST["cell"], name_of(cell)
            assert not _CONTROL.search(cell.value), name_of(cell)
        elif isinstance(cell.value, float):
            assert math.isfinite(cell.value), name_of(cell)
    for sheet in book.worksheets:
        assert _SHEET_NAME.fullmatch(sheet.title), sheet.title
        assert sum(len(part.text or "") for part in (sheet.oddFooter.left, sheet.oddFooter.center,
                                                     sheet.oddFooter.right)) <= LONGEST["footer"] - 10  # fmt: skip
        for rule in sheet.data_validations.dataValidation:
            assert len(str(rule.formula1)) <= LONGEST["list"] + 2, sheet.title
        assert all((item.width or 0) <= 255 for item in sheet.column_dimensions.values())
        assert all((item.height or 0) <= 409 for item in sheet.row_dimensions.values())
        assert sheet.max_row <= 1_048_576
    assert len({sheet.title.casefold() for sheet in book.worksheets}) == len(book.sheetnames)
    assert all(len(element) < LONGEST["styles"] for _, element in _named(xlsx, "cellXfs"))


def test_point_1_links_inside_the_workbook_lead_somewhere(book: Workbook):
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.hyperlink is not None:
                    name, target = str(cell.hyperlink.location).rsplit("!", maxsplit=1)
                    assert name.strip("'") in book.sheetnames, name_of(cell)
                    assert coordinate_to_tuple(target) == (1, 1)


def test_point_2_every_formula_has_a_stored_result(book: Workbook, values: Workbook):
    for cell in formulas(book):
        value = values[cell.parent.title][cell.coordinate].value
        empty_text = '""' in cell.value or cell.value.startswith("=INDEX(Solved!")
        assert value is not None or empty_text, name_of(cell)
        assert not str(value).startswith("#"), name_of(cell)


def test_point_2_the_calculator_finds_the_stored_results_current(xlsx: Path):
    program = Path(sys.executable).with_name("formualizer")
    command = [str(program), "recalc", str(xlsx), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_point_2_pandas_reads_numbers_from_the_first_table_of_every_sheet(xlsx: Path, places: Book):
    for item in places.sheets:
        table = item.tables[0]
        frame = pd.read_excel(xlsx, sheet_name=item.name, header=table.top - 1, nrows=table.rows)
        assert list(frame.columns[: len(table.columns)]) == [column.header for column in table.columns]
        assert len(frame) == table.rows, item.name
        for column in table.columns:
            if column.header.startswith("Cost, USD"):
                assert pd.api.types.is_numeric_dtype(frame[column.header]), (item.name, column.header)
                assert frame[column.header].sum() > 0


def test_point_3_formualizer_changes_no_result(xlsx: Path, book: Workbook):
    made = formualizer.recalculate_xlsx_bytes(xlsx.read_bytes())
    assert made["cache_cells_changed"] == 0
    assert made["summary"]["total_errors"] == 0
    assert made["formula_cells"] == sum(1 for _ in formulas(book))


def same(one: object, other: object) -> bool:
    """Whether two programs mean the same value."""
    if isinstance(one, bool) or isinstance(other, bool):
        return bool(one) == bool(other)
    if isinstance(one, dt.date) and isinstance(other, int | float):
        return abs((one - dt.datetime(1899, 12, 30)).days - other) < 1e-9
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return one == other or (one in (None, "") and other in (None, ""))


@pytest.mark.libreoffice
def test_points_1_and_3_libreoffice_loads_all_and_changes_no_result(values: Workbook, again: Workbook):
    assert again.sheetnames == values.sheetnames
    for cell in cells(values):
        found = again[cell.parent.title][cell.coordinate].value
        assert same(cell.value, found), (name_of(cell), cell.value, found)


def test_point_22_defined_names_resolve_and_are_listed(book: Workbook):
    assert book.defined_names, "no names at all"
    listed = " ".join(str(cell.value) for cell in cells(book) if isinstance(cell.value, str))
    for name, item in book.defined_names.items():
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name), name
        assert "#REF" not in item.attr_text
        sheet, area = item.attr_text.rsplit("!", maxsplit=1)
        range_boundaries(area.replace("$", ""))
        assert sheet.strip("'") in book.sheetnames
        assert name in listed, f"{name} is explained nowhere"
    for sheet in book.worksheets:
        assert set(sheet.defined_names) <= {"_xlnm.Print_Area", "_xlnm.Print_Titles"}, sheet.title


def test_point_22_table_names_are_valid_and_unique(book: Workbook):
    names = [name for sheet in book.worksheets for name in sheet.tables]
    assert all(_TABLE_NAME.fullmatch(name) for name in names)
    assert max(Counter(name.casefold() for name in [*names, *book.defined_names]).values()) == 1


def test_point_25_the_same_inputs_give_the_same_bytes(report: Study | FleetPlan, xlsx: Path, tmp_path: Path):
    write_workbook(report, tmp_path / "again.xlsx")
    assert hashlib.sha256((tmp_path / "again.xlsx").read_bytes()).digest() == hashlib.sha256(xlsx.read_bytes()).digest()
