"""From what people type to the files that are read: files, folders of logs, patterns such as ``logs/**/*.parquet``.

All of them may stand in object storage, as in ``s3://bucket/logs/*.parquet``.
"""

from __future__ import annotations

import glob
from pathlib import Path

from planner.errors import InputError, Problem
from planner.traffic.canonical import is_canonical, is_canonical_file
from planner.traffic.disk import usable
from planner.traffic.storage.files import LogFile, shown
from planner.traffic.storage.find import is_address, remote_files
from planner.traffic.storage.refusals import DRIVERS

TEXT_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
LOG_ENDINGS = (
    *(f"{ending}{packed}" for ending in TEXT_ENDINGS for packed in ("", ".gz", ".zst")),
    ".parquet",
    ".pq",
)
USE_CANONICAL = "give it as the path of model.traffic in the request"


def log_files(given: str | Path, further_endings: tuple[str, ...] = ()) -> tuple[LogFile, ...]:
    """The log files of a folder or pattern, by name; a file stands for itself.

    Parameters
    ----------
    given
        A file, a folder, or a pattern with ``*``, ``?``, ``[...]`` and ``**`` for any folders; with ``s3://`` and the
        like before it where it is in object storage.
    further_endings
        What is looked for in a folder without any log.

    Raises
    ------
    InputError
        If the folder cannot be read or holds no log file, nothing matches the pattern, or the path is of a canonical
        folder.
    """
    if isinstance(given, str) and is_address(given) and not given.startswith("file://"):
        return remote_files(given, LOG_ENDINGS, further_endings)
    return _on_disk(Path(str(given).removeprefix("file://")), further_endings)


def _on_disk(path: Path, further_endings: tuple[str, ...]) -> tuple[Path, ...]:
    with usable(path):
        if glob.has_magic(str(path)) and not path.exists():
            _refuse_address(path)
            return _matching(path)
        if not path.is_dir():
            _refuse_address(path)
            if is_canonical_file(path):
                what = f"is part of a canonical folder, {path.parent}, which is already a distribution"
                raise InputError(Problem(str(path), what, f"Use the folder as it is: {USE_CANONICAL}"))
            return (path,)
        files = _ending(path, LOG_ENDINGS)
        if not files and is_canonical(path):
            fix = f"Use it as it is: {USE_CANONICAL}"
            raise InputError(Problem(str(path), "is already a canonical folder", fix))
        files = files or _ending(path, further_endings)
    if not files:
        fix = f"Log files end in {', '.join((*LOG_ENDINGS, *further_endings))}; a canonical folder holds manifest.json"
        raise InputError(Problem(str(path), "the folder holds no log file", fix))
    return files


def _refuse_address(path: Path) -> None:
    """Refuse an address that was taken for a path, as in a request: plans must not depend on what a store holds today.

    Raises
    ------
    InputError
        If a part of the path is a protocol.
    """
    protocol = next((part[:-1] for part in path.parts if part[-1] == ":" and part[:-1] in DRIVERS), "")
    if protocol and not path.exists():
        address = f"{protocol}://{str(path).partition(f'{protocol}:/')[2].lstrip('/')}"
        what = "is in storage, but only planner ingest reads from there"
        raise InputError(Problem(shown(address), what, "Ingest it, and give the canonical folder"))


def _matching(pattern: Path) -> tuple[Path, ...]:
    parts = pattern.parts
    first = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    base, rest = Path(*parts[:first]), parts[first:]
    # ``**`` does not follow links to folders here, unlike in `glob.glob`, where a link to a folder above never ends.
    found = (path for path in base.glob(str(Path(*rest))) if path.is_file() and not is_canonical_file(path))
    with_hidden = any(part[0] == "." for part in rest)
    files = tuple(sorted(path for path in found if with_hidden or not _is_hidden(path.relative_to(base))))
    if not files:
        fix = "* stands for any part of a name, ** for any folders; put the pattern in quotes"
        raise InputError(Problem(str(pattern), "no file matches this pattern", fix))
    return files


def _is_hidden(path: Path) -> bool:
    return any(part[0] == "." for part in path.parts)


def _ending(folder: Path, endings: tuple[str, ...]) -> tuple[Path, ...]:
    found = (p for p in folder.iterdir() if p.name.endswith(endings) and p.name[0] != "." and not is_canonical_file(p))
    return tuple(sorted(found))
