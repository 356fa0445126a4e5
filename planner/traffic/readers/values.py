"""The value of a role as SQL: as text, number, moment or yes/no, whether the relation holds text or typed columns.

Everything is an expression over the columns ``r_<role>`` of the first step of `planner.traffic.readers.judge`. Typed
columns are never cast to text where a number, a moment or a truth is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.traffic.engine import sql_text
from planner.traffic.readers.columns import TableFile, TimeKind
from planner.traffic.readers.words import FALSE, TRUE

WHOLE = frozenset(
    f"{sign}{size}" for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT") for sign in ("", "U")
)
REAL = ("DOUBLE", "FLOAT", "REAL", "DECIMAL")


@dataclass(frozen=True)
class Values:
    """Expressions for the roles of one file; each is empty where the log has no such column."""

    table: TableFile
    time_zone: str = "UTC"

    def has(self, role: str) -> bool:
        """Whether the log has the column."""
        return bool(getattr(self.table.columns, role))

    def kind(self, role: str) -> str:
        """``text``, ``whole``, ``real``, ``moment`` (a time stamp or date) or ``truth``."""
        return kind_of(self.table.typed.get(role, "VARCHAR"))

    def text(self, role: str) -> str:
        """Trimmed text; null where there is none."""
        if not self.has(role):
            return ""
        raw = f"r_{role}"
        return f"nullif(trim({raw if self.table.typed.get(role, 'VARCHAR') == 'VARCHAR' else _text(raw)}), '')"

    def is_empty(self, role: str) -> str:
        """Whether nothing stands there."""
        if not self.has(role):
            return "true"
        return f"{self.text(role)} IS NULL" if self.kind(role) == "text" else f"r_{role} IS NULL"

    def number(self, role: str) -> str:
        """A whole number or a double; null where it is none.

        Typed doubles that are not finite are none. Not by comparison: the statistics of a Parquet file know no NaN, so
        from them the engine may take a comparison for settled that a NaN in the column does not pass.
        """
        if not self.has(role):
            return ""
        kind = self.kind(role)
        if kind == "whole":
            return f"r_{role}"
        if kind == "real":
            return f"CASE WHEN isfinite(CAST(r_{role} AS DOUBLE)) THEN CAST(r_{role} AS DOUBLE) END"
        return f"TRY_CAST(r_{role} AS DOUBLE)" if kind == "text" else "CAST(NULL AS DOUBLE)"

    def double(self, role: str) -> str:
        """A double, so that sums and products cannot overflow."""
        return f"CAST({self.number(role)} AS DOUBLE)" if self.kind(role) == "whole" else self.number(role)

    def beside(self, role: str) -> str:
        """A count that is added to another: an empty one is 0, an unreadable one spoils the sum (NaN)."""
        number = self.double(role)
        return f"CASE WHEN {self.is_empty(role)} THEN 0 ELSE coalesce({number}, 'NaN'::DOUBLE) END" if number else ""

    def moment_us(self, role: str) -> str:
        """Microseconds since 1970, or since the start of the log; null where unreadable.

        A naive stamp is local time of the session's zone. Where clocks go forward, the hour that does not exist is
        read with the offset from before the change; where they go back, the hour that comes twice is read as its
        second pass (as ICU does unless told otherwise). A log in a zone with such changes is better exported in UTC.
        """
        if not self.has(role):
            return ""
        kind = self.kind(role)
        if kind == "moment":
            return self._typed_moment_us(role)
        if self.table.time is TimeKind.ISO and kind == "text":
            return self._iso_us(f"r_{role}")
        number = self.double(role)
        scaled = f"round({number} * {self.table.time.us_per_unit!r})"
        return f"TRY_CAST({scaled} AS BIGINT)" if self.table.time is not TimeKind.ISO else "CAST(NULL AS BIGINT)"

    def _typed_moment_us(self, role: str) -> str:
        kind = self.table.typed[role].upper()
        direct = kind == "TIMESTAMP WITH TIME ZONE" or (self.time_zone == "UTC" and "TZ" not in kind)
        return f"epoch_us(r_{role})" if direct else f"epoch_us(CAST(r_{role} AS TIMESTAMPTZ))"

    def _iso_us(self, raw: str) -> str:
        """As the pattern says, or ISO 8601.

        In UTC a naive stamp is first tried with a Z behind it, which is read three times faster than without.
        """
        if self.table.time_pattern:
            return f"epoch_us(CAST(try_strptime(trim({raw}), {sql_text(self.table.time_pattern)}) AS TIMESTAMPTZ))"
        plain = f"TRY_CAST({raw} AS TIMESTAMPTZ)"
        if self.time_zone != "UTC":
            return f"epoch_us({plain})"
        return f"epoch_us(coalesce(TRY_CAST({raw} || 'Z' AS TIMESTAMPTZ), {plain}))"

    def is_true(self, role: str, words: Iterable[str] = TRUE) -> str:
        """Whether the log says yes; never null."""
        if not self.has(role):
            return "false"
        kind = self.kind(role)
        if kind == "truth":
            return f"coalesce(r_{role}, false)"
        if kind in ("whole", "real"):
            return f"coalesce({self.number(role)} = 1, false)"
        found = f"lower({self.text(role)}) IN ({listed(words)})"
        # No word at all, or the usual no, needs no folding.
        return f"CASE WHEN r_{role} IS NULL OR r_{role} IN ({listed(_usual_no())}) THEN false ELSE {found} END"

    def hash(self, role: str) -> str:
        """A number for an identifier; null where there is none. The identifier itself is not kept."""
        text = self.text(role)
        return f"CASE WHEN {text} IS NOT NULL THEN hash({text}) END" if text else "CAST(NULL AS UBIGINT)"


def kind_of(sql_type: str) -> str:
    """What kind of value a type of the engine holds; ``other`` is nested or binary."""
    name = sql_type.upper()
    if name in WHOLE:
        return "whole"
    if name.startswith(REAL):
        return "other" if name.endswith("]") else "real"
    if name == "BOOLEAN":
        return "truth"
    if name == "DATE" or name.startswith("TIMESTAMP"):
        return "other" if name.endswith("]") else "moment"
    if name in ("VARCHAR", "UUID") or name.startswith("ENUM"):
        return "other" if name.endswith("]") else "text"
    return "other"


def listed(words: Iterable[str]) -> str:
    """Words as an SQL list."""
    return ", ".join(sql_text(word) for word in words)


def _usual_no() -> tuple[str, ...]:
    return tuple(form for word in (*FALSE, "none", "miss", "disabled") for form in (word, word.title(), word.upper()))


def _text(raw: str) -> str:
    return f"CAST({raw} AS VARCHAR)"
