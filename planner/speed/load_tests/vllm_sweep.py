"""Results of ``vllm bench sweep serve`` (vllm/benchmarks/sweep/serve.py, vLLM 0.33.0).

A run's file is that of ``vllm bench serve`` with ``run_number`` and the overrides of server and client beside it, whose
names are written with ``_`` or ``-``. ``warmup.json`` has the run number −1. ``summary.json`` lists the runs of its
folder again, and ``summary.csv`` those of the experiment; ``*.failure.json`` says why a run has no file.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from planner.errors import InputError, Problem
from planner.speed.load_tests import vllm_bench
from planner.speed.load_tests.collect import collect, merged
from planner.speed.load_tests.document import AGAIN, head_of, json_objects
from planner.speed.load_tests.types import Findings, Format, Head, Rejected, Run

NAME = "vllm-sweep"
WARM_UP = "warm-up runs"
_CSV_HEADER = re.compile(r"(?:^|,)run_number(?:,|$)")


def matches(head: Head) -> bool:
    """Whether it is a run of a sweep, the record of one that failed, or the table of all."""
    if {"run_number", "num_prompts"} <= head.keys or {"error_type", "serve_overrides"} <= head.keys:
        return True
    header = head.text.partition("\n")[0].strip().replace('"', "")
    return (
        "request_throughput" in header and bool(_CSV_HEADER.search(header)) and not head.text.lstrip().startswith("{")
    )


def read(path: Path) -> Findings:
    """The runs of a file; warm-ups are counted, failures are rejected with the engine's own words."""
    objects = list(json_objects(path) if _is_json(path) else _rows(path))
    warm_ups = [place for place, data in objects if data.get("run_number") == -1]
    failures = [
        Rejected(place, f"the run failed: {data.get('error_type')}: {data.get('error')!s:.200}")
        for place, data in objects
        if "error_type" in data
    ]
    apart = {*warm_ups, *(failure.place for failure in failures)}
    runs = collect(((place, data) for place, data in objects if place not in apart), _parse)
    skipped = {WARM_UP: len(warm_ups)} if warm_ups else {}
    return merged([runs, Findings((), tuple(failures), skipped)])


def _parse(data: Mapping[str, object], place: str) -> Run:
    run = vllm_bench.parse(data, place, NAME)
    return run if "engine" in run.stated else _on_vllm(run)


def _on_vllm(run: Run) -> Run:
    """A sweep starts ``vllm serve`` itself, whatever protocol its client speaks."""
    return replace(run, stated={**run.stated, "engine": "vllm"})


def _is_json(path: Path) -> bool:
    return head_of(path).text.lstrip().startswith(("{", "["))


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.DictReader(file, strict=True), start=2):
                cells = {name: _value(cell) for name, cell in row.items() if name and cell}
                yield f"{path}, row {number}", cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(str(path), f"cannot be read as CSV: {error}", AGAIN)) from error


def _value(cell: str) -> object:
    """A figure where the cell is one; pandas writes missing values as empty cells and keeps ``inf`` as it is."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    if not math.isfinite(number):
        return cell
    return int(number) if number.is_integer() and "." not in cell and "e" not in cell.lower() else number


FORMAT = Format(NAME, matches, read)
