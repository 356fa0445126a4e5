"""The built-in speed provider: a roofline with measured efficiencies.

A decode step reads the weights once for the whole batch and the cache of every sequence, and multiplies the token of
every sequence with the weights; it takes the longer of reading and multiplying, plus fixed overheads and, with tensor
parallelism, two all-reduces per layer (S. Williams et al., "Roofline", CACM 52(4), 2009; the efficiencies are fitted,
see ``catalogs/speed/roofline.toml``).

A provider is any function that returns a `SpeedModel`; consumers see only that type and `planner.speed.step`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner import units
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import CacheKind, ModelShape
from planner.errors import Problems
from planner.memory.states import SGLANG_STATES, VLLM_STATES, states_bytes
from planner.memory.types import Sizing, WeightDtype
from planner.speed.facts import SpeedFacts
from planner.speed.types import FloatArray, SpeedModel, StepCoefficients

ACTIVATION_BYTES = 2
"""All-reduced activations are 16-bit in vLLM and SGLang, whatever the weights are."""
ALLREDUCES_PER_LAYER = 2
"""One after attention, one after the MLP (M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3)."""

MLA_PREFILL_HEAD_DIM = 160
"""Mean of the score width 192 (128 without and 64 with rotation) and the value width 128 of a head when MLA expands its
latent for prefill, in DeepSeek-V2 (arXiv:2405.04434) and every MLA checkpoint that is supported (DeepSeek, Kimi)."""
FIGURES_USED = frozenset({"memory_bandwidth_gb_s", "bf16_tflops", "fp8_tflops", "fp4_tflops", "interconnect_gb_s"})
"""Fields of a GPU that a prediction rests on."""


@dataclass(frozen=True)
class _Peaks:
    """FLOP/s of one GPU by part of the model, efficiency included."""

    linear: float
    """Attention projections and dense MLP."""
    experts: float
    sixteen_bit: float
    """Attention scores, head, router."""


def speed_model(shape: ModelShape, gpu: Gpu, sizing: Sizing, facts: SpeedFacts) -> SpeedModel:
    """Step-time coefficients of one replica.

    With η the bandwidth efficiency, BW the memory bandwidth in bytes/s, W the weight bytes of one rank and F the FLOPs
    of one token on one rank (2 per active parameter, split by tp):

        dense_read_s        = (W.dense + W.lm_head) / (η BW)
        expert_read_s       = W.experts / (η BW)
        kv_read_s_per_token = bytes_per_token / (η BW)
        compute_s_per_token = Σ over formats F / (0.45 × dense peak of the format)
        fixed_s             = overhead per layer × layers + 2 × layers × all-reduce latency [tp > 1]
        allreduce_s_per_token = 2 × layers × 2 hidden × 2 (tp − 1)/tp / one-direction bandwidth [tp > 1]
        sequence_s          = overhead per sequence + 2 × states of a sequence / (η BW)

    Parameters
    ----------
    shape, gpu
        The model and the accelerator.
    sizing
        Weight bytes per rank, bytes per token and the deployment (tp, formats, chunk of a prefill).
    facts
        Efficiencies and overheads with their bands.

    Raises
    ------
    InputError
        If the GPU lacks a figure that the formats or the tensor parallelism need; names every missing field.
    """
    peaks = _peaks(gpu, sizing.deployment.weight_dtype, sizing.deployment.tp, facts)
    fit = facts.fitted_gpu(gpu.id)
    efficiency = fit.bandwidth_efficiency if fit else facts.bandwidth_efficiency_default.value
    coefficients = _coefficients(shape, gpu, sizing, facts, peaks=peaks, efficiency=efficiency)
    bands = facts.bands
    return SpeedModel(
        coefficients=coefficients,
        tpot_band=(bands.tpot_fitted if fit else bands.tpot_unfitted).band,
        ttft_band=(bands.ttft_fitted if fit else bands.ttft_unfitted).band,
        source=_source(gpu, facts),
    )


def _source(gpu: Gpu, facts: SpeedFacts) -> str:
    """What the prediction rests on, for the reader of the plan."""
    fit = facts.fitted_gpu(gpu.id)
    if fit is None:
        text = (
            f"roofline {facts.as_of}: no fit for {gpu.id}, default bandwidth efficiency "
            f"{facts.bandwidth_efficiency_default.value:.2f} (guess, wide band)"
        )
    else:
        text = f"roofline {facts.as_of}: bandwidth efficiency {fit.bandwidth_efficiency:.2f} {fit.source}"
    guesses = [name for name in gpu.unverified if name in FIGURES_USED]
    if guesses:
        text += f"; unverified GPU figures: {', '.join(guesses)}"
    caution = facts.cautions.get(gpu.id)
    return f"{text}; caution: {caution}" if caution else text


def _peaks(gpu: Gpu, dtype: WeightDtype, tp: int, facts: SpeedFacts) -> _Peaks:
    """Usable FLOP/s for each part of the model; also checks that the link of a tensor-parallel group is known.

    fp8 weights multiply at the FP8 peak where the GPU has FP8 units, else they are widened to 16 bits (vLLM's Marlin
    kernels). int4 weights (W4A16) always multiply at 16 bits. mxfp4 holds experts only (the rest is bf16) and
    multiplies at the derated FP4 peak where there is one, else at 16 bits.
    """
    problems = Problems()
    where = f"gpus.csv, {gpu.id}"
    if gpu.bf16_tflops is None:
        problems.add(where, "the dense 16-bit peak is missing", "Add it with its source", field="bf16_tflops")
    if dtype is WeightDtype.FP8 and gpu.fp8_weights == "native" and gpu.fp8_tflops is None:
        problems.add(where, "FP8 is native but its peak is missing", "Add it with its source", field="fp8_tflops")
    if tp > 1 and gpu.interconnect_gb_s is None:
        problems.add(where, f"tp {tp} needs the link between GPUs", "Add it with its source", field="interconnect_gb_s")
    problems.raise_if_any()
    efficiency = facts.compute_efficiency.value
    sixteen_bit = units.tflops_to_flops(gpu.bf16_tflops or 0.0) * efficiency
    fp8 = units.tflops_to_flops(gpu.fp8_tflops or 0.0) * efficiency
    fp4 = units.tflops_to_flops(gpu.fp4_tflops or 0.0) * efficiency * facts.fp4_derate.value
    if dtype is WeightDtype.FP8 and gpu.fp8_weights == "native":
        return _Peaks(linear=fp8, experts=fp8, sixteen_bit=sixteen_bit)
    if dtype is WeightDtype.MXFP4 and fp4 > 0:
        return _Peaks(linear=sixteen_bit, experts=fp4, sixteen_bit=sixteen_bit)
    return _Peaks(linear=sixteen_bit, experts=sixteen_bit, sixteen_bit=sixteen_bit)


def _coefficients(
    shape: ModelShape, gpu: Gpu, sizing: Sizing, facts: SpeedFacts, *, peaks: _Peaks, efficiency: float
) -> StepCoefficients:
    """Every coefficient in seconds; see `speed_model` for the formulas."""
    tp = sizing.deployment.tp
    bandwidth = units.gb_per_s_to_bytes_per_s(gpu.memory_bandwidth_gb_s) * efficiency
    body_s = _body_s_per_token(shape, peaks, tp)
    allreduce_s = _allreduce_s_per_token(shape, gpu, tp)
    values = {
        "dense_read_s": (sizing.weights.dense + sizing.weights.lm_head) / bandwidth,
        "expert_read_s": sizing.weights.experts / bandwidth,
        "expert_hit_share": shape.experts_per_token / shape.num_experts if shape.is_moe else 0.0,
        "kv_read_s_per_token": sizing.bytes_per_token / bandwidth,
        "sliding_read_s_per_token": sizing.sliding_bytes_per_token / bandwidth,
        "window_tokens": sizing.window_tokens,
        "compute_s_per_token": body_s + _head_flops(shape) / peaks.sixteen_bit / tp,
        "fixed_s": _fixed_s(shape, tp, facts),
        "sequence_s": units.ms_to_s(facts.sequence_overhead_ms.value) + _state_bytes(shape, sizing) / bandwidth,
        "allreduce_s_per_token": allreduce_s,
        "prefill_s_per_token": body_s + _window_flops(shape) / peaks.sixteen_bit / tp + allreduce_s,
        "prefill_s_per_token2": _attention_flops(shape) / peaks.sixteen_bit / tp,
        "chunk_tokens": sizing.max_num_batched_tokens,
        "ttft_floor_s": units.ms_to_s(facts.ttft_floor_ms.value),
    }
    return StepCoefficients(**{name: _scalar(value) for name, value in values.items()})


def _state_bytes(shape: ModelShape, sizing: Sizing) -> float:
    """Bytes that recurrent layers read and write back for each sequence in a step, on one rank."""
    rules = SGLANG_STATES if sizing.engine == "sglang" else VLLM_STATES
    return 2.0 * states_bytes(shape.state_layers, sizing.deployment.tp, rules)


def _scalar(value: float) -> FloatArray:
    """A zero-dimensional array, so that scalars and stacked candidates share one type."""
    return np.asarray(value, dtype=np.float64)


def _body_s_per_token(shape: ModelShape, peaks: _Peaks, tp: int) -> float:
    """Compute of one token through the layers on one rank, seconds: 2 FLOPs per active parameter.

    Matrices are split by ``tp``; latent down-projections, routers and norms are computed whole on every rank.
    """
    counts = shape.parameters
    routed_share = shape.experts_per_token / shape.num_experts if shape.is_moe else 0.0
    split = counts.attention - counts.attention_replicated + counts.mlp
    split_s = split / peaks.linear + counts.experts * routed_share / peaks.experts
    whole_s = counts.attention_replicated / peaks.linear + (counts.router + counts.other) / peaks.sixteen_bit
    return 2 * (split_s / tp + whole_s)


def _head_flops(shape: ModelShape) -> float:
    """FLOPs of the output head for one token; prefill computes it for the last token only, which is left out there."""
    return 2.0 * shape.vocab_size * shape.hidden_size


def _attention_flops(shape: ModelShape) -> float:
    """FLOPs of causal attention per prompt token squared, over the layers that keep every token.

    Scores and weighted values are 2 × 2 × heads × head_dim × P² / 2 a layer (T. Dao, "FlashAttention-2",
    arXiv:2307.08691, section 4.1: causal halves the 4 P² d of the full matrix).
    """
    layers = sum(group.count for group in shape.cache_layers if group.kind is CacheKind.FULL)
    head_dim = MLA_PREFILL_HEAD_DIM if shape.has_latent_cache else shape.head_dim
    return 2.0 * shape.attention_heads * head_dim * layers


def _window_flops(shape: ModelShape) -> float:
    """FLOPs of sliding-window attention for one prompt token: 4 × heads × head_dim × window a layer.

    Exact once the prompt is much longer than the window, too high before; the term is a few per cent of the token's
    FLOPs at most.
    """
    widths = sum(
        group.count * (group.window_tokens or 0) for group in shape.cache_layers if group.kind is CacheKind.SLIDING
    )
    return 4.0 * shape.attention_heads * shape.head_dim * widths


def _fixed_s(shape: ModelShape, tp: int, facts: SpeedFacts) -> float:
    """Time of a step that no batch changes: kernel launches per layer, and all-reduce latencies."""
    dense_layers = shape.num_layers - shape.num_moe_layers
    overhead_ms = (
        shape.num_moe_layers * facts.moe_layer_overhead_ms.value + dense_layers * facts.dense_layer_overhead_ms.value
    )
    if tp > 1:
        overhead_ms += ALLREDUCES_PER_LAYER * shape.num_layers * facts.allreduce_latency_ms.value
    return units.ms_to_s(overhead_ms)


def _allreduce_s_per_token(shape: ModelShape, gpu: Gpu, tp: int) -> float:
    """Transfer time of all all-reduces for one token.

    A ring moves 2 (tp − 1)/tp of the message over each link (P. Patarasu and X. Yuan, J. Parallel Distrib. Comput.
    69(2), 2009); half of the printed bidirectional bandwidth flows each way. Slow links (PCIe) come out slow by their
    bandwidth; their higher latency is not modelled.
    """
    if tp == 1:
        return 0.0
    message_bytes = shape.hidden_size * ACTIVATION_BYTES
    one_way_bytes_per_s = units.gb_per_s_to_bytes_per_s(gpu.interconnect_gb_s or 0.0) / 2
    return ALLREDUCES_PER_LAYER * shape.num_layers * message_bytes * 2 * (tp - 1) / tp / one_way_bytes_per_s
