"""Spark for real: a local session of two threads gives the tables that DuckDB gives."""

from __future__ import annotations

import os
import shutil

import pytest

from planner.traffic.ingest import Order, ingest
from planner.traffic.warehouse.ingest import ingest_table
from planner.traffic.warehouse.order import TableOrder

from .dirty import ALIASES, MAPPING, rows, saved
from .same import assert_same

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'planner[spark]'")
pytestmark = [
    pytest.mark.skipif(
        shutil.which("java") is None and not os.environ.get("JAVA_HOME"), reason="Spark needs Java 17, none was found"
    ),
    pytest.mark.filterwarnings("ignore"),  # those of Spark, its bridge to Java and pandas are not ours
]
ROWS = 20_000


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    path = saved(rows(ROWS, seed=7), tmp_path_factory.mktemp("spark") / "rows.parquet")
    asked = {"mapping": MAPPING, "aliases": ALIASES}
    on_spark = ingest_table(TableOrder("spark", str(path), "local[2]", **asked))
    yield on_spark, ingest(Order((path,), **asked)), ingest_table(TableOrder("duckdb", str(path), **asked))
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def test_spark_and_the_engine_give_identical_tables(both):
    on_spark, of_file, _ = both
    assert on_spark.manifest.counts.rows_read == ROWS
    assert_same(on_spark, of_file)


def test_every_answer_of_spark_is_that_of_duckdb(both):
    on_spark, _, on_duckdb = both
    assert on_spark.manifest.files_sha256 == on_duckdb.manifest.files_sha256
