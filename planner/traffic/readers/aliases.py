"""Public model names to the weights that served them, with dates: a name may change its weights within a quarter."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError, Problem, Problems
from planner.traffic.disk import usable
from planner.traffic.engine import sql_text
from planner.traffic.readers.columns import Alias, Wanted
from planner.traffic.schema import iso_utc
from planner.traffic.times import moment_us

DATED = re.compile(r"(?P<weights>.+)@(?P<since>\d{4}-\d\d-\d\d([T ]\d.*)?)")
"""Weights that are called ``name@20240229`` or ``name@001`` stay whole: only a date with dashes is one."""
COLUMNS = ("alias", "weights", "since", "version")
ORDER = "Write alias=weights, or alias=weights@2026-08-01 for what holds from that moment (UTC) on"


@dataclass(frozen=True)
class AliasFile:
    """What a file of aliases holds."""

    aliases: tuple[Alias, ...]
    version: str | None
    """The one version that its rows state, or the SHA-256 of the file."""


def parse_aliases(where: str, texts: Iterable[str]) -> tuple[Alias, ...]:
    """``chat=llama-70b,chat=llama-3.3-70b@2026-08-01`` and the like, of several options together.

    Raises
    ------
    InputError
        If a part is no pair, a date cannot be read, or two say different things about one name and moment.
    """
    problems = Problems()
    found = []
    for part in (piece.strip() for text in texts for piece in text.split(",") if piece.strip()):
        alias, equals, right = (piece.strip() for piece in part.partition("="))
        dated = DATED.fullmatch(right)
        weights, since = (dated["weights"], dated["since"]) if dated else (right, "")
        if not (alias and equals and weights):
            problems.add(where, f"'{part}' is not of the form name=value", ORDER)
            continue
        since_us = problems.attempt(lambda since=since: moment_us(where, since))  # type: ignore[misc]
        found.append(Alias(alias, weights, since_us))
    problems.raise_if_any()
    return checked(where, found)


def read_aliases(path: Path) -> AliasFile:
    """A CSV with the columns ``alias``, ``weights`` and, where needed, ``since`` (ISO 8601, UTC) and ``version``.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is no alias; names the rows.
    """
    with usable(path):
        content = path.read_bytes()
    try:
        lines = content.decode("utf-8-sig").splitlines()
        rows = list(csv.DictReader(lines, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(str(path), f"is not UTF-8 CSV: {error}")) from None
    problems = Problems()
    names = tuple(rows[0]) if rows else ()
    for column in ("alias", "weights"):
        if column not in names:
            problems.add(str(path), f"has no column '{column}'", f"The columns are: {', '.join(COLUMNS)}", row="1")
    problems.raise_if_any()
    found = []
    for number, row in enumerate(rows, start=2):
        alias, weights, since = ((row.get(name) or "").strip() for name in COLUMNS[:3])
        if not (alias and weights):
            problems.add(str(path), "needs an alias and weights", row=str(number))
            continue
        since_us = problems.attempt(lambda since=since: moment_us(str(path), since), f"row {number}")  # type: ignore[misc]
        found.append(Alias(alias, weights, since_us))
    problems.raise_if_any()
    versions = {(row.get("version") or "").strip() for row in rows} - {""}
    version = versions.pop() if len(versions) == 1 else f"sha256:{hashlib.sha256(content).hexdigest()}"
    return AliasFile(checked(str(path), found), version)


def checked(where: str, aliases: Sequence[Alias]) -> tuple[Alias, ...]:
    """The aliases in the order of name and date, each once.

    Raises
    ------
    InputError
        If two give one name different weights from the same moment on.
    """
    problems = Problems()
    found: dict[tuple[str, int | None], Alias] = {}
    for alias in aliases:
        before = found.setdefault((alias.alias, alias.since_us), alias)
        if before.weights != alias.weights:
            since = "" if alias.since_us is None else f" from {iso_utc(alias.since_us)} on"
            problems.add(where, f"'{alias.alias}' is given twice{since}", ORDER)
    problems.raise_if_any()
    return tuple(sorted(found.values(), key=lambda a: (a.alias, a.since_us is not None, a.since_us or 0)))


def alias_map(aliases: Sequence[Alias]) -> dict[str, str]:
    """For the manifest: ``alias`` or ``alias from <moment>`` to weights."""
    return {
        a.alias if a.since_us is None else f"{a.alias} from {iso_utc(a.since_us)}": a.weights
        for a in checked("", aliases)
    }


def alias_sql(aliases: Sequence[Alias], named: str, ts_us: str) -> str:
    """SQL for the weights behind the name ``named`` at ``ts_us``; the name itself where no alias holds (yet)."""
    if not aliases:
        return named
    by_name: dict[str, list[Alias]] = {}
    for alias in checked("", aliases):
        by_name.setdefault(alias.alias, []).append(alias)
    cases = " ".join(f"WHEN {sql_text(name)} THEN {_at(own, named, ts_us)}" for name, own in by_name.items())
    return f"CASE {named} {cases} ELSE {named} END"


def _at(own: Sequence[Alias], named: str, ts_us: str) -> str:
    """The weights of one name: the latest date that is not after the arrival counts."""
    always = next((sql_text(a.weights) for a in own if a.since_us is None), named)
    dated = [
        f"WHEN {ts_us} >= {a.since_us} THEN {sql_text(a.weights)}" for a in reversed(own) if a.since_us is not None
    ]
    return f"CASE {' '.join(dated)} ELSE {always} END" if dated else always


def check_dates(where: str, wanted: Wanted, *, relative: bool) -> None:
    """Refuse dates that cannot be meant.

    Raises
    ------
    InputError
        If the log has no dates, or the window that is asked for is empty.
    """
    problems = Problems()
    dated = any(alias.since_us is not None for alias in wanted.aliases)
    if relative and (dated or wanted.since_us is not None or wanted.until_us is not None):
        what = "counts time from its own start, so no date can be compared with it"
        problems.add(where, what, "Leave out --since, --until and the dates of aliases")
    if wanted.since_us is not None and wanted.until_us is not None and wanted.since_us >= wanted.until_us:
        problems.add("--since", "nothing lies between --since and --until", "Give the earlier moment first")
    problems.raise_if_any()
