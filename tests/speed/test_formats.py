"""At which peak each weight format multiplies, by GPU, and the FLOPs of the models that are not plain transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.catalog.load import Catalog
from planner.catalog.model_shape import CacheKind, CacheRole
from planner.memory.types import Sizing, WeightDtype
from planner.speed.facts import SpeedFacts
from planner.speed.flops import allreduces, attention_flops, body_flops, cache_reads, window_flops
from planner.speed.formats import peaks_of
from planner.speed.roofline import speed_model

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
QWEN_NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"
NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
KIMI_LINEAR = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
HALF = 0.45e12  # usable FLOP/s of a TFLOP/s

# TFLOP/s of catalogs/gpus.csv: A100 312 and INT8 624; H100 989, FP8 and INT8 1,979; B200 2,250, FP8 4,500, FP4 9,000;
# MI355X 2,500, FP8 5,000, FP4 10,100. FP4 is derated to 0.65.
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
    ("B200", "nvfp4", 9000 * 0.65, 2250),
    ("RTX5090", "nvfp4", 1676 * 0.65, 209.5),
    ("MI355X", "nvfp4", 2500, 2500),
    ("H200-SXM", "mxfp4", 989, 989),
    ("B200", "mxfp4", 9000 * 0.65, 2250),
    ("MI355X", "mxfp4", 10100 * 0.65, 2500),
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
def test_peak_of_a_format(catalog: Catalog, facts: SpeedFacts, gpu: str, dtype: str, four: float, eight: float) -> None:
    peaks = peaks_of(catalog.gpu(gpu), WeightDtype(dtype), facts)
    assert peaks.four_bit == pytest.approx(four * HALF)
    assert peaks.eight_bit == pytest.approx(eight * HALF)
    assert peaks.sixteen_bit == pytest.approx(catalog.gpu(gpu).bf16_tflops * HALF)
    assert (dtype in peaks.note) == (dtype != "bf16")
    assert ("16-bit" in peaks.note) == (dtype != "bf16" and peaks.sixteen_bit == peaks.four_bit == peaks.eight_bit)


@pytest.mark.parametrize("dtype", list(WeightDtype))
def test_every_format_has_a_note_in_the_source(
    catalog: Catalog, facts: SpeedFacts, sizing_of: Callable[..., Sizing], dtype: WeightDtype
) -> None:
    shape, gpu = catalog.model_shape(LLAMA_8B), catalog.gpu("H100-SXM")
    result = speed_model(shape, gpu, sizing_of(shape, gpu.id, weight_dtype=dtype), facts)
    assert (f"{dtype} weights multiply at" in result.source) == (dtype is not WeightDtype.BF16)


def test_only_converted_matrices_take_the_fast_peak(catalog: Catalog) -> None:
    """Nemotron-3-Nano in NVFP4 keeps attention and the Mamba layers beside it at 16 bits."""
    plain = body_flops(catalog.model_shape(NEMOTRON), WeightDtype.BF16, 1)
    shape = catalog.model_shape("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4")
    stored = body_flops(shape, WeightDtype.NVFP4, 1)
    assert stored.four_bit == 2.0 * sum(
        m.elements * (6 / 128 if m.part == "routed experts" else 1.0) for m in shape.matrices if m.stored
    )
    assert stored.eight_bit == 0
    assert stored.four_bit + stored.sixteen_bit == pytest.approx(plain.sixteen_bit)
    assert 0.1 < stored.sixteen_bit / plain.sixteen_bit < 0.3


@pytest.mark.parametrize(
    ("model", "billions"),
    [(QWEN_NEXT, 3.25), (NEMOTRON, 2.88), (KIMI_LINEAR, 2.73), ("ai21labs/Jamba-v0.1", 11.57), (LLAMA_8B, 6.98)],
)
def test_two_flops_per_active_parameter_and_a_small_scan(catalog: Catalog, model: str, billions: float) -> None:
    """Active parameters without embedding and head; the scan adds 7 FLOPs an element of state, under 4 %."""
    shape = catalog.model_shape(model)
    scan = 7 * sum(g.count * g.heads * g.head_dim * g.state_size for g in shape.state_layers)
    total = body_flops(shape, WeightDtype.BF16, 1).sixteen_bit
    assert (total - scan) / 2e9 == pytest.approx(billions, rel=0.002)
    assert scan / total < 0.04
    assert (scan > 0) == bool(shape.state_layers)


def test_scan_of_qwen3_next_by_hand(catalog: Catalog) -> None:
    shape = catalog.model_shape(QWEN_NEXT)
    without = body_flops(replace(shape, id="no states", state_layers=()), WeightDtype.BF16, 2).sixteen_bit
    # 36 layers of 32 heads of 128 x 128, on two ranks
    extra = body_flops(shape, WeightDtype.BF16, 2).sixteen_bit - without
    assert extra == pytest.approx(7 * 36 * 32 * 128 * 128 / 2)


def test_state_layers_are_split_by_tensor_parallelism(catalog: Catalog) -> None:
    """Jamba's Mamba projections are no linear layers for a quantiser, but they are divided all the same."""
    shape = catalog.model_shape("ai21labs/Jamba-v0.1")
    one, eight = (body_flops(shape, WeightDtype.BF16, tp).sixteen_bit for tp in (1, 8))
    assert one / 8 <= eight < 1.01 * one / 8


def test_key_value_heads_are_repeated_beyond_their_number(catalog: Catalog) -> None:
    shape = catalog.model_shape(QWEN_NEXT)  # 2 KV heads
    keys = [m for m in shape.matrices if m.split == "KV heads" and m.part == "attention"]
    extra = body_flops(shape, WeightDtype.BF16, 8).sixteen_bit * 8 - body_flops(shape, WeightDtype.BF16, 1).sixteen_bit
    assert extra >= 2 * 3 * sum(m.elements for m in keys)  # each head on four ranks instead of one


def test_recurrent_layers_attend_to_nothing(catalog: Catalog) -> None:
    # 12 of 48 layers, 16 heads of 256; 6 of 52, 32 heads of 128
    assert attention_flops(catalog.model_shape(QWEN_NEXT)) == 2 * 16 * 256 * 12
    assert attention_flops(catalog.model_shape(NEMOTRON)) == 2 * 32 * 128 * 6


def test_an_indexer_is_not_counted_as_attention(catalog: Catalog) -> None:
    sparse, dense = (catalog.model_shape(f"deepseek-ai/DeepSeek-{name}") for name in ("V3.2", "V3"))
    assert any(g.role is CacheRole.INDEX for g in sparse.cache_layers)
    assert attention_flops(sparse) == attention_flops(dense) == 2 * 128 * 160 * 61


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
    def source(model: str, **deployment: object) -> str:
        shape, gpu = catalog.model_shape(model), catalog.gpu("H200-SXM")
        return speed_model(shape, gpu, sizing_of(shape, gpu.id, **deployment), facts).source

    assert "sparse attention charged as dense" in source(
        "deepseek-ai/DeepSeek-V3.2", tp=8, weight_dtype=WeightDtype.FP8
    )
    assert "recurrent layers" in source(QWEN_NEXT, tp=2)
    assert "sparse" not in source(LLAMA_8B)
    assert "recurrent" not in source(LLAMA_8B)
