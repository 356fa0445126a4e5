"""What the start of a Parquet file shows: the names and types of its columns, and the first row."""

from __future__ import annotations

from typing import NamedTuple

import duckdb

from planner.errors import InputError, Problem
from planner.traffic.engine import sql_file, sql_name
from planner.traffic.readers.packed import refuse_rows
from planner.traffic.storage.engine import register, said
from planner.traffic.storage.files import LogFile

FIRST_ROW_TYPES = frozenset(
    {
        "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT",
        "DOUBLE", "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS",
        "TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS",
    }
)  # fmt: skip


class ParquetColumns(NamedTuple):
    """The columns of a file."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    """In the words of the engine."""
    first_row: tuple[str, ...]
    """As text, as far as it holds numbers, times and yes or no; else empty."""


def parquet_columns(path: LogFile) -> ParquetColumns:
    """Names and types of the columns, and the first row as far as it holds numbers, times and yes or no.

    Raises
    ------
    InputError
        If it is no complete Parquet file, or says that it has more rows than it can have.
    """
    relation = f"read_parquet({sql_file(path)})"
    try:
        with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
            register(connection, [path])
            found = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
            names, types = (tuple(str(row[place]) for row in found) for place in (0, 1))
            chosen = ", ".join(_first_value(name, kind) for name, kind in zip(names, types, strict=True))
            metadata = f"parquet_file_metadata({sql_file(path)})"
            refuse_rows(path, int(connection.execute(f"SELECT sum(num_rows) FROM {metadata}").fetchall()[0][0] or 0))
            rows = connection.execute(f"SELECT {chosen} FROM {relation} LIMIT 1").fetchall()
    except duckdb.Error as error:
        what = said(error) or f"is not a complete Parquet file: {str(error).splitlines()[0][:200]}"
        raise InputError(Problem(str(path), what, "Export or copy it again")) from None
    return ParquetColumns(names, types, tuple(value or "" for value in rows[0]) if rows else ())


def _first_value(name: str, kind: str) -> str:
    if kind.split("(", maxsplit=1)[0] in FIRST_ROW_TYPES:
        return f"CAST({sql_name(name)} AS VARCHAR)"
    if kind != "VARCHAR":
        return "NULL"
    column = sql_name(name)
    return f"CASE WHEN length({column}) <= 40 AND regexp_full_match({column}, '[-0-9TZ:.+ ]+') THEN {column} END"
