"""How DuckDB reads a log file: one relation with the columns of the allow-list, as text, and nothing else."""

from __future__ import annotations

import duckdb

from planner.traffic.engine import sql_text
from planner.traffic.readers.columns import TableFile


def relation(table: TableFile) -> str:
    """SQL of the file's rows, with the columns of `TableFile.places`."""
    if table.relation:
        return table.relation
    return _json_relation(table) if table.head.is_json else _csv_relation(table)


def _csv_relation(table: TableFile) -> str:
    """Every column as text under a positional name; bad lines go to the rejects table instead of failing."""
    head = table.head
    names = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(head.columns)))
    quote = "'\"'" if table.quoted else "''"
    return (
        f"read_csv({sql_text(str(head.path))}, columns = {{{names}}}, auto_detect = false, header = false, skip = 1, "
        f"delim = {sql_text(head.delimiter)}, quote = {quote}, escape = {quote}, nullstr = '', "
        f"compression = '{'gzip' if head.is_gzip else 'none'}', ignore_errors = true, store_rejects = true, "
        f"rejects_limit = 0, strict_mode = true, null_padding = false)"
    )


def _json_relation(table: TableFile) -> str:
    head = table.head
    names = ", ".join(f"{sql_text(name)}: 'VARCHAR'" for name in table.columns.used().values())
    return (
        f"read_json({sql_text(str(head.path))}, columns = {{{names}}}, format = 'newline_delimited', "
        f"compression = '{'gzip' if head.is_gzip else 'none'}', ignore_errors = true)"
    )


def rejected_lines(connection: duckdb.DuckDBPyConnection) -> int:
    """Lines lost to malformed rows; a quote that is never closed swallows lines, and each of them counts.

    The engine hands out a malformed line with the blank lines before it; those are no rows.
    """
    row = connection.execute("""
        SELECT coalesce(sum(lines), 0) FROM (
            SELECT max(1 + length(line) - length(replace(line, chr(10), ''))) AS lines FROM (
                SELECT file_id, line_byte_position, trim(csv_line, chr(10) || chr(13)) AS line FROM reject_errors
            ) GROUP BY file_id, line_byte_position
        )
    """).fetchone()
    return int(row[0]) if row else 0


def reason(error: duckdb.Error) -> str:
    """The engine's message without its advice, which speaks of options that our user does not have."""
    first = str(error).strip().splitlines()[0]
    return f"cannot be read: {first[:200]}"
