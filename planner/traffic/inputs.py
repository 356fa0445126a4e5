"""From what people type to the files that are read: files, folders of logs, patterns such as ``logs/**/*.parquet``."""

from __future__ import annotations

import glob
from pathlib import Path

from planner.errors import InputError, Problem
from planner.traffic.canonical import is_canonical, is_canonical_file
from planner.traffic.disk import usable

TEXT_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
LOG_ENDINGS = (
    *(f"{ending}{packed}" for ending in TEXT_ENDINGS for packed in ("", ".gz", ".zst")),
    ".parquet",
    ".pq",
)
USE_CANONICAL = "give it as the path of model.traffic in the request"


def log_files(path: Path, further_endings: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """The log files of a folder or pattern, by name; a file stands for itself.

    Parameters
    ----------
    path
        A file, a folder, or a pattern with ``*``, ``?``, ``[...]`` and ``**`` for any folders.
    further_endings
        What is looked for in a folder without any log.

    Raises
    ------
    InputError
        If the folder cannot be read or holds no log file, nothing matches the pattern, or the path is of a canonical
        folder.
    """
    with usable(path):
        if glob.has_magic(str(path)) and not path.exists():
            return _matching(path)
        if not path.is_dir():
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


def _matching(pattern: Path) -> tuple[Path, ...]:
    found = (Path(name) for name in glob.glob(str(pattern), recursive=True))
    files = tuple(sorted(path for path in found if path.is_file() and not is_canonical_file(path)))
    if not files:
        fix = "* stands for any part of a name, ** for any folders; put the pattern in quotes"
        raise InputError(Problem(str(pattern), "no file matches this pattern", fix))
    return files


def _ending(folder: Path, endings: tuple[str, ...]) -> tuple[Path, ...]:
    found = (p for p in folder.iterdir() if p.name.endswith(endings) and p.name[0] != "." and not is_canonical_file(p))
    return tuple(sorted(found))
