"""Which columns of a log are read, how it writes time, and what that makes of one file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from planner.traffic.readers.head import Head


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
    request_id: str = ""
    status: str = ""
    cache_hit: str = ""

    def used(self) -> dict[str, str]:
        """Role to column name, for the roles that the log has."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}


@dataclass(frozen=True)
class TableFile:
    """One log file with one row per request, and how it is read."""

    head: Head
    columns: Columns
    time: TimeKind
    quoted: bool
    """Whether a CSV field may stand in quotes."""

    def places(self) -> dict[str, str]:
        """Role to the name under which the engine sees its column: positional for a CSV, the key for JSON."""
        if self.head.is_json:
            return self.columns.used()
        return {role: f"c{self.head.columns.index(name)}" for role, name in self.columns.used().items()}

    def text(self, role: str) -> str:
        """SQL for the trimmed text of a role, or null where the log has no such column."""
        return f"t_{role}" if getattr(self.columns, role) else "CAST(NULL AS VARCHAR)"
