"""The canonical distribution: one manifest and four small tables in a folder; no text, no user, no key."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from planner.errors import InputError, Problem, Problems
from planner.traffic.disk import usable
from planner.traffic.schema import OPTIONAL_TABLES, SCHEMA_VERSION, TABLES, Manifest
from planner.traffic.storage.files import LogFile, stream_of

MANIFEST = "manifest.json"
AGAIN = "Run planner ingest again"
DERIVED = ("window_start", "window_end")
"""Entries of the manifest that follow from others: written for people, not read."""


@dataclass(frozen=True)
class Canonical:
    """The manifest and the tables of `planner.traffic.schema`, in memory."""

    manifest: Manifest
    lengths: pa.Table
    tail: pa.Table
    rates: pa.Table
    burst: pa.Table
    prefix: pa.Table | None = None
    prompt_burst: pa.Table | None = None

    def models(self) -> tuple[str, ...]:
        """Models that the distribution holds."""
        return tuple(sorted(self.manifest.models))

    def tables(self) -> dict[str, pa.Table]:
        """The tables that it has, by name."""
        found = {name: getattr(self, name) for name in (*TABLES, *OPTIONAL_TABLES)}
        return {name: table for name, table in found.items() if table is not None}


def table_files(folder: Path) -> list[Path]:
    """The manifest and the tables that the folder has: what its digest is taken over."""
    optional = [folder / f"{name}.parquet" for name in OPTIONAL_TABLES]
    return [
        folder / MANIFEST,
        *(folder / f"{name}.parquet" for name in TABLES),
        *(path for path in optional if path.is_file()),
    ]


def is_canonical(folder: Path) -> bool:
    """Whether the folder holds a canonical distribution."""
    return (folder / MANIFEST).is_file()


def is_canonical_file(path: Path) -> bool:
    """Whether the path is one of the files of a canonical folder."""
    return path.name in (MANIFEST, *(f"{name}.parquet" for name in (*TABLES, *OPTIONAL_TABLES))) and is_canonical(
        path.parent
    )


def write(canonical: Canonical, folder: Path) -> None:
    """Write the folder whole or not at all; an older distribution of the same name is replaced.

    Raises
    ------
    InputError
        If something that is no canonical distribution is in the way, or the place cannot be written.
    """
    check_place(folder)
    folder = Path(os.path.realpath(folder))  # a link to the folder stays a link
    with usable(folder, "written"), _beside(folder) as scratch:
        for name, table in canonical.tables().items():
            pq.write_table(table, scratch / f"{name}.parquet", compression="zstd")
        manifest = canonical.manifest.model_dump(mode="json")
        text = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        (scratch / MANIFEST).write_text(text + "\n", encoding="utf-8")
        _swap(scratch, folder)


def check_place(folder: Path) -> None:
    """Refuse, before any work, a target that would overwrite something else.

    Raises
    ------
    InputError
        If the folder holds other files or cannot be looked into, or is a file or a broken link.
    """
    with usable(folder, "written"):
        if folder.is_dir() and any(folder.iterdir()) and not _is_replaceable(folder):
            raise InputError(Problem(str(folder), "holds other files", "Give a new folder, or an older canonical one"))
        if folder.exists() and not folder.is_dir():
            raise InputError(Problem(str(folder), "is a file", "Give a folder"))
        if folder.is_symlink() and not folder.exists():
            raise InputError(Problem(str(folder), "is a link that leads nowhere", "Remove it, or give another folder"))


def _is_replaceable(folder: Path) -> bool:
    """Whether the folder is a distribution, whole or damaged, and nothing else; many programs write a manifest.json."""
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    ours = {MANIFEST, *(f"{name}.parquet" for name in (*TABLES, *OPTIONAL_TABLES))}
    return is_canonical(folder) and names <= ours and (len(names) > 1 or "schema_version" in _text(folder / MANIFEST))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A scratch folder next to the target, so that the final step is a rename on one file system."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        scratch.chmod(0o755)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _swap(scratch: Path, folder: Path) -> None:
    """Put the new folder in place; a failure puts the old one back."""
    if not folder.exists():
        os.replace(scratch, folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    os.replace(folder, old / "kept")
    try:
        os.replace(scratch, folder)
    except BaseException:
        os.replace(old / "kept", folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def read(folder: Path) -> Canonical:
    """Read a canonical folder.

    Raises
    ------
    InputError
        If a file is missing or damaged, a column is missing, or the schema version is another one.
    """
    manifest = _read_manifest(folder / MANIFEST)
    problems = Problems()
    tables: dict[str, pa.Table] = {}
    for name, schema in (TABLES | OPTIONAL_TABLES).items():
        path = folder / f"{name}.parquet"
        if name in OPTIONAL_TABLES and not path.exists():
            continue
        table = problems.attempt(lambda path=path, schema=schema: _read_table(path, schema))  # type: ignore[misc]
        if table is not None:
            tables[name] = table
    problems.raise_if_any()
    return Canonical(manifest, **tables)


def _read_table(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise InputError(Problem(str(path), "no such file", AGAIN)) from None
    except (OSError, pa.ArrowException) as error:
        what = f"cannot be read: {str(error).splitlines()[0][:200]}"
        raise InputError(Problem(str(path), what, AGAIN)) from None
    problems = Problems()
    for column in schema.names:
        if column not in table.column_names:
            problems.add(str(path), "the column is missing", AGAIN, field=column)
    problems.raise_if_any()
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(Problem(str(path), f"has a column of a wrong type: {error}", AGAIN)) from None


def _read_manifest(path: Path) -> Manifest:
    try:
        with usable(path):
            found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(str(path), f"is not JSON: {error}", AGAIN)) from None
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version != SCHEMA_VERSION:
        what = f"has schema version {version!r}, this planner reads {SCHEMA_VERSION}"
        raise InputError(Problem(str(path), what, _other_version(version), field="schema_version"))
    try:
        return Manifest.model_validate({key: value for key, value in found.items() if key not in DERIVED})
    except ValidationError as error:
        places = [(".".join(str(part) for part in e["loc"]), e["msg"]) for e in error.errors()]
        raise InputError([Problem(str(path), message, AGAIN, field=place) for place, message in places]) from None


def _other_version(version: object) -> str:
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return "A later planner wrote it: update this one, or ingest the raw logs with this one"
    return f"{AGAIN} on the raw logs: what this version adds cannot be told from an older folder"


def digest(paths: Sequence[LogFile]) -> str:
    """SHA-256 over the digests of the files, in the order of their digests: the order of the arguments is no input."""
    parts = []
    for path in paths:
        with stream_of(path) as stream:
            parts.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()
