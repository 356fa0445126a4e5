"""The canonical distribution: one manifest and four small tables in a folder; no text, no user, no key."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from planner.errors import InputError, Problem, Problems
from planner.traffic.disk import usable

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
TABLES = ("lengths", "tail", "rates", "burst")
NEEDED = {
    "lengths": ("model", "period", "n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo",
                "max_prompt", "max_output", "max_total"),
    "tail": ("model", "prompt", "output", "n"),
    "rates": ("model", "minute_utc", "n"),
    "burst": ("model", "kind", "scale_s", "mean_n", "var_n", "idc", "max_n", "resolution_ok"),
}  # fmt: skip

MANIFEST_KEYS = {
    "source": str, "files": list, "window_start_us": int, "window_end_us": int, "filters_applied": list,
    "counts": dict, "caps": dict,
}  # fmt: skip
"""Entries that the planner reads, and their types."""


@dataclass(frozen=True)
class Canonical:
    """The manifest and the four tables, in memory."""

    manifest: dict[str, Any]
    lengths: pa.Table
    tail: pa.Table
    rates: pa.Table
    burst: pa.Table

    def models(self) -> tuple[str, ...]:
        """Models that the distribution holds."""
        return tuple(sorted(set(self.lengths["model"].to_pylist())))


def is_canonical(folder: Path) -> bool:
    """Whether the folder holds a canonical distribution."""
    return (folder / MANIFEST).is_file()


def is_canonical_file(path: Path) -> bool:
    """Whether the path is one of the files of a canonical folder."""
    return path.name in (MANIFEST, *(f"{name}.parquet" for name in TABLES)) and is_canonical(path.parent)


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
        for name in TABLES:
            pq.write_table(getattr(canonical, name), scratch / f"{name}.parquet", compression="zstd")
        text = json.dumps(canonical.manifest, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
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
        if folder.is_dir() and not is_canonical(folder) and any(folder.iterdir()):
            raise InputError(Problem(str(folder), "holds other files", "Give a new folder, or an older canonical one"))
        if folder.exists() and not folder.is_dir():
            raise InputError(Problem(str(folder), "is a file", "Give a folder"))
        if folder.is_symlink() and not folder.exists():
            raise InputError(Problem(str(folder), "is a link that leads nowhere", "Remove it, or give another folder"))


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
    for name in TABLES:
        path = folder / f"{name}.parquet"
        try:
            tables[name] = pq.read_table(path)
        except FileNotFoundError:
            problems.add(str(path), "no such file", "Run planner ingest again")
            continue
        except (OSError, pa.ArrowException) as error:
            problems.add(str(path), f"cannot be read: {str(error).splitlines()[0][:200]}", "Run planner ingest again")
            continue
        for column in NEEDED[name]:
            if column not in tables[name].column_names:
                problems.add(str(path), "the column is missing", "Run planner ingest again", field=column)
    problems.raise_if_any()
    return Canonical(manifest, **tables)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        with usable(path):
            manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(str(path), f"is not JSON: {error}", "Run planner ingest again")) from None
    if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION:
        version = manifest.get("schema_version") if isinstance(manifest, dict) else None
        raise InputError(
            Problem(
                str(path),
                f"has schema version {version!r}, this planner reads {SCHEMA_VERSION}",
                "Run planner ingest again on the raw logs",
                field="schema_version",
            )
        )
    missing = [key for key, kind in MANIFEST_KEYS.items() if not isinstance(manifest.get(key), kind)]
    if missing:
        raise InputError(
            [Problem(str(path), "is missing or of a wrong type", "Run planner ingest again", field=k) for k in missing]
        )
    return manifest


def digest(paths: list[Path]) -> str:
    """SHA-256 over the digests of the files, in the order of their digests: the order of the arguments is no input."""
    parts = []
    for path in paths:
        with path.open("rb") as stream:
            parts.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()
