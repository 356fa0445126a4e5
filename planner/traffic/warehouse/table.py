"""Which columns of a warehouse's table play which part, checked against their types."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.errors import Problems
from planner.traffic.privacy import HASHED, IDENTIFIERS, STORED, is_private
from planner.traffic.readers.columns import Columns, OptionValue, Stamps, TimeKind
from planner.traffic.readers.litellm import COLUMNS as LITELLM

ROLES = (
    "timestamp", "prompt", "output", "model", "fallback_model", "cached", "cached_beside", "reasoning_beside",
    "request_id", "version", "status", "error", "cache_hit", "operation", "traffic_class", "duration", "completion",
    "aborted", "logical_id", "choices",
)  # fmt: skip
"""Parts that a column of a table can play, with the rules that belong to them; any other one is refused.

All of `planner.traffic.readers.columns.Columns` but ``sampling``: the share that a table holds is ``--sampling``.
"""
NEEDED = ("timestamp", "prompt", "output")
COUNTS = ("prompt", "output", "cached", "cached_beside", "reasoning_beside", "duration", "choices")
MOMENTS = ("timestamp", "completion")
WORDS = {"text": "text", "truth": "yes/no", "whole": "whole numbers", "real": "numbers", "moment": "time stamps"}
NAMES = ("model", "fallback_model", "request_id", "logical_id", "operation")


@dataclass(frozen=True)
class TableColumns:
    """The allow-list of a table, what kind of values it has, and how it writes time."""

    roles: Columns
    kinds: Mapping[str, str]
    """Role to what `kind_of` says of its column."""
    time: TimeKind = TimeKind.ISO
    generations: tuple[str, ...] = ()
    """See `planner.traffic.readers.columns.TableFile.generations`."""
    duration_unit_s: float = 1.0
    stamps: Stamps = Stamps.ARRIVAL
    beside: Mapping[str, str] = field(default_factory=dict)
    """See `Shape.beside`."""

    def used(self) -> dict[str, str]:
        """What each column that is read is for, and its name."""
        return {**self.roles.used(), **self.beside}

    def has(self, role: str) -> bool:
        """Whether the table has a column for the role."""
        return bool(getattr(self.roles, role))

    def of(self, role: str) -> str:
        """Name of the column."""
        return str(getattr(self.roles, role))


@dataclass(frozen=True)
class Shape:
    """What a log format says about a table beyond its columns."""

    named: Mapping[str, str] = field(default_factory=dict)
    """Role to column."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Further columns that the format reads to fill a role."""
    generations: tuple[str, ...] = ()
    duration_unit_s: float = 1.0
    stamps: Stamps = Stamps.ARRIVAL


def kind_of(data_type: Any) -> str:
    """What kind of value an Ibis type holds; ``other`` is nested, binary and the like."""
    tests = (
        ("truth", data_type.is_boolean()),
        ("whole", data_type.is_integer()),
        ("real", data_type.is_floating() or data_type.is_decimal()),
        ("moment", data_type.is_timestamp() or data_type.is_date()),
        ("text", data_type.is_string() or data_type.is_uuid()),
    )
    return next((kind for kind, holds in tests if holds), "other")


def table_columns(
    where: str, schema: Mapping[str, Any], shape: Shape, options: Mapping[str, OptionValue]
) -> TableColumns:
    """The columns by role, with the kinds of their values.

    Parameters
    ----------
    where
        The table, as the user named it.
    schema
        Column name to Ibis data type.
    shape
        Role to column as the user or the format names it; case counts only where two columns differ in it alone.
    options
        ``time`` says how a time in numbers is written.

    Raises
    ------
    InputError
        If a column is missing, or has a type that its role cannot have.
    """
    problems = Problems()
    found = {role: match(name, schema) for role, name in shape.named.items()}
    for role, name in shape.named.items():
        if not found[role]:
            close = difflib.get_close_matches(name, schema, n=1)
            fix = f"Did you mean '{close[0]}'?" if close else f"The columns are: {', '.join(list(schema)[:20])}"
            problems.add(where, f"has no column '{name}' for {role}", fix, field=name)
    problems.raise_if_any()
    kinds = {role: kind_of(schema[name]) for role, name in found.items()}
    for role, name in found.items():
        _check_kind(problems, where, role, name, schema[name])
    time = _time_kind(problems, kinds, options)
    problems.raise_if_any()
    said = (shape.generations, shape.duration_unit_s, shape.stamps, shape.beside)
    return TableColumns(Columns(**found), kinds, time, *said)


def mapped(names: Mapping[str, Any], mapping: Mapping[str, str]) -> Shape:
    """Columns as ``--map`` names them; without it, those that are called by their roles.

    Raises
    ------
    InputError
        If a role is unknown or a needed one is missing.
    """
    if not mapping:
        return Shape({role: role for role in ROLES if role in NEEDED or match(role, names)})
    problems = Problems()
    for role in mapping:
        if role not in ROLES:
            close = difflib.get_close_matches(role, ROLES, n=1)
            fix = f"Did you mean '{close[0]}'?" if close else f"The roles are: {', '.join(ROLES)}"
            problems.add("--map", f"'{role}' is not a role of a table's column", fix, field=role)
    for role in NEEDED:
        if not mapping.get(role):
            problems.add("--map", f"no column is given for {role}", f"Add {role}=COLUMN", field=role)
    problems.raise_if_any()
    return Shape(dict(mapping))


def named_columns(log_format: str, mapping: Mapping[str, str]) -> dict[str, str]:
    """Role to column, as far as it is known without a look at the table."""
    return dict(mapping) or (LITELLM.used() if log_format == "litellm" else {})


def match(name: str, names: Mapping[str, Any]) -> str:
    """The column of that name; where no case fits exactly, the only one that fits without case."""
    if name in names:
        return name
    alike = [column for column in names if column.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else ""


def _check_kind(problems: Problems, where: str, role: str, name: str, data_type: Any) -> None:
    kind = kind_of(data_type)
    view = "Make a view that casts it, and give that"
    numbers = ("whole", "real")
    allowed: tuple[str, ...] = ("text", "truth", *numbers)
    if role in MOMENTS:
        allowed = ("moment", *numbers)
    elif role in COUNTS:
        allowed = ("text", *numbers)
    elif role == "version":
        allowed = ("moment", *numbers)
    elif role in NAMES:
        allowed = ("text", *numbers)
    if kind not in allowed:
        wanted = ", ".join(WORDS[k] for k in allowed)
        problems.add(where, f"is {data_type}, but {role} must be one of: {wanted}", view, field=name)
    elif _suspect(role, name, kind):
        what = f"may hold text or say who asked, so it is not read (for {role})"
        problems.add(where, what, "Map a column of numbers, or leave the role out", field=name)


def _suspect(role: str, name: str, kind: str) -> bool:
    """Whether a column may hold what must not be read; see `planner.traffic.privacy`."""
    if role in HASHED and name.casefold() in IDENTIFIERS:
        return False
    return is_private(name) and (kind == "text" or role in (*STORED, *HASHED))


def _time_kind(problems: Problems, kinds: Mapping[str, str], options: Mapping[str, OptionValue]) -> TimeKind:
    given = str(options.get("time", ""))
    for name in options:
        if name != "time":
            problems.add(f"option {name}", "is not known", "Tables know: time")
    if not any(kinds.get(role) in ("whole", "real") for role in MOMENTS):
        if given not in ("", TimeKind.ISO):
            problems.add("option time", f"is {given}, but the column holds time stamps", "Leave the option out")
        return TimeKind.ISO
    numeric = [kind for kind in TimeKind if kind is not TimeKind.ISO]
    if given not in numeric:
        shown = f"'{given}' is not a way to write time in numbers" if given else "must be given: the time is a number"
        problems.add("option time", shown, f"Use --option time=KIND, one of: {', '.join(numeric)}")
        return TimeKind.EPOCH_S
    return TimeKind(given)
