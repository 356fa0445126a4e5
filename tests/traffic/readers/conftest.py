from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planner.traffic.engine import connect
from planner.traffic.ingest import Order, ingest
from planner.traffic.readers import find_reader
from planner.traffic.readers.columns import Wanted
from planner.traffic.readers.head import read_head
from planner.traffic.readers.projections import columns_taken

EXPORTS = Path(__file__).parents[2] / "data" / "traffic"


@dataclass(frozen=True)
class Found:
    """What one export became."""

    source: str
    start: str
    rows_read: int
    offered: int
    dropped: dict[str, int]
    adjusted: dict[str, int]
    sums: dict[str, tuple[int, int, int, int]]
    """Model to requests, prompt, output and cached tokens."""
    arrivals: dict[str, int]
    rows: dict[str, list[int]]
    """Rule to the first rows that it dropped."""
    everything: str
    """All that is written, as text."""


@pytest.fixture(scope="session")
def exports() -> Path:
    return EXPORTS


@pytest.fixture(scope="session")
def found() -> Callable[..., Found]:
    return _found


def _found(path: Path, **order: Any) -> Found:
    canonical = ingest(Order((path,), **order))
    counts = canonical.manifest.counts
    lengths = [row for row in canonical.lengths.to_pylist() if row["period"] == "all"]
    sums = {
        model: tuple(
            sum(row[name] for row in lengths if row["model"] == model)
            for name in ("n", "sum_prompt", "sum_output", "sum_cached")
        )
        for model in {row["model"] for row in lengths}
    }
    arrivals: dict[str, int] = {}
    for row in canonical.rates.to_pylist():
        arrivals[row["model"]] = arrivals.get(row["model"], 0) + row["n"]
    tables = [canonical.lengths, canonical.tail, canonical.rates, canonical.burst]
    return Found(
        source=canonical.manifest.source,
        start=canonical.manifest.window_start,
        rows_read=counts.rows_read,
        offered=counts.offered,
        dropped=dict(counts.dropped_by_reason),
        adjusted=dict(counts.adjusted_by_reason),
        sums=sums,  # type: ignore[arg-type]
        arrivals=arrivals,
        rows={rule: [row["row"] for row in rows] for rule, rows in counts.dropped_rows.items()},
        everything=canonical.manifest.model_dump_json() + "".join(str(table.to_pylist()) for table in tables),
    )


@pytest.fixture(scope="session")
def columns_read() -> Callable[[Path], set[str]]:
    """The columns (of JSON lines the paths) that the engine takes from a file."""
    return _columns_read


def _columns_read(path: Path) -> set[str]:
    head = read_head(path)
    reader = find_reader("auto", (head,), mapped=False)
    with connect() as connection:
        (table,) = reader.open(connection, (head,), Wanted()).tables
        return columns_taken(connection, table)
