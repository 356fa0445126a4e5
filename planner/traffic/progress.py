"""A progress bar on standard error for people who wait for a long scan; silent in pipes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from planner.traffic.readers.columns import TableFile
from planner.traffic.readers.head import HEAD_BYTES, opened

PACKED = 5
"""Logs shrink to about a fifth when they are compressed; only the bar depends on it."""


def expected_rows(path: Path) -> float:
    """How many rows a file has: known for Parquet, else told from its size and its first lines."""
    try:
        if path.suffix in (".parquet", ".pq"):
            return float(pq.read_metadata(path).num_rows)
        with opened(path) as stream:
            start = stream.read(HEAD_BYTES)
        size = path.stat().st_size * (PACKED if path.suffix in (".gz", ".zst") else 1)
    except (OSError, EOFError, pa.ArrowException):
        return 1.0
    return max(size / max(len(start), 1), 1.0) * max(start.count(b"\n"), 1)


@contextmanager
def progress_bar(tables: Sequence[TableFile], what: str, *, wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar over the rows of the files; what it yields takes the place of a file and how many of its rows are read."""
    if not (wanted and sys.stderr.isatty() and tables):
        yield lambda place, rows: None
        return
    expected = [expected_rows(table.head.path) for table in tables]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=sum(expected))

        def watch(place: int, rows: int) -> None:
            bar.update(task, completed=min(sum(expected[:place]) + rows, sum(expected[: place + 1])))

        yield watch
