"""Every figure of the pool against what vLLM's own planning code computes from the same available bytes."""

from __future__ import annotations

import csv
import lzma
import math
from collections.abc import Mapping

import pytest

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError
from planner.memory.kv import auto_kv
from planner.memory.rules import start_rules
from planner.memory.size import MODELLED_DTYPES
from planner.memory.types import Deployment, KvDtype, Refusal, Speculative, WeightDtype
from planner.memory.vllm.blocks import request_bytes
from planner.memory.vllm.replica import layout_of
from planner.memory.vllm.sizing import default_length, in_flight_tokens, pool_of

from .conftest import DATA, rows

GPU_OF_CAPABILITY = {"9.0": "H100-SXM", "8.0": "A100-80GB-SXM", "8.9": "L40S"}
ENCODER, ENCODER_ROWS = "BAAI/bge-large-en-v1.5", 3
"""The engine starts it without a cache (one block, no tokens); here an encoder is refused by name."""


def oracle_rows() -> list[dict[str, str]]:
    with lzma.open(DATA / "vllm_pools.csv.xz", "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def gpu_of(catalog: Catalog, capability: str) -> Gpu:
    gpu = catalog.gpu(GPU_OF_CAPABILITY[capability])
    assert gpu.compute_capability == capability
    return gpu


def number(text: str) -> int | None:
    return int(float(text)) if text and text != "model_max" else None


def deployment_of(row: Mapping[str, str], shape: ModelShape, facts: EngineFacts) -> Deployment:
    modelled = shape.native_weight_dtype in MODELLED_DTYPES
    return Deployment(
        int(row["tp"]),
        WeightDtype(shape.native_weight_dtype) if modelled else WeightDtype.BF16,
        KvDtype.FP8 if row["kv_cache_dtype"] == "fp8" else auto_kv(shape, facts),
        max_model_len=number(row["max_model_len_requested"]),
        prefix_caching={"True": True, "False": False}.get(row["prefix_caching"]),
    )


def shapes_of(catalog: Catalog, models: set[str]) -> dict[str, ModelShape | str]:
    """Each model, or why it cannot be read."""
    found: dict[str, ModelShape | str] = {}
    for model in models:
        try:
            found[model] = catalog.model_shape(model)
        except InputError as error:
            found[model] = str(error)
    return found


def difference(catalog: Catalog, shape: ModelShape | str, facts: EngineFacts, row: Mapping[str, str]) -> object:
    """What differs from the engine's answer; falsy where nothing does."""
    refused_early = row["refused_stage"] not in ("", "memory_check")
    if isinstance(shape, str):
        return not refused_early and shape
    gpu, deployment = gpu_of(catalog, row["capability"]), deployment_of(row, shape, facts)
    asked = deployment.max_model_len
    length = asked or default_length(shape, facts)
    modelled = shape.native_weight_dtype in MODELLED_DTYPES
    refusals = start_rules.before_sizing(shape, gpu, facts, deployment, weights_given=not modelled)
    refusals += start_rules.length_allowed(shape, length, asked)
    if refused_early:
        return not refusals and "started"
    return refusals or pool_difference(shape, gpu, facts, deployment, length, row)


def pool_difference(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, length: int, row: Mapping[str, str]
) -> object:
    layout = layout_of(shape, gpu, facts, deployment, length)
    in_flight = in_flight_tokens(facts.vllm, deployment, int(row["max_num_batched_tokens"]))
    pool, refusals = pool_of(
        shape, gpu, facts, deployment, int(row["available_bytes_per_gpu"]), length, int(row["max_num_batched_tokens"])
    )
    figures: dict[str, float] = {
        "block_size": pool.block_size_tokens,
        "num_groups": len(layout.groups),
        "bytes_per_block": pool.bytes_per_block,
        "min_bytes": request_bytes(layout, length, in_flight, facts.vllm.start_check),
        "in_flight": in_flight,
        "num_blocks": pool.num_blocks,
        "tokens_logged": pool.logged_tokens,
        "max_concurrency": pool.max_concurrency,
    }
    wrong = {
        name: (figure, row[name])
        for name, figure in figures.items()
        if row[name] and not math.isclose(float(row[name]), figure, rel_tol=1e-12)
    }
    return wrong or refusal_difference(refusals, row)


def refusal_difference(refusals: list[Refusal], row: Mapping[str, str]) -> object:
    if not row["refused_stage"]:
        return refusals
    estimate = row["estimate"]
    if not refusals or (estimate and not refusals[0].message.endswith(f" {estimate}")):
        return (refusals, f"refused by the engine, longest {estimate}")
    return None


@pytest.mark.parametrize(("version", "number_of_rows"), [("0.11.0", 2341), ("0.19.0", 2648), ("0.33.0", 4867)])
def test_pools_and_refusals_equal_the_engine(catalog: Catalog, version: str, number_of_rows: int) -> None:
    """Blocks, groups, bytes, tokens, concurrency, least bytes, refusals and the longest request, row by row."""
    facts = catalog.engine("vllm", version)
    checked = [row for row in oracle_rows() if row["vllm_version"] == version]
    assert len(checked) == number_of_rows
    shapes = shapes_of(catalog, {row["hf_id"] for row in checked})
    wrong = {
        row["id"]: (row["hf_id"], found)
        for row in checked
        if (found := difference(catalog, shapes[row["hf_id"]], facts, row))
    }
    encoders = [row for row, (model, _) in wrong.items() if model == ENCODER]
    assert len(encoders) == (ENCODER_ROWS if version == "0.33.0" else 0)
    assert len(wrong) == len(encoders), [what for what in wrong.values() if what[0] != ENCODER][:3]


ROUNDING_GIB = 0.0051
"""Logs give the available memory to 0.01 GiB."""
PLAIN_BAR, HYBRID_BAR = 0.001, 0.01


def logged_deployment(log: Mapping[str, str]) -> Deployment:
    drafts = int(log["speculative_tokens"])
    return Deployment(
        int(log["tp"]),
        WeightDtype.BF16,
        KvDtype(log["kv_cache_dtype"]),
        max_model_len=int(log["max_model_len"]),
        pp=int(log["pp"]),
        prefix_caching=log["prefix_caching"] == "y" or None,
        speculative=Speculative("mtp", drafts) if drafts else None,
    )


@pytest.mark.parametrize("log", list(rows("vllm_logged_pools.csv")), ids=lambda log: log["id"])
def test_pools_as_logged_at_start_up(catalog: Catalog, log: dict[str, str]) -> None:
    """Tokens from the logged available memory: 0.1 % for plain models, 1 % for hybrids, or the row says why not."""
    shape, gpu, facts = (
        catalog.model_shape(log["hf_id"]),
        catalog.gpu(log["gpu"]),
        catalog.engine("vllm", log["version"]),
    )
    deployment, length = logged_deployment(log), int(log["max_model_len"])

    def tokens(available_gib: float) -> tuple[int, float]:
        available = round(available_gib * 2**30)
        pool, _ = pool_of(shape, gpu, facts, deployment, available, length, int(log["max_num_batched_tokens"]))
        return (pool.num_blocks if log["blocks"] else pool.logged_tokens), pool.max_concurrency

    logged, available_gib = int(log["tokens"] or log["blocks"]), float(log["available_gib"])
    fewest, most = (tokens(available_gib + rounding)[0] for rounding in (-ROUNDING_GIB, ROUNDING_GIB))
    error = max(fewest - logged, logged - most, 0) / logged
    hybrid = bool(shape.state_layers) or len({layers.kind for layers in shape.cache_layers}) > 1
    assert (error <= (HYBRID_BAR if hybrid else PLAIN_BAR)) is not bool(log["explained"]), (logged, fewest, most)
    if log["concurrency"] and not log["explained"]:
        assert tokens(available_gib)[1] == pytest.approx(float(log["concurrency"]), rel=HYBRID_BAR)
