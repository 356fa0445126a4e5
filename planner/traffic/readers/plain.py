"""Any CSV or JSON-lines file with one row per request, through a mapping of roles to column names."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import duckdb

from planner.errors import Problems
from planner.traffic.readers.base import Staged, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.readers.table import Columns, TimeKind, sniff_time, stage_table

ROLES = tuple(f.name for f in fields(Columns) if f.name != "fallback_model")
NEEDED = ("timestamp", "prompt", "output")
OPTIONS = {"time": f"how time is written: {', '.join(TimeKind)} (default: told from the first row)"}


@dataclass(frozen=True)
class Plain:
    """Without a mapping, the columns must already be called by their roles."""

    name: str = "plain"
    source: str = "plain"
    options: Mapping[str, str] = field(default_factory=lambda: OPTIONS)

    def claims(self, head: Head) -> bool:
        """The columns are called ``timestamp``, ``prompt`` and ``output``."""
        return set(NEEDED) <= set(head.columns)

    def stage(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Staged:
        """Stage every row of every file under one mapping and one way of writing time."""
        kinds = []
        lost = 0
        for head in heads:
            columns = _columns(head, wanted)
            kind = _time_kind(head, columns, wanted)
            kinds.append(kind)
            lost += stage_table(connection, head, columns, kind, wanted, quoted=True)
        _check_same_clock(heads, kinds)
        return Staged(malformed=lost, relative_time=kinds[0].relative)


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
        if not wanted.mapping.get(role):
            problems.add("--map", f"no column is given for {role}", f"Add {role}=COLUMN", field=role)
    problems.raise_if_any()
    return Columns(**wanted.mapping)


def _time_kind(head: Head, columns: Columns, wanted: Wanted) -> TimeKind:
    given = str(wanted.options.get("time", ""))
    if not given:
        return sniff_time(head, columns.timestamp)
    problems = Problems()
    if given not in set(TimeKind):
        problems.add("option time", f"'{given}' is not a way to write time", f"Use one of: {', '.join(TimeKind)}")
    problems.raise_if_any()
    return TimeKind(given)


def _check_same_clock(heads: tuple[Head, ...], kinds: list[TimeKind]) -> None:
    problems = Problems()
    for head, kind in zip(heads, kinds, strict=True):
        if kind.relative != kinds[0].relative:
            problems.add(
                str(head.path), f"counts time as {kind}, but {heads[0].path} as {kinds[0]}", "Ingest them apart"
            )
    problems.raise_if_any()
