"""Writing an import: every file whole or not at all, and no file before all of them are ready."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from planner.catalog.csv_table import read_rows
from planner.catalog.imports.history import Updated, updated
from planner.catalog.imports.shared import Imported
from planner.catalog.load import OFFERS, Catalog, load_catalog, offer_files, shipped_root
from planner.catalog.offers import OfferRow
from planner.errors import InputError, Problem

FIGURES = 12
"""Significant digits of a figure in a file."""


def changes(imported: Sequence[Imported], catalog: Catalog, *, accept: bool = False) -> tuple[Updated, ...]:
    """What each provider's file becomes."""
    files = {path.stem: path for path in offer_files(catalog.root, catalog.own)}
    return tuple(
        updated(read_rows(files[one.provider], OfferRow) if one.provider in files else (), one, catalog, accept=accept)
        for one in imported
    )


def target_catalog(folder: Path | None) -> Catalog:
    """The catalogue that an import changes; a folder that is not there yet is laid over the shipped one."""
    return load_catalog(folder if folder is None or (folder.is_dir() and any(folder.iterdir())) else shipped_root())


def write_changes(found: Sequence[Updated], folder: Path) -> tuple[Path, ...]:
    """Write ``offers/<provider>.csv`` of each provider whose text changes; the paths that were written.

    All texts are on disk before the first takes its place, and each takes it in one step: an interruption leaves some
    providers old and the others new, each whole, and the same import ends the work.

    Raises
    ------
    InputError
        If a file cannot be written; those that took their place before are named.
    """
    texts = {folder / OFFERS / f"{one.diff.provider}.csv": text_of(one.rows) for one in found}
    staged: dict[Path, Path] = {}
    done: list[Path] = []
    try:
        (folder / OFFERS).mkdir(parents=True, exist_ok=True)
        for path, text in _changed(texts).items():
            staged[path] = path.with_name(f".{path.name}.{os.getpid()}.new")
            _write_through(staged[path], text)
        for path, new in staged.items():
            os.replace(new, path)
            done.append(path)
    except OSError as error:
        told = f"; written before: {', '.join(path.name for path in done)}" if done else "; nothing is changed"
        message = f"cannot be written: {error.strerror or error}{told}"
        raise InputError(Problem(str(folder / OFFERS), message, "Repeat the import")) from error
    finally:
        for new in staged.values():
            new.unlink(missing_ok=True)
    return tuple(done)


def _changed(texts: Mapping[Path, str]) -> Mapping[Path, str]:
    return {p: text for p, text in texts.items() if not p.is_file() or p.read_text(encoding="utf-8") != text}


def _write_through(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def text_of(rows: Sequence[OfferRow]) -> str:
    """The CSV text of a provider's rows, with every column."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(OfferRow.model_fields)
    writer.writerows([_cell(value) for _, value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.{FIGURES}g}" if isinstance(value, float) else str(value)
