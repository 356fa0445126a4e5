"""Figures that published texts derive from stated assumptions; each row names its text.

"KV cache size formula" is a book chapter on sizing; "Bytes per token and the memory budget", "KV cache sizing for
deployments, in depth", "AI infrastructure, part 14" and "The life of a gigabyte" are articles. Where a text rounds, the
tolerance covers its rounding.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from planner import units
from planner.catalog.load import Catalog
from planner.memory import kv
from planner.memory.size import size
from planner.memory.types import Deployment, GivenTerms, KvDtype, Sizing, WeightDtype
from planner.memory.vllm import blocks

LLAMA_8B, LLAMA_70B = "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-70B-Instruct"
BF16, FP8 = WeightDtype.BF16, WeightDtype.FP8


def sized(
    catalog: Catalog,
    model: str,
    gpu: str,
    *,
    engine: str = "vllm",
    version: str = "",
    given: GivenTerms | None = None,
    **settings: Any,
) -> Sizing:
    deployment = Deployment(**({"tp": 1, "weight_dtype": BF16, "kv_dtype": KvDtype.BF16} | settings))
    facts = catalog.engine(engine, version)
    return size(catalog.model_shape(model), catalog.gpu(gpu), facts, deployment, given)


def gb(memory: float, weights: float, overhead: float) -> GivenTerms:
    return GivenTerms(units.gb_to_gib(memory), units.gb_to_gib(weights), units.gb_to_gib(overhead))


# --- bytes per token ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "tp", "expected"),
    [
        (LLAMA_8B, 1, 131_072),
        ("meta-llama/Meta-Llama-3-70B", 1, 327_680),
        ("Qwen/Qwen2.5-72B-Instruct", 1, 327_680),
        (LLAMA_70B, 4, 81_920),
        (LLAMA_70B, 8, 40_960),
        (LLAMA_70B, 16, 40_960),
        ("Qwen/Qwen3-32B", 1, 262_144),
        ("deepseek-ai/DeepSeek-V3", 1, 70_272),
        ("deepseek-ai/DeepSeek-V3", 2, 70_272),
        ("deepseek-ai/DeepSeek-V3", 8, 70_272),
        ("deepseek-ai/DeepSeek-V3", 16, 70_272),
        ("openai/gpt-oss-120b", 1, 36_864),
        ("google/gemma-3-27b-it", 1, 10 * 16 * 128 * 2 * 2),
    ],
)
def test_bytes_per_token(catalog: Catalog, model: str, tp: int, expected: int) -> None:
    assert kv.bytes_per_token(catalog.model_shape(model), tp) == expected


def test_mla_is_not_the_logical_shape_and_gqa_is_not_the_query_heads(catalog: Catalog) -> None:
    """KV cache size formula and AI infrastructure, part 14: mistakes of 71x and 4x."""
    deepseek, llama = catalog.model_shape("deepseek-ai/DeepSeek-V3"), catalog.model_shape(LLAMA_8B)
    logical = 61 * 128 * (192 + 128) * 2
    assert logical == 4_997_120
    assert round(logical / kv.bytes_per_token(deepseek)) == 71
    as_query_heads = tuple(dataclasses.replace(c, kv_heads=llama.attention_heads) for c in llama.cache_layers)
    wrong = kv.bytes_per_token(dataclasses.replace(llama, cache_layers=as_query_heads))
    assert wrong == 524_288
    assert wrong == 4 * kv.bytes_per_token(llama)


@pytest.mark.parametrize(
    ("model", "full", "sliding", "window"),
    [("openai/gpt-oss-120b", 18, 18, 128), ("google/gemma-3-27b-it", 10, 52, 1024)],
)
def test_sliding_layers_are_counted_apart(catalog: Catalog, model: str, full: int, sliding: int, window: int) -> None:
    """AI infrastructure, part 14."""
    layers = catalog.model_shape(model).cache_layers
    assert {(c.count, c.window_tokens) for c in layers} == {(full, None), (sliding, window)}


# --- pools -------------------------------------------------------------------------------------------------------

BOOK = GivenTerms(weights_gib=14.96, overhead_gib=6.0)


def test_llama_3_8b_on_h100_vllm(catalog: Catalog) -> None:
    """KV cache size formula, exact: 81,559 MiB x 0.92 − 14.96 − 6.0 GiB."""
    sizing = sized(catalog, LLAMA_8B, "H100-SXM", gpu_memory_utilization=0.92, max_model_len=8192, given=BOOK)
    assert (sizing.num_blocks, sizing.pool_tokens, sizing.logged_tokens) == (26_785, 428_560, 428_560)
    assert f"{sizing.max_concurrency:.2f}" == "52.31"
    assert sizing.available_kv_gib == pytest.approx(52.31566, abs=5e-6)
    assert sizing.starts


def test_llama_3_8b_on_h100_sglang(catalog: Catalog) -> None:
    """KV cache size formula, exact: the same bytes at page size 1."""
    sizing = sized(catalog, LLAMA_8B, "H100-SXM", engine="sglang", gpu_memory_utilization=0.92, given=BOOK)
    assert sizing.pool_tokens == 428_569


@pytest.mark.parametrize(("version", "fraction"), [("0.5.0", 0.835), ("0.5.16", 0.830), ("0.5.23", 0.830)])
def test_sglang_default_fraction_on_h100(catalog: Catalog, version: str, fraction: float) -> None:
    """KV cache size formula: 0.835 without the prefill-graph term; releases that reserve for it say 0.830."""
    assert sized(catalog, LLAMA_8B, "H100-SXM", engine="sglang", version=version).utilization == fraction


def test_qwen3_32b_bf16_on_h100(catalog: Catalog) -> None:
    """KV cache size formula: about 6.3 GiB, 25,600 tokens, 3 requests of 8k."""
    given = GivenTerms(weights_gib=61, overhead_gib=6)
    sizing = sized(catalog, "Qwen/Qwen3-32B", "H100-SXM", gpu_memory_utilization=0.92, max_model_len=8192, given=given)
    assert sizing.available_kv_gib == pytest.approx(6.3, rel=0.01)
    assert sizing.pool_tokens == pytest.approx(25_600, rel=0.01)
    assert int(sizing.max_concurrency) == 3


def test_qwen3_32b_fp8_weights_on_h100(catalog: Catalog) -> None:
    """KV cache size formula: half the weights, 18 requests of 8k."""
    given = GivenTerms(weights_gib=61 / 2, overhead_gib=6)
    sizing = sized(
        catalog,
        "Qwen/Qwen3-32B",
        "H100-SXM",
        weight_dtype=FP8,
        gpu_memory_utilization=0.92,
        max_model_len=8192,
        given=given,
    )
    assert int(sizing.max_concurrency) == 18


def test_llama_3_70b_bf16_tp8(catalog: Catalog) -> None:
    """KV cache size formula: 1.33 M tokens, 162 requests of 8k; weights computed from the shapes."""
    sizing = sized(
        catalog,
        LLAMA_70B,
        "H100-SXM",
        tp=8,
        gpu_memory_utilization=0.92,
        max_model_len=8192,
        given=GivenTerms(overhead_gib=6),
    )
    assert sizing.pool_tokens == pytest.approx(1_330_000, rel=0.01)
    assert int(sizing.max_concurrency) == 162


def test_deepseek_v3_on_16_h100(catalog: Catalog) -> None:
    """KV cache size formula: 671e9 fp8 parameters over 16 GPUs, latent replicated, 52 requests of 8k."""
    given = GivenTerms(weights_gib=units.bytes_to_gib(671e9 / 16), overhead_gib=6)
    sizing = sized(
        catalog,
        "deepseek-ai/DeepSeek-V3",
        "H100-SXM",
        tp=16,
        weight_dtype=FP8,
        gpu_memory_utilization=0.92,
        max_model_len=8192,
        given=given,
    )
    assert int(sizing.max_concurrency) == 52


@pytest.mark.parametrize(("kv_dtype", "tokens", "sequences"), [("bf16", 416_103, 50), ("fp8", 832_206, 101)])
def test_llama_31_8b_on_80_gb(catalog: Catalog, kv_dtype: str, tokens: int, sequences: int) -> None:
    """Bytes per token and the memory budget, exact: 80 GB x 0.92 − 8.03e9 x 2 B − 3.0 GB."""
    given = GivenTerms(gpu_memory_gib=units.gb_to_gib(80), overhead_gib=units.gb_to_gib(3))
    settings: dict[str, Any] = {
        "gpu_memory_utilization": 0.92,
        "kv_dtype": KvDtype(kv_dtype),
        "max_model_len": 8192,
        "given": given,
    }
    sizing = sized(catalog, LLAMA_8B, "H100-SXM", **settings)
    assert units.bytes_to_gb(sizing.weights.parameters) == pytest.approx(16.06, abs=0.005)
    assert sizing.available_tokens == tokens
    assert sizing.pool_tokens == tokens // 16 * 16
    assert int(sizing.max_concurrency) == sequences
    assert sized(catalog, LLAMA_8B, "H100-SXM", engine="sglang", **settings).pool_tokens == tokens


def test_llama_33_70b_fp8_on_h200(catalog: Catalog) -> None:
    """Bytes per token and the memory budget: 56.2 GB, 171 k tokens, 20 of 8k."""
    given = gb(141, 70.55, 3)
    sizing = sized(
        catalog,
        LLAMA_70B,
        "H200-SXM",
        weight_dtype=FP8,
        gpu_memory_utilization=0.92,
        max_model_len=8192,
        given=given,
    )
    assert units.gib_to_gb(sizing.available_kv_gib) == pytest.approx(56.2, rel=0.01)
    assert sizing.pool_tokens == pytest.approx(171_000, rel=0.01)
    assert int(sizing.max_concurrency) == 20


def test_llama_31_70b_bf16_on_four_80_gb(catalog: Catalog) -> None:
    """KV cache sizing for deployments, worked example 1."""
    settings: dict[str, Any] = {"tp": 4, "gpu_memory_utilization": 0.9, "given": gb(80, 35.3, 4)}
    sizing = sized(catalog, LLAMA_70B, "A100-80GB-SXM", **settings)
    assert units.gib_to_gb(sizing.available_kv_gib) == pytest.approx(32.7, rel=0.01)
    assert sizing.bytes_per_token == 81_920
    assert sizing.pool_tokens == pytest.approx(399_000, rel=0.01)
    assert int(sizing.max_concurrency) == 3
    assert sizing.pool_tokens / 8_000 == pytest.approx(50, rel=0.01)
    eight = sized(catalog, LLAMA_70B, "H100-SXM", kv_dtype=KvDtype.FP8, **settings)
    assert eight.pool_tokens == pytest.approx(800_000, rel=0.01)


def test_llama_31_8b_on_24_gb(catalog: Catalog) -> None:
    """KV cache sizing for deployments, worked example 2; weights computed (16.06 GB)."""
    given = GivenTerms(gpu_memory_gib=units.gb_to_gib(24), overhead_gib=units.gb_to_gib(1.5))
    settings: dict[str, Any] = {"gpu_memory_utilization": 0.9, "given": given}
    sizing = sized(catalog, LLAMA_8B, "RTX4090", **settings)
    assert sizing.pool_tokens == pytest.approx(30_500, rel=0.02)
    assert not sizing.starts
    eight = sized(catalog, LLAMA_8B, "RTX4090", kv_dtype=KvDtype.FP8, **settings)
    assert eight.pool_tokens == pytest.approx(61_000, rel=0.02)
    lighter = sized(catalog, LLAMA_8B, "RTX4090", **(settings | {"given": gb(24, 16 - 8, 1.5)}))
    same = sized(catalog, LLAMA_8B, "RTX4090", **(settings | {"given": gb(24, 16, 1.5)}))
    assert lighter.pool_tokens - same.pool_tokens == pytest.approx(60_000, rel=0.02)


GIGABYTE = GivenTerms(gpu_memory_gib=23.5, weights_gib=14.96, overhead_gib=2.16 + 0.60 + 0.60)


def test_llama_31_8b_on_rtx_4090_refuses_its_own_length(catalog: Catalog) -> None:
    """The life of a gigabyte: 2.83 GiB, 16.0 GiB needed, estimated maximum length 23,184."""
    sizing = sized(catalog, LLAMA_8B, "RTX4090", version="0.30.0", gpu_memory_utilization=0.9, given=GIGABYTE)
    assert sizing.available_kv_gib == pytest.approx(2.83, rel=0.01)
    assert sizing.pool_tokens == pytest.approx(23_200, rel=0.01)
    assert sizing.num_blocks == pytest.approx(1_450, rel=0.01)
    (refusal,) = sizing.refusals
    assert "(131072)" in refusal.message
    assert "16.00 GiB KV cache is needed" in refusal.message
    assert int(refusal.fix.split()[-1]) == pytest.approx(23_184, rel=0.01)


def test_llama_31_8b_on_rtx_4090_starts_at_8192(catalog: Catalog) -> None:
    """The life of a gigabyte: 2.83x."""
    settings: dict[str, Any] = {"gpu_memory_utilization": 0.9, "max_model_len": 8192, "max_num_seqs": 256}
    sizing = sized(catalog, LLAMA_8B, "RTX4090", given=GIGABYTE, **settings)
    assert sizing.starts
    assert sizing.max_concurrency == pytest.approx(2.83, rel=0.01)
    lighter = dataclasses.replace(GIGABYTE, weights_gib=8.46)
    fp8 = sized(catalog, LLAMA_8B, "RTX4090", weight_dtype=FP8, given=lighter, **settings)
    assert fp8.available_kv_gib == pytest.approx(9.33, rel=0.01)
    assert fp8.pool_tokens == pytest.approx(76_448, rel=0.01)
    assert fp8.max_concurrency == pytest.approx(9.33, rel=0.01)


WEIGHTS_70B_FP8 = units.bytes_to_gib(70.55e9 + 2 * 128_256 * 8_192)
"""70.55e9 parameters at a byte each, and a second byte for embedding and head."""


def test_70b_fp8_weights_of_the_text_and_of_the_shapes(catalog: Catalog) -> None:
    """The life of a gigabyte: 68.45e9 x 1 B + 2.10e9 x 2 B = 67.66 GiB."""
    sizing = sized(catalog, LLAMA_70B, "H100-SXM", weight_dtype=FP8)
    assert pytest.approx(67.66, abs=0.01) == WEIGHTS_70B_FP8
    assert units.bytes_to_gib(sizing.weights.total) == pytest.approx(67.66, rel=0.001)


@pytest.mark.parametrize(
    ("utilization", "available_gib", "tokens", "starts"),
    [(0.90, -1.50, 0, False), (0.96, 3.25, 10_650, True), (0.92, 0.08, 269, False)],
)
def test_70b_fp8_on_one_h100(
    catalog: Catalog, utilization: float, available_gib: float, tokens: int, starts: bool
) -> None:
    """The life of a gigabyte: does not start at 0.90, one 8k request at 0.96, 269 tokens at 0.92."""
    given = GivenTerms(79.2, WEIGHTS_70B_FP8, 3.92 + 1.20)
    sizing = sized(
        catalog,
        LLAMA_70B,
        "H100-SXM",
        weight_dtype=FP8,
        gpu_memory_utilization=utilization,
        max_model_len=8192,
        given=given,
    )
    assert sizing.available_kv_gib == pytest.approx(available_gib, abs=0.005)
    assert sizing.available_tokens == pytest.approx(tokens, rel=0.01)
    assert sizing.starts is starts


def test_70b_int4_on_one_h100(catalog: Catalog) -> None:
    """The life of a gigabyte: about 37 GiB with scales, 95,000 tokens, 11 of 8k; weights computed."""
    sizing = sized(
        catalog,
        LLAMA_70B,
        "H100-SXM",
        weight_dtype=WeightDtype.INT4_AWQ,
        gpu_memory_utilization=0.9,
        max_model_len=8192,
        given=GivenTerms(gpu_memory_gib=79.2, overhead_gib=5.12),
    )
    assert units.bytes_to_gib(sizing.weights.total) == pytest.approx(37, rel=0.02)
    assert sizing.pool_tokens == pytest.approx(95_000, rel=0.02)
    assert int(sizing.max_concurrency) == 11


def test_70b_fp8_tp2(catalog: Catalog) -> None:
    """The life of a gigabyte: 33.09 GiB, 216,900 tokens, 26.47x."""
    sizing = sized(
        catalog,
        LLAMA_70B,
        "H100-SXM",
        tp=2,
        weight_dtype=FP8,
        gpu_memory_utilization=0.9,
        max_model_len=8192,
        given=GivenTerms(79.2, 33.83, 2.16 + 2.20),
    )
    assert sizing.available_kv_gib == pytest.approx(33.09, rel=0.001)
    assert sizing.pool_tokens == pytest.approx(216_900, rel=0.001)
    assert sizing.logged_tokens == pytest.approx(216_848, rel=0.001)
    assert sizing.max_concurrency == pytest.approx(26.47, rel=0.001)


@pytest.mark.parametrize(
    ("model", "gpu", "memory_gb", "weights_gb", "kv_dtype", "conversations"),
    [
        (LLAMA_8B, "H100-SXM", 80, 16, "bf16", 53),
        (LLAMA_8B, "H200-SXM", 141, 16, "bf16", 105),
        (LLAMA_70B, "H200-SXM", 141, 70, "bf16", 21),
        (LLAMA_70B, "H200-SXM", 141, 70, "fp8", 43),
    ],
)
def test_conversations_of_8000_without_a_reserve(
    catalog: Catalog, model: str, gpu: str, memory_gb: float, weights_gb: float, kv_dtype: str, conversations: int
) -> None:
    """AI infrastructure, part 14, exact."""
    sizing = sized(
        catalog,
        model,
        gpu,
        kv_dtype=KvDtype(kv_dtype),
        gpu_memory_utilization=0.9,
        max_model_len=8000,
        given=gb(memory_gb, weights_gb, 0),
    )
    assert int(sizing.max_concurrency) == conversations


# --- load --------------------------------------------------------------------------------------------------------


def test_64_users_of_32000_tokens(catalog: Catalog) -> None:
    """AI infrastructure, part 14: 671 GB for a 70B model."""
    cache = 64 * 32_000 * kv.bytes_per_token(catalog.model_shape(LLAMA_70B))
    assert units.bytes_to_gb(cache) == pytest.approx(671, rel=0.01)


def test_50_users_sharing_a_prefix(catalog: Catalog) -> None:
    """AI infrastructure, part 14: 26 GB apart, 0.5 GB shared (rounded to a digit)."""
    prefix = 4_000 * kv.bytes_per_token(catalog.model_shape(LLAMA_8B))
    assert units.bytes_to_gb(50 * prefix) == pytest.approx(26, rel=0.02)
    assert round(units.bytes_to_gb(prefix), 1) == 0.5


def test_a_17_token_request_occupies_32_slots() -> None:
    """KV cache size formula, exact."""
    group = blocks.Group(layers=32, block_tokens=16, page_bytes=65_536, window_tokens=None)
    assert blocks.blocks_of_request(group, 17, in_flight_tokens=8192) * group.block_tokens == 32


def test_the_budget_is_tokens_not_requests(catalog: Catalog) -> None:
    """KV cache size formula: a pool of 1,600 requests of 256 tokens holds about 50 of 8k."""
    sizing = sized(catalog, LLAMA_8B, "H100-SXM", gpu_memory_utilization=0.92, max_model_len=8192, given=BOOK)
    fits = {tokens: sizing.pool_tokens // tokens for tokens in (256, 2_048, 8_192)}
    assert fits[256] == pytest.approx(1_600, rel=0.05)
    assert fits[8_192] == pytest.approx(50, rel=0.05)
    assert fits[256] * 256 == pytest.approx(fits[8_192] * 8_192, rel=0.01)


@pytest.mark.parametrize(("batch", "context"), [(1, 0), (1, 8_000), (1, 128_000), (32, 8_000)])
def test_ideal_decode_ceiling_reads_weights_once_and_each_cache(catalog: Catalog, batch: int, context: int) -> None:
    """AI infrastructure, part 14: bytes of a step over 3.35 TB/s, Llama 3 8B (16.06 GB, 131,072 B a token)."""
    sizing = sized(catalog, LLAMA_8B, "H100-SXM")
    step_bytes = sizing.weights.parameters + batch * context * sizing.bytes_per_token
    expected = 3.35e12 / (16_060_522_496 + batch * context * 131_072)
    assert 3.35e12 / step_bytes == pytest.approx(expected)
    assert 3.35e12 / step_bytes <= 209
