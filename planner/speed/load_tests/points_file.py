"""The points file: measured points as CSV, written by ``planner speed import`` and read wherever measurements count.

Figures are those of all replicas together, as measured; reading divides them by ``replicas``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, TextIO

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.csv_table import read_table
from planner.errors import Problems
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.load_tests.types import Record
from planner.speed.points import Figures, Load, LoadKind, Point, Served

Positive = Annotated[float, Field(gt=0)]
Degree = Annotated[int, Field(ge=1)]
SIGNIFICANT_DIGITS = 6


class PointRow(BaseModel):
    """One row; the fields are the columns, in their order. An empty cell is unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str = Field(min_length=1)
    engine: str = Field(min_length=1)
    version: str = ""
    model: str = Field(min_length=1)
    gpu: str = Field(min_length=1)
    tp: Degree
    pp: Degree = 1
    ep: Degree = 1
    attention_dp: Degree = 1
    replicas: Degree = 1
    weight_dtype: WeightDtype
    kv_dtype: KvDtype
    load: LoadKind
    input_tokens: Positive
    output_tokens: Positive
    concurrency: Positive | None = None
    concurrency_from: str = ""
    rate_per_s: Positive | None = None
    cached_share: Annotated[float, Field(ge=0, le=1)] | None = None
    acceptance: Annotated[float, Field(ge=1)] | None = None
    output_tok_s: Positive | None = None
    total_tok_s: Positive | None = None
    ttft_mean_ms: Positive | None = None
    ttft_p50_ms: Positive | None = None
    ttft_p90_ms: Positive | None = None
    ttft_p99_ms: Positive | None = None
    tpot_mean_ms: Positive | None = None
    tpot_p50_ms: Positive | None = None
    tpot_p90_ms: Positive | None = None
    tpot_p99_ms: Positive | None = None
    measured_on: str = ""
    source: str = ""


COLUMNS = tuple(PointRow.model_fields)


def write_points(file: TextIO, records: Iterable[Record]) -> None:
    """Write the points; the same records give the same bytes."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        row = _row(record)
        writer.writerow([_cell(getattr(row, name)) for name in COLUMNS])


def read_points(path: Path) -> tuple[Point, ...]:
    """The points of a file, each as of one replica.

    Raises
    ------
    InputError
        Listing every problem with its row and field.
    """
    problems = Problems()
    rows = read_table(path, PointRow, problems)
    seen: dict[str, int] = {}
    for number, row in rows:
        first = seen.setdefault(row.id, number)
        if first != number:
            fix = "Give every point an id of its own, or drop the repeated row"
            problems.add(str(path), f"is that of row {first} too: {row.id!r:.60}", fix, row=str(number), field="id")
        _check(row, str(path), str(number), problems)
    problems.raise_if_any()
    return tuple(_point(row) for _, row in rows)


def _check(row: PointRow, where: str, number: str, problems: Problems) -> None:
    """What one cell cannot show: a load without its figure, a row without a measurement, falling percentiles."""
    wants = {
        LoadKind.CLOSED_LOOP: "concurrency",
        LoadKind.STATIC_BATCH: "concurrency",
        LoadKind.OPEN_LOOP: "rate_per_s",
    }
    needed = wants.get(row.load)
    if needed is not None and getattr(row, needed) is None:
        problems.add(where, f"is empty in a {row.load} point", "Fill the cell", row=number, field=needed)
    figures = [name for name in COLUMNS if name.endswith(("_ms", "tok_s"))]
    if all(getattr(row, name) is None for name in figures):
        problems.add(where, "holds no measured figure", f"Fill one of {', '.join(figures)}", row=number)
    for time in ("ttft", "tpot"):
        levels = [(level, getattr(row, f"{time}_{level}_ms")) for level in ("p50", "p90", "p99")]
        known = [(level, value) for level, value in levels if value is not None]
        for (low, value), (high, above) in pairwise(known):
            if value > above:
                message = f"{value:g} is above {high}, {above:g}"
                problems.add(where, message, "Correct the figures", row=number, field=f"{time}_{low}_ms")


def _row(record: Record) -> PointRow:
    served, load = record.served, record.load
    spreads = {"ttft": record.ttft, "tpot": record.tpot}
    times = {
        f"{time}_{level}_ms": getattr(spread, f"{level}_ms")
        for time, spread in spreads.items()
        for level in ("mean", "p50", "p90", "p99")
    }
    return PointRow(
        id=record.id,
        engine=served.engine,
        version=served.version,
        model=served.model,
        gpu=served.gpu,
        tp=served.tp,
        pp=served.pp,
        ep=served.ep,
        attention_dp=served.attention_dp,
        replicas=served.replicas,
        weight_dtype=served.weight_dtype,
        kv_dtype=served.kv_dtype,
        load=load.kind,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        concurrency=load.concurrency,
        concurrency_from=record.concurrency_from,
        rate_per_s=load.rate_per_s,
        cached_share=record.cached_share,
        acceptance=record.acceptance,
        output_tok_s=record.output_tok_s,
        total_tok_s=record.total_tok_s,
        measured_on=record.measured_on,
        source=record.source,
        **times,
    )


def _cell(value: object) -> object:
    """Six significant digits: more than any load test repeats."""
    if isinstance(value, float):
        return f"{value:.{SIGNIFICANT_DIGITS}g}"
    return "" if value is None else value


def _point(row: PointRow) -> Point:
    served = Served(
        row.engine, row.version, row.model, row.gpu, row.tp, row.weight_dtype, row.kv_dtype, row.pp, row.ep,
        row.attention_dp, row.replicas,
    )  # fmt: skip
    load = Load(
        row.load,
        row.input_tokens,
        row.output_tokens,
        _each(row.concurrency, row),
        _each(row.rate_per_s, row),
        row.cached_share or 0.0,
        row.acceptance or 1.0,
    )
    measured = Figures(
        tpot_ms=row.tpot_p50_ms or row.tpot_mean_ms,
        ttft_ms=row.ttft_p50_ms or row.ttft_mean_ms,
        output_tok_s=_each(row.output_tok_s, row),
        total_tok_s=_each(row.total_tok_s, row),
        tpot_p99_ms=row.tpot_p99_ms,
        ttft_p99_ms=row.ttft_p99_ms,
    )
    return Point(row.id, served, load, measured, row.source)


def _each(value: float | None, row: PointRow) -> float | None:
    return None if value is None else value / row.replicas
