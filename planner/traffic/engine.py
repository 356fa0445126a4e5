"""The aggregation engine: one DuckDB connection with its own scratch folder, and a progress bar for people."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

STAGED_SQL = """
CREATE TABLE staged (
    model VARCHAR, traffic_class VARCHAR, ts_us BIGINT, prompt INTEGER, output INTEGER, cached INTEGER,
    id_hash UBIGINT, rank BIGINT, verdict UTINYINT, adjusted USMALLINT
)
"""
"""Every row of the log in a few bytes: ``verdict`` is null when kept, else the code of the rule that dropped it."""


@contextmanager
def connect(time_zone: str = "UTC") -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with an empty ``staged`` table; its scratch file is removed however the block ends.

    Naive time stamps are read in ``time_zone``; everything stored is UTC. Nothing is fetched from the network.
    """
    with tempfile.TemporaryDirectory(prefix="planner-ingest-", ignore_cleanup_errors=True) as scratch:
        connection = duckdb.connect(
            str(Path(scratch) / "scratch.duckdb"),
            config={
                "temp_directory": scratch,
                "memory_limit": "3GB",
                "autoinstall_known_extensions": "false",
                "preserve_insertion_order": "false",
            },
        )
        try:
            connection.execute("SET enable_progress_bar = false")
            connection.execute(f"SET TimeZone = '{time_zone}'")
            connection.execute(STAGED_SQL)
            yield connection
        except (RuntimeError, duckdb.InterruptException) as error:
            if "interrupt" in str(error).lower():  # how the engine passes Ctrl-C on
                raise KeyboardInterrupt from None
            raise
        finally:
            connection.close()


@contextmanager
def progress_bar(connection: duckdb.DuckDBPyConnection, what: str, *, wanted: bool) -> Iterator[None]:
    """Show how far the running step is, on standard error, when that is a terminal and it is wanted."""
    if not (wanted and sys.stderr.isatty()):
        yield
        return
    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    done = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=100.0)

        def watch() -> None:
            while not done.wait(0.2):
                bar.update(task, completed=max(connection.query_progress(), 0.0))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def sql_text(value: str) -> str:
    """A quoted SQL string."""
    return "'" + value.replace("'", "''") + "'"


def sql_name(value: str) -> str:
    """A quoted SQL identifier."""
    return '"' + value.replace('"', '""') + '"'
