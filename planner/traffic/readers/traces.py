"""Trace files for replay, one JSON object per request: what Mooncake, Qwen-Bailian and AIPerf traces share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import duckdb

from planner.errors import InputError, Problem
from planner.traffic.engine import sql_name
from planner.traffic.readers.base import Blocks, Opened, TableReader
from planner.traffic.readers.columns import Columns, TimeKind, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import TEXT, selected

COLUMNS = Columns(timestamp="timestamp", prompt="input_length", output="output_length")
LENGTHS = frozenset(COLUMNS.used().values())
HASHES = "hash_ids"
BAILIAN_KEYS = frozenset({"chat_id", "turn"})
"""Keys that only Bailian traces have; `parent_chat_id` is left out by some copies."""
AIPERF_KEYS = frozenset({"session_id", "delay"})
"""Keys that AIPerf adds to a Mooncake trace."""
OPTIONS = {
    "time": f"how time is written: {', '.join(TimeKind)}",
    "block_tokens": "tokens of one block of hash_ids",
}


def _rows(head: Head) -> str:
    """The three keys, whether or not the first line has them: a later turn of a session has no time."""
    names = COLUMNS.used().values()
    return selected(head, (), dict.fromkeys(names, TEXT), {name: sql_name(name) for name in names})


@dataclass(frozen=True)
class TraceReader:
    """A trace format: its columns, its clock, and the size of the blocks whose hashes it may hold."""

    name: str
    source: str
    claimed: Callable[[Head], bool]
    time: TimeKind | None
    """None: the keys do not tell, so the user must."""
    block_tokens: int
    options: Mapping[str, str] = field(default_factory=lambda: OPTIONS)

    def claims(self, head: Head) -> bool:
        """Whether a file that starts like this is of this format."""
        return self.claimed(head)

    def open(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Opened:
        """One query per file, and where the hashes of the blocks stand.

        Raises
        ------
        InputError
            If the unit of time is unknown, or an option has no meaning.
        """
        table = TableReader(
            self.name, self.source, self.claimed, lambda _: COLUMNS, self._time(heads, wanted), relation=_rows
        )
        blocks = Blocks(HASHES, self._block_tokens(wanted))
        return replace(table.open(connection, heads, wanted), blocks=blocks)

    def _time(self, heads: tuple[Head, ...], wanted: Wanted) -> TimeKind:
        given = str(wanted.options.get("time", ""))
        if given and given not in set(TimeKind):
            what = f"'{given}' is not a way to write time"
            raise InputError(Problem("option time", what, f"Use one of: {', '.join(TimeKind)}"))
        if given:
            return TimeKind(given)
        if self.time is None:
            what = "the keys do not tell whether time is in milliseconds (Mooncake, AIPerf) or seconds (GuideLLM)"
            fix = f"Add --option time={TimeKind.RELATIVE_MS} or --option time={TimeKind.RELATIVE_S}"
            raise InputError(Problem(str(heads[0].path), what, fix, row="1", field=COLUMNS.timestamp))
        return self.time

    def _block_tokens(self, wanted: Wanted) -> int:
        given = wanted.options.get("block_tokens", self.block_tokens)
        try:
            tokens = int(given)
        except (ValueError, OverflowError):
            tokens = 0
        if tokens < 1 or float(given) != tokens:
            raise InputError(Problem("option block_tokens", f"must be a whole number above 0 (got {given!r})"))
        return tokens
