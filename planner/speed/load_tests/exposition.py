"""Metrics of Prometheus as series: the text that an engine serves, and answers of the query interface."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError, Problem
from planner.speed.load_tests.document import AGAIN, head_of, json_objects

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?\s*$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True)
class Series:
    """One series: its name, its labels, and its samples as pairs of a time in seconds and a value."""

    name: str
    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


def series_of(path: Path) -> tuple[Series, ...]:
    """The series of a file, whichever of the two it is.

    Raises
    ------
    InputError
        If it is neither, or a query failed.
    """
    is_json = head_of(path).text.lstrip().startswith(("{", "["))
    return tuple(_answers(path) if is_json else _exposed(path))


def _exposed(path: Path) -> Iterator[Series]:
    """Text exposition: one sample a line, at no time that is known."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}", AGAIN)) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _SAMPLE.match(line.strip())
        value = None if found is None else _value(found[3])
        if found is None or value is None:
            raise InputError(Problem(str(path), f"is no sample: {line!r:.60}", AGAIN, row=str(number)))
        labels = {name: _unescaped(text) for name, text in _LABEL.findall(found[2] or "")}
        if not math.isnan(value):
            yield Series(found[1], labels, ((0.0, value),))


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), text)


def _answers(path: Path) -> Iterator[Series]:
    """Answers of ``query`` and ``query_range``: one, a list of them, or one a line."""
    for place, answer in json_objects(path):
        data = answer.get("data")
        if answer.get("status") != "success" or not isinstance(data, dict):
            message = f"is an answer of Prometheus that failed: {answer.get('error', 'no data')!s:.200}"
            raise InputError(Problem(place, message, "Correct the query and ask again"))
        if data.get("resultType") not in ("matrix", "vector"):
            fix = "Ask for the engine's own series, such as {__name__=~'vllm:.*'}"
            raise InputError(Problem(place, f"holds a {data.get('resultType')!s:.20}, no series", fix))
        result = data.get("result")
        for item in result if isinstance(result, list) else []:
            yield _series(place, item)


def _series(place: str, item: object) -> Series:
    metric = item.get("metric") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(metric, dict):
        raise InputError(Problem(place, f"holds {json.dumps(item)[:40]}, no series", AGAIN))
    pairs = item["values"] if "values" in item else [item.get("value")]
    samples = (
        tuple(sample for pair in pairs if (sample := _sample(pair)) is not None) if isinstance(pairs, list) else ()
    )
    if not samples or len(samples) != len(pairs):
        raise InputError(Problem(place, f"holds a sample of {metric.get('__name__')} that is no figure", AGAIN))
    labels = {str(name): str(value) for name, value in metric.items() if name != "__name__"}
    figures = tuple(sample for sample in samples if not math.isnan(sample[1]))
    return Series(str(metric.get("__name__", "")), labels, figures)


def _sample(pair: object) -> tuple[float, float] | None:
    if (
        not isinstance(pair, list)
        or len(pair) != 2
        or isinstance(pair[0], bool)
        or not isinstance(pair[0], int | float)
    ):
        return None
    value = _value(str(pair[1]))
    return None if value is None else (float(pair[0]), value)


def _value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value
