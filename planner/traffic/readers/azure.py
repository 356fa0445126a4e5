"""Azure LLM inference traces (2023, 2024, 2025): ``TIMESTAMP, ContextTokens, GeneratedTokens``, read by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb

from planner.traffic.readers.base import Staged, Wanted
from planner.traffic.readers.columns import Columns, TimeKind
from planner.traffic.readers.head import Head
from planner.traffic.readers.table import stage_tables, table_file

COLUMNS = Columns(timestamp="TIMESTAMP", prompt="ContextTokens", output="GeneratedTokens")


@dataclass(frozen=True)
class Azure:
    """Time stamps have seven fractional digits, and in some years an offset; a naive one is UTC unless told."""

    name: str = "azure"
    source: str = "azure-llm-trace"
    options: Mapping[str, str] = field(default_factory=dict)

    def claims(self, head: Head) -> bool:
        """The three columns are there; further ones do not matter."""
        return not head.is_json and set(COLUMNS.used().values()) <= set(head.columns)

    def stage(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Staged:
        """Stage every row; the files hold plain numbers, so a quote is an error rather than a quoted field."""
        tables = tuple(table_file(h, COLUMNS, TimeKind.ISO, quoted=False) for h in heads)
        return Staged(malformed=stage_tables(connection, tables, wanted), tables=tables)
