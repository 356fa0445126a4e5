"""Rows of a table of speeds a second, on one core: `python -m tests.benchmarks.speed_cases FILE...`.

Wanted: 10,000 rows in seconds. CPU seconds, so that other work on the machine does not count; the whole command, with
start-up, reading the catalogue and every model's config for the first time. Without a file, a table of 2,000 different
deployments and 10,000 different loads is made up; with one, its rows are repeated until there are enough.
"""

from __future__ import annotations

import csv
import itertools
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = 10_000
HEADER = ("id", "engine", "version", "model", "system", "precision", "isl", "osl", "tp", "concurrency", "mode")
MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "meta-llama/Llama-3.1-70B",
    "Qwen/Qwen3-32B",
    "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-R1",
    "MiniMaxAI/MiniMax-M2.5",
    "zhipuai/GLM-5",
    "Qwen/Qwen3.5-397B-A17B",
)
SYSTEMS = ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300", "MI300X", "MI355X")
ENGINES = (("vllm", "0.19.0"), ("vllm", "0.12.0"), ("sglang", "0.5.9"), ("trtllm", "1.2.0"))


def made_up() -> list[tuple[str, ...]]:
    """Rows that repeat nothing but their names."""
    deployments = itertools.product(MODELS, SYSTEMS, ENGINES, ("fp8", "fp4"), ("2", "4", "8", "16"))
    cycle = itertools.cycle(deployments)
    rows = []
    for number, (model, system, (engine, version), precision, tp) in zip(range(ROWS), cycle, strict=False):
        lengths = (str(100 + number % 8000), str(50 + number % 1000))
        load = str(1 + number % 512)
        rows.append((str(number), engine, version, model, system, precision, *lengths, tp, load, "agg"))
    return rows


def measure(name: str, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """The command on a table, in CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        cases, answers = Path(folder) / "cases.csv", Path(folder) / "answers.csv"
        with cases.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "planner", "speed", "--cases", str(cases), "-o", str(answers)]
        done = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().rsplit(", ", 1)[-1]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    speed = f"{took:.1f} CPU s, {len(rows) / took:,.0f} a second"
    print(f"{name}: {len(rows):,} rows, {done}, in {speed}, peak {after.ru_maxrss / 1024:,.0f} MiB")


def main() -> None:
    """The made-up table, or those that are named."""
    if not sys.argv[1:]:
        measure("made up", HEADER, made_up())
    for path in map(Path, sys.argv[1:]):
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = (tuple(cells) for cells in csv.reader(file))
        measure(path.name, header, (rows * (ROWS // len(rows) + 1))[:ROWS])


if __name__ == "__main__":
    main()
