"""What `planner actuals` costs: ``python -m tests.benchmarks.actuals --rows 1e6 10e6``.

The log is that of `tests.benchmarks.ingest` (8 models, 92 days, 2.5 % failed or answered from a cache); the plan is
made by hand: 4 replicas of every model by day and 2 by night, in Berlin's time. Each measurement is its own process:
CPU seconds (user and system, the start of Python included) and peak resident memory.

``replay``: only the replay of as many requests of one model that are in memory an hour at a time.
``command``: the command, from a Parquet file to the JSON.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from planner.actuals.replay import Replayed, replay
from planner.actuals.route import routing_of
from planner.actuals.store import Part
from planner.actuals.timetable import horizon_of, pieces_of, timetable_of
from planner.plan import FleetPlan, plan_to_json
from planner.traffic.grid import Span
from tests.actuals.plans import Spec, plan_of
from tests.benchmarks.ingest import DAYS, MAPPING, MODELS, write_log

START = dt.date(2026, 7, 1)
HOUR_US = 3_600_000_000
DAY_HOURS, NIGHT_HOURS = DAYS * 12.0, DAYS * 12.0


def plan() -> FleetPlan:
    """Every model alike, with a pool that is full now and then."""
    specs = [
        Spec(
            f"model-{n}", f"model-{n}", (0.1, 0.2), (2, 4), prompt=1300.0, output=300.0, max_model_len=16_384,
            pool_tokens=60_000, ttft_s=0.5, decode_per_s=40.0,
        )
        for n in range(MODELS)
    ]  # fmt: skip
    periods = [(NIGHT_HOURS, "Mon-Sun 00-08+20-24"), (DAY_HOURS, "Mon-Sun 08-20")]
    return plan_of(specs, START, START + dt.timedelta(days=DAYS), periods=periods, zone="Europe/Berlin")


class Hours:
    """Requests of one model, made an hour at a time."""

    def __init__(self, rows: int, horizon: Span) -> None:
        self._rows, self._horizon = rows, horizon

    def parts(self, _: str) -> Iterator[Part]:
        """The horizon in order."""
        rng = np.random.default_rng(0)
        hours = (self._horizon.end_us - self._horizon.start_us) // HOUR_US
        sizes = np.diff(np.linspace(0, self._rows, hours + 1).astype(np.int64))
        for hour, size in enumerate(sizes.tolist()):
            start = self._horizon.start_us + hour * HOUR_US
            prompt = np.exp(6.5 + 1.2 * rng.standard_normal(size)).astype(np.int64) + 1
            output = np.exp(5.2 + rng.standard_normal(size)).astype(np.int64)
            ts_us = np.sort(rng.integers(start, start + HOUR_US, size))
            yield Part(Span(start, start + HOUR_US), ts_us, prompt, output, np.zeros(size, dtype=np.int64))


def replayed(rows: int) -> Replayed:
    """The replay alone."""
    made = plan()
    horizon, model = horizon_of(made), made.pools[0].model
    pieces = pieces_of(timetable_of(made), (horizon,))
    return replay(Hours(rows, horizon), model, made.pools[:1], routing_of(made, model), pieces)  # type: ignore[arg-type]


def command(folder: Path, path: Path) -> None:
    """The command as people run it."""
    from planner.cli import main as planner

    (folder / "plan.json").write_text(plan_to_json(plan()), encoding="utf-8")
    target = folder / "actuals.json"
    sys.argv = ["planner", "actuals", str(folder), str(path), "--map", MAPPING, "-o", str(target)]
    try:
        planner()
    except SystemExit as stopped:
        if stopped.code:
            raise


def run_case(case: str, rows: int, path: Path) -> None:
    """One measurement, printed as JSON."""
    started = time.monotonic()
    if case == "replay":
        print(replayed(rows).pools[0].overflow)
    else:
        with tempfile.TemporaryDirectory() as folder:
            command(Path(folder), path)
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"cpu_s": used.ru_utime + used.ru_stime, "rss_mb": used.ru_maxrss / 1024}
    print(json.dumps(figures | {"wall_s": time.monotonic() - started}))


def measured(case: str, rows: int, path: Path) -> dict[str, float]:
    """One case in a process of its own."""
    arguments = ["--case", case, "--rows", str(rows), "--file", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.actuals", *arguments], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 10e6])
    parser.add_argument("--folder", type=Path, help="where the logs are written (0.3 GB for 10 million rows)")
    parser.add_argument("--case", choices=("replay", "command"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        run_case(given.case, int(given.rows[0]), given.file)
        return
    for rows in (int(n) for n in given.rows):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            path = Path(folder) / "log.parquet"
            write_log(rows, path)
            for case in ("replay", "command"):
                found = measured(case, rows, path)
                print(
                    f"{rows:>11,} requests  {case:8} {found['cpu_s']:7.1f} CPU s  {found['rss_mb']:6.0f} MB  "
                    f"{found['wall_s']:7.1f} s wall",
                    flush=True,
                )


if __name__ == "__main__":
    main()
