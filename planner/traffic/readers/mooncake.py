"""Mooncake traces: JSON lines with ``timestamp`` (ms from the start), ``input_length``, ``output_length``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb

from planner.traffic.readers.base import Staged, Wanted
from planner.traffic.readers.columns import Columns, TimeKind
from planner.traffic.readers.head import Head
from planner.traffic.readers.table import stage_tables, table_file

COLUMNS = Columns(timestamp="timestamp", prompt="input_length", output="output_length")


@dataclass(frozen=True)
class Mooncake:
    """The block hashes are not read. Stamps are quantised to 3 s; the burst table says at which scales they count."""

    name: str = "mooncake"
    source: str = "mooncake-trace"
    options: Mapping[str, str] = field(default_factory=dict)

    def claims(self, head: Head) -> bool:
        """The three keys are in the first object."""
        return head.is_json and set(COLUMNS.used().values()) <= set(head.columns)

    def stage(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Staged:
        """Stage every line."""
        tables = tuple(table_file(h, COLUMNS, TimeKind.RELATIVE_MS, quoted=False) for h in heads)
        return Staged(malformed=stage_tables(connection, tables, wanted), tables=tables, relative_time=True)
