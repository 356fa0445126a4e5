"""The embedded engine: one DuckDB connection with its own scratch folder."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from planner.traffic.storage.engine import register
from planner.traffic.storage.files import LogFile, RemoteFile

THREADS: int | None = None
"""Threads of the engine; none: all cores."""
STAGED_SQL = """
CREATE TABLE staged (
    model VARCHAR, traffic_class VARCHAR, ts_us BIGINT, prompt INTEGER, output INTEGER, cached INTEGER,
    id_hash UBIGINT, rank BIGINT, verdict UTINYINT, adjusted USMALLINT, logical_hash UBIGINT
)
"""
"""Every row of the log in a few bytes: ``verdict`` is null when kept, else the code of the rule that dropped it."""


@contextmanager
def connect(time_zone: str = "UTC", files: Iterable[LogFile] = ()) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with an empty ``staged`` table; its scratch file is removed however the block ends.

    Naive time stamps are read in ``time_zone``; everything stored is UTC. Nothing is fetched from the network but
    the remote ones of ``files``.
    """
    with tempfile.TemporaryDirectory(prefix="planner-ingest-", ignore_cleanup_errors=True) as scratch:
        connection = duckdb.connect(
            str(Path(scratch) / "scratch.duckdb"),
            config={
                "temp_directory": scratch,
                "memory_limit": "1GB",
                "threads": str(THREADS or os.cpu_count() or 1),
                "autoinstall_known_extensions": "false",
                "preserve_insertion_order": "false",
            },
        )
        try:
            connection.execute("SET enable_progress_bar = false")
            connection.execute(f"SET TimeZone = '{time_zone}'")
            connection.execute(STAGED_SQL)
            register(connection, files)
            yield connection
        except (RuntimeError, duckdb.InterruptException) as error:
            if "interrupt" in str(error).lower():  # how the engine passes Ctrl-C on
                raise KeyboardInterrupt from None
            raise
        finally:
            connection.close()


def sql_text(value: str) -> str:
    """A quoted SQL string."""
    return "'" + value.replace("'", "''") + "'"


def sql_file(path: LogFile) -> str:
    """The name of a file as a quoted SQL string: the engine would take ``*``, ``?`` and ``[`` in it for a pattern."""
    return sql_text(path.engine_path if isinstance(path, RemoteFile) else glob.escape(str(path)))


def sql_name(value: str) -> str:
    """A quoted SQL identifier."""
    return '"' + value.replace('"', '""') + '"'
