"""The forms in which metrics are exported, behind one interface: a file in, series out."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from planner.errors import InputError, Problem
from planner.prometheus import Series, answers, exposed, labels_of, number_of
from planner.traffic.documents import Peek, json_objects, text_of
from planner.traffic.histograms.names import is_read
from planner.traffic.histograms.series import plain
from planner.traffic.readers.head import wide_fields
from planner.traffic.storage.files import LogFile
from planner.traffic.times import seconds_of, time_in_name

_FIRST = re.compile(r"# (HELP|TYPE) [a-zA-Z_:]|[a-zA-Z_:][\w:]*(\{.*\})?\s+[-+]?[\d.]+([eE][-+]?\d+)?(\s+\d+)?\s*$")
RAW = "Export the raw counters (no rate(), increase() or sum()), unformatted"


@dataclass(frozen=True)
class Clock:
    """What the caller says of time."""

    zone: str = "UTC"
    """Zone of stamps that name none."""
    at_s: float | None = None
    """When a snapshot was taken, where neither its lines nor its file's name say so."""


class HistogramReader(Protocol):
    """One form of export."""

    @property
    def name(self) -> str:
        """The word for ``--format``."""

    @property
    def source(self) -> str:
        """The name in the manifest."""

    def claims(self, peek: Peek) -> bool:
        """Whether a file that starts like this is of this form."""

    def read(self, path: LogFile, clock: Clock) -> Iterable[Series]:
        """Every series of a file.

        Raises
        ------
        InputError
            If the file cannot be read as this form.
        """


class Answers:
    """Answers of Prometheus to ``query_range``: one, a list of them, or one a line."""

    name = "prometheus"
    source = "prometheus-query-range"

    def claims(self, peek: Peek) -> bool:
        """By the member that only these answers have."""
        return {"status", "resultType"} <= peek.keys or ('"status":"error"' in peek.text and "errorType" in peek.keys)

    def read(self, path: LogFile, clock: Clock) -> Iterable[Series]:
        """Every series of the answers."""
        return answers(json_objects(path), lambda name: is_read(plain(name)))


class Exposition:
    """Snapshots of ``/metrics``: the time stands in the lines, in the file's name, or in the option ``at``.

    What the name holds beside the time tells targets apart: ``pod-a_2026-09-03T142207Z.prom``.
    """

    name = "metrics-text"
    source = "prometheus-exposition"

    def claims(self, peek: Peek) -> bool:
        """By its first line: the comment before a metric, or a sample."""
        return bool(_FIRST.match(peek.first_line))

    def read(self, path: LogFile, clock: Clock) -> Iterable[Series]:
        """Every sample as a series of one."""
        named = time_in_name(path.name.removesuffix(".gz").rsplit(".", 1)[0], clock.zone)
        at_s = named[1] if named else clock.at_s
        series = list(exposed(str(path), text_of(path), math.nan if at_s is None else at_s, stamped=True))
        if any(math.isnan(one.samples[0][0]) for one in series):
            fix = "Name the file by its time, such as pod-a_2026-09-03T142207Z.prom, or give --option at=TIME"
            raise InputError(Problem(str(path), "does not say when it was taken", fix))
        target = {"target": named[0]} if named and named[0] else {}
        return [Series(one.name, {**target, **one.labels}, one.samples) for one in series]


class GrafanaCsv:
    """A panel's data as Grafana saves it: ``Time``, and a column for every series, named as ``metric{label="x"}``."""

    name = "grafana-csv"
    source = "grafana-csv"

    def claims(self, peek: Peek) -> bool:
        """By the first column and a header with labels."""
        return bool(re.match(r'"?time"?,', peek.first_line, re.IGNORECASE)) and '="' in peek.first_line

    def read(self, path: LogFile, clock: Clock) -> Iterable[Series]:
        """Every column whose header is a series."""
        rows = _rows(path)
        try:
            header = next(row for row in rows if row and not row[0].startswith("sep="))
        except StopIteration:
            raise InputError(Problem(str(path), "has no header", RAW)) from None
        columns = {place: found for place, text in enumerate(header) if (found := _series_name(text)) is not None}
        if not columns:
            fix = "Leave the legend of the panel's queries empty, so that columns are named metric{label=...}"
            raise InputError(Problem(str(path), "has no column that names a series with its labels", fix))
        samples: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for number, row in enumerate(rows, start=2):
            if not row or not row[0].strip():
                continue
            time_s = _time(path, number, row[0], clock)
            for place in columns:
                text = row[place].strip() if place < len(row) else ""
                if text:
                    samples[place].append((time_s, _value(path, number, text)))
        return [Series(*columns[place], tuple(found)) for place, found in samples.items()]


class LongCsv:
    """A CSV with one sample a row: a name, a time, a value, and a column for every label (``le`` among them)."""

    name = "prometheus-csv"
    source = "prometheus-csv"
    names = ("__name__", "name", "metric", "metric_name")
    times = ("time", "timestamp", "ts")

    def claims(self, peek: Peek) -> bool:
        """By a bound, a value, a time and a name."""
        header = {cell.lower() for cell in peek.header}
        return {"le", "value"} <= header and bool(header & {*self.names}) and bool(header & {*self.times})

    def read(self, path: LogFile, clock: Clock) -> Iterable[Series]:
        """Rows of one name and one set of labels are a series."""
        rows = _rows(path)
        header = [cell.strip() for cell in next(rows)]
        lower = [cell.lower() for cell in header]
        name = next(place for place, cell in enumerate(lower) if cell in self.names)
        time = next(place for place, cell in enumerate(lower) if cell in self.times)
        value = lower.index("value")
        found: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
        for number, row in enumerate(rows, start=2):
            if not row:
                continue
            if len(row) != len(header):
                what = f"has {len(row)} cells where the header has {len(header)}"
                raise InputError(Problem(str(path), what, RAW, row=str(number)))
            sample = _time(path, number, row[time], clock), _value(path, number, row[value])
            found[tuple(cell for place, cell in enumerate(row) if place not in (time, value))].append(sample)
        labels = [cell for place, cell in enumerate(header) if place not in (time, value)]
        for cells, samples in found.items():
            of_row = dict(zip(labels, cells, strict=True))
            yield Series(of_row.pop(header[name]), {k: v for k, v in of_row.items() if v}, tuple(samples))


def _rows(path: LogFile) -> Iterator[list[str]]:
    text = text_of(path)
    try:
        with wide_fields():
            yield from csv.reader(text.splitlines())
    except csv.Error as error:
        raise InputError(Problem(str(path), f"is no CSV: {error}", RAW)) from None


_COLUMN = re.compile(r"\s*([a-zA-Z_:][\w:.]*)?\s*\{(.*)\}\s*")


def _series_name(text: str) -> tuple[str, Mapping[str, str]] | None:
    found = _COLUMN.fullmatch(text)
    if found is None:
        return None
    labels = labels_of(found[2])
    name = found[1] or labels.pop("__name__", "")
    return (plain(name), labels) if name else None


def _time(path: LogFile, number: int, text: str, clock: Clock) -> float:
    time_s = seconds_of(text, clock.zone)
    if time_s is None:
        raise InputError(Problem(str(path), f"{text!r:.40} is no time", "Use ISO 8601 or Unix time", row=str(number)))
    return time_s


def _value(path: LogFile, number: int, text: str) -> float:
    value = number_of(text)
    if value is None or math.isinf(value):
        raise InputError(Problem(str(path), f"{text!r:.40} is no number", RAW, row=str(number)))
    return value


READERS: tuple[HistogramReader, ...] = (Answers(), Exposition(), GrafanaCsv(), LongCsv())
