"""Answers that a person saved: one file per query, CSV with a header or Parquet."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from planner.errors import InputError, Problem, Problems
from planner.traffic.disk import usable
from planner.traffic.warehouse.answers import Answers, Row

COLUMNS: dict[str, tuple[str, ...]] = {
    "verdicts": ("model", "verdict", "adjusted", "n"),
    "span": ("start_us", "last_us"),
    "hours": ("hour_us", "n"),
    "gaps": ("gap_us", "n"),
    "rates": ("model", "minute_us", "n", "kept", "sum_prompt", "sum_output", "sum_cached"),
    "lengths": (
        "model", "traffic_class", "busy", "prompt_octave", "prompt_step", "output_octave", "output_step", "n",
        "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo", "max_prompt", "max_output", "max_total",
    ),
    "tail": ("model", "prompt", "output", "n"),
    "caps": ("model", "tokens", "n", "side"),
    "bursts": (
        "model", "hour_us", "n", *(f"{kind}_{scale}" for scale in (1, 5, 15, 60, 300) for kind in ("squares", "most")),
    ),
    "last_hour": ("model", "second_us", "n"),
    "batches": ("model", "size", "n"),
}  # fmt: skip
"""Columns of every query of `planner.traffic.warehouse.queries`."""
TEXTS = ("model", "traffic_class", "side")


def saved_answers(folder: Path) -> Answers:
    """Read the answers of a folder.

    Raises
    ------
    InputError
        If one is missing or damaged, lacks a column, or holds something else than whole numbers.
    """
    problems = Problems()
    found: dict[str, tuple[Row, ...]] = {}
    with usable(folder):
        if not folder.is_dir():
            raise InputError(Problem(str(folder), "is no folder", "Give the folder of the saved results"))
    for name in COLUMNS:
        rows = problems.attempt(lambda name=name: _rows(folder, name))  # type: ignore[misc]
        if rows is not None:
            found[name] = rows
    problems.raise_if_any()
    if len(found["span"]) != 1:
        raise InputError(Problem(str(folder / "span"), "must hold one row", "Save the result of the query again"))
    return Answers(found)


def _rows(folder: Path, name: str) -> tuple[Row, ...]:
    paths = [path for path in (folder / f"{name}.parquet", folder / f"{name}.csv") if path.is_file()]
    if len(paths) != 1:
        what = "two files of this name" if paths else "no such file"
        fix = f"Save the result of the query as {name}.csv or {name}.parquet"
        raise InputError(Problem(str(folder / name), what, fix))
    path = paths[0]
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else _read_csv(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(Problem(str(path), f"cannot be read: {str(error).splitlines()[0][:200]}")) from None
    table = table.rename_columns([column.lower() for column in table.column_names])
    missing = [column for column in COLUMNS[name] if column not in table.column_names]
    if missing:
        what = f"lacks the columns {', '.join(missing)}"
        raise InputError(Problem(str(path), what, "Save the whole result, with its header", row="1"))
    return tuple(_row(path, place, row) for place, row in enumerate(table.select(COLUMNS[name]).to_pylist(), start=2))


def _read_csv(path: Path) -> pa.Table:
    """As text: a guess at types would turn long whole numbers into floating point."""
    with path.open(encoding="utf-8-sig") as stream:
        header = stream.readline().rstrip("\r\n")
    names = [name.strip().strip('"') for name in header.split(",")]
    convert = pc.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True)
    return pc.read_csv(path, convert_options=convert)


def _row(path: Path, place: int, row: dict[str, Any]) -> Row:
    return {name: value or "" if name in TEXTS else _whole(path, place, name, value) for name, value in row.items()}


def _whole(path: Path, place: int, name: str, value: Any) -> int:
    try:
        number = Decimal(str(value).strip())
        if number == number.to_integral_value():
            return int(number)
    except (InvalidOperation, ValueError):
        pass
    raise InputError(Problem(str(path), f"'{str(value)[:40]}' is no whole number", "", row=str(place), field=name))
