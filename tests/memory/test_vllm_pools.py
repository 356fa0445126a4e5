"""Every figure of the pool against what vLLM's own planning code computes from the same available bytes."""

from __future__ import annotations

import pytest

from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.memory import start_rules
from planner.memory.size import MODELLED_DTYPES
from planner.memory.types import Deployment, KvDtype, WeightDtype
from planner.memory.vllm import default_length, pool_of

from .conftest import rows

GPU_OF_CAPABILITY = {"9.0": "H100-SXM", "8.0": "A100-80GB-SXM", "8.9": "L40S"}


def gpu_of(catalog: Catalog, capability: str) -> Gpu:
    gpu = catalog.gpu(GPU_OF_CAPABILITY[capability])
    assert gpu.compute_capability == capability
    return gpu


def number(text: str) -> int | None:
    return int(float(text)) if text and text != "model_max" else None


@pytest.mark.parametrize("version", ["0.11.0", "0.19.0", "0.33.0"])
def test_pools_and_refusals_equal_the_engine(catalog: Catalog, version: str) -> None:
    facts = catalog.engine("vllm", version)
    checked, wrong = 0, []
    for row in rows("vllm_pools.csv"):
        if row["vllm_version"] != version:
            continue
        shape, gpu = catalog.model_shape(row["hf_id"]), gpu_of(catalog, row["capability"])
        honoured = shape.declares_fp8_kv and facts.vllm.declared_fp8_kv_honoured
        fp8_kv = row["kv_cache_dtype"] == "fp8" or (row["kv_cache_dtype"] == "auto" and honoured)
        modelled = shape.native_weight_dtype in MODELLED_DTYPES
        asked = number(row["max_model_len_requested"])
        deployment = Deployment(
            int(row["tp"]),
            WeightDtype(shape.native_weight_dtype) if modelled else WeightDtype.BF16,
            KvDtype.FP8 if fp8_kv else KvDtype.BF16,
            max_model_len=asked,
        )
        length = asked or default_length(shape, facts)
        refusals = start_rules.before_sizing(shape, gpu, facts, deployment, weights_given=not modelled)
        refusals += start_rules.length_allowed(shape, length, asked)
        checked += 1
        if row["refused_stage"] not in ("", "memory_check"):
            if not refusals:
                wrong.append((row["id"], "started"))
            continue
        pool, from_memory = pool_of(
            shape,
            gpu,
            facts,
            deployment,
            int(row["available_bytes_per_gpu"]),
            length,
            int(row["max_num_batched_tokens"]),
        )
        refusals += from_memory
        if row["refused"] == "y":
            estimate = row["estimated_max_model_len_if_refused"]
            if not refusals or (estimate and not refusals[0].message.endswith(f" {estimate}")):
                wrong.append((row["id"], refusals))
            continue
        got = (pool.block_size_tokens, pool.num_blocks, pool.bytes_per_block, pool.logged_tokens)
        names = ("block_size", "num_blocks", "bytes_per_block", "kv_cache_size_tokens_logged")
        expected = tuple(int(row[name]) for name in names)
        same = got == expected and pool.max_concurrency == pytest.approx(float(row["max_concurrency"]), rel=1e-12)
        if refusals or not same:
            wrong.append((row["id"], got, expected, refusals))
    assert checked > 100
    assert wrong == []
