"""What the speed tests share: the catalogue, and a `Sizing` with just the terms that the roofline reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.catalog.load import Catalog, load_catalog
from planner.catalog.model_shape import ModelShape
from planner.memory.kv import bytes_per_token, sliding_bytes_per_token
from planner.memory.loading import Loading
from planner.memory.types import Deployment, KvDtype, Sizing, Term, WeightDtype
from planner.memory.weights import weight_bytes
from planner.origin import Origin
from planner.speed.facts import ComputeEfficiency, SpeedFacts, load_speed_facts

_NOTHING = Term("none", 0.0, Origin.GIVEN, "test")

FACTORS = (
    "bandwidth_efficiency_default",
    "expert_read_efficiency",
    "cache_read_efficiency",
    "compute_tp_factor",
    "allreduce_transfer_factor",
)
OVERHEADS = ("allreduce_latency_ms", "sparse_layer_ms", "linear_layer_ms", "ttft_floor_ms")

MakeSizing = Callable[..., Sizing]


def make_sizing(
    shape: ModelShape,
    gpu_id: str,
    *,
    tp: int = 1,
    weight_dtype: WeightDtype = WeightDtype.BF16,
    kv_dtype: KvDtype = KvDtype.BF16,
    chunk_tokens: int = 8192,
    pp: int = 1,
    attention_dp: int = 1,
    engine: str = "vllm",
    version: str = "0.19.1",
) -> Sizing:
    """Weights and cache of one rank; everything else of the subtraction is left out."""
    ranks = tp // attention_dp  # that share a sequence
    window = max((group.window_tokens or 0) for group in shape.cache_layers)
    return Sizing(
        model_id=shape.id,
        gpu_id=gpu_id,
        engine=engine,
        engine_version=version,
        deployment=Deployment(tp, weight_dtype, kv_dtype, pp=pp, attention_dp=attention_dp),
        weights=weight_bytes(shape, weight_dtype, Loading(tp, pp=pp, attention_dp=attention_dp)),
        gpu_memory=_NOTHING,
        utilization=0.9,
        budget=_NOTHING,
        terms=(),
        available_kv_gib=0.0,
        bytes_per_token=bytes_per_token(shape, ranks, kv_dtype) / pp,
        sliding_bytes_per_token=sliding_bytes_per_token(shape, ranks, kv_dtype) / pp,
        window_tokens=window,
        sliding_reserve_tokens=window,
        block_size_tokens=16,
        largest_block_tokens=16,
        num_blocks=0,
        bytes_per_block=0,
        pool_tokens=0,
        logged_tokens=0,
        max_concurrency=0.0,
        max_model_len=8192,
        max_num_seqs=256,
        max_num_batched_tokens=chunk_tokens,
    )


@pytest.fixture(scope="session")
def sizing_of() -> MakeSizing:
    return make_sizing


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def facts(catalog: Catalog) -> SpeedFacts:
    return load_speed_facts(catalog.root)


@pytest.fixture(scope="session")
def ideal(facts: SpeedFacts) -> SpeedFacts:
    """The same facts with every efficiency and factor 1 and every overhead (almost) nothing."""
    one = facts.bandwidth_efficiency_default.model_copy(update={"value": 1.0})
    nothing = one.model_copy(update={"value": 1e-15})
    all_one = ComputeEfficiency(bf16=one, fp8=one, int8=one, fp4=one)
    no_overheads = {
        "step_ms": 0.0,
        "dense_layer_ms": 0.0,
        "moe_layer_ms": 0.0,
        "sequence_ms": 0.0,
        "prefill_factor": 1.0,
    }
    return facts.model_copy(
        update={
            "dense_compute": all_one,
            "expert_compute": all_one,
            **dict.fromkeys(FACTORS, one),
            **dict.fromkeys(OVERHEADS, nothing),
            "gpu": {},
            "engine": tuple(era.model_copy(update=no_overheads) for era in facts.engine),
        }
    )
