"""Series of Prometheus, from the text that a server exposes and from answers of the query interface.

Text format: prometheus.io, "Exposition formats"; answers: "HTTP API", results of type vector and matrix.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from planner.errors import InputError, Problem

AGAIN = "Fetch it again"

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?(?:\s+#.*)?$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True)
class Series:
    """One series: its name, its labels, and its samples as pairs of a time in seconds and a value."""

    name: str
    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


def exposed(place: str, text: str, at_s: float = 0.0, *, stamped: bool = False) -> Iterator[Series]:
    """Text exposition: one sample a line, at ``at_s``; with ``stamped``, at its own time stamp where it has one.

    Raises
    ------
    InputError
        If a line is neither a comment nor a sample.
    """
    # Only a line feed ends a line: labels may hold any other character that splitlines would end one at.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _SAMPLE.match(line.strip())
        value = None if found is None else number_of(found[3])
        if found is None or value is None:
            raise InputError(Problem(place, f"is no sample: {line!r:.60}", AGAIN, row=str(number)))
        time_s = int(found[4]) / 1000 if stamped and found[4] else at_s
        if not math.isnan(value):
            yield Series(found[1], labels_of(found[2] or ""), ((time_s, value),))


def labels_of(text: str) -> dict[str, str]:
    """Labels as they stand between braces."""
    return {name: re.sub(r"\\.", _unescaped, value) for name, value in _LABEL.findall(text)}


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0], found[0])


def answers(
    objects: Iterable[tuple[str, Mapping[str, object]]], wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[Series]:
    """The series of answers to ``query`` and ``query_range``, each given with its place; those of wanted names only.

    Raises
    ------
    InputError
        If a query failed, or an answer holds no series.
    """
    for place, answer in objects:
        data = answer.get("data")
        if answer.get("status") != "success" or not isinstance(data, dict):
            message = f"is an answer of Prometheus that failed: {answer.get('error', 'no data')!s:.200}"
            raise InputError(Problem(place, message, "Correct the query and ask again"))
        if data.get("resultType") not in ("matrix", "vector"):
            fix = "Ask for the engine's own series, such as {__name__=~'vllm:.*'}"
            raise InputError(Problem(place, f"holds a {data.get('resultType')!s:.20}, no series", fix))
        result = data.get("result")
        for item in result if isinstance(result, list) else []:
            found = _series(place, item, wanted)
            if found is not None:
                yield found


def _series(place: str, item: object, wanted: Callable[[str], bool]) -> Series | None:
    metric = item.get("metric") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(metric, dict):
        raise InputError(Problem(place, f"holds {json.dumps(item)[:40]}, no series", AGAIN))
    if not wanted(str(metric.get("__name__", ""))):
        return None
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
    value = number_of(str(pair[1]))
    return None if value is None else (float(pair[0]), value)


def number_of(text: str) -> float | None:
    """A sample's value, which may be ``NaN`` or ``+Inf``; ``None`` if it is no number."""
    try:
        return float(text)
    except ValueError:
        return None
