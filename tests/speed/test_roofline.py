from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.catalog.load import Catalog
from planner.catalog.model_shape import StateKind, StateLayers
from planner.errors import InputError
from planner.memory.types import KvDtype, Sizing, WeightDtype
from planner.speed.facts import SpeedFacts
from planner.speed.roofline import speed_model
from planner.speed.step import decode_step_s, prefill_s
from planner.speed.types import SpeedModel, StepCoefficients

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
GPT_OSS = "openai/gpt-oss-120b"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
QWEN_MOE = "Qwen/Qwen3-235B-A22B-FP8"

# Llama-3-8B: 6,979,321,856 linear + 266,240 norms + 525,336,576 head parameters are streamed (not the embedding).
STREAMED_BYTES = 2 * (6_979_321_856 + 266_240 + 525_336_576)
CACHE_BYTES = 131_072
H100_BYTES_PER_S = 3.35e12

Model = Callable[..., SpeedModel]


@pytest.fixture
def model(catalog: Catalog, facts: SpeedFacts, sizing_of: Callable[..., Sizing]) -> Model:
    def build(model_id: str, gpu_id: str, *, facts: SpeedFacts = facts, **deployment: object) -> SpeedModel:
        shape, gpu = catalog.model_shape(model_id), catalog.gpu(gpu_id)
        return speed_model(shape, gpu, sizing_of(shape, gpu_id, **deployment), facts)

    return build


@pytest.mark.parametrize(
    ("batch", "context", "tokens_per_s"),
    [  # 3.35e12 / (15,009,849,344 + batch x context x 131,072), by hand
        (1, 1_000, 221.3),
        (1, 8_000, 208.6),
        (1, 128_000, 105.4),
        (16, 8_000, 105.4),
        (53, 8_000, 47.5),
    ],
)
def test_ideal_ceilings_of_llama_3_8b_on_h100(
    model: Model, ideal: SpeedFacts, batch: int, context: int, tokens_per_s: float
) -> None:
    c = model(LLAMA_8B, "H100-SXM", facts=ideal).coefficients
    step = float(decode_step_s(c, batch, batch * context))
    assert step == pytest.approx((STREAMED_BYTES + batch * context * CACHE_BYTES) / H100_BYTES_PER_S, rel=1e-6)
    assert 1 / step == pytest.approx(tokens_per_s, abs=0.05)


def test_ideal_prefill_is_two_flops_per_parameter(model: Model, ideal: SpeedFacts) -> None:
    c = model(LLAMA_8B, "H100-SXM", facts=ideal).coefficients
    # one chunk of 8,000: 2 x (linear + norms) x 8,000 and causal attention 2 x 32 heads x 128 x 32 layers x 8,000^2
    flops = 2 * (6_979_321_856 + 266_240) * 8000 + 2 * 32 * 128 * 32 * 8000**2
    assert float(prefill_s(c, 8000)) == pytest.approx(flops / 989e12, rel=1e-6)


def test_efficiency_and_overheads_by_hand(model: Model) -> None:
    c = model(LLAMA_8B, "H100-SXM").coefficients
    assert float(c.dense_read_s) == pytest.approx(STREAMED_BYTES / (H100_BYTES_PER_S * 0.95))
    assert float(c.fixed_s) == pytest.approx(32 * 3e-6)  # one GPU, no all-reduce
    assert float(c.compute_s_per_token) == pytest.approx(STREAMED_BYTES / (989e12 * 0.45))
    assert float(c.ttft_floor_s) == pytest.approx(0.096)


def test_all_reduce_by_hand(model: Model) -> None:
    c = model(LLAMA_70B, "H100-SXM", tp=4).coefficients
    assert float(c.fixed_s) == pytest.approx(80 * 3e-6 + 160 * 30e-6)
    # 160 messages of 8,192 x 2 bytes, 2 x 3/4 of each over 450 GB/s one way
    assert float(c.allreduce_s_per_token) == pytest.approx(160 * 16_384 * 1.5 / 450e9)


def test_pcie_all_reduces_are_slow(model: Model) -> None:
    nvlink = model(LLAMA_8B, "A100-80GB-SXM", tp=2).coefficients
    pcie = model(LLAMA_8B, "A100-80GB-PCIe", tp=2).coefficients
    assert float(pcie.allreduce_s_per_token) == pytest.approx(float(nvlink.allreduce_s_per_token) * 600 / 64)


@pytest.mark.parametrize("model_id", [LLAMA_70B, QWEN_MOE, GPT_OSS])
def test_more_tensor_parallelism_reads_fewer_weights(model: Model, model_id: str) -> None:
    degrees = (1, 2, 4, 8)
    steps = [model(model_id, "H100-SXM", tp=tp).coefficients for tp in degrees]
    for tp, c in zip(degrees, steps, strict=True):
        assert float(c.expert_read_s) == pytest.approx(float(steps[0].expert_read_s) / tp)
        # a little of the dense part is whole on every rank: norms, routers, keys and values beyond the KV heads
        assert 1.0 <= float(c.dense_read_s) / (float(steps[0].dense_read_s) / tp) < 1.35


def test_mla_cache_is_not_split(model: Model) -> None:
    one, eight = (model(DEEPSEEK, "H200-SXM", tp=tp).coefficients for tp in (1, 8))
    assert float(one.kv_read_s_per_token) == float(eight.kv_read_s_per_token)
    assert float(one.kv_read_s_per_token) == pytest.approx(70_272 / (4.8e12 * 0.68))


def test_sliding_layers_read_one_window_per_sequence(model: Model) -> None:
    c = model(GPT_OSS, "H100-SXM", weight_dtype=WeightDtype.MXFP4).coefficients
    assert float(c.window_tokens) == 128
    # 64 sequences, 1,000 tokens more each: 18 full layers grow by 36,864 bytes a token, the 18 sliding ones do not
    longer = float(decode_step_s(c, 64, 64 * 3000)) - float(decode_step_s(c, 64, 64 * 2000))
    assert longer == pytest.approx(64 * 1000 * 36_864 / (H100_BYTES_PER_S * 0.95))


def _compute_ratio(one: StepCoefficients, other: StepCoefficients) -> float:
    return float(one.prefill_s_per_token / other.prefill_s_per_token)


def test_fp8_computes_at_the_fp8_peak_only_where_it_is_native(model: Model) -> None:
    def pair(gpu: str) -> tuple[StepCoefficients, StepCoefficients]:
        bf16, fp8 = (model(LLAMA_8B, gpu, weight_dtype=d).coefficients for d in (WeightDtype.BF16, WeightDtype.FP8))
        return bf16, fp8

    assert _compute_ratio(*pair("H100-SXM")) == pytest.approx(1979 / 989, rel=1e-3)  # norms stay at 16 bits
    assert _compute_ratio(*pair("A100-80GB-SXM")) == pytest.approx(1.0)


def test_int4_reads_less_and_computes_at_16_bits(model: Model) -> None:
    bf16 = model(LLAMA_8B, "H100-SXM").coefficients
    int4 = model(LLAMA_8B, "H100-SXM", weight_dtype=WeightDtype.INT4_AWQ).coefficients
    assert _compute_ratio(bf16, int4) == 1.0
    assert float(int4.dense_read_s) < 0.4 * float(bf16.dense_read_s)


def test_mxfp4_computes_at_fp4_only_where_there_are_fp4_units(model: Model) -> None:
    hopper = [model(GPT_OSS, "H200-SXM", weight_dtype=d).coefficients for d in (WeightDtype.BF16, WeightDtype.MXFP4)]
    blackwell = [model(GPT_OSS, "B200", weight_dtype=d).coefficients for d in (WeightDtype.BF16, WeightDtype.MXFP4)]
    assert _compute_ratio(*hopper) == 1.0
    assert _compute_ratio(*blackwell) > 1.5


def test_fp8_cache_halves_the_read(model: Model) -> None:
    bf16, fp8 = (model(LLAMA_8B, "H100-SXM", kv_dtype=d).coefficients for d in (KvDtype.BF16, KvDtype.FP8))
    assert float(bf16.kv_read_s_per_token) == 2 * float(fp8.kv_read_s_per_token)


def test_provenance_of_a_fitted_gpu(model: Model, facts: SpeedFacts) -> None:
    result = model(LLAMA_8B, "H100-SXM")
    assert "0.95" in result.source
    assert "fitted" in result.source
    assert (result.tpot_band.low, result.tpot_band.high) == (0.76, 1.27)
    assert (result.ttft_band.low, result.ttft_band.high) == (0.45, 2.3)
    assert not result.measured


@pytest.mark.parametrize("gpu", ["GB200", "MI300X", "H20", "L4", "H100-PCIe"])
def test_gpu_without_fit_says_so_and_takes_the_wide_band(model: Model, catalog: Catalog, gpu: str) -> None:
    result = model(LLAMA_8B, gpu)
    bandwidth = catalog.gpu(gpu).memory_bandwidth_gb_s * 1e9
    assert float(result.coefficients.dense_read_s) == pytest.approx(STREAMED_BYTES / (bandwidth * 0.70))
    assert "no fit" in result.source
    assert "guess" in result.source
    assert (result.tpot_band.low, result.tpot_band.high) == (0.56, 1.77)


def test_contradicting_measurements_are_told(model: Model) -> None:
    assert "caution: 419 static-batch measurements" in model(LLAMA_8B, "MI300X").source


def test_missing_figures_are_all_named(catalog: Catalog, facts: SpeedFacts, sizing_of: Callable[..., Sizing]) -> None:
    shape = catalog.model_shape(LLAMA_8B)
    bare = catalog.gpu("H100-SXM").model_copy(
        update={"bf16_tflops": None, "fp8_tflops": None, "interconnect_gb_s": None}
    )
    with pytest.raises(InputError) as caught:
        speed_model(shape, bare, sizing_of(shape, bare.id, tp=2, weight_dtype=WeightDtype.FP8), facts)
    assert [p.field for p in caught.value.problems] == ["bf16_tflops", "fp8_tflops", "interconnect_gb_s"]


def test_states_are_read_and_written_back_for_every_sequence(
    catalog: Catalog, ideal: SpeedFacts, sizing_of: Callable[..., Sizing]
) -> None:
    shape, gpu = catalog.model_shape(LLAMA_8B), catalog.gpu("H100-SXM")
    # 10 layers of 32 heads of 128 x 128 at 4 bytes, and 3 taps of 4,096 channels at 2 bytes
    states = StateLayers(StateKind.GATED_DELTA, tuple(range(10)), 32, 128, 128, 16, 4, 4096, 4)
    with_states = replace(shape, state_layers=(states,))
    plain, recurrent = (speed_model(s, gpu, sizing_of(s, "H100-SXM"), ideal).coefficients for s in (shape, with_states))
    extra_s = 2 * 10 * (32 * 128 * 128 * 4 + 3 * 4096 * 2) / H100_BYTES_PER_S
    assert float(recurrent.sequence_s - plain.sequence_s) == pytest.approx(extra_s)
