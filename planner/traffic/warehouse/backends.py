"""Warehouses and clusters that can be asked, what each needs installed, and how one is reached."""

from __future__ import annotations

import difflib
import importlib.util
import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from planner.errors import InputError, Problem
from planner.traffic.warehouse.address import asked, shown


@dataclass(frozen=True)
class Backend:
    """One kind of warehouse."""

    name: str
    dialect: str
    """As Ibis calls it where nothing is connected."""
    driver: str
    """Module that must be installed."""
    example: str
    """What ``--connect`` looks like."""
    keeps_rows: bool = False
    """Whether the judged rows are kept for the length of the run, so that the table is read once."""
    reads_files: bool = False
    """Whether the table may be a path of Parquet files."""


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("bigquery", "bigquery", "google.cloud.bigquery", "bigquery://PROJECT/DATASET"),
        Backend(
            "clickhouse", "clickhouse", "clickhouse_connect", "clickhouse://USER:PASSWORD@HOST:8443/DATABASE?secure=1"
        ),
        Backend(
            "databricks", "databricks", "databricks.sql", "databricks://SERVER_HOSTNAME/HTTP_PATH?access_token=TOKEN"
        ),
        Backend("duckdb", "duckdb", "duckdb", "FILE.duckdb, or nothing for Parquet files", True, True),
        Backend("postgres", "postgres", "psycopg", "postgres://USER:PASSWORD@HOST:5432/DATABASE"),
        Backend(
            "snowflake",
            "snowflake",
            "snowflake.connector",
            "snowflake://USER:PASSWORD@ACCOUNT/DATABASE/SCHEMA?warehouse=NAME",
        ),
        Backend("spark", "databricks", "pyspark", "local[*], spark://HOST:7077 or sc://HOST:15002", True, True),
        Backend("trino", "trino", "trino", "trino://USER:PASSWORD@HOST:8443/CATALOG/SCHEMA"),
    )
}


def find_backend(name: str) -> Backend:
    """The backend of that name, if Ibis is installed.

    Raises
    ------
    InputError
        If there is none, or Ibis is not installed.
    """
    if name not in BACKENDS:
        close = difflib.get_close_matches(name, BACKENDS, n=1)
        fix = f"Did you mean '{close[0]}'?" if close else f"Use one of: {', '.join(BACKENDS)}"
        raise InputError(Problem("--backend", f"'{name}' is not a backend", fix))
    if not _installed("ibis"):
        raise InputError(Problem(f"--backend {name}", "needs Ibis, which is not installed", _install("warehouse")))
    return BACKENDS[name]


def _install(extra: str) -> str:
    return f"Run: pip install 'planner[{extra}]'"


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it is missing
        return False


@contextmanager
def connected(backend: Backend, url: str) -> Iterator[Any]:
    """An Ibis connection whose session counts time in UTC; closed however the block ends.

    Raises
    ------
    InputError
        If the driver is not installed or the connection is refused; passwords are left out of the message.
    """
    where = f"--backend {backend.name}"
    if not _installed(backend.driver):
        raise InputError(Problem(where, f"needs {backend.driver}, which is not installed", _install(backend.name)))
    with asked(where, url, f"cannot connect to {shown(url) or 'it'}", f"--connect looks like {backend.example}"):
        connection = _CONNECT.get(backend.name, _by_url)(backend, url)
    try:
        yield connection
    finally:
        connection.disconnect()


def _by_url(backend: Backend, url: str) -> Any:
    import ibis  # noqa: PLC0415  an optional package

    if not url:
        return getattr(ibis, backend.dialect).connect()
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES.get(backend.name, (backend.name,)):
        raise ValueError(f"the address begins with '{scheme}://'")
    return ibis.connect(url)


_SCHEMES = {"postgres": ("postgres", "postgresql")}


def _duckdb(backend: Backend, url: str) -> Any:
    import ibis  # noqa: PLC0415  an optional package

    path = url.removeprefix("duckdb://")
    connection = ibis.duckdb.connect(path, read_only=True) if path else ibis.duckdb.connect()
    connection.raw_sql("SET TimeZone = 'UTC'")
    return connection


def _spark(backend: Backend, url: str) -> Any:
    """A session as the surroundings (``spark-submit``, ``SPARK_HOME``) configure it, or of the given master."""
    import ibis  # noqa: PLC0415  an optional package
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder: Any = SparkSession.builder.appName("planner")
    if url.startswith("sc://"):
        builder = builder.remote(url)
    elif url:
        builder = builder.master(url)
    if url.startswith("local"):
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    session = builder.getOrCreate()
    if not url.startswith("sc://"):
        session.sparkContext.setLogLevel("ERROR")
    if url.startswith("local"):
        session.conf.set("spark.sql.shuffle.partitions", str(session.sparkContext.defaultParallelism))
    session.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    return ibis.pyspark.connect(session)


_CONNECT: dict[str, Callable[[Backend, str], Any]] = {"duckdb": _duckdb, "spark": _spark}


def open_table(backend: Backend, connection: Any, url: str, name: str) -> Any:
    """The table of that name, as ``table``, ``schema.table`` or ``catalog.schema.table``, or Parquet files.

    Raises
    ------
    InputError
        If there is none, or it may not be read.
    """
    if backend.reads_files and ("/" in name or name.endswith(".parquet")):
        with asked(name, url, "cannot be read as Parquet", "Give the path of a Parquet file, folder or pattern"):
            return connection.read_parquet(name)
    *database, table = name.split(".")
    if not table or len(database) > 2 or not all(database):
        raise InputError(Problem(name, "is no name of a table", "Write table, schema.table or catalog.schema.table"))
    fix = "Write it as table, schema.table or catalog.schema.table, and check that you may read it"
    with asked(name, url, "no such table can be read", _close(connection, table) or fix):
        return connection.table(table, database=tuple(database) or None)


def _close(connection: Any, table: str) -> str:
    """A table of a like name, where the backend lists any."""
    try:
        names = connection.list_tables()
    except Exception:
        return ""  # only a hint is lost; the table itself is asked for next
    close = difflib.get_close_matches(table, names, n=1)
    return f"Did you mean '{close[0]}'?" if close and close[0] != table else ""


@contextmanager
def kept_rows(backend: Backend, connection: Any, rows: Any) -> Iterator[Any]:
    """The judged rows for the length of the block: computed once, where the backend keeps them for its session."""
    if not backend.keeps_rows:
        yield rows
    elif backend.name == "duckdb":  # what `cache` made there cannot be released (Ibis 12.0)
        yield connection.create_table(f"planner_judged_{uuid.uuid4().hex}", rows, temp=True)
    else:
        held = rows.cache()
        try:
            yield held
        finally:
            held.release()
