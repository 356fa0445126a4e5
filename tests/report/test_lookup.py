from __future__ import annotations

import pytest

from planner.report.lookup import LOOKED_UP, lookup_text, with_lookups
from planner.report.merge import KEYS
from planner.report.table import Column, Formula, Sheet, Table


@pytest.mark.parametrize(
    "name", ["chat", "chat/1", "meta-llama/Llama-3.3-70B-Instruct", "A10", "+1 model", "-x", "@x", "模型", "(none)", ""]
)
def test_nearly_every_name_stays_as_it_is(name: str):
    assert lookup_text(name) == name


@pytest.mark.parametrize("name", ["=1+1", ">5", "<>x", "7", "1e5", "true", " x", "x "])
def test_what_a_criterion_would_read_otherwise_is_quoted(name: str):
    assert lookup_text(name) == f"'{name}'"


@pytest.mark.parametrize("name", ["*", "a?c", "~x", "a\\b"])
def test_no_wildcard_and_no_escape_is_left(name: str):
    assert not set(lookup_text(name)) & set("*?~\\")
    assert len(lookup_text(name)) == len(name)


def test_long_names_stay_apart_and_fit_a_criterion():
    one, other = lookup_text("m" * 300 + "a"), lookup_text("m" * 300 + "b")
    assert one != other
    assert max(len(one), len(other)) <= 255


def test_only_columns_of_names_are_changed():
    columns = (
        Column("Model", 9, ("=x", "chat")),
        Column("Note", 9, ("=x", "*")),
        Column("Pool", 9, Formula("=[Model]")),
    )
    table = Table("tblTest", "Test", 4, columns, 2)
    made = with_lookups(Sheet("Test", "t", "p", "h", "000000", (table,))).tables[0]
    assert made.columns[0].cells == ("'=x'", "chat")
    assert made.columns[1:] == columns[1:]
    assert KEYS < LOOKED_UP
