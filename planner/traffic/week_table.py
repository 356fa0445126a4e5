"""The hours of the week as a CSV: what `planner traffic season --csv` writes and a request's ``week`` may name.

One row an hour. Which hour: ``slot`` (0 to 191: 168 hours from Monday 00:00, then the 24 of a holiday),
``hour_of_week`` (0 to 167), or ``day`` (Mon to Sun, holiday) and ``hour`` (0 to 23). What it held: ``mean_per_s`` and
``peak_per_s`` (or ``mean`` and ``peak``), in any one unit: only their ratio to the week's mean counts. Both empty: the
hour was not seen. ``model`` tells several models apart; other columns are not read.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from planner.errors import InputError, Problem, Problems
from planner.traffic.season import SLOTS, WEEK_SLOTS, Season
from planner.traffic.types import FloatArray

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "holiday")
HEADER = ("model", "slot", "day", "hour", "seen_hours", "mean_per_s", "quantile_per_s", "peak_per_s")
_PLACES = (("slot",), ("hour_of_week",), ("day", "hour"))
_FIGURES = {"mean": ("mean_per_s", "mean"), "peak": ("peak_per_s", "peak")}
_MOST = 1e12


def write_week(path: Path, seasons: Sequence[Season]) -> None:
    """Write the week of each model, every slot of it.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream, lineterminator="\n")
            rows.writerow(HEADER)
            for season in seasons:
                for slot in range(SLOTS):
                    figures = (season.mean_per_s[slot], season.quantile_per_s[slot], season.peak_per_s[slot])
                    shown = ["" if math.isnan(value) else repr(float(value)) for value in figures]
                    place = (season.model, slot, DAYS[slot // 24], slot % 24, int(season.seen[slot]))
                    rows.writerow([*place, *shown])
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror or error}")) from None


def is_week_table(path: Path) -> bool:
    """Whether a file is such a CSV: its first line names an hour of the week and both figures.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    header = _header(_rows(path)[:1])
    return _place_columns(header) is not None and all(_figure_column(header, of) for of in _FIGURES)


def read_week(path: Path, model: str = "") -> tuple[FloatArray, FloatArray]:
    """Mean and peak of every slot, NaN where the table has none.

    Parameters
    ----------
    model
        Whose rows, where the table holds several models.

    Raises
    ------
    InputError
        If the file is no such table, or rows are wrong; names each with its row and field.
    """
    lines = _rows(path)
    header = _header(lines[:1])
    place, columns = _place_columns(header), {of: _figure_column(header, of) for of in _FIGURES}
    if place is None or not all(columns.values()):
        what = f"has no columns for the hour, the mean and the peak (it has: {', '.join(header) or 'none'})"
        raise InputError(Problem(str(path), what, "Give slot, hour_of_week or day and hour; mean_per_s; peak_per_s"))
    problems = Problems()
    # Row 1 is the header; a row that is empty altogether is none.
    rows = {n: dict(zip(header, row, strict=False)) for n, row in enumerate(lines[1:], start=2) if any(row)}
    mine = _of_model(path, rows, model)
    figures = {of: np.full(SLOTS, np.nan) for of in _FIGURES}
    seen: dict[int, int] = {}
    for number, row in mine.items():
        row_problems = _Row(path, str(number), row, problems)
        slot = row_problems.slot(place)
        values = {of: row_problems.figure(column) for of, column in columns.items()}
        if slot in seen:
            row_problems.add(place[0], f"is the hour of row {seen[slot]} again", "Keep one")
        if slot is None:
            continue
        seen.setdefault(slot, number)
        row_problems.check(columns, values)
        for of, value in values.items():
            figures[of][slot] = math.nan if value is None else value
    problems.raise_if_any()
    return figures["mean"], figures["peak"]


class _Row:
    """One row, its problems noted with row and field."""

    def __init__(self, path: Path, number: str, row: Mapping[str, str], problems: Problems) -> None:
        self._path, self._number, self._row, self._problems = path, number, row, problems

    def add(self, field: str, what: str, fix: str = "") -> None:
        """Note a problem of this row."""
        self._problems.add(str(self._path), what, fix, row=self._number, field=field)

    def slot(self, columns: tuple[str, ...]) -> int | None:
        """The hour; ``None`` with the problem noted."""
        if columns == ("day", "hour"):
            days = [day.lower() for day in DAYS]
            text = self._row.get("day", "").lower()
            day = days.index(text) if text in days else None
            if day is None:
                self.add("day", f"'{self._row.get('day', '')}' is no day", f"Use one of {', '.join(DAYS)}")
            hour = self._whole("hour", 24)
            return None if day is None or hour is None else day * 24 + hour
        return self._whole(columns[0], SLOTS if columns[0] == "slot" else WEEK_SLOTS)

    def figure(self, column: str) -> float | None:
        """The figure; ``None`` where the cell is empty or, with the problem noted, no figure."""
        text = self._row.get(column, "")
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= _MOST:
            self.add(column, f"'{text}' is no rate", "Give a number that is not negative")
            return None
        return value

    def check(self, columns: Mapping[str, str], values: Mapping[str, float | None]) -> None:
        """Mean and peak belong together, and a peak is not below its mean."""
        mean, peak = values["mean"], values["peak"]
        texts = {of: self._row.get(column, "") for of, column in columns.items()}
        for of in _FIGURES:
            if not texts[of] and any(texts.values()):
                self.add(columns[of], "is empty", "Give mean and peak, or neither where the hour was not seen")
        if mean is not None and peak is not None and peak < mean:
            self.add(columns["peak"], f"the peak {peak:g} is below the mean {mean:g}", "A peak holds the mean")

    def _whole(self, column: str, end: int) -> int | None:
        text = self._row.get(column, "")
        if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < end:
            return int(text)
        self.add(column, f"'{text}' is not in 0 to {end - 1}", "Give a whole number")
        return None


def _rows(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return [[cell.strip() for cell in row] for row in csv.reader(stream)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}", "Give a CSV of hours")) from None


def _header(first: Sequence[Sequence[str]]) -> list[str]:
    return [name.lower() for name in first[0]] if first else []


def _place_columns(header: Sequence[str]) -> tuple[str, ...] | None:
    return next((columns for columns in _PLACES if set(columns) <= set(header)), None)


def _figure_column(header: Sequence[str], of: str) -> str:
    return next((name for name in _FIGURES[of] if name in header), "")


def _of_model(path: Path, rows: Mapping[int, Mapping[str, str]], model: str) -> Mapping[int, Mapping[str, str]]:
    """Rows of one model; a table without models is anybody's."""
    names = sorted({row.get("model", "") for row in rows.values()} - {""})
    if not names or (len(names) == 1 and not model):
        return rows
    if not model:
        raise InputError(Problem(str(path), "holds several models", f"Set model to one of: {', '.join(names[:20])}"))
    if model not in names:
        raise InputError(Problem(str(path), f"holds no model '{model}'", f"It holds: {', '.join(names[:20])}"))
    return {number: row for number, row in rows.items() if row.get("model", "") in ("", model)}
