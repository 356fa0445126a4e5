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
    EPOCH_US = "epoch_us"
    EPOCH_NS = "epoch_ns"
    RELATIVE_S = "relative_s"
    RELATIVE_MS = "relative_ms"

    @property
    def relative(self) -> bool:
        """Whether time counts from the start of the log."""
        return self.value.startswith("relative")

    @property
    def us_per_unit(self) -> float:
        """Microseconds of one unit, for times that are numbers."""
        return UNITS_US[self.value.rpartition("_")[2]]


UNITS_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


class Stamps(StrEnum):
    """What the time stamp of a row says."""

    ARRIVAL = "arrival"
    COMPLETION = "completion"
    """Of the response: the duration is subtracted, where the log has one."""


@dataclass(frozen=True)
class Alias:
    """From ``since_us`` on, the public name ``alias`` means ``weights``; see `planner.traffic.readers.aliases`."""

    alias: str
    weights: str
    since_us: int | None = None
    """Microseconds since 1970; none: from the start of the log, or until another date says otherwise."""


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
    typed: Mapping[str, str] = field(default_factory=dict)
    """Role to the engine's type, such as ``BIGINT``, where the relation has no text: nothing is cast to text then."""
    stamps: Stamps = Stamps.ARRIVAL
    """What the format's time stamps say, unless `Wanted.stamps` knows better."""
    time_pattern: str = ""
    """How time that is text is written, such as ``%d/%m/%Y %H:%M:%S``; empty: ISO 8601."""

    def places(self) -> dict[str, str]:
        """Role to the name under which the engine sees its column: positional for a CSV, else its own."""
        if self.relation or not self.head.is_csv:
            return self.columns.used()
        return {role: f"c{self.head.columns.index(name)}" for role, name in self.columns.used().items()}


@dataclass(frozen=True)
class Wanted:
    """What the caller asks of a reader."""

    model: str = ""
    """Keep only this model; where the log names no model, the name that its rows get."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Role to column name, for a plain CSV."""
    aliases: tuple[Alias, ...] = ()
    """The names under which rows are merged."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Options of the reader itself, each one of the reader's ``options``."""
    time_zone: str = "UTC"
    """Zone of time stamps that carry none; the engine's session is set to it."""
    stamps: Stamps | None = None
    """What time stamps say, where the user knows better than the format."""
    since_us: int | None = None
    """Keep arrivals from here on: microseconds since 1970."""
    until_us: int | None = None
    """Keep arrivals before this."""
