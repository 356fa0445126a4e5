"""Add a model's config to a catalogue folder: what would change, as a diff, and the change itself, whole or not at all.

An entry is a file ``models/ORG--NAME.json``, perhaps a companion ``models/quant/ORG--NAME.json``, and a row for each in
``models/sources.csv``.
"""

from __future__ import annotations

import csv
import datetime as dt
import difflib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from planner.catalog.checkpoint import Checkpoint
from planner.catalog.file_changes import Change, read_current
from planner.catalog.load import Catalog
from planner.catalog.model_name import file_name, model_name
from planner.catalog.models import QUANT_FOLDER, ModelSource
from planner.catalog.untrusted_json import object_of, same_meaning
from planner.errors import InputError, Problem

MODELS = "models"
SOURCES = "sources.csv"
ALIASES = "aliases.csv"
MOST_SOURCE = 500
"""Characters of a source."""
FORMULA = ("=", "+", "-", "@")
"""What a spreadsheet reads as the start of a formula."""
COMPANION_NOTE = "verbatim hf_quant_config.json"


class State(StrEnum):
    """How an entry compares with what is there."""

    NEW = "new"
    UNCHANGED = "unchanged"
    DIFFERENT = "different"
    """There is an entry of this name with other content, or an alias."""


@dataclass(frozen=True)
class Stated:
    """What the user says of an entry; ``None`` and empty where nothing is said.

    Attributes
    ----------
    name
        The model's full name.
    source
        Where the config was read.
    as_of
        When.
    """

    name: str = ""
    source: str = ""
    as_of: dt.date | None = None


@dataclass(frozen=True)
class Addition:
    """What adding a model changes in a catalogue folder."""

    model_id: str
    state: State
    rows: tuple[ModelSource, ...]
    changes: tuple[Change, ...]
    diff: tuple[str, ...]
    source_missing: bool = False
    """Nothing says where the config comes from: it cannot be written like that."""


def addition_of(catalog: Catalog, found: Checkpoint, stated: Stated, today: dt.date) -> Addition:
    """Compare a checkpoint with the catalogue.

    An entry with the same content, in any layout of the JSON, is unchanged; its source and date stay unless the user
    states others.

    Parameters
    ----------
    catalog
        The catalogue that the model is added to.
    found
        What was read.
    stated
        What the user says of it; comes before what the checkpoint says.
    today
        Date of a new row where the user states none.

    Raises
    ------
    InputError
        If the model has no name or the source cannot be kept; lists every problem.
    """
    model_id = _named(catalog, found, stated)
    source = _source(stated.source)
    folder = catalog.root / MODELS
    old = _Old(catalog.model_sources.get(model_id), catalog.quant_sources.get(model_id))
    same = old.holds(folder, found)
    if same and _keep(old.rows, stated.as_of, source):
        return Addition(model_id, State.UNCHANGED, old.rows, (), ())
    rows = tuple(_rows(model_id, found, Stated(model_id, source, stated.as_of), today, old if same else old.files_only))
    alias = next((name for name in catalog.aliases if name.casefold() == model_id.casefold()), "")
    changes = tuple(_changes(folder, found, old.rows, rows, alias, rewrite=not same))
    state = State.NEW if not old.rows and not alias else State.DIFFERENT
    return Addition(model_id, state, rows, changes, tuple(_diff(changes)), rows[0].source == NO_SOURCE)


@dataclass(frozen=True)
class _Old:
    """The entry that is there: rows of the config and of its companion."""

    config: ModelSource | None
    companion: ModelSource | None
    kept: bool = True
    """What the rows say holds for the new entry too, unless the user states otherwise."""

    @property
    def rows(self) -> tuple[ModelSource, ...]:
        """Those that are there."""
        return tuple(row for row in (self.config, self.companion) if row is not None)

    @property
    def files_only(self) -> _Old:
        """The same entry, of which the names of files stay and nothing else."""
        return replace(self, kept=False)

    def holds(self, folder: Path, found: Checkpoint) -> bool:
        """Whether its files hold the same as a checkpoint."""
        pairs = ((self.config, found.config), (self.companion, found.companion))
        return all(_same(folder, row, content) for row, content in pairs)


NO_SOURCE = "?"
"""Stands in a preview for a source that nobody has stated."""


def _named(catalog: Catalog, found: Checkpoint, stated: Stated) -> str:
    """The entry's name, in the letter case that the catalogue has already."""
    name = stated.name or found.name
    if not name:
        fix = "Say --name ORG/NAME"
        raise InputError(Problem(found.where, "nothing says which model this is", fix))
    name = model_name(name, "--name" if stated.name else found.where)
    return next((known for known in catalog.model_sources if known.casefold() == name.casefold()), name)


def _source(text: str) -> str:
    """A stated source, fit for a cell."""
    text = text.strip()
    if len(text) > MOST_SOURCE or not text.isprintable() or text.startswith(FORMULA):
        message = f"{text!r:.60} cannot be kept in a table"
        raise InputError(Problem("--source", message, f"One line of at most {MOST_SOURCE} characters, such as a URL"))
    return text


def _same(folder: Path, row: ModelSource | None, found: Mapping[str, Any] | None) -> bool:
    """Whether the file of a row holds the same; neither is the same too."""
    if row is None or found is None:
        return row is None and found is None
    path = folder / row.file
    current = read_current(path)
    return current is not None and same_meaning(object_of(current, str(path)), found)


def _keep(rows: Sequence[ModelSource], as_of: dt.date | None, source: str) -> bool:
    """Whether the rows say already what the user states."""
    return all(as_of in (None, row.as_of) and source in ("", row.source) for row in rows)


def _rows(model_id: str, found: Checkpoint, stated: Stated, today: dt.date, old: _Old) -> Iterator[ModelSource]:
    """The rows of the entry, for its files of the same names as before."""
    name, notes = file_name(model_id), found.note
    if found.weights is not None:
        notes = f"{notes}; weights {found.weights.total_bytes:,} bytes ({found.weights.source})"
    kinds = [(old.config, name, notes)]
    if found.companion_text is not None:
        kinds.append((old.companion, f"{QUANT_FOLDER}/{name}", COMPANION_NOTE))
    for row, file, note in kinds:
        kept = row if old.kept else None
        source, commit = (kept.source, kept.commit) if kept else (found.source, found.commit)
        if stated.source and stated.source != source:
            source, commit = stated.source, ""
        yield ModelSource(
            file=row.file if row else file,
            hf_id=model_id,
            source=source or NO_SOURCE,
            commit=commit,
            as_of=stated.as_of or today,
            notes=kept.notes if kept else note,
        )


def _changes(
    folder: Path,
    found: Checkpoint,
    old: Sequence[ModelSource],
    rows: Sequence[ModelSource],
    alias: str,
    *,
    rewrite: bool,
) -> Iterator[Change]:
    """Files first, then the tables that name them."""
    texts = (found.config_text, found.companion_text)
    new = {row.file: text for row, text in zip(rows, texts, strict=False)}
    for file in dict.fromkeys((*new, *(row.file for row in old))):
        text = new.get(file)
        current = read_current(folder / file)
        if rewrite and text != current:
            yield Change(folder / file, current, text)
    yield _table_change(folder / SOURCES, {row.file for row in (*old, *rows)}, "file", rows)
    if alias:
        yield _table_change(folder / ALIASES, {alias}, "alias", ())


def _table_change(path: Path, drop: set[str], key: str, add: Sequence[ModelSource]) -> Change:
    """A table without the rows of the keys ``drop`` and with new ones in their place; other lines stay as they are."""
    current = read_current(path) or b""
    lines = list(io.StringIO(current.decode("utf-8"), newline=""))
    end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    lines[-1] = lines[-1].rstrip("\r\n") + end
    reader = csv.reader(lines)
    header = [name.removeprefix(BYTE_ORDER_MARK) for name in next(reader)]
    at, start = header.index(key), reader.line_num
    kept: list[tuple[str, str]] = []
    for cells in reader:
        if cells and cells[at].strip() not in drop:
            kept.append((cells[at], "".join(lines[start : reader.line_num])))
        start = reader.line_num
    for row in add:
        kept.insert(_place([name for name, _ in kept], row.file), (row.file, _line(header, row, end)))
    return Change(path, current, ("".join(lines[:1]) + "".join(line for _, line in kept)).encode())


BYTE_ORDER_MARK = "\ufeff"
"""What some spreadsheets begin a table with."""


def _place(names: Sequence[str], file: str) -> int:
    """Where a file belongs among others: configs first, then companions, each by name in any letter case."""

    def order(name: str) -> tuple[bool, str]:
        return name.startswith(f"{QUANT_FOLDER}/"), name.casefold()

    return next((i for i, name in enumerate(names) if order(name) > order(file)), len(names))


def _line(header: Sequence[str], row: ModelSource, end: str) -> str:
    stream = io.StringIO()
    cells = row.model_dump(mode="json")
    csv.writer(stream, lineterminator=end).writerow([cells[name] for name in header])
    return stream.getvalue()


def _diff(changes: Sequence[Change]) -> Iterator[str]:
    """Unified diffs; a JSON file is compared key by key, whatever its layout."""
    for change in changes:
        old, new = _readable(change.path, change.old), _readable(change.path, change.new)
        if old == new:
            yield f"{change.path}: layout of the JSON"
            continue
        yield from difflib.unified_diff(old, new, str(change.path), str(change.path), n=0, lineterm="")


def _readable(path: Path, text: bytes | None) -> list[str]:
    if text is None:
        return []
    if path.suffix != ".json":
        return text.decode("utf-8").splitlines()
    return json.dumps(object_of(text, str(path)), indent=2, sort_keys=True, ensure_ascii=False).splitlines()
