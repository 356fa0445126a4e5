"""Metrics of Prometheus as series: the text that an engine serves, and answers of the query interface."""

from __future__ import annotations

from pathlib import Path

from planner.errors import InputError, Problem
from planner.prometheus import Series, answers, exposed
from planner.speed.load_tests.document import AGAIN, head_of, json_objects

__all__ = ["Series", "series_of"]


def series_of(path: Path) -> tuple[Series, ...]:
    """The series of a file, whichever of the two it is; those of a text stand at no time that is known.

    Raises
    ------
    InputError
        If it is neither, or a query failed.
    """
    if head_of(path).text.lstrip().startswith(("{", "[")):
        return tuple(answers(json_objects(path)))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}", AGAIN)) from error
    return tuple(exposed(str(path), text))
