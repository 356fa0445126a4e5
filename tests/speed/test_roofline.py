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
from planner.speed.types import Provider, SpeedModel, StepCoefficients

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


def test_efficiency_and_overheads_by_hand(model: Model, facts: SpeedFacts) -> None:
    c = model(LLAMA_8B, "H100-SXM").coefficients
    fit, era = facts.gpu["H100"], facts.era("vllm", "0.19.1")
    assert era is not None
    assert float(c.dense_read_s) == pytest.approx(STREAMED_BYTES / (H100_BYTES_PER_S * fit.bandwidth_efficiency))
    fixed_ms = (era.step_ms + 32 * era.dense_layer_ms) * fit.overhead_factor  # one GPU, no all-reduce
    assert float(c.fixed_s) == pytest.approx(fixed_ms / 1e3)
    assert float(c.sequence_s) == pytest.approx(era.sequence_ms / 1e3)
    assert float(c.compute_s_per_token) == pytest.approx(STREAMED_BYTES / (989e12 * facts.dense_compute.bf16.value))
    assert era.first_token is not None
    assert float(c.ttft_floor_s) == pytest.approx(era.first_token.floor_ms / 1e3)
    assert float(c.ttft_wait_steps) == era.first_token.wait_steps


def test_all_reduce_by_hand(model: Model, facts: SpeedFacts) -> None:
    one, four = (model(LLAMA_70B, "H100-SXM", tp=tp).coefficients for tp in (1, 4))
    latencies_ms = 160 * facts.allreduce_latency_ms.value * facts.gpu["H100"].overhead_factor
    assert float(four.fixed_s - one.fixed_s) == pytest.approx(latencies_ms / 1e3)
    # 160 messages of 8,192 x 2 bytes, 2 x 3/4 of each over 450 GB/s one way
    factor = facts.allreduce_transfer_factor.value
    assert float(four.allreduce_s_per_token) == pytest.approx(160 * 16_384 * 1.5 / 450e9 * factor)
    assert float(one.allreduce_s_per_token) == 0


def test_slices_multiply_less_well(model: Model, facts: SpeedFacts) -> None:
    """Norms are whole on every rank; everything else is a quarter, at the factor squared."""
    one, four = (model(LLAMA_70B, "H100-SXM", tp=tp).coefficients for tp in (1, 4))
    ratio = float(four.compute_s_per_token / one.compute_s_per_token)
    assert ratio == pytest.approx(facts.compute_tp_factor.value**2 / 4, rel=1e-3)


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


def test_mla_cache_is_not_split(model: Model, facts: SpeedFacts) -> None:
    one, eight = (model(DEEPSEEK, "H200-SXM", tp=tp).coefficients for tp in (1, 8))
    assert float(one.kv_read_s_per_token) == float(eight.kv_read_s_per_token)
    reached = facts.gpu["H200"].bandwidth_efficiency * facts.cache_read_efficiency.value
    assert float(one.kv_read_s_per_token) == pytest.approx(70_272 / (4.8e12 * reached))


def test_sliding_layers_read_one_window_per_sequence(model: Model, facts: SpeedFacts) -> None:
    c = model(GPT_OSS, "H100-SXM", weight_dtype=WeightDtype.MXFP4).coefficients
    assert float(c.window_tokens) == 128
    # 64 sequences, 1,000 tokens more each: 18 full layers grow by 36,864 bytes a token, the 18 sliding ones do not
    longer = float(decode_step_s(c, 64, 64 * 3000)) - float(decode_step_s(c, 64, 64 * 2000))
    reached = facts.gpu["H100"].bandwidth_efficiency * facts.cache_read_efficiency.value
    assert longer == pytest.approx(64 * 1000 * 36_864 / (H100_BYTES_PER_S * reached))


def test_picks_bound_what_a_long_context_reads(model: Model, facts: SpeedFacts) -> None:
    """GLM-5 with 8 sequences of 100,000 tokens more: only the index keys grow."""
    c = model("zai-org/GLM-5-FP8", "B200", tp=8, weight_dtype=WeightDtype.FP8).coefficients
    longer = float(decode_step_s(c, 8, 8 * 110_000)) - float(decode_step_s(c, 8, 8 * 10_000))
    reached = facts.gpu["B200"].bandwidth_efficiency * facts.cache_read_efficiency.value
    bandwidth = 7.7e12
    assert longer == pytest.approx(8 * 100_000 * 78 * 132 / (bandwidth * reached))


def _compute_ratio(one: StepCoefficients, other: StepCoefficients) -> float:
    return float(one.compute_s_per_token / other.compute_s_per_token)


def test_fp8_computes_at_the_fp8_peak_only_where_it_is_native(model: Model, ideal: SpeedFacts) -> None:
    def pair(gpu: str) -> tuple[StepCoefficients, StepCoefficients]:
        formats = (WeightDtype.BF16, WeightDtype.FP8)
        bf16, fp8 = (model(LLAMA_8B, gpu, facts=ideal, weight_dtype=d).coefficients for d in formats)
        return bf16, fp8

    # norms and the head stay at 16 bits
    kept = (266_240 + 525_336_576) / (STREAMED_BYTES / 2)
    assert _compute_ratio(*pair("H100-SXM")) == pytest.approx(1 / (kept + (1 - kept) * 989 / 1979))
    assert _compute_ratio(*pair("A100-80GB-SXM")) == pytest.approx(1.0)


def test_int4_reads_less_and_computes_at_16_bits(model: Model) -> None:
    bf16 = model(LLAMA_8B, "H100-SXM").coefficients
    int4 = model(LLAMA_8B, "H100-SXM", weight_dtype=WeightDtype.INT4_AWQ).coefficients
    assert _compute_ratio(bf16, int4) == 1.0
    assert float(int4.dense_read_s) < 0.4 * float(bf16.dense_read_s)


def test_mxfp4_computes_at_fp4_only_where_there_are_fp4_units(model: Model, ideal: SpeedFacts) -> None:
    def ratio(gpu: str) -> float:
        formats = (WeightDtype.BF16, WeightDtype.MXFP4)
        return _compute_ratio(*(model(GPT_OSS, gpu, facts=ideal, weight_dtype=d).coefficients for d in formats))

    assert ratio("H200-SXM") == pytest.approx(1.0)
    assert ratio("B200") > 1.5


def test_fp8_cache_halves_the_read(model: Model) -> None:
    bf16, fp8 = (model(LLAMA_8B, "H100-SXM", kv_dtype=d).coefficients for d in (KvDtype.BF16, KvDtype.FP8))
    assert float(bf16.kv_read_s_per_token) == 2 * float(fp8.kv_read_s_per_token)


def test_provenance_of_a_fitted_gpu(model: Model, facts: SpeedFacts) -> None:
    result = model(LLAMA_8B, "H100-SXM")
    fit = facts.gpu["H100"]
    assert f"efficiency {fit.bandwidth_efficiency:.2f} of H100-SXM fitted on {fit.points:,} points" in result.source
    assert str(facts.as_of) in result.source
    assert (result.tpot_band, result.ttft_band) == (facts.tpot_bands.known.band, facts.ttft_bands.known.band)
    assert result.provider is Provider.ROOFLINE
    assert not result.measured


def test_architecture_without_measurements_takes_its_band(model: Model, facts: SpeedFacts) -> None:
    assert "Gemma3ForConditionalGeneration" not in facts.architectures
    result = model("google/gemma-3-27b-it", "H100-SXM")
    assert "no measurement of Gemma3ForConditionalGeneration" in result.source
    assert (result.tpot_band, result.ttft_band) == (facts.tpot_bands.new_model.band, facts.ttft_bands.new_model.band)


@pytest.mark.parametrize("model_id", [LLAMA_8B, "google/gemma-3-27b-it"])
@pytest.mark.parametrize("gpu", ["MI300X", "H20", "L40S", "H100-PCIe", "T4"])
def test_gpu_without_fit_says_so_and_takes_the_wide_band(
    model: Model, catalog: Catalog, facts: SpeedFacts, gpu: str, model_id: str
) -> None:
    result = model(model_id, gpu)
    assert f"no measurement of {gpu}" in result.source
    assert "guess, wide band" in result.source
    assert (result.tpot_band, result.ttft_band) == (facts.tpot_bands.new_gpu.band, facts.ttft_bands.new_gpu.band)
    if model_id == LLAMA_8B:
        reached = catalog.gpu(gpu).memory_bandwidth_gb_s * 1e9 * facts.bandwidth_efficiency_default.value
        assert float(result.coefficients.dense_read_s) == pytest.approx(STREAMED_BYTES / reached)


@pytest.mark.parametrize("gpu", ["A100-80GB-SXM", "L4", "RTX4090", "GB200"])
def test_gpu_with_few_or_old_points_says_so_and_keeps_the_wide_band(model: Model, facts: SpeedFacts, gpu: str) -> None:
    result = model(LLAMA_8B, gpu)
    assert "fitted on" in result.source
    assert "(wide band)" in result.source
    assert (result.tpot_band, result.ttft_band) == (facts.tpot_bands.new_gpu.band, facts.ttft_bands.new_gpu.band)


def test_engine_without_overheads_is_refused(model: Model) -> None:
    with pytest.raises(InputError, match=r"lmdeploy: its overheads are not known.*sglang, trtllm, trtllm-bench, vllm"):
        model(LLAMA_8B, "H100-SXM", engine="lmdeploy")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_overheads_are_those_of_the_engine(model: Model, facts: SpeedFacts, engine: str) -> None:
    era = facts.era(engine, "")
    assert era is not None
    c = model(LLAMA_8B, "H200-SXM", engine=engine, version="").coefficients
    assert float(c.sequence_s) == pytest.approx(era.sequence_ms / 1e3)
    body_s = 2 * (6_979_321_856 + 266_240) / (989e12 * facts.dense_compute.bf16.value)
    assert float(c.prefill_s_per_token) == pytest.approx(body_s * era.prefill_factor)


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
