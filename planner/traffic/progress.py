"""A progress bar on standard error for people who wait for a long scan; silent in pipes."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from planner.traffic.readers.columns import TableFile
from planner.traffic.readers.head import HEAD_BYTES, Head, opened
from planner.traffic.storage.files import size_of, stream_of

PACKED = 5
"""Logs shrink to about a fifth when they are compressed; only the bar depends on it."""


def expected_rows(head: Head) -> float:
    """How many rows a file has: known for Parquet, else told from its size and its first lines or elements."""
    path = head.path
    try:
        if path.suffix in (".parquet", ".pq"):
            with stream_of(path) as stream:
                return float(pq.read_metadata(stream).num_rows)
        with opened(path) as stream:
            start = stream.read(HEAD_BYTES)
        size = size_of(path) * (PACKED if path.suffix in (".gz", ".zst") else 1)
    except (OSError, EOFError, pa.ArrowException):
        return 1.0
    mark = json.dumps(head.columns[0]).encode() if head.is_array and head.columns else b"\n"
    return max(size / max(len(start), 1), 1.0) * max(start.count(mark), 1)


@contextmanager
def progress_bar(tables: Sequence[TableFile], what: str, *, wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar over the rows of the files; what it yields takes the place of a file and how many of its rows are read."""
    if not (wanted and sys.stderr.isatty() and tables):
        yield lambda place, rows: None
        return
    expected = [expected_rows(table.head) for table in tables]
    until = list(itertools.accumulate(expected, initial=0.0))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=until[-1])

        def watch(place: int, rows: int) -> None:
            bar.update(task, completed=min(until[place] + rows, until[place + 1]))

        yield watch
