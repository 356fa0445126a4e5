"""The SQL that is printed for each warehouse: kept beside the tests, and read by a parser of its dialect.

After a change that is meant: ``python -m tests.traffic.warehouse.test_sql`` writes the snapshots again.
"""

from __future__ import annotations

import bisect
from pathlib import Path

import pytest
import sqlglot

from planner.errors import InputError
from planner.traffic.readers.columns import Alias, Wanted
from planner.traffic.warehouse.backends import BACKENDS
from planner.traffic.warehouse.queries import QUERIES
from planner.traffic.warehouse.saved import COLUMNS
from planner.traffic.warehouse.sql import Statement, assumed_table, statements

SHORT = 400
"""A beginning that is shared is left out where it has more characters."""
SNAPSHOTS = Path(__file__).parent / "snapshots"
DIALECTS = ("bigquery", "clickhouse", "databricks", "postgres", "snowflake", "trino")
MAPPING = {
    "timestamp": "created_at",
    "prompt": "tokens_in",
    "output": "tokens_out",
    "model": "model",
    "status": "status",
    "request_id": "id",
}


def written(backend: str) -> tuple[Statement, ...]:
    asked = {"log_format": "auto", "mapping": MAPPING, "options": {}}
    table = assumed_table("gateway.requests", **asked)
    wanted = Wanted(aliases=(Alias("chat", "llama-70b"), Alias("it's", "o'model")))
    return statements(BACKENDS[backend], "gateway.requests", table, wanted=wanted, **asked)


def as_text(found: tuple[Statement, ...]) -> str:
    """The statements without line breaks; the judged rows, with which most begin, stand there once."""
    texts = [" ".join(statement.text.split()) for statement in found]
    blocks = []
    for place, (statement, text) in enumerate(zip(found, texts, strict=True)):
        earlier = zip(found[:place], texts[:place], strict=True)
        alike = {_alike(text, other): one.name for one, other in earlier}
        shared = max(alike, default=0)
        start = f"[{shared} characters as in {alike[shared]}]" if shared > SHORT else ""
        blocks.append(f"-- {statement.name}\n{start}{text[shared if start else 0 :]};\n")
    return "\n".join(blocks)


def _alike(one: str, other: str) -> int:
    """Characters with which both begin."""
    return bisect.bisect_left(range(min(len(one), len(other))), True, key=lambda n: one[: n + 1] != other[: n + 1])


@pytest.fixture(scope="module", params=DIALECTS)
def dialect(request):
    return request.param, written(request.param)


def test_the_sql_is_that_of_the_snapshot(dialect):
    name, found = dialect
    assert as_text(found) == (SNAPSHOTS / f"{name}.sql").read_text(encoding="utf-8"), (
        "If the change is meant: python -m tests.traffic.warehouse.test_sql"
    )


def test_each_statement_parses_in_its_dialect(dialect):
    name, found = dialect
    assert [s.name for s in found] == list(QUERIES)
    for statement in found:
        (tree,) = sqlglot.parse(statement.text, dialect=name)
        columns = {column.casefold() for column in tree.named_selects}
        assert columns in (set(COLUMNS[statement.name]), {"*"}), statement.name  # a union of two selects has a star


def test_no_statement_writes_or_orders_all_rows(dialect):
    _, found = dialect
    for statement in found:
        words = statement.text.upper()
        assert not any(word in words.split() for word in ("CREATE", "INSERT", "UPDATE", "DELETE", "DROP"))
        assert "LOG2(" not in words
        assert "LN(" not in words


def test_without_a_mapping_or_an_address_the_columns_are_not_known():
    with pytest.raises(InputError, match="needs to know the columns"):
        assumed_table("requests", "auto", {}, {})


def test_litellm_knows_its_columns():
    table = assumed_table("LiteLLM_SpendLogs", "litellm", {}, {})
    asked = {"log_format": "litellm", "mapping": {}, "options": {}, "wanted": Wanted()}
    (verdicts, *_) = statements(BACKENDS["postgres"], "LiteLLM_SpendLogs", table, **asked)
    assert '"startTime"' in verdicts.text
    assert "_cache_hit" in verdicts.text
    assert '"messages"' not in verdicts.text


if __name__ == "__main__":
    for place in DIALECTS:
        (SNAPSHOTS / f"{place}.sql").write_text(as_text(written(place)), encoding="utf-8")
