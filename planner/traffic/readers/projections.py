"""What a format's own relation takes from its file, told by the engine's plan rather than by the format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb

from planner.traffic.readers.columns import TableFile


def columns_taken(connection: duckdb.DuckDBPyConnection, table: TableFile) -> set[str]:
    """Columns of the file, in JSON lines paths where the plan shows them; of a plain table those of its roles."""
    if not table.relation:
        return set(table.columns.used().values())
    rows = connection.execute(f"EXPLAIN (FORMAT JSON) SELECT * FROM {table.relation}").fetchall()
    names = set(_projections(json.loads(rows[0][1])))
    if not table.head.is_csv:
        return names
    return {table.head.columns[int(name[1:])] for name in names if name[1:].isdigit()}


def _projections(nodes: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for node in nodes:
        if node["name"].strip().startswith("READ_"):
            names = node["extra_info"].get("Projections", [])
            yield from [names] if isinstance(names, str) else names
        yield from _projections(node["children"])
