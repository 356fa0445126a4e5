"""The cheapest fleet for load tables, against CBC's cost and CPU time: figures, nothing fails.

    python -m tests.benchmarks.load_table [FOLDER]

FOLDER holds tables and their results.json (tests/data/melange is the default); generated tables that are larger follow.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from planner.optimise.load_table.fleet import solve_load_table
from planner.optimise.load_table.table import LoadTable, load_table, read_load_table
from planner.optimise.types import SolverSettings

MELANGE = Path(__file__).parents[1] / "data" / "melange"
SETTINGS = SolverSettings("highs", 1e-4, 60.0, 1, 0)
SIZES = ((400, 8, 400.0), (1600, 12, 400.0), (6400, 16, 100.0), (10000, 24, 1000.0))
NOISE = 0.05
"""Spread of the logarithm of a throughput about its law."""


def generated(seed: int, buckets: int, types: int, rate: float) -> LoadTable:
    """A table whose throughputs fall with the lengths, by the speed and memory of a type; prices follow its size."""
    rng = np.random.default_rng(seed)
    side = round(buckets**0.5)
    prompt, output = np.geomspace(32, 32000, side)[:, None], np.geomspace(16, 4000, side)[None, :]
    share = rng.dirichlet(np.ones(side * side)).reshape(side, side)
    gpus = {}
    for g in range(types):
        size = 1.5**g if types <= 12 else 1.25**g
        compute, memory = size * rng.uniform(0.7, 1.3, 2)
        seconds = prompt / (compute * 1e5) + output * (prompt + output / 2) / (memory * 1e8)
        most = np.exp(rng.normal(0, NOISE, seconds.shape)) / seconds
        gpus[f"gpu{g:02}"] = {"cost": round(size, 2), "tputs": most.tolist()}
    return load_table(
        {"gpu_info": gpus, "workload_distribution": share.tolist(), "total_request_rate": rate}, "generated"
    )


def row(name: str, table: LoadTable, cbc_usd: float | None, cbc_cpu_s: float | None) -> float | None:
    """Print one line; the ratio of CPU times where CBC's is known."""
    begun = time.process_time()
    fleet = solve_load_table(table, SETTINGS)
    cpu_s = time.process_time() - begun
    ratio = None if cbc_cpu_s is None else cbc_cpu_s / cpu_s
    cells = [name, f"{fleet.usd_per_h:.2f}", "" if cbc_usd is None else f"{cbc_usd:.2f}", f"{100 * fleet.gap:.4f} %"]
    print("| " + " | ".join([*cells, f"{cpu_s:.3f}", "" if ratio is None else f"{ratio:.0f}"]) + " |", flush=True)
    return ratio


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else MELANGE
    print("| instance | USD/h | CBC, USD/h | gap | CPU s | CBC's CPU s ÷ ours |\n|---|---|---|---|---|---|")
    ratios = []
    for result in json.loads((folder / "results.json").read_text()):
        table = read_load_table(folder / f"{result['name']}.json")
        ratios.append(row(result["name"], table, result["cost"], result["cbc_cpu_s"]))
    for seed, (buckets, types, rate) in enumerate(SIZES):
        row(
            f"generated: {buckets} buckets, {types} types, {rate:g}/s",
            generated(seed, buckets, types, rate),
            None,
            None,
        )
    print(f"\nMedian ratio of CPU times: {median(r for r in ratios if r is not None):.0f}")


if __name__ == "__main__":
    main()
