from __future__ import annotations

import pytest

from planner.report.table import Book, Column, Formula, Sheet, Table


def _table(name: str = "tblSome", rows: int = 2, **keywords) -> Table:
    columns = (Column("Name", 10, ("a", "b")), Column("N", 5, Formula("=[Name]")))
    return Table(name, "One", 4, columns, rows, **keywords)


def _book() -> Book:
    other = Table("tblOther", "Two", 9, (Column("X, USD", 5, (1, 2, 3)),), 3, total_label="Total")
    sheets = tuple(Sheet(table.sheet, "t", "p", "h", "000000", (table,)) for table in (_table(), other))
    return Book(sheets, {"price": "Two!$E$7"})


def test_templates_become_a1_references():
    book, own = _book(), _table()
    template = "=SUM(tblOther[X, USD])+tblOther[X, USD]#total+[N]*<1>+tblOther[X, USD]@"
    text = book.resolve(Formula(template, ("price",)), "One", own, 1)
    assert text == "=SUM(Two!$A$10:$A$12)+Two!$A$13+B6*Two!$E$7+Two!$A11"


def test_references_on_the_same_sheet_have_no_sheet_name():
    assert _book().resolve(Formula("=tblOther[X, USD]#total*<1>", ("price",)), "Two") == "=$A$13*$E$7"


def test_a_row_of_another_table_is_named_by_its_number():
    assert _book().resolve(Formula("=tblOther[X, USD]@2+tblOther[X, USD]@"), "One", _table(), 1) == "=Two!$A12+Two!$A11"
    with pytest.raises(ValueError, match="tblOther has no row 3"):
        _book().resolve(Formula("=tblOther[X, USD]@3"), "One")


def test_unknown_columns_and_cells_are_errors():
    with pytest.raises(KeyError):
        _book().resolve(Formula("=tblOther[Y]"), "One")
    with pytest.raises(KeyError):
        _book().resolve(Formula("=<1>", ("nothing",)), "One")
    with pytest.raises(ValueError, match="no row"):
        _book().resolve(Formula("=[N]"), "One")
    with pytest.raises(ValueError, match="no total row"):
        _book().resolve(Formula("=tblSome[N]#total"), "One")


@pytest.mark.parametrize("name", ["Q1", "A1", "c", "tbl x", "tblx", "R1C1"])
def test_names_that_excel_refuses_are_refused(name: str):
    with pytest.raises(ValueError, match="table name"):
        _table(name)


def test_cells_must_match_the_rows_and_headers_be_unique():
    with pytest.raises(ValueError, match="2 cells for 3 rows"):
        _table(rows=3)
    with pytest.raises(ValueError, match="needs a row"):
        _table(rows=0)
    twice = (Column("Name", 1, ("a",)), Column("name", 1, ("b",)))
    with pytest.raises(ValueError, match="not unique"):
        Table("tblTwice", "One", 4, twice, 1)
