"""The one interface behind which every log format sits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import duckdb

from planner.traffic.readers.columns import TableFile
from planner.traffic.readers.head import Head

OptionValue = str | int | float


@dataclass(frozen=True)
class Wanted:
    """What the caller asks of a reader."""

    model: str = ""
    """Keep only this model; where the log names no model, the name that its rows get."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Role to column name, for a plain CSV."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Public alias to the name under which its rows are merged."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Options of the reader itself, each one of the reader's ``options``."""


@dataclass(frozen=True)
class Staged:
    """What a reader says about the rows that it has staged."""

    malformed: int = 0
    """Lines that never became a row."""
    relative_time: bool = False
    """True where time counts from the start of the log rather than from 1970."""
    window_us: tuple[int, int] | None = None
    """The observed window, where the reader knows it better than the first and last row do."""
    filters: tuple[str, ...] = ()
    """What the reader selected, for the manifest."""
    tables: tuple[TableFile, ...] = ()
    """How each file was read, for looking up its dropped rows; empty where requests are drawn rather than read."""


class Reader(Protocol):
    """One log format."""

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

    def stage(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Staged:
        """Insert every row of the files into ``staged``, each with its verdict.

        Raises
        ------
        InputError
            If a file cannot be read as this format at all.
        """
