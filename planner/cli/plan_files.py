"""The files of `planner plan`: which there are, by format, and how they appear: all together or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from planner.errors import InputError, Problem
from planner.plan import plan_to_json
from planner.report.focus_csv import focus_csv
from planner.report.routing import routing_csv, routing_json
from planner.report.schedule import schedule_csv
from planner.study import Study, study_to_json


def _workbook(study: Study, path: Path) -> None:
    from planner.report.workbook import write_workbook  # noqa: PLC0415  spreadsheets load only when asked for

    write_workbook(study, path)


def _page(study: Study, path: Path) -> None:
    from planner.report.page import write_page  # noqa: PLC0415  charts load only when asked for

    write_page(study, path)


def _text(make: Callable[[Study], str]) -> Callable[[Study, Path], None]:
    return lambda study, path: _write_text(path, make(study))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


FORMATS: Mapping[str, Mapping[str, Callable[[Study, Path], None]]] = {
    "xlsx": {"plan.xlsx": _workbook},
    "html": {"plan.html": _page},
    "json": {
        "plan.json": _text(lambda study: plan_to_json(study.plan)),
        "study.json": _text(study_to_json),
        "routing.json": _text(lambda study: routing_json(study.plan.routes)),
    },
    "csv": {
        "routing.csv": _text(lambda study: routing_csv(study.plan.routes)),
        "schedule.csv": _text(lambda study: schedule_csv(study.plan)),
        "focus.csv": _text(lambda study: focus_csv(study.plan)),
    },
}
"""Writers by file name, by format."""
FILES = tuple(name for files in FORMATS.values() for name in files)


def formats_of(text: str) -> tuple[str, ...]:
    """Formats in a list such as ``xlsx,json``, each once, in the order of `FORMATS`.

    Raises
    ------
    InputError
        If a word is no format, or there is none.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    known = ", ".join(FORMATS)
    unknown = [word for word in dict.fromkeys(words) if word not in FORMATS]
    if unknown:
        raise InputError([Problem("--format", f"'{word}' is no format", f"Known: {known}") for word in unknown])
    if not words:
        raise InputError(Problem("--format", "no format is named", f"Known: {known}"))
    return tuple(name for name in FORMATS if name in words)


def files_of(formats: Sequence[str]) -> tuple[str, ...]:
    """Names of the files of some formats."""
    return tuple(file for name in formats for file in FORMATS[name])


def write_outputs(study: Study, folder: Path, formats: Sequence[str] = tuple(FORMATS)) -> None:
    """Write the files of some formats; they appear when all of them are complete, or none does."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plan-") as temporary:
        for name in formats:
            for file, write in FORMATS[name].items():
                write(study, Path(temporary) / file)
        for file in files_of(formats):
            os.replace(Path(temporary) / file, folder / file)
