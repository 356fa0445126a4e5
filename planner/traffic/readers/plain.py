"""Any CSV or JSON-lines file with one row per request, through a mapping of roles to column names."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import duckdb

from planner.errors import InputError, Problem, Problems
from planner.traffic.readers.base import Opened
from planner.traffic.readers.columns import Columns, TableFile, TimeKind, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.readers.judge import checked, judged_queries, sniff_time

ROLES = tuple(f.name for f in fields(Columns) if f.name != "fallback_model")
NEEDED = ("timestamp", "prompt", "output")
DURATION_UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
OPTIONS = {
    "time": (
        f"how time is written: {', '.join(TimeKind)}, or a pattern such as %d/%m/%Y %H:%M:%S "
        "(default: told from the first row)"
    ),
    "duration_unit": f"unit of the duration: {', '.join(DURATION_UNITS_S)} (default: s)",
    "generations": "values of the operation that are text generations, as in chat|completion",
}


@dataclass(frozen=True)
class Plain:
    """Without a mapping, the columns must already be called by their roles."""

    name: str = "plain"
    source: str = "plain"
    options: Mapping[str, str] = field(default_factory=lambda: OPTIONS)

    def claims(self, head: Head) -> bool:
        """The columns are called ``timestamp``, ``prompt`` and ``output``."""
        return set(NEEDED) <= set(head.columns)

    def open(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Opened:
        """One query per file, all under one mapping and one way of writing time."""
        _check_pattern(connection, _pattern(wanted))
        tables = tuple(_table(head, wanted) for head in heads)
        _check_same_clock(tables)
        return Opened(judged_queries(tables, wanted), tables[0].time.relative, tables=tables)


def _table(head: Head, wanted: Wanted) -> TableFile:
    columns = _columns(head, wanted)
    generations = tuple(word.strip().lower() for word in str(wanted.options.get("generations", "")).split("|"))
    return checked(
        TableFile(
            head,
            columns,
            _time_kind(head, columns, wanted),
            generations=tuple(filter(None, generations)),
            duration_unit_s=_duration_unit_s(wanted),
            time_pattern=_pattern(wanted),
        )
    )


def _duration_unit_s(wanted: Wanted) -> float:
    given = str(wanted.options.get("duration_unit", "s"))
    problems = Problems()
    if given not in DURATION_UNITS_S:
        problems.add("option duration_unit", f"'{given}' is not a unit", f"Use one of: {', '.join(DURATION_UNITS_S)}")
    problems.raise_if_any()
    return DURATION_UNITS_S[given]


def _columns(head: Head, wanted: Wanted) -> Columns:
    if not wanted.mapping:
        return Columns(**{role: role for role in ROLES if role in head.columns or role in NEEDED})
    problems = Problems()
    for role in wanted.mapping:
        if role not in ROLES:
            close = difflib.get_close_matches(role, ROLES, n=1)
            fix = f"Did you mean '{close[0]}'?" if close else f"The roles are: {', '.join(ROLES)}"
            problems.add("--map", f"'{role}' is not a role", fix, field=role)
    for role in NEEDED:
        if not wanted.mapping.get(role) and not (role == "timestamp" and wanted.mapping.get("completion")):
            problems.add("--map", f"no column is given for {role}", f"Add {role}=COLUMN", field=role)
    if wanted.mapping.get("operation") and not wanted.options.get("generations"):
        fix = "Add --option generations=chat|completion with the values that are"
        problems.add("--map", "does not say which operations are text generations", fix, field="operation")
    problems.raise_if_any()
    return Columns(**({"timestamp": ""} | dict(wanted.mapping)))


def _time_kind(head: Head, columns: Columns, wanted: Wanted) -> TimeKind:
    given = str(wanted.options.get("time", ""))
    if not given:
        return sniff_time(head, columns.timestamp or columns.completion)
    if _pattern(wanted):
        return TimeKind.ISO
    problems = Problems()
    if given not in set(TimeKind):
        fix = f"Use one of: {', '.join(TimeKind)}; or a pattern such as %d/%m/%Y %H:%M:%S"
        problems.add("option time", f"'{given}' is not a way to write time", fix)
    problems.raise_if_any()
    return TimeKind(given)


def _pattern(wanted: Wanted) -> str:
    """How the day, month and year of a text stand, where the user says so."""
    given = str(wanted.options.get("time", ""))
    return given if "%" in given else ""


def _check_pattern(connection: duckdb.DuckDBPyConnection, pattern: str) -> None:
    if not pattern:
        return
    fix = "Write it as %d/%m/%Y %H:%M:%S: day, month, year, hour, minute, second"
    whole = all(any(code in pattern for code in codes) for codes in (("%Y", "%y"), ("%m", "%b", "%B"), ("%d", "%-d")))
    try:
        connection.execute("SELECT try_strptime('', ?)", [pattern])
    except duckdb.Error:
        whole = False
    if not whole:
        raise InputError(Problem("option time", f"'{pattern}' is no pattern of a date", fix))


def _check_same_clock(tables: tuple[TableFile, ...]) -> None:
    problems = Problems()
    first = tables[0]
    for table in tables:
        if table.time.relative != first.time.relative:
            what = f"counts time as {table.time}, but {first.head.path} as {first.time}"
            problems.add(str(table.head.path), what, "Ingest them apart")
    problems.raise_if_any()
