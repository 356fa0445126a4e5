"""At which peak each weight format multiplies, by GPU, and the FLOPs of the models that are not plain transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.catalog.load import Catalog
from planner.catalog.model_shape import CacheKind, ModelShape
from planner.memory.types import Sizing, WeightDtype
from planner.speed.facts import SpeedFacts
from planner.speed.flops import (
    allreduces,
    attention_flops,
    body_flops,
    cache_reads,
    indexer_flops,
    picked_attention_flops,
    window_flops,
)
from planner.speed.formats import Peak, Unit, peaks_of
from planner.speed.roofline import speed_model

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
QWEN_NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"
NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
KIMI_LINEAR = "moonshotai/Kimi-Linear-48B-A3B-Instruct"

# TFLOP/s of catalogs/gpus.csv: A100 312 and INT8 624; H100 989, FP8 and INT8 1,979; B200 2,250, FP8 4,500, FP4 9,000;
# MI355X 2,500, FP8 5,000, FP4 10,100.
CASES = [
    ("H100-SXM", "fp8", 989, 1979),
    ("A100-80GB-SXM", "fp8", 312, 312),
    ("B200", "fp8", 2250, 4500),
    ("H100-SXM", "mxfp8", 989, 989),
    ("B200", "mxfp8", 2250, 4500),
    ("RTX5090", "mxfp8", 209.5, 419),
    ("MI355X", "mxfp8", 2500, 2500),
    ("H100-SXM", "nvfp4", 989, 989),
    ("L40S", "nvfp4", 362.05, 362.05),
    ("B200", "nvfp4", 9000, 2250),
    ("RTX5090", "nvfp4", 1676, 209.5),
    ("MI355X", "nvfp4", 2500, 2500),
    ("H200-SXM", "mxfp4", 989, 989),
    ("B200", "mxfp4", 9000, 2250),
    ("MI355X", "mxfp4", 10100, 2500),
    ("A100-80GB-SXM", "int8", 312, 624),
    ("H100-SXM", "int8", 989, 1979),
    ("B200", "int8", 2250, 2250),
    ("B300", "int8", 2250, 2250),
    ("MI300X", "int8", 1307.4, 1307.4),
    *[
        (gpu, dtype, peak, peak)
        for gpu, peak in (("A100-80GB-SXM", 312), ("H100-SXM", 989), ("B200", 2250))
        for dtype in (
            "bf16", "int4-awq", "int4-gptq", "int8-gptq", "w4a16", "w8a16", "bnb-4bit", "bnb-int8", "mixed",
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("gpu", "dtype", "four", "eight"), CASES)
def test_peak_of_a_format(catalog: Catalog, gpu: str, dtype: str, four: float, eight: float) -> None:
    peaks = peaks_of(catalog.gpu(gpu), WeightDtype(dtype))
    assert peaks.four_bit.flops == pytest.approx(four * 1e12)
    assert peaks.eight_bit.flops == pytest.approx(eight * 1e12)
    sixteen = catalog.gpu(gpu).bf16_tflops
    assert peaks.sixteen_bit == Peak(Unit.BF16, pytest.approx(sixteen * 1e12))
    assert (dtype in peaks.note) == (dtype != "bf16")
    assert ("16-bit" in peaks.note) == (dtype != "bf16" and peaks.sixteen_bit == peaks.four_bit == peaks.eight_bit)


@pytest.mark.parametrize(
    ("gpu", "dtype", "four", "eight"),
    [
        ("H100-SXM", "fp8", Unit.BF16, Unit.FP8),
        ("A100-80GB-SXM", "fp8", Unit.BF16, Unit.BF16),
        ("A100-80GB-SXM", "int8", Unit.BF16, Unit.INT8),
        ("B200", "int8", Unit.BF16, Unit.BF16),
        ("B200", "mxfp8", Unit.BF16, Unit.FP8),
        ("B200", "nvfp4", Unit.FP4, Unit.BF16),
        ("H200-SXM", "nvfp4", Unit.BF16, Unit.BF16),
        ("MI355X", "mxfp4", Unit.FP4, Unit.BF16),
    ],
)
def test_unit_of_a_format(catalog: Catalog, gpu: str, dtype: str, four: Unit, eight: Unit) -> None:
    """The unit decides which share of the peak is reached."""
    peaks = peaks_of(catalog.gpu(gpu), WeightDtype(dtype))
    assert (peaks.four_bit.unit, peaks.eight_bit.unit) == (four, eight)


@pytest.mark.parametrize("dtype", list(WeightDtype))
def test_every_format_has_a_note_in_the_source(
    catalog: Catalog, facts: SpeedFacts, sizing_of: Callable[..., Sizing], dtype: WeightDtype
) -> None:
    shape, gpu = catalog.model_shape(LLAMA_8B), catalog.gpu("H100-SXM")
    result = speed_model(shape, gpu, sizing_of(shape, gpu.id, weight_dtype=dtype), facts)
    note = peaks_of(gpu, dtype).note
    assert note in result.source
    assert bool(note) == (dtype is not WeightDtype.BF16)


def total_flops(shape: ModelShape, tp: int = 1, dtype: WeightDtype = WeightDtype.BF16) -> float:
    flops = body_flops(shape, dtype, tp)
    return sum(flops.dense.values()) + sum(flops.experts.values())


def test_only_converted_matrices_take_the_fast_peak(catalog: Catalog) -> None:
    """Nemotron-3-Nano in NVFP4 keeps attention and the Mamba layers beside it at 16 bits."""
    plain = total_flops(catalog.model_shape(NEMOTRON))
    shape = catalog.model_shape("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
    stored = body_flops(shape, WeightDtype.NVFP4, 1)
    experts = [m for m in shape.matrices if m.stored and m.part == "routed experts"]
    dense = [m for m in shape.matrices if m.stored and m.part != "routed experts"]
    assert stored.experts[4] == pytest.approx(2.0 * sum(m.elements for m in experts) * 6 / 128)
    assert stored.dense[4] == 2.0 * sum(m.elements for m in dense)
    assert stored.dense[8] == stored.experts[8] == 0
    assert total_flops(shape, dtype=WeightDtype.NVFP4) == pytest.approx(plain)
    assert 0.1 < (stored.dense[16] + stored.experts[16]) / plain < 0.3


@pytest.mark.parametrize(
    ("model", "billions"),
    [(QWEN_NEXT, 3.25), (NEMOTRON, 2.88), (KIMI_LINEAR, 2.73), ("ai21labs/Jamba-v0.1", 11.57), (LLAMA_8B, 6.98)],
)
def test_two_flops_per_active_parameter_and_a_small_scan(catalog: Catalog, model: str, billions: float) -> None:
    """Active parameters without embedding and head; the scan adds 7 FLOPs an element of state, under 4 %."""
    shape = catalog.model_shape(model)
    scan = 7 * sum(g.count * g.heads * g.head_dim * g.state_size for g in shape.state_layers)
    total = total_flops(shape)
    assert (total - scan) / 2e9 == pytest.approx(billions, rel=0.002)
    assert scan / total < 0.04
    assert (scan > 0) == bool(shape.state_layers)


def test_scan_of_qwen3_next_by_hand(catalog: Catalog) -> None:
    shape = catalog.model_shape(QWEN_NEXT)
    without = total_flops(replace(shape, id="no states", state_layers=()), 2)
    # 36 layers of 32 heads of 128 x 128, on two ranks
    extra = total_flops(shape, 2) - without
    assert extra == pytest.approx(7 * 36 * 32 * 128 * 128 / 2)


def test_state_layers_are_split_by_tensor_parallelism(catalog: Catalog) -> None:
    """Jamba's Mamba projections are no linear layers for a quantiser, but they are divided all the same."""
    shape = catalog.model_shape("ai21labs/Jamba-v0.1")
    one, eight = (total_flops(shape, tp) for tp in (1, 8))
    assert one / 8 <= eight < 1.01 * one / 8


def test_key_value_heads_are_repeated_beyond_their_number(catalog: Catalog) -> None:
    shape = catalog.model_shape(QWEN_NEXT)  # 2 KV heads
    keys = [m for m in shape.matrices if m.split == "KV heads" and m.part == "attention"]
    extra = total_flops(shape, 8) * 8 - total_flops(shape, 1)
    assert extra >= 2 * 3 * sum(m.elements for m in keys)  # each head on four ranks instead of one


def test_recurrent_layers_attend_to_nothing(catalog: Catalog) -> None:
    # 12 of 48 layers, 16 heads of 256; 6 of 52, 32 heads of 128
    assert attention_flops(catalog.model_shape(QWEN_NEXT)) == 2 * 16 * 256 * 12
    assert attention_flops(catalog.model_shape(NEMOTRON)) == 2 * 32 * 128 * 6


def test_sparse_attention_is_counted_by_its_picks_and_its_indexer(catalog: Catalog) -> None:
    """DeepSeek-V3.2: 128 heads attend to 2,048 latents of 576 in 61 layers; 64 index heads of 128 score every token."""
    sparse, dense = (catalog.model_shape(f"deepseek-ai/DeepSeek-{name}") for name in ("V3.2", "V3"))
    assert attention_flops(dense) == 2 * 128 * 160 * 61
    assert attention_flops(sparse) == 0
    assert picked_attention_flops(sparse) == 4 * 128 * 576 * 61 * 2048
    assert indexer_flops(sparse) == 64 * 128 * 61
    assert picked_attention_flops(dense) == indexer_flops(dense) == 0


def test_sparse_attention_without_known_picks_is_counted_as_dense(catalog: Catalog) -> None:
    shape = catalog.model_shape("deepseek-ai/DeepSeek-V3.2")
    unknown = replace(shape, cache_layers=tuple(replace(g, picked_tokens=None) for g in shape.cache_layers))
    assert attention_flops(unknown) == 2 * 128 * 160 * 61
    assert picked_attention_flops(unknown) == indexer_flops(unknown) == 0


def test_windows_count_once(catalog: Catalog) -> None:
    shape = catalog.model_shape("google/gemma-3-27b-it")
    assert window_flops(shape) == 4 * 32 * 128 * 1024 * 52
    assert attention_flops(shape) == 2 * 32 * 128 * 10


def test_layers_that_share_a_cache_read_it_too(catalog: Catalog) -> None:
    shape = catalog.model_shape("google/gemma-3n-E4B-it")
    for kind in CacheKind:
        groups = [g for g in shape.cache_layers if g.kind is kind]
        assert any(g.sharing_layers for g in groups)
        layers = sum(g.count + g.sharing_layers for g in groups)
        assert cache_reads(shape, kind) == pytest.approx(layers / sum(g.count for g in groups))
        assert cache_reads(catalog.model_shape(LLAMA_8B), kind) == 1.0


def test_all_reduces_follow_the_sublayers(catalog: Catalog) -> None:
    """Two a layer; one where a layer is only a mixer or only a feed-forward."""
    assert allreduces(catalog.model_shape(LLAMA_8B)) == 64
    assert allreduces(catalog.model_shape("deepseek-ai/DeepSeek-V3")) == 122
    assert allreduces(catalog.model_shape(NEMOTRON)) == 52


def test_source_names_what_is_simplified(catalog: Catalog, facts: SpeedFacts, sizing_of: Callable[..., Sizing]) -> None:
    shape, gpu = catalog.model_shape("deepseek-ai/DeepSeek-V3.2"), catalog.gpu("H200-SXM")
    unknown = replace(shape, cache_layers=tuple(replace(g, picked_tokens=None) for g in shape.cache_layers))
    known, charged = (
        speed_model(s, gpu, sizing_of(shape, gpu.id, tp=8, weight_dtype=WeightDtype.FP8), facts).source
        for s in (shape, unknown)
    )
    assert "sparse attention charged as dense" in charged
    assert "charged as dense" not in known
