"""How DuckDB reads a log file: one relation with the columns of the allow-list, as text, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import duckdb

from planner.errors import Problem
from planner.traffic.engine import sql_file, sql_name, sql_text
from planner.traffic.readers.columns import TableFile
from planner.traffic.readers.head import Head
from planner.traffic.storage.engine import said

AGAIN = "Export or copy the file again"
LONGEST_LINE = 1 << 27
"""Bytes of a line where lines are long; elsewhere the engine's 16 MiB do, which need less memory."""


def relation(table: TableFile) -> str:
    """SQL of the file's rows, with the columns of `TableFile.places`."""
    if table.relation:
        return table.relation
    if table.head.is_parquet:
        names = ", ".join(sql_name(name) for name in dict.fromkeys(table.columns.used().values()))
        return f"(SELECT {names} FROM read_parquet({sql_file(table.head.path)}))"
    if table.head.is_json:
        return json_rows(table.head, dict.fromkeys(table.columns.used().values(), "VARCHAR"))
    return csv_rows(table.head, quoted=table.quoted)


def with_types(table: TableFile) -> TableFile:
    """The table with the types of its columns, where the file has types: such columns are not read as text."""
    if not table.head.types or table.relation or table.typed:
        return table
    types = dict(zip(table.head.columns, table.head.types, strict=True))
    return replace(table, typed={role: types[name] for role, name in table.columns.used().items() if name in types})


def csv_rows(head: Head, *, quoted: bool = True) -> str:
    """Every column as text under a positional name; bad lines go to the rejects table instead of failing."""
    names = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(head.columns)))
    quote = "'\"'" if quoted else "''"
    return (
        f"read_csv({sql_file(head.path)}, columns = {{{names}}}, auto_detect = false, header = false, skip = 1, "
        f"delim = {sql_text(head.delimiter)}, quote = {quote}, escape = {quote}, nullstr = '', "
        f"compression = '{compression(head)}', ignore_errors = true, store_rejects = true, "
        f"rejects_limit = 0, strict_mode = true, null_padding = false)"
    )


def json_rows(head: Head, types: Mapping[str, str]) -> str:
    """The top-level keys ``types`` of every line or element, each of the engine's type that is given for it.

    Keys that a ``STRUCT`` does not name never become values. What is no object, and a key of another shape, gives
    nulls.
    """
    names = ", ".join(f"{sql_text(name)}: {sql_text(kind)}" for name, kind in types.items())
    longest = f", maximum_object_size = {LONGEST_LINE}" if head.long_lines else ""
    layout = "'array', records = 'true'" if head.is_array else "'newline_delimited'"
    return (
        f"read_json({sql_file(head.path)}, columns = {{{names}}}, format = {layout}, "
        f"compression = '{compression(head)}', ignore_errors = true{longest})"
    )


def compression(head: Head) -> str:
    """The engine's word for how the file is compressed."""
    return "gzip" if head.is_gzip else "zstd" if head.is_zstd else "none"


def rejected_lines(connection: duckdb.DuckDBPyConnection) -> int:
    """Lines lost to malformed rows; a quote that is never closed swallows lines, and each of them counts.

    The engine hands out a malformed line with the blank lines before it; those are no rows.
    """
    rows = connection.execute("""
        SELECT coalesce(sum(lines), 0) FROM (
            SELECT max(1 + length(line) - length(replace(line, chr(10), ''))) AS lines FROM (
                SELECT file_id, line_byte_position, trim(csv_line, chr(10) || chr(13)) AS line FROM reject_errors
            ) GROUP BY file_id, line_byte_position
        )
    """).fetchall()
    return int(rows[0][0])


def broken(where: str, error: duckdb.Error) -> Problem:
    """Why a file could not be read: what its storage said, or the engine's message without its advice.

    The engine's advice speaks of options that our user does not have.
    """
    words = said(error)
    if words:
        return Problem(where, words)
    return Problem(where, f"cannot be read: {str(error).strip().splitlines()[0][:200]}", AGAIN)
