"""Spark for real: a local session of two threads gives the tables that the engine for files gives."""

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
QUICK_START = "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
"""A short run does not earn back what the optimising compiler costs: half the CPU time."""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return saved(rows(ROWS, seed=7), tmp_path_factory.mktemp("spark") / "rows.parquet")


@pytest.fixture(scope="module")
def on_spark(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", QUICK_START)
        return ingest_table(TableOrder("spark", str(path), "local[2]", mapping=MAPPING, aliases=ALIASES))


def test_spark_and_the_engine_give_identical_tables(on_spark, path):
    assert on_spark.manifest.counts.rows_read == ROWS
    assert_same(on_spark, ingest(Order((path,), mapping=MAPPING, aliases=ALIASES)))


def test_every_answer_of_spark_is_that_of_duckdb(on_spark, path):
    on_duckdb = ingest_table(TableOrder("duckdb", str(path), mapping=MAPPING, aliases=ALIASES))
    assert on_spark.manifest.files_sha256 == on_duckdb.manifest.files_sha256
