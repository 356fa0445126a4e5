"""CPU time and memory of the needs of one model, for three sizes of request, on real models, GPU types and traffic.

Run: ``OMP_NUM_THREADS=1 python -m tests.benchmarks.needs [small] [medium] [large]``
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.catalog.load import Catalog, load_catalog
from planner.memory.types import KvDtype, WeightDtype
from planner.optimise.needs.candidates import candidate_needs
from planner.optimise.needs.columns import columns_of
from planner.optimise.pools.slices import slices_of
from planner.optimise.types import Period, Serving, Supply, Workload
from planner.request import ModelRequest, Policy, Routing, Targets, TrafficSource
from planner.speed.chain import load_sources
from planner.traffic.demand import DemandRates
from planner.traffic.source import load_traffic
from planner.traffic.types import Traffic

TRAFFIC = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
LOGS = ("AzureLLMInferenceTrace_conv.csv", "AzureLLMInferenceTrace_code.csv")
GPUS = (
    "H100-SXM", "A100-80GB-SXM", "L40S", "L4", "H200-SXM", "B200", "A100-40GB-SXM", "A10G", "RTX4090", "H100-PCIe",
    "A100-80GB-PCIe", "H100-NVL", "RTXA6000", "B300", "RTXPRO6000-Server",
)  # fmt: skip
"""GPU types of the catalogue's offers."""
MODELS = (
    ("meta-llama/Llama-3.1-8B-Instruct", ("bf16", "fp8"), Targets(tpot_ms=40, ttft_ms=2000)),
    ("meta-llama/Llama-3.1-70B-Instruct", ("bf16", "fp8", "int4-awq"), Targets(tpot_ms=60, ttft_ms=4000)),
    ("Qwen/Qwen3-32B", ("bf16", "fp8"), Targets(tpot_ms=60, ttft_ms=4000)),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", ("bf16", "fp8"), Targets(tpot_ms=50)),
    ("openai/gpt-oss-120b", ("mxfp4",), Targets(tpot_ms=50, ttft_ms=3000)),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ("bf16", "fp8"), Targets()),
)


@dataclass(frozen=True)
class Size:
    """How large a request is."""

    gpus: int
    bands: int
    periods: int


SIZES = {"small": Size(9, 6, 6), "medium": Size(13, 6, 12), "large": Size(15, 8, 12)}
"""20 models x 12 offers, 60 x 20 and 200 x 25: bands make 21, 21 and 36 slices of a model."""


def workload(catalog: Catalog, number: int, log: Traffic, size: Size) -> Workload:
    """One model with a rate of its own, as busy as a factor from 0.2 to 1 in each period."""
    rng = np.random.default_rng(number)
    weights, formats, targets = MODELS[number % len(MODELS)]
    rate = float(rng.uniform(2, 80))
    request = ModelRequest(
        name=f"m{number}", weights=weights, traffic=TrafficSource(path="none", rate_per_s=rate),
        weight_dtypes=tuple(WeightDtype(name) for name in formats), kv_dtypes=(KvDtype.BF16, KvDtype.FP8),
        targets=targets,
    )  # fmt: skip
    by_period = rate * rng.uniform(0.2, 1.0, size.periods)
    slices, end = slices_of(request, Routing(max_pools=3, bands=size.bands), log, {}, by_period, by_period * 0.8)
    return Workload(request, catalog.model_shape(weights), log, DemandRates(rate), slices, end)


def measure(name: str, models: int) -> None:
    """One line: CPU seconds of a model's needs and of its columns, how many there are, and the memory."""
    catalog, size = load_catalog(), SIZES[name]
    logs = [load_traffic(TRAFFIC / log, log_format="azure", model="", options={}, name=log) for log in LOGS]
    serving = Serving(catalog.engine("vllm", "0.33.0"), load_sources(catalog.root))
    gpus = [catalog.gpu(gpu) for gpu in GPUS[: size.gpus]]
    supplies = [Supply(f"{gpu.id} x8", gpu.id, 8) for gpu in gpus]
    periods = tuple(Period(f"p{number}", 2160.0 / size.periods) for number in range(size.periods))
    work = [workload(catalog, number, logs[number % len(logs)], size) for number in range(models)]
    kept, needs, columns = [], 0, 0
    times = {"needs": 0.0, "columns": 0.0}
    for each in work:
        begin = time.process_time()
        found = candidate_needs(each, gpus, serving, Policy(), periods)
        middle = time.process_time()
        made = columns_of(each, found.needs, 0, periods, supplies)
        times["needs"] += middle - begin
        times["columns"] += time.process_time() - middle
        kept.append((found, made))
        needs, columns = needs + len(found.needs), columns + len(made)
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name}: {models} models x {len(work[0].slices)} slices x {size.gpus} GPU types x {size.periods} periods: "
        f"{times['needs'] / models:.2f} CPU s a model for {needs / models:,.0f} needs, "
        f"{times['columns'] / models:.3f} for {columns / models:,.0f} columns; {peak_gib:.2f} GiB in all"
    )


def main() -> None:
    """Measure the sizes that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", default=sorted(SIZES), choices=[*SIZES, []])
    parser.add_argument("--models", type=int, default=len(MODELS))
    asked = parser.parse_args()
    for name in asked.sizes:
        measure(name, asked.models)


if __name__ == "__main__":
    main()
