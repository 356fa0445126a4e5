"""Command-line flags by engine version: no command may hold one that its engine does not have.

``catalogs/engines/flags/<engine>.csv`` has a row for each stretch of versions in which a flag takes the same;
``read.csv`` lists the versions that were read, each from the argument parsers of its release.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.csv_table import read_table
from planner.catalog.versions import version_key
from planner.errors import InputError, Problem, Problems

NEGATION = "--no-"
Takes = Literal["value", "nothing", "nothing or no-", "optional"]


class Row(BaseModel):
    """A row of a table."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FlagRow(Row):
    """The versions in which a flag takes the same."""

    flag: str = Field(pattern=r"^--[a-z0-9][a-z0-9_-]*$")
    takes: Takes
    """``nothing or no-``: on as it is, off as ``--no-<name>``; ``optional``: a value or nothing."""
    first: str = Field(min_length=1)
    """First version read that has it so."""
    last: str = ""
    """Last one; empty: the newest that was read has it."""
    instead: str = ""
    """What newer versions have in its place."""
    source: str = Field(min_length=1)
    """File of the engine that adds it."""


class ReadVersion(Row):
    """A version whose argument parsers were read."""

    engine: Literal["vllm", "sglang"]
    version: str = Field(min_length=1)
    released: dt.date
    flags: int = Field(gt=0)
    source: str = Field(min_length=1)
    as_of: dt.date


@dataclass(frozen=True)
class FlagList:
    """Flags of one engine.

    Attributes
    ----------
    versions
        Those that were read, ascending.
    rows
        Stretches by flag.
    """

    engine: str
    versions: tuple[str, ...]
    rows: Mapping[str, tuple[FlagRow, ...]]

    def takes(self, flag: str, version: str) -> Takes | None:
        """What a flag takes in a version; ``None`` where the version may not have it.

        A version between two that were read has what both have; one newer than all has what the newest has.
        """
        name = flag if flag in self.rows else f"--{flag.removeprefix(NEGATION)}"
        row = next((row for row in self.rows.get(name, ()) if self._holds(row, version)), None)
        if row is None or (name != flag and row.takes != "nothing or no-"):
            return None
        return row.takes if name == flag else "nothing"

    def _holds(self, row: FlagRow, version: str) -> bool:
        key = version_key(version)
        return version_key(row.first) <= key and (not row.last or key <= version_key(row.last))

    def knows(self, version: str) -> bool:
        """Whether the version is not older than all that were read."""
        return version_key(version) >= version_key(self.versions[0])

    def advice(self, flag: str) -> str:
        """Which versions have a flag, and what takes its place."""
        rows = self.rows.get(flag) or self.rows.get(f"--{flag.removeprefix(NEGATION)}", ())
        if not rows:
            return f"No version of {self.engine} that was read has it"
        spans = ", ".join(f"{row.first} to {row.last or 'the newest'}" for row in rows)
        instead = next((row.instead for row in reversed(rows) if row.instead), "")
        return f"Versions that have it: {spans}" + (f"; newer ones have {instead}" if instead else "")

    def check(self, given: Iterable[tuple[str, bool]], version: str, where: str) -> list[Problem]:
        """Problems of a command: flags that the version does not have, or not so.

        Parameters
        ----------
        given
            Flags, each with whether a value follows it.
        where
            The pool, for problems.
        """
        if not self.knows(version):
            what = f"flags of {self.engine} {version} are not known: it is older than every version that was read"
            return [Problem(where, what, f"Plan with {self.versions[0]} or newer")]
        problems = []
        for flag, valued in given:
            takes = self.takes(flag, version)
            if takes is None:
                what = f"{self.engine} {version} has no flag {flag}"
                problems.append(Problem(where, what, self.advice(flag), field=flag))
            elif takes != "optional" and valued != (takes == "value"):
                what = f"{flag} of {self.engine} {version} takes {'a value' if takes == 'value' else 'no value'}"
                problems.append(Problem(where, what, "Take plan.json as `planner plan` wrote it", field=flag))
        return problems


def load_flags(root: Path) -> Mapping[str, FlagList]:
    """The flags of every engine in ``<root>/engines/flags``.

    Raises
    ------
    InputError
        Listing every problem of every file.
    """
    folder, problems = root / "engines" / "flags", Problems()
    read = [row for _, row in read_table(folder / "read.csv", ReadVersion, problems)]
    lists: dict[str, FlagList] = {}
    for engine in dict.fromkeys(row.engine for row in read):
        rows: dict[str, list[FlagRow]] = {}
        for _, row in read_table(folder / f"{engine}.csv", FlagRow, problems):
            rows.setdefault(row.flag, []).append(row)
        versions = sorted((row.version for row in read if row.engine == engine), key=version_key)
        lists[engine] = FlagList(engine, tuple(versions), {name: tuple(own) for name, own in rows.items()})
    problems.raise_if_any()
    return lists


def flags_of(lists: Mapping[str, FlagList], engine: str, where: str) -> FlagList:
    """The flags of an engine.

    Raises
    ------
    InputError
        If the catalogue has none of it.
    """
    if engine not in lists:
        what = f"the flags of engine {engine!r:.40} are not in the catalogue"
        raise InputError(Problem(where, what, f"Known: {', '.join(lists)}", field="engine"))
    return lists[engine]
