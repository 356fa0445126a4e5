"""Requests a second of the replay: CPU seconds, wall seconds and peak memory.

OMP_NUM_THREADS=1 python -m tests.benchmarks.replay [--requests 10000000] [--replicas 50] [--load 0.8]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import time
from pathlib import Path

import numpy as np

from planner.catalog.load import load_catalog
from planner.plan_file import plan_at
from planner.replay.engines import engines_of
from planner.replay.pool import replay_pool
from planner.replay.trace import Source, at_rate, read_trace
from planner.replay.types import Fate

ROOT = Path(__file__).parents[2]
MODEL = "chat-large"
LOG = ROOT / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_conv.csv"


def main() -> None:
    """Print one run: the example's 70B pool with the Azure conversations, at a share of its planned rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--replicas", type=int, default=50)
    parser.add_argument("--load", type=float, default=0.8, help="of the planned rate of a replica")
    asked = parser.parse_args()
    each = next(e for e in engines_of(plan_at(ROOT / "reports" / "example"), load_catalog()) if e.pool.model == MODEL)
    trace = read_trace(Source(LOG, "azure"))
    rate = asked.load * each.pool.load.rate_per_replica_per_s * asked.replicas
    horizon_s = asked.requests / rate
    replay_pool(at_rate(trace, rate, 60.0, 0), each.engine, asked.replicas, 60.0)  # compiled before the clock starts
    wall, cpu = time.monotonic(), time.process_time()
    requests = at_rate(trace, rate, horizon_s, 0)
    found = replay_pool(requests, each.engine, asked.replicas, horizon_s)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ended = np.bincount(found.fate, minlength=len(Fate))
    digest = hashlib.sha256(found.end_s.tobytes()).hexdigest()[:12]
    print(f"{len(requests):,} requests over {asked.replicas} replicas, {horizon_s / 3600:.1f} h of traffic")
    print(f"wall {time.monotonic() - wall:.1f} s, CPU {time.process_time() - cpu:.1f} s, peak {peak:,.0f} MiB")
    print(f"served {ended[Fate.SERVED]:,}, unfinished {ended[Fate.UNFINISHED]:,}, sha256 of ends {digest}")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
