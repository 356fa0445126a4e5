"""The same 2 million dirty rows through the engine and through Spark: identical tables, and what they cost.

Run: ``python -m tests.benchmarks.warehouse [ROWS]`` (2,000,000 without it). Needs the extra ``spark`` and Java 17.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from planner.traffic.ingest import Order, ingest
from planner.traffic.warehouse.ingest import ingest_table
from planner.traffic.warehouse.order import TableOrder
from tests.traffic.warehouse.dirty import ALIASES, MAPPING, SCHEMA, rows
from tests.traffic.warehouse.same import assert_same

CHUNK = 100_000
DAY_US = 86_400_000_000


def write(path: Path, n: int) -> None:
    """Chunks of two days each, one after the other, with request ids of their own."""
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for chunk in range(-(-n // CHUNK)):
            table = rows(min(CHUNK, n - chunk * CHUNK), seed=chunk)
            stamps = table["ts"].cast(pa.int64())
            later = pc.if_else(pc.less(stamps, 2 * 10**15), pc.add(stamps, 2 * chunk * DAY_US), stamps)
            table = table.set_column(0, SCHEMA.field("ts"), later.cast(SCHEMA.field("ts").type))
            for name in ("rid", "call"):
                place = SCHEMA.get_field_index(name)
                own = pc.binary_join_element_wise(table[name], str(chunk), "-")
                empty = pc.equal(table[name], "")
                table = table.set_column(place, name, pc.if_else(empty, table[name], own))
            writer.write_table(table.select(SCHEMA.names))


def timed(what: str, work):
    wall, cpu = time.perf_counter(), cpu_s()
    found = work()
    print(f"{what}: {time.perf_counter() - wall:.1f} s wall, {cpu_s() - cpu:.1f} s CPU", flush=True)
    return found


def cpu_s() -> float:
    """CPU seconds of this process and of Spark's Java process, where there is one."""
    spark = sys.modules.get("pyspark")
    gateway = spark.SparkContext._gateway if spark else None
    if gateway is None:
        return time.process_time()
    fields = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def main(n: int) -> None:
    """Print the figures; an `AssertionError` names the table that differs."""
    asked = {"mapping": MAPPING, "aliases": ALIASES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        timed("generator", lambda: write(path, n))
        print(f"{n:,} rows, {path.stat().st_size / 2**20:.0f} MiB of Parquet")
        of_file = timed("engine on the file", lambda: ingest(Order((path,), **asked)))
        on_duckdb = timed("Ibis on DuckDB", lambda: ingest_table(TableOrder("duckdb", str(path), **asked)))
        assert_same(on_duckdb, of_file)
        on_spark = timed(
            "Ibis on Spark local[2]", lambda: ingest_table(TableOrder("spark", str(path), "local[2]", **asked))
        )
    assert_same(on_spark, of_file)
    assert on_spark.manifest.files_sha256 == on_duckdb.manifest.files_sha256
    sizes = {name: table.num_rows for name, table in of_file.tables().items()}
    print(f"identical: {sizes}, kept {of_file.manifest.counts.kept:,} of {of_file.manifest.counts.rows_read:,}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"peak of this process {peak:.0f} MiB, without Spark's JVM")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
