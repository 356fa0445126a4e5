"""Every figure that SGLang 0.5.23's own planning code computed, row by row.

Rows of models whose config the catalogue lacks, or whose family is not read, are left out and named. Two groups of rows
were computed in a process in which an earlier run had changed the environment, and one model's config states another
context: they are compared under what the process had, and named here.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from functools import cache

import pytest

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError
from planner.memory.rules import start_rules
from planner.memory.sglang.plan import FreeMemory, Plan, plan_sglang
from planner.memory.types import Deployment, KvDtype, SglangFlags, Speculative, WeightDtype

from .conftest import DATA

Row = dict[str, str]

STATE_DTYPE_LEFT_FROM = 7477
"""Rows of group E from this id on ran with SGLANG_MAMBA_SSM_DTYPE=bfloat16, left by the first --mamba-ssm-dtype row."""
TRANSFER_LEFT = ("Qwen/Qwen3.5-122B-A10B", "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.5-397B-A17B")
"""Ran after Qwen3-VL in one process, with SGLANG_USE_CUDA_IPC_TRANSPORT=1 and SGLANG_VLM_CACHE_SIZE_MB=0 left by it:
1,024 MiB are kept back for images instead of 100, as the same architecture shows from another process."""
OTHER_CONTEXT = {"google/gemma-3-4b-it": 163_840}
"""Its config was put together from elsewhere and states another longest context than the model's own."""
UNLIKE_THE_ENGINE = ("sgl-project/DeepSeek-V4-Pro-FP8",)
"""Its config class was put together by hand and lacks an attribute that the engine's has: every row stops there."""


STORED = frozenset(WeightDtype)


def rows() -> Iterator[Row]:
    with gzip.open(DATA / "sglang_oracle.csv.gz", "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def flags_of(text: str) -> dict[str, str]:
    return dict(part.removeprefix("--").split("=", 1) for part in text.split())


def deployment_of(row: Row, shape: ModelShape) -> Deployment:
    flags = flags_of(row["extra_args"])

    def count(name: str) -> int | None:
        return int(flags[name]) if name in flags else None

    def share(name: str) -> float | None:
        return float(flags[name]) if name in flags else None

    chunk = count("chunked-prefill-size")
    left = row["group"] == "E" and int(row["id"][1:]) >= STATE_DTYPE_LEFT_FROM
    asked = (
        float(row["mem_fraction_static"]) if row["mem_fraction_given"] == "y" and row["mem_fraction_static"] else None
    )
    return Deployment(
        tp=int(row["tp"]),
        weight_dtype=WeightDtype(shape.native_weight_dtype)
        if shape.native_weight_dtype in STORED
        else WeightDtype.BF16,
        kv_dtype=KvDtype.BF16,
        kv_cache_dtype_name=row["kv_cache_dtype"],
        max_model_len=count("context-length") or OTHER_CONTEXT.get(row["hf_id"]),
        max_num_seqs=count("max-running-requests"),
        max_num_batched_tokens=chunk if chunk is not None and chunk > 0 else None,
        gpu_memory_utilization=asked,
        attention_dp=int(row["dp"]),
        enforce_eager="disable-cuda-graph" in flags,
        prefix_caching=False if "disable-radix-cache" in flags else None,
        speculative=Speculative("eagle", 4) if "speculative-algorithm" in flags else None,
        sglang=SglangFlags(
            page_size_tokens=count("page-size"),
            chunked_prefill=chunk != -1,
            disable_overlap_schedule="disable-overlap-schedule" in flags,
            max_total_tokens=count("max-total-tokens"),
            swa_full_tokens_ratio=share("swa-full-tokens-ratio"),
            mamba_full_memory_ratio=share("mamba-full-memory-ratio"),
            mamba_ssm_dtype="bfloat16" if left else flags.get("mamba-ssm-dtype"),
            max_mamba_cache_size=count("max-mamba-cache-size"),
            enable_multimodal="enable-multimodal" in flags,
            language_only="language-only" in flags,
            attention_backend=flags.get("attention-backend", ""),
            unified_memory="enable-unified-memory" in flags,
        ),
    )


def facts_of(row: Row, facts: EngineFacts, transfers: EngineFacts) -> EngineFacts:
    return transfers if row["hf_id"] in TRANSFER_LEFT else facts


@pytest.fixture(scope="module")
def facts(catalog: Catalog) -> EngineFacts:
    return catalog.engine("sglang", "0.5.23")


@pytest.fixture(scope="module")
def transfers(facts: EngineFacts) -> EngineFacts:
    """The release as a process sees it that serves images through a transfer pool."""
    architectures = (*facts.sglang.hopper_vision_architectures, "Qwen3_5MoeForConditionalGeneration")
    rules = facts.sglang.model_copy(update={"hopper_vision_architectures": architectures})
    return facts.model_copy(update={"rules": rules})


def same(got: float | None, stated: str, tolerance: float = 1e-6) -> bool:
    if got is None or stated == "":
        return got is None and stated == ""
    return abs(got - float(stated)) <= tolerance


KV_NAMES = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "bfloat16": "bfloat16", "float16": "bfloat16"}


def differences(row: Row, plan: Plan, deployment: Deployment) -> list[str]:
    """Names of the figures of an accepted row that differ.

    Drafts in a row of the planning code are of a model that was not there, except where the cell shows their layer.
    """
    server, pools, states = plan.server, plan.pools, plan.states
    drafts_seen = deployment.speculative is None or row["hf_id"].startswith("deepseek-ai/")
    figures: list[tuple[str, float | None]] = [
        ("rest_memory_bytes", plan.rest_bytes),
        ("mamba_slots", states.slots if states else None),
        ("mamba_bytes_per_slot", states.bytes_per_slot if states else None),
        ("mamba_slots_per_request", server.state_slots_per_request if states else None),
        ("page_size", server.page_tokens),
        ("context_length", plan.context_tokens),
        ("chunked_prefill_size", server.worker_chunk_tokens),
        ("cuda_graph_max_bs", server.decode_graph_batch),
        ("attn_tp", server.attention_tp),
    ]
    if drafts_seen:
        figures += [
            ("cell_size_bytes", plan.cells.cell),
            ("max_total_num_tokens", pools.tokens),
            ("full_max_tokens", pools.full_tokens),
            ("swa_max_tokens", pools.sliding_tokens),
            ("max_running_requests", plan.max_running),
        ]
    wrong = [f"{name}: {got} for {row[name]}" for name, got in figures if not same(got, row[name])]
    if row["mem_fraction_given"] == "n" and not same(plan.fraction, row["mem_fraction_static"], 5e-7):
        wrong.append(f"mem_fraction_static: {plan.fraction} for {row['mem_fraction_static']}")
    texts = (
        ("attention_backend", server.backend, row["attention_backend"]),
        ("resolved_kv_dtype", server.kv_dtype, KV_NAMES[row["resolved_kv_dtype"]]),
        ("is_multimodal", "y" if server.multimodal else "n", row["is_multimodal"]),
    )
    return wrong + [f"{name}: {got} for {stated}" for name, got, stated in texts if got != stated]


def test_every_row(catalog: Catalog, facts: EngineFacts, transfers: EngineFacts) -> None:
    base = catalog.gpu("H100-SXM")
    unread: set[str] = set()
    wrong: list[tuple[str, str, list[str]]] = []
    checked = {"ok": 0, "refused": 0, "config_error": 0}

    @cache
    def shape_of(model: str) -> ModelShape | None:
        try:
            return catalog.model_shape(model)
        except InputError:
            unread.add(model)
            return None

    @cache
    def gpu_of(mib: str, capability: str) -> Gpu:
        return base.model_copy(update={"memory_driver_mib": int(mib), "compute_capability": capability})

    for row in rows():
        shape = shape_of(row["hf_id"])
        if shape is None or row["hf_id"] in UNLIKE_THE_ENGINE:
            continue
        found = judged(row, shape, gpu_of(row["gpu_mem_mib"], row["gpu_cc"]), facts_of(row, facts, transfers))
        checked[row["status"]] += 1
        if found:
            wrong.append((row["id"], row["hf_id"], found))
    assert wrong == []
    assert unread <= NOT_HERE
    assert checked["ok"] >= 6_230
    assert checked["refused"] >= 410
    assert checked["config_error"] >= 178


def judged(row: Row, shape: ModelShape, gpu: Gpu, facts: EngineFacts) -> list[str]:
    """What is wrong with our answer to a row."""
    deployment = deployment_of(row, shape)
    if row["status"] == "config_error":
        context = deployment.max_model_len or shape.max_position_embeddings
        asked = start_rules.length_allowed(shape, context, deployment.max_model_len)
        return [] if asked or start_rules.before_sizing(shape, gpu, facts, deployment, True) else ["not refused"]
    free = FreeMemory(float(row["pre_model_load_gib"]), float(row["available_gib_after_weights"]))
    plan = plan_sglang(shape, facts, gpu, deployment, float(row["gpu_mem_mib"]), None, free)
    if row["status"] == "refused":
        return [] if plan.refusals else ["not refused"]
    return [refusal.message for refusal in plan.refusals] or differences(row, plan, deployment)


NOT_HERE = frozenset({"BAAI/bge-large-en-v1.5", "tiiuae/Falcon-H1-3B-Instruct", "tiiuae/Falcon-H1-7B-Instruct"})
"""Models without a config in the catalogue; bge is an encoder, which SGLang serves as an embedding model and the
planner does not."""
