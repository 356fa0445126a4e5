"""Models, GPUs and flags beyond those of the planning rows: what SGLang's own code answered, run on a CPU.

Flags were drawn at random. The engine's argument resolution, model config and pool configurator ran as they are;
free memory, GPU identity and kernels were given.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator

from planner.catalog.load import Catalog
from planner.errors import InputError
from planner.memory.sglang.plan import FreeMemory, Plan, plan_sglang
from planner.memory.types import Deployment, KvDtype, SglangFlags, WeightDtype

from .conftest import DATA

Row = dict[str, str]


def rows() -> Iterator[Row]:
    with gzip.open(DATA / "sglang_engine_runs.csv.gz", "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def deployment_of(row: Row) -> Deployment:
    given = dict(part.split("=", 1) for part in row["arguments"].split())

    def count(name: str) -> int | None:
        return int(given[name]) if name in given else None

    def share(name: str) -> float | None:
        return float(given[name]) if name in given else None

    chunk = count("chunked_prefill_size")
    return Deployment(
        tp=int(given["tp_size"]),
        weight_dtype=WeightDtype.BF16,
        kv_dtype=KvDtype.BF16,
        kv_cache_dtype_name=given.get("kv_cache_dtype", "auto"),
        max_model_len=count("context_length"),
        max_num_seqs=count("max_running_requests"),
        max_num_batched_tokens=chunk if chunk is not None and chunk > 0 else None,
        gpu_memory_utilization=share("mem_fraction_static"),
        attention_dp=count("dp_size") or 1,
        enforce_eager="disable_cuda_graph" in given,
        prefix_caching=False if "disable_radix_cache" in given else None,
        sglang=SglangFlags(
            page_size_tokens=count("page_size"),
            chunked_prefill=chunk != -1,
            disable_overlap_schedule="disable_overlap_schedule" in given,
            max_total_tokens=count("max_total_tokens"),
            swa_full_tokens_ratio=share("swa_full_tokens_ratio"),
            mamba_full_memory_ratio=share("mamba_full_memory_ratio"),
            mamba_ssm_dtype=given.get("mamba_ssm_dtype"),
            max_mamba_cache_size=count("max_mamba_cache_size"),
            enable_multimodal="enable_multimodal" in given,
            language_only="language_only" in given,
            attention_backend=given.get("attention_backend", ""),
            unified_memory="enable_unified_memory" in given,
            cuda_graph_max_batch=count("cuda_graph_max_bs_decode"),
        ),
    )


def differences(row: Row, plan: Plan) -> list[str]:
    """Names of the figures that differ; pools of DeepSeek-V4 have no single cell."""
    figures: list[tuple[str, float | None]] = [
        ("fraction", plan.fraction),
        ("rest", plan.rest_bytes),
        ("page", plan.server.page_tokens),
        ("cell", plan.cells.cell if not plan.server.compressed else None),
        ("tokens", plan.pools.tokens),
        ("full", plan.pools.full_tokens),
        ("swa", plan.pools.sliding_tokens),
        ("running", plan.max_running),
        ("slots", plan.states.slots if plan.states else None),
    ]
    return [
        f"{name}: {got} for {row[name]}"
        for name, got in figures
        if (got is None) != (row[name] == "") or (got is not None and abs(got - float(row[name])) > 1e-6)
    ]


def test_every_run(catalog: Catalog) -> None:
    base, checked = catalog.gpu("H100-SXM"), Counter[str]()
    wrong: list[tuple[str, str, list[str]]] = []
    for row in rows():
        try:
            shape = catalog.model_shape(row["hf_id"])
        except InputError:
            checked["unread"] += 1
            continue
        gpu = base.model_copy(
            update={"memory_driver_mib": int(row["gpu_mem_mib"]), "compute_capability": row["gpu_cc"]}
        )
        facts = catalog.engine("sglang", row["version"])
        free = FreeMemory(float(row["free_before_gib"]), float(row["free_after_gib"]))
        plan = plan_sglang(shape, facts, gpu, deployment_of(row), float(row["gpu_mem_mib"]), None, free)
        checked[row["version"]] += 1
        if found := [refusal.message for refusal in plan.refusals] or differences(row, plan):
            wrong.append((row["hf_id"], row["arguments"], found))
    assert wrong == []
    assert checked["unread"] <= 10
    assert checked["0.5.23"] >= 1_300
    assert checked["0.5.16"] >= 290
