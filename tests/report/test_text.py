from __future__ import annotations

import pytest

from planner.report.text import MAX_CELL_CHARACTERS, clean_text, looks_like_formula, one_line


def test_control_characters_go_and_line_breaks_stay():
    assert clean_text("a\x00b\x1b[0m\r\nc\td\x7f\ufffe") == "ab[0m\nc d"


def test_lone_surrogates_cannot_be_written_and_go():
    assert clean_text("a\ud800b") == "ab"
    clean_text("a\ud800b").encode("utf-8")


@pytest.mark.parametrize("character", ["x", "\U0001f600"])
def test_long_text_is_cut_to_what_a_cell_holds_with_a_mark(character: str):
    cut = clean_text(character * 40_000)
    assert len(cut.encode("utf-16-le")) // 2 <= MAX_CELL_CHARACTERS
    assert "[cut: " in cut
    assert clean_text(character * 10) == character * 10


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "  =1"])
def test_formula_leads_are_seen(text: str):
    assert looks_like_formula(text)


def test_plain_text_is_no_formula():
    assert not looks_like_formula("a=1")


def test_one_line_is_cut_with_an_ellipsis():
    assert one_line("a\nb   c", 10) == "a b c"
    assert one_line("abcdef", 4) == "abc…"
