"""What `planner ingest` costs beside the bare aggregation: ``python -m tests.benchmarks.ingest --rows 5e6 50e6``.

The log is synthetic: 8 models, 92 days, 9 columns, 2.5 % failed or answered from a cache; every value follows from the
number of its row, so the same rows come out everywhere. Each measurement is a process of its own: CPU seconds (user and
system, the start of Python included) and peak resident memory.

``bare``: two DuckDB queries, a joint histogram of four buckets per octave and hourly rates per model.
``same``: the tables of the product in plain SQL: eight buckets per octave with all sums and maxima, rates per minute,
counts per second, and stamps by how many requests share them; without tails, caps, peak period and resolution.
``ingest``: the command, from files to the canonical folder.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

DAYS, MODELS = 92, 8
MAPPING = (
    "timestamp=ts,prompt=prompt_tokens,output=output_tokens,model=model,cached=cached_tokens,status=status,"
    "cache_hit=cache_hit"
)
ENGINE = "SET threads = 2; SET memory_limit = '1GB'; SET preserve_insertion_order = false; SET TimeZone = 'UTC'"
KEPT = "status = 200 AND NOT cache_hit"


def write_log(rows: int, path: Path) -> None:
    """The synthetic log, as CSV or Parquet by its ending."""

    def uniform(stream: int) -> str:
        return f"(hash(i * 16 + {stream}) >> 11) / 9007199254740992.0"

    def normal(stream: int) -> str:
        return f"sqrt(-2 * ln(1 - {uniform(stream)})) * cos({2 * math.pi} * {uniform(stream + 1)})"

    kind = "CSV, HEADER" if path.suffix == ".csv" else "PARQUET, COMPRESSION zstd"
    step_us = DAYS * 86_400e6 / rows
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET memory_limit = '2GB'")
        connection.execute(f"""
            COPY (
                SELECT TIMESTAMP '2026-07-01'
                           + to_microseconds(CAST(i * {step_us} + {uniform(0)} * 20e6 AS BIGINT)) AS ts,
                       'model-' || CAST(floor({MODELS} * pow({uniform(1)}, 1.7)) AS INTEGER) AS model,
                       CAST(greatest(1, exp(6.5 + 1.2 * {normal(2)})) AS INTEGER) AS prompt_tokens,
                       CAST(greatest(0, exp(5.2 + 1.0 * {normal(4)})) AS INTEGER) AS output_tokens,
                       CAST(200 * {uniform(6)} AS INTEGER) AS cached_tokens,
                       CASE WHEN {uniform(7)} < 0.015 THEN 500 ELSE 200 END AS status,
                       {uniform(8)} < 0.01 AS cache_hit, 'default' AS class,
                       CAST(1000 * {uniform(9)} AS INTEGER) AS latency_ms
                FROM range({rows}) AS numbers(i)
            ) TO '{path}' (FORMAT {kind})
        """)


def bare(path: Path) -> None:
    """Joint histogram and hourly rates, nothing else."""
    _aggregate(
        path,
        "SELECT model, CAST(floor(4 * log2(greatest(prompt_tokens, 1)) + 1e-9) AS INTEGER) AS p, "
        "CAST(floor(4 * log2(greatest(output_tokens, 1)) + 1e-9) AS INTEGER) AS o, count(*), sum(prompt_tokens), "
        f"sum(output_tokens) FROM log WHERE {KEPT} GROUP BY ALL",
        "SELECT model, date_trunc('hour', ts) AS hour, count(*), sum(prompt_tokens), sum(output_tokens) "
        f"FROM log WHERE {KEPT} GROUP BY ALL",
    )


def same(path: Path) -> None:
    """The tables of the product, as far as plain SQL gets them in one query each."""
    _aggregate(
        path,
        "SELECT model, CAST(floor(8 * log2(greatest(prompt_tokens, 1)) + 1e-9) AS INTEGER) AS p, "
        "CAST(floor(8 * log2(greatest(output_tokens, 1)) + 1e-9) AS INTEGER) AS o, count(*), sum(prompt_tokens), "
        "sum(output_tokens), sum(cached_tokens), sum(CAST(prompt_tokens AS BIGINT) * prompt_tokens), "
        "sum(CAST(prompt_tokens AS BIGINT) * output_tokens), sum(CAST(output_tokens AS BIGINT) * output_tokens), "
        "max(prompt_tokens), max(output_tokens), max(prompt_tokens + output_tokens) "
        f"FROM log WHERE {KEPT} GROUP BY ALL",
        "SELECT model, epoch_us(ts) // 60000000 AS minute, count(*), sum(prompt_tokens), sum(output_tokens) "
        f"FROM log WHERE {KEPT} GROUP BY ALL",
        "SELECT model, max(n), sum(n * n) FROM (SELECT model, epoch_us(ts) // 1000000 AS second, count(*) AS n "
        "FROM log WHERE NOT cache_hit GROUP BY ALL) GROUP BY ALL",
        "SELECT model, n, count(*) FROM (SELECT model, ts, count(*) AS n FROM log WHERE NOT cache_hit GROUP BY ALL) "
        "GROUP BY ALL",
    )


def _aggregate(path: Path, *queries: str) -> None:
    source = f"read_csv('{path}')" if path.suffix == ".csv" else f"read_parquet('{path}')"
    with tempfile.TemporaryDirectory() as scratch, duckdb.connect(config={"temp_directory": scratch}) as connection:
        connection.execute(ENGINE)
        connection.execute(f"CREATE VIEW log AS SELECT * FROM {source}")
        for query in queries:
            connection.execute(query).fetchall()


def ingest(path: Path) -> None:
    """The command as people run it."""
    from planner.cli import main

    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["planner", "ingest", str(path), "-o", f"{folder}/out", "--map", MAPPING, "--json"]
        try:
            main()
        except SystemExit as stopped:
            if stopped.code:
                raise


CASES = {"bare": bare, "same": same, "ingest": ingest}


def measured(case: str, path: Path) -> dict[str, float]:
    """CPU seconds, peak memory in MB and wall seconds of one case in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.ingest", "--case", case, "--file", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _run_case(case: str, path: Path) -> None:
    started = time.monotonic()
    CASES[case](path)
    used = resource.getrusage(resource.RUSAGE_SELF)
    report = {
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_mb": used.ru_maxrss / 1024,
        "wall_s": time.monotonic() - started,
    }
    print(json.dumps(report))


def run(rows: list[int], formats: list[str], cases: list[str], folder: Path) -> None:
    """Measure, print a line per case, and remove the files."""
    per_row: dict[tuple[str, str], list[float]] = {}
    for kind in formats:
        for n in rows:
            path = folder / f"log-{n}.{kind}"
            try:
                write_log(n, path)
                found = {case: measured(case, path) for case in cases}
            finally:
                path.unlink(missing_ok=True)
            for case, figures in found.items():
                ratio = figures["cpu_s"] / found["bare"]["cpu_s"] if "bare" in found else math.nan
                per_row.setdefault((kind, case), []).append(figures["cpu_s"] / n)
                print(
                    f"{kind:8} {n:>11,} rows  {case:7} {figures['cpu_s']:8.2f} CPU s  {ratio:5.2f} x bare "
                    f"{figures['rss_mb']:7.0f} MB  {figures['wall_s']:7.1f} s wall",
                    flush=True,
                )
    for (kind, case), costs in per_row.items():
        if len(costs) > 1:
            print(
                f"{kind} {case}: CPU s per row grows {costs[-1] / costs[0]:.2f} x from {rows[0]:,} to {rows[-1]:,} rows"
            )


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[5e6, 50e6])
    parser.add_argument("--format", choices=("parquet", "csv"), nargs="+", default=["parquet"])
    parser.add_argument("--cases", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--folder", type=Path, help="where the logs are written (5 GB for 50 million rows of CSV)")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        _run_case(given.case, given.file)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        run([int(n) for n in given.rows], given.format, given.cases, Path(folder))


if __name__ == "__main__":
    main()
