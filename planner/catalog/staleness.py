"""How old what the catalogue says is: every dated entry with its place, and those older than a limit."""

from __future__ import annotations

import csv
import datetime as dt
import io
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from planner.catalog.load import Catalog
from planner.errors import InputError, Problem, Problems

Value = TypeVar("Value")

AS_OF = "as_of"
FROM, TO = "effective_from", "effective_to"
"""First day of a price, and first day on which it does not hold any more."""
FIX = "Write it as YYYY-MM-DD"


class Kind(StrEnum):
    """What an entry is about."""

    PRICE = "price"
    GPU = "GPU fact"
    ENGINE = "engine fact"
    MODEL = "model"
    SPEED = "speed data"
    OTHER = "other"


@dataclass(frozen=True)
class Dated:
    """One entry of the catalogue.

    Attributes
    ----------
    file
        Its name inside the catalogue.
    row
        Row of a table (the header is row 1); name of an entry elsewhere; empty for a whole file.
    what
        What the entry describes.
    """

    kind: Kind
    file: str
    row: str
    what: str
    as_of: dt.date
    source: str

    def age_days(self, now: dt.date) -> int:
        """Days from the date of the entry to ``now``."""
        return (now - self.as_of).days


KINDS: Mapping[str, Kind] = {
    "offers/*.csv": Kind.PRICE,
    "providers.csv": Kind.PRICE,
    "gpus.csv": Kind.GPU,
    "gpu_aliases.csv": Kind.GPU,
    "engines/*": Kind.ENGINE,
    "models/*": Kind.MODEL,
    "speed/*": Kind.SPEED,
}
"""Kind of the entries of a file, by its name inside the catalogue."""
LABELS: Mapping[str, tuple[str, ...]] = {
    "offers/*.csv": ("instance_type", "region"),
    "providers.csv": ("provider", "gpu"),
    "models/sources.csv": ("hf_id",),
    "engines/releases.csv": ("engine", "version"),
    "engines/startup_logs.csv": ("id",),
}
"""Columns that name an entry; the first one elsewhere."""
SOURCES = ("source_url", "source", "reason")


def older_than(catalog: Catalog, now: dt.date, max_age_days: int) -> tuple[Dated, ...]:
    """Entries whose date lies more than so many days before ``now``, the oldest first.

    Raises
    ------
    InputError
        Listing every date that is none.
    """
    old = (entry for entry in dated_entries(catalog, now) if entry.age_days(now) > max_age_days)
    return tuple(sorted(old, key=lambda entry: (entry.as_of, entry.kind, entry.file, len(entry.row), entry.row)))


def dated_entries(catalog: Catalog, now: dt.date) -> tuple[Dated, ...]:
    """Every dated entry of every file; prices that do not hold on ``now`` are left out.

    Raises
    ------
    InputError
        Listing every date that is none, and files that cannot be read.
    """
    problems = Problems()
    found = [
        entry
        for path in catalog.files()
        for entry in problems.attempt(lambda path=path: _of_file(catalog, path, now)) or ()  # type: ignore[misc]
    ]
    problems.raise_if_any()
    return tuple(found)


def _of_file(catalog: Catalog, path: Path, now: dt.date) -> tuple[Dated, ...]:
    name = PurePosixPath(catalog.name_of(path)).as_posix()
    if path.suffix not in (".csv", ".toml"):
        return ()
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".csv":
            return tuple(_of_table(name, path, text, now))
        return tuple(_of_document(name, path, tomllib.loads(text)))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from None


def _of_table(name: str, path: Path, text: str, now: dt.date) -> Iterator[Dated]:
    """Rows of a table with a column ``as_of``; others have no dated entries."""
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader, [])
    if AS_OF not in header:
        return
    for number, values in enumerate(reader, start=2):
        cells = {key: value.strip() for key, value in zip(header, values, strict=False)}
        if not cells.get(AS_OF) or not _holds(cells, path, number, now):
            continue
        label = " ".join(filter(None, (cells.get(key, "") for key in _of(LABELS, name) or header[:1])))
        source = next((cells[key] for key in SOURCES if cells.get(key)), "")
        day = _day(cells[AS_OF], path, str(number), AS_OF)
        yield Dated(_of(KINDS, name) or Kind.OTHER, name, str(number), label, day, source)


def _holds(cells: Mapping[str, str], path: Path, number: int, now: dt.date) -> bool:
    """Whether a row's price holds on a day; rows without such dates always do."""
    start, end = (_day(cells[key], path, str(number), key) if cells.get(key) else None for key in (FROM, TO))
    return (start is None or start <= now) and (end is None or now < end)


def _of_document(name: str, path: Path, document: Mapping[str, Any]) -> Iterator[Dated]:
    """Facts of an engine one by one; any other document has one date for all that it says."""
    kind = _of(KINDS, name) or Kind.OTHER
    if AS_OF in document:
        yield Dated(kind, name, "", path.stem, _day(document[AS_OF], path, "", AS_OF), name)
    facts = document.get("fact", ())
    for fact in facts if isinstance(facts, Sequence) else ():
        if AS_OF in fact:
            row = f"fact {fact.get('name')} since {fact.get('since')}"
            what = f"{document.get('engine', path.stem)} {fact.get('since')}: {fact.get('name')}"
            yield Dated(kind, name, row, what, _day(fact[AS_OF], path, row, AS_OF), str(fact.get("source", "")))


def _day(value: object, path: Path, row: str, field: str) -> dt.date:
    try:
        return value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value))
    except ValueError:
        raise InputError(Problem(str(path), f"{value!r:.40} is no date", FIX, row=row, field=field)) from None


def _of(table: Mapping[str, Value], name: str) -> Value | None:
    return next((value for pattern, value in table.items() if fnmatchcase(name, pattern)), None)
