"""Relations for logs whose roles are not plain columns: nested objects, counts that must be added up, flags in words.

A format names the top-level columns that it needs and writes its roles as SQL over them. Of JSON lines only the paths
in the given types are taken, of a CSV or a Parquet file only the columns named: nothing else reaches the engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from planner.errors import Problems
from planner.traffic.engine import sql_file, sql_name
from planner.traffic.readers.head import Head
from planner.traffic.readers.relation import csv_rows, json_rows

JSON = "JSON"
"""Type of an object without text that CSV and Parquet exports may hold as a JSON string, a map or a struct."""
TEXT = "VARCHAR"


def selected(head: Head, needed: Collection[str], types: Mapping[str, str], roles: Mapping[str, str]) -> str:
    """SQL of a relation with the columns ``roles``: name to an expression over the columns ``types``.

    Parameters
    ----------
    needed
        Columns without which a file is not of this format.
    types
        Top-level column to its type in JSON lines: `TEXT`, `JSON`, or a ``STRUCT`` or ``MAP`` that names the wanted
        paths. A column that the file does not have, or has as something else than an object, is null.

    Raises
    ------
    InputError
        If a needed column is missing, or a column that is read appears twice.
    """
    _check(head, needed, types)
    columns = ", ".join(f"{_column(head, name, kind)} AS {sql_name(name)}" for name, kind in types.items())
    wanted = ", ".join(f"{expression} AS {sql_name(name)}" for name, expression in roles.items())
    return f"(SELECT {wanted} FROM (SELECT {columns} FROM {_rows(head, types)}))"


def _check(head: Head, needed: Collection[str], types: Mapping[str, str]) -> None:
    problems = Problems()
    for name in types:
        count = head.columns.count(name)
        if count > 1:
            problems.add(str(head.path), f"has {count} columns named '{name}'", "Keep one", row="1", field=name)
        if not count and name in needed:
            shown = ", ".join(column[:40] for column in head.columns[:20])
            problems.add(str(head.path), f"has no column '{name}'", f"The columns are: {shown}", row="1", field=name)
    problems.raise_if_any()


def _column(head: Head, name: str, kind: str) -> str:
    """The column as the type for JSON lines, from whatever this kind of file makes of it."""
    if head.is_json:
        return _unwrapped(sql_name(name)) if kind == JSON else sql_name(name)
    if name not in head.columns or kind not in (JSON, TEXT):
        return f"CAST(NULL AS {kind})"
    if head.is_csv:
        text = sql_name(f"c{head.columns.index(name)}")
        # ClickHouse writes maps with single quotes.
        return f"""TRY_CAST(replace({text}, '''', '"') AS JSON)""" if kind == JSON else text
    return _unwrapped(f"to_json({sql_name(name)})") if kind == JSON else f"CAST({sql_name(name)} AS VARCHAR)"


def _unwrapped(document: str) -> str:
    """A JSON string that holds an object, as that object."""
    inner = f"TRY_CAST({document} ->> '$' AS JSON)"
    return f"CASE WHEN json_type({document}) = 'VARCHAR' THEN {inner} ELSE {document} END"


def _rows(head: Head, types: Mapping[str, str]) -> str:
    if head.is_json:
        return json_rows(head, types)
    return csv_rows(head) if head.is_csv else f"read_parquet({sql_file(head.path)})"


def added(text: str, *further: str) -> str:
    """SQL for a count to which others are added where they are numbers; as it is where it is no number itself."""
    rest = " + ".join(f"coalesce(TRY_CAST({other} AS BIGINT), 0)" for other in further)
    return f"coalesce(CAST(TRY_CAST({text} AS BIGINT) + {rest} AS VARCHAR), {text})"


def endpoint(*urls: str) -> str:
    """SQL for what an address asks for: an embedding and the like generates no tokens."""
    path = f"lower(coalesce({', '.join(urls)}, ''))"
    other = "'embedding|rerank|moderation|/audio/|/images/|/batches|/files'"
    return f"CASE WHEN regexp_matches({path}, {other}) THEN 'other' ELSE 'generation' END"


GENERATION = ("generation",)
"""What `endpoint` calls a text generation."""
