"""LiteLLM proxy spend logs (table ``LiteLLM_SpendLogs``) dumped as CSV with a header.

Column names and meanings: the proxy's Prisma schema. One row is one attempt, so router retries are rows of their
own: each loads a GPU. ``startTime`` is a naive UTC stamp since 2025 and server-local before; give ``--tz`` for older.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import duckdb

from planner.traffic.readers.base import Staged, Wanted
from planner.traffic.readers.columns import Columns, TimeKind
from planner.traffic.readers.head import Head
from planner.traffic.readers.table import stage_tables, table_file

COLUMNS = Columns(
    timestamp="startTime",
    prompt="prompt_tokens",
    output="completion_tokens",
    model="model_group",
    fallback_model="model",
    request_id="request_id",
    status="status",
    cache_hit="cache_hit",
)
NEEDED = ("startTime", "prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class LiteLLM:
    """``model_group`` is the public alias and counts; ``model``, the upstream string, only where it is empty."""

    name: str = "litellm"
    source: str = "litellm-spendlogs"
    options: Mapping[str, str] = field(default_factory=dict)

    def claims(self, head: Head) -> bool:
        """The quoted camel-case start time beside the two token columns."""
        return not head.is_json and set(NEEDED) <= set(head.columns)

    def stage(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Staged:
        """Stage every row; columns that a shorter dump leaves out are simply not used."""
        tables = tuple(table_file(h, columns_of(h), TimeKind.ISO, quoted=True) for h in heads)
        return Staged(malformed=stage_tables(connection, tables, wanted), tables=tables)


def columns_of(head: Head) -> Columns:
    """The allow-list, less the optional columns that this dump does not have."""
    absent = {role: "" for role, name in COLUMNS.used().items() if name not in head.columns and name not in NEEDED}
    columns = replace(COLUMNS, **absent)
    if not columns.model and columns.fallback_model:
        return replace(columns, model=columns.fallback_model, fallback_model="")
    return columns
