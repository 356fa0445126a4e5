"""Rows of a log with their row numbers, read one after the other: for looking rows up, not for aggregation."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple

from planner.traffic.readers.columns import TableFile
from planner.traffic.readers.head import LINE_CHARS, opened, wide_fields

CHUNK_CHARS = 1 << 16
LONGEST_ELEMENT = 1 << 27
BEGIN, BETWEEN = re.compile(r"\s*\[?\s*"), re.compile(r"[\s,]*")
"""What stands before the first element of an array, and between two of them."""


class Record(NamedTuple):
    """One row of a log."""

    row: int
    """As a spreadsheet counts: the first row of the file is 1, and a quoted field may hold line breaks."""
    texts: tuple[str | None, ...]
    """The columns that are read, in the order of `TableFile.places`; empty for a malformed row."""
    fault: str = ""
    """Why the row is malformed."""


@dataclass
class Budget:
    """How much more may be read; shared by the files of one run."""

    rows: int
    chars: int


def records(table: TableFile, budget: Budget) -> Generator[Record, None, None]:
    """The rows of one file, until it ends, the budget is spent, or an open quote has swallowed rows."""
    with wide_fields(), _open(table) as stream:
        lines = _Lines(stream, budget)
        if table.head.is_array:
            yield from _element_records(table, stream, budget)
        else:
            yield from _json_records(table, lines) if table.head.is_json else _csv_records(table, lines)


def _open(table: TableFile) -> IO[str]:
    return io.TextIOWrapper(opened(table.head.path), encoding="utf-8-sig", errors="surrogateescape")


class _Lines:
    """Lines without their ends, no longer than the engine takes them; counts what it gives out."""

    def __init__(self, stream: IO[str], budget: Budget) -> None:
        self._stream = stream
        self._budget = budget
        self.chars = 0
        """Characters since this was last set to 0."""
        self.lines = 0
        """Lines since this was last set to 0."""

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(LINE_CHARS)
        if not line or self._budget.rows <= 0 or self._budget.chars <= 0:
            raise StopIteration
        self.lines += 1
        self._budget.rows -= 1
        self._spend(line)
        rest = line
        while rest and not rest.endswith("\n"):
            rest = self._stream.readline(LINE_CHARS)
            self._spend(rest)
        return line.removesuffix("\n")

    def _spend(self, text: str) -> None:
        self.chars += len(text)
        self._budget.chars -= len(text)


def _csv_records(table: TableFile, lines: _Lines) -> Iterator[Record]:
    head = table.head
    places = [head.columns.index(name) for name in table.columns.used().values()]
    rows = (
        csv.reader(lines, delimiter=head.delimiter, strict=True)
        if table.quoted
        else (line.split(head.delimiter) for line in lines)
    )
    number = 0
    while True:
        number += 1
        lines.chars = lines.lines = 0
        try:
            fields = next(rows)
        except StopIteration:
            return
        except csv.Error:
            yield Record(number, (), "a quote is not closed, or stands inside a field")
            if lines.lines > 1:  # the rows that it swallowed cannot be told from its text
                return
            continue
        if number > 1 and fields not in ([], [""]):
            fault = _fault(fields, len(head.columns), places, lines.chars)
            yield Record(number, () if fault else tuple(fields[place] for place in places), fault)


def _fault(fields: list[str], width: int, places: list[int], chars: int) -> str:
    if chars > LINE_CHARS:
        return f"longer than {LINE_CHARS:,} characters"
    # The engine lets one delimiter too many pass at the end of a row, as some exports write it.
    if len(fields) != width and not (len(fields) == width + 1 and not fields[-1]):
        return f"{len(fields)} field{'s' if len(fields) > 1 else ''} instead of {width}"
    if not all(_is_text(fields[place]) for place in places):
        return "not UTF-8 text"
    return ""


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: no byte of it had to be escaped, and JSON escaped no half of a pair."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _json_records(table: TableFile, lines: _Lines) -> Iterator[Record]:
    names = list(table.columns.used().values())
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError):
            found = None
        yield _object_record(number, found if _is_text(line) else None, names)


def _element_records(table: TableFile, stream: IO[str], budget: Budget) -> Iterator[Record]:
    names = list(table.columns.used().values())
    for number, element in enumerate(elements(stream, budget), start=1):
        yield _object_record(number, element, names)


def elements(stream: IO[str], budget: Budget) -> Iterator[object]:
    """The elements of a JSON array, numbers as text, one after the other; ends early where the JSON does."""
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
    text = stream.read(CHUNK_CHARS)
    at = BEGIN.match(text).end()  # type: ignore[union-attr]
    while budget.rows > 0 and budget.chars > 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value, end = None, len(text)
        if end == len(text):  # what follows may belong to it; as much again keeps the work in proportion
            more = stream.read(max(CHUNK_CHARS, end - at)) if end - at < LONGEST_ELEMENT else ""
            if not more:
                return
            text = text[at:] + more
            at = BETWEEN.match(text).end()  # type: ignore[union-attr]
            continue
        yield value
        budget.rows -= 1
        budget.chars -= end - at
        at = BETWEEN.match(text, end).end()  # type: ignore[union-attr]


def _object_record(number: int, found: object, names: list[str]) -> Record:
    if not isinstance(found, dict):
        return Record(number, (), "not one JSON object of UTF-8 text")
    texts = tuple(_text(found.get(name)) for name in names)
    whole = all(text is None or _is_text(text) for text in texts)
    return Record(number, texts if whole else (), "" if whole else "not UTF-8 text")


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
