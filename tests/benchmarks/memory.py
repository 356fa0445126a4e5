"""Sizings a second, and rows of a table a second, on one core: `python -m tests.benchmarks.memory`.

Wanted: 5,000 sizings of a plain model and 1,000 rows of a table. CPU seconds, so that other work on the machine does
not count; the whole command, with start-up, reading the catalogue and every model's config for the first time.
"""

from __future__ import annotations

import csv
import io
import lzma
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from planner.catalog.load import load_catalog
from planner.memory.size import size
from planner.memory.types import Deployment, KvDtype, WeightDtype

DATA = Path(__file__).parents[1] / "data" / "memory"
SIZINGS = 5000
ROWS = 10_000


def sizings() -> None:
    """The same model at thousands of lengths, as an optimiser asks."""
    catalog = load_catalog()
    gpu, facts = catalog.gpu("H100-SXM"), catalog.engine("vllm", "0.33.0")
    for model in ("meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct"):
        shape = catalog.model_shape(model)
        deployment = Deployment(4, WeightDtype.BF16, KvDtype.BF16)
        began = time.process_time()
        for length in range(1024, 1024 + SIZINGS):
            size(shape, gpu, facts, replace(deployment, max_model_len=length))
        took = time.process_time() - began
        print(f"{model}: {SIZINGS:,} sizings in {took:.2f} CPU s, {SIZINGS / took:,.0f} a second")


def table(name: str, text: str, *options: str) -> None:
    """A table through the command, its rows repeated until there are enough."""
    rows = list(csv.reader(io.StringIO(text)))
    head, body = rows[0], rows[1:]
    repeated = (body * (ROWS // len(body) + 1))[:ROWS]
    with tempfile.TemporaryDirectory() as folder:
        cases, answers = Path(folder) / "cases.csv", Path(folder) / "answers.csv"
        with cases.open("w", newline="") as file:
            csv.writer(file).writerows([head, *repeated])
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "planner", "size", "--cases", str(cases), "-o", str(answers), *options]
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak_mib = after.ru_maxrss / 1024
    print(f"{name}: {ROWS:,} rows in {took:.1f} CPU s, {ROWS / took:,.0f} a second, peak {peak_mib:,.0f} MiB")


if __name__ == "__main__":
    sizings()
    table("start-up logs", (DATA / "public_starts.csv").read_text())
    table("weights", lzma.decompress((DATA / "vllm_weights.csv.xz").read_bytes()).decode())
