"""The one interface behind which every log format sits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import duckdb

from planner.traffic.readers.columns import Columns, TableFile, TimeKind, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.readers.judge import checked, judged_queries


@dataclass(frozen=True)
class Blocks:
    """Where a log holds the hashes of the blocks of its prompts; see `planner.traffic.prefix`."""

    column: str
    """A list of whole numbers per request; each stands for its block and for all blocks before it."""
    tokens: int
    """Size of a block; the last one of a prompt may be shorter."""


@dataclass(frozen=True)
class Opened:
    """How the rows of the files are read: not yet read, so that the engine decides how often."""

    selects: tuple[str, ...]
    """SQL queries with the columns of `judge.JUDGED`, one per file; they may be run more than once."""
    relative_time: bool = False
    """True where time counts from the start of the log rather than from 1970."""
    window_us: tuple[int, int] | None = None
    """The observed window, where the reader knows it better than the first and last row do."""
    filters: tuple[str, ...] = ()
    """What the reader selected, for the manifest."""
    tables: tuple[TableFile, ...] = ()
    """The file behind each query, for lines that never become a row and for looking up dropped rows; empty where
    requests are drawn rather than read."""
    blocks: Blocks | None = None
    """Where the hashes of prompt blocks stand, in formats that have them."""


class Reader(Protocol):
    """One log format with one row per request."""

    @property
    def name(self) -> str:
        """The word for ``--format``."""

    @property
    def source(self) -> str:
        """The name in the manifest."""

    @property
    def options(self) -> Mapping[str, str]:
        """Option name to what it does."""

    def claims(self, head: Head) -> bool:
        """Whether a file that starts like this is of this format."""

    def open(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Opened:
        """How every row of the files is read and judged.

        Raises
        ------
        InputError
            If a file cannot be read as this format at all.
        """


@dataclass(frozen=True)
class TableReader:
    """A format that is an allow-list of columns: what nearly all of them are."""

    name: str
    source: str
    claimed: Callable[[Head], bool]
    """Whether a file that starts like this is of this format."""
    columns: Callable[[Head], Columns]
    """The allow-list for a file, less the optional columns that it does not have."""
    time: TimeKind = TimeKind.ISO
    quoted: bool = True
    relation: Callable[[Head], str] | None = None
    """See `TableFile.relation`."""
    generations: tuple[str, ...] = ()
    duration_unit_s: float = 1.0
    options: Mapping[str, str] = field(default_factory=dict)

    def claims(self, head: Head) -> bool:
        """Whether a file that starts like this is of this format."""
        return self.claimed(head)

    def open(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Opened:
        """One query per file."""
        tables = tuple(self.table(head) for head in heads)
        return Opened(judged_queries(tables, wanted), self.time.relative, tables=tables)

    def table(self, head: Head) -> TableFile:
        """How one file is read."""
        relation = self.relation(head) if self.relation else ""
        table = TableFile(
            head, self.columns(head), self.time, self.quoted, relation, self.generations, self.duration_unit_s
        )
        return checked(table)


def without_absent(
    columns: Columns, head: Head, needed: Collection[str] = ("timestamp", "prompt", "output")
) -> Columns:
    """The allow-list, less the columns of roles other than ``needed`` that this file does not have."""
    absent = {role: "" for role, name in columns.used().items() if name not in head.columns and role not in needed}
    return replace(columns, **absent)
