"""The same queries as SQL text, for people who run them by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ibis
import sqlglot

from planner.errors import InputError, Problem
from planner.traffic.readers.columns import OptionValue, TimeKind, Wanted
from planner.traffic.warehouse import queries
from planner.traffic.warehouse.backends import Backend
from planner.traffic.warehouse.formats import judged_rows
from planner.traffic.warehouse.table import COUNTS, MOMENTS, named_columns

JUDGED = "planner_judged"
"""Name of the judged rows within a statement."""
CAST_TO_TEXT = "uuid"
"""A type whose values Ibis casts to text wherever they are read as text."""


@dataclass(frozen=True)
class Statement:
    """One query."""

    name: str
    """Of the small table that it gives."""
    text: str


def statements(
    backend: Backend,
    where: str,
    table: Any,
    *,
    log_format: str,
    mapping: Mapping[str, str],
    options: Mapping[str, OptionValue],
    wanted: Wanted,
) -> tuple[Statement, ...]:
    """One statement per small table; each stands for itself and they may run in any order.

    Each begins with the judged rows, so that nobody needs the right to make a table or a view.

    Raises
    ------
    InputError
        If the table does not fit, or Ibis cannot write a query in this dialect.
    """
    rows, _ = judged_rows(where, table, log_format, mapping, options, wanted)
    held = ibis.table(rows.schema(), name=JUDGED)
    at = queries.as_subqueries(held, wanted.since_us, wanted.until_us)
    judged = _text(backend, rows)
    return tuple(
        Statement(name, _together(backend, judged, _text(backend, query(held, at))))
        for name, query in queries.QUERIES.items()
    )


def _text(backend: Backend, query: Any) -> str:
    return str(ibis.to_sql(query, dialect=backend.dialect))


def _together(backend: Backend, judged: str, query: str) -> str:
    """The query with the judged rows in front of it, once, however often it reads them."""
    name = sqlglot.exp.to_identifier(JUDGED, quoted=True).sql(dialect=backend.dialect)
    further, _, rest = query.partition("WITH ")
    text = f"WITH {name} AS (\n{judged}\n)" + (f"\n{query}" if further else f",\n{rest}")
    # Ibis sets this for its own connections: without it, what a join does not find is 0 or '' instead of null.
    return f"{text}\nSETTINGS join_use_nulls = 1" if backend.name == "clickhouse" else text


def assumed_table(name: str, log_format: str, mapping: Mapping[str, str], options: Mapping[str, OptionValue]) -> Any:
    """The table as it is taken to be where nothing is connected: times as stamps, counts as numbers, the rest as text.

    Numbers may be of any type, and what is read as text is cast to it, so flags and codes may be of theirs.

    Raises
    ------
    InputError
        If neither a mapping nor a format says which columns there are.
    """
    named = named_columns(log_format, mapping)
    if not named:
        fix = "Add --map timestamp=COLUMN,prompt=COLUMN,output=COLUMN, or --connect so that the table is looked at"
        raise InputError(Problem("--sql-only", "needs to know the columns", fix))
    given = str(options.get("time", ""))
    moment = "float64" if given in set(TimeKind) - {TimeKind.ISO} else "timestamp('UTC')"
    kinds = dict.fromkeys(MOMENTS, moment) | dict.fromkeys((*COUNTS, "version"), "float64")
    schema = {column: kinds.get(role, CAST_TO_TEXT) for role, column in named.items() if column}
    *database, table = name.split(".")
    place = dict(zip(("database", "catalog"), reversed(database), strict=False))
    return ibis.table(schema, name=table, **place)
