"""Logs that hold only a share of the requests: which share, told by a column or by the user."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from planner.errors import InputError, Problem, Problems
from planner.traffic.engine import sql_name
from planner.traffic.readers.columns import TableFile
from planner.traffic.readers.relation import relation

APART = "Ingest the rows of each fraction apart, and merge the results with planner traffic scale and merge"


def check_fraction(where: str, fraction: float | None) -> None:
    """Refuse what is no share.

    Raises
    ------
    InputError
        If it is not above 0 and at most 1.
    """
    if fraction is not None and not 0 < fraction <= 1:
        raise InputError(Problem(where, f"{fraction:g} is no share of the requests", "Give more than 0, at most 1"))


def stated_fraction(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[TableFile], given: float | None = None
) -> float:
    """The one sampling fraction of all files: that of their column, else the one that is given, else 1.

    The column is read by itself; only logs that have one pay for it.

    Raises
    ------
    InputError
        If the rows state several fractions, one that is no share, or another than the one that is given.
    """
    check_fraction("--sampling", given)
    problems = Problems()
    found: dict[float, str] = {}
    for table in tables:
        if not table.columns.sampling:
            continue
        for value in _values(connection, table):
            if not 0 < value <= 1:
                what = f"the sampling fraction {value:g} is no share of the requests"
                problems.add(str(table.head.path), what, "It is above 0 and at most 1", field=table.columns.sampling)
            found.setdefault(value, str(table.head.path))
    problems.raise_if_any()
    if given is not None:
        found.setdefault(given, "--sampling")
    if len(found) > 1:
        shown = ", ".join(f"{value:g}" for value in sorted(found)[:5])
        where = ", ".join(sorted(set(found.values()))[:5])
        raise InputError(Problem(where, f"several sampling fractions are stated: {shown}", APART))
    return next(iter(found), 1.0)


def _values(connection: duckdb.DuckDBPyConnection, table: TableFile) -> list[float]:
    """Up to six different fractions; rows that state none are not asked."""
    column = sql_name(table.places()["sampling"])
    rows = connection.execute(f"""
        SELECT DISTINCT fraction FROM (SELECT TRY_CAST({column} AS DOUBLE) AS fraction FROM {relation(table)})
        WHERE fraction IS NOT NULL ORDER BY fraction LIMIT 6
    """).fetchall()
    return [float(value) for (value,) in rows]
