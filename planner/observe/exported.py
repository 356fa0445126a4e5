"""Metrics that were saved: answers of Prometheus, or what ``/metrics`` showed, one scrape or a folder of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from planner.errors import InputError, Problem, Problems
from planner.prometheus import Series, answers, exposed
from planner.traffic.documents import json_objects, text_of
from planner.traffic.times import time_in_name

SAVED_AS = "Name each scrape by its target and time, such as pod-a_2026-09-03T142207Z.prom"
TARGET = "target"
"""Label that tells scrapes of different targets apart."""


def saved_series(place: Path, at_s: float | None = None) -> tuple[Series, ...]:
    """The series of a file, or of every file of a folder.

    Parameters
    ----------
    at_s
        When a single scrape was taken whose name does not say so; without it, it stands at no known time.

    Raises
    ------
    InputError
        With every file that cannot be read.
    """
    if not place.is_dir():
        return _series_of(place, at_s)
    files = sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
    if not files:
        raise InputError(Problem(str(place), "holds no file", "Give a folder of scrapes, or of answers of Prometheus"))
    problems = Problems()
    read = [problems.attempt(lambda path=path: _dated(path)) for path in files]  # type: ignore[misc]
    problems.raise_if_any()
    return tuple(one for series in read if series for one in series)


def _dated(path: Path) -> tuple[Series, ...]:
    series = _series_of(path, None)
    if any(math.isnan(time_s) for one in series for time_s, _ in one.samples):
        raise InputError(Problem(str(path), "does not say when it was taken", SAVED_AS))
    return series


def _series_of(path: Path, at_s: float | None) -> tuple[Series, ...]:
    text = text_of(path)
    if text.lstrip().startswith(("{", "[")):
        return tuple(answers(json_objects(path)))
    return tuple(_scraped(path, text, at_s))


def _scraped(path: Path, text: str, at_s: float | None) -> Iterator[Series]:
    """One scrape; what the name holds beside the time tells targets apart."""
    named = time_in_name(path.name.removesuffix(".gz").rsplit(".", 1)[0], "UTC")
    time_s = named[1] if named else math.nan if at_s is None else at_s
    target = {TARGET: named[0]} if named and named[0] else {}
    for one in exposed(str(path), text, time_s, stamped=True):
        yield Series(one.name, {**target, **one.labels}, one.samples)
