"""Which columns of a log are read, how it writes time, and what that makes of one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from planner.traffic.readers.head import Head

OptionValue = str | int | float


class TimeKind(StrEnum):
    """How a log writes time."""

    ISO = "iso"
    EPOCH_S = "epoch_s"
    EPOCH_MS = "epoch_ms"
    RELATIVE_S = "relative_s"
    RELATIVE_MS = "relative_ms"

    @property
    def relative(self) -> bool:
        """Whether time counts from the start of the log."""
        return self.value.startswith("relative")


@dataclass(frozen=True)
class Columns:
    """The allow-list: which column of the log plays which part; an empty name means that the log has none."""

    timestamp: str
    prompt: str
    output: str
    model: str = ""
    fallback_model: str = ""
    """Used where ``model`` is empty."""
    cached: str = ""
    """Prompt tokens answered from a prefix cache."""
    cached_beside: str = ""
    """The same, in sources whose prompt count leaves them out: they are added to it."""
    reasoning_beside: str = ""
    """Reasoning tokens, in sources whose output count leaves them out: they are added to it."""
    request_id: str = ""
    """Rows of one id are one request: the kept one with the highest ``version`` counts."""
    version: str = ""
    status: str = ""
    """A word for success or failure, or an HTTP status."""
    error: str = ""
    """Any text here says that the request failed."""
    cache_hit: str = ""
    """Whether the proxy's response cache answered."""
    operation: str = ""
    """What kind of call it was; see `TableFile.generations`."""
    traffic_class: str = ""
    """``batch`` and the like; empty is ``default``."""
    duration: str = ""
    """From arrival to completion, in units of `TableFile.duration_unit_s`."""
    completion: str = ""
    """Time stamp of completion, where the log has both."""
    aborted: str = ""
    """Whether the client went away before the end."""
    logical_id: str = ""
    """Attempts (retries, fallbacks) at one logical request share it."""
    choices: str = ""
    """Completions asked for in one request (``n``)."""
    sampling: str = ""
    """Share of the requests that the log keeps, if a column says so."""

    def used(self) -> dict[str, str]:
        """Role to column name, for the roles that the log has."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}


@dataclass(frozen=True)
class TableFile:
    """One log file with one row per request, and how it is read."""

    head: Head
    columns: Columns
    time: TimeKind
    quoted: bool = True
    """Whether a CSV field may stand in quotes."""
    relation: str = ""
    """SQL of a relation, in parentheses or a function call, that has the columns by their names: for nested formats.

    Empty: the file's own columns. It must read no column but those that it needs.
    """
    generations: tuple[str, ...] = ()
    """Values of ``operation``, in lower case, that are text generations; empty: all are."""
    duration_unit_s: float = 1.0
    """Seconds of one unit of ``duration``."""

    def places(self) -> dict[str, str]:
        """Role to the name under which the engine sees its column: positional for a CSV, else its own."""
        if self.relation or not self.head.is_csv:
            return self.columns.used()
        return {role: f"c{self.head.columns.index(name)}" for role, name in self.columns.used().items()}

    def text(self, role: str) -> str:
        """SQL for the trimmed text of a role, or null where the log has no such column."""
        return f"t_{role}" if getattr(self.columns, role) else "CAST(NULL AS VARCHAR)"


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
