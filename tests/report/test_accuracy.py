"""The tables of errors: what they count, and that the README's are those of this code."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.errors import InputError
from planner.memory.starts.case_rows import CaseTable, Row
from planner.memory.starts.cases import Answer
from planner.memory.starts.scores import Errors, score, started
from planner.report.accuracy import BEGIN, END, accuracy_tables, grouping, score_lines, with_accuracy

ROOT = Path(__file__).parents[2]
STARTS = ROOT / "tests" / "data" / "memory" / "public_starts.csv"


def answered_starts() -> list[tuple[Row, Answer]]:
    from planner.cli.size_cases import one_answer

    lookup = Lookup(load_catalog())
    with STARTS.open(encoding="utf-8", newline="") as file:
        return [(row, one_answer(CaseTable.LOGS, row, frozenset(), "", lookup)) for row in csv.DictReader(file)]


def test_the_readme_shows_the_errors_of_this_code() -> None:
    """To refresh: ``planner size --cases tests/data/memory/public_starts.csv --score-into README.md``."""
    tables = accuracy_tables(answered_starts(), CaseTable.LOGS, ("family", "gpu", "version"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) + 1 : text.index(END)] == tables


def test_errors_by_rank() -> None:
    errors = Errors(stated=5, found=[0.04, 0.0, 0.01, 0.02])
    assert (errors.median, errors.at(0.9), errors.at(1.0), errors.identical) == (0.015, 0.04, 0.04, 1)
    assert Errors().median != Errors().median


def test_rows_that_started_and_rows_that_did_not() -> None:
    assert started(CaseTable.LOGS, {"kv_tokens": "5"}) is True
    assert started(CaseTable.LOGS, {"available_kv_gib": "-0.94"}) is False
    assert started(CaseTable.LOGS, {"failure_kind": "no_kv_memory"}) is False
    assert started(CaseTable.LOGS, {"failure_kind": ""}) is True
    assert started(CaseTable.VLLM, {"refused": "y"}) is False
    assert started(CaseTable.SGLANG, {"status": "refused"}) is False
    assert started(CaseTable.SGLANG, {"status": "config_error"}) is None
    assert started(CaseTable.WEIGHTS, {}) is None


def test_unanswered_rows_are_counted_and_not_compared() -> None:
    rows: list[tuple[Row, Answer]] = [({"weights_gib": "10", "kv_tokens": "5519 blocks"}, Answer(None, ("why",)))]
    found = score(CaseTable.LOGS, rows)[""]
    assert (found.rows, found.answered, found.errors["weights"].stated) == (1, 0, 1)
    assert "KV tokens" not in found.errors
    assert found.starts == {}
    assert score_lines({"": found})[0][:5] == ("all", "1", "0", "weights", "0/1")


def test_a_group_must_be_known() -> None:
    with pytest.raises(InputError, match="colour"):
        grouping(["family", "colour"])
    assert grouping([])({}, Answer(None)) == ""


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_marks_must_be_there_once(text: str) -> None:
    with pytest.raises(InputError, match="marks"):
        with_accuracy(text, "x", "README.md")
    assert with_accuracy(f"a\n{BEGIN}\nold\n{END}\nb", "new\n", "") == f"a\n{BEGIN}\nnew\n{END}\nb"
