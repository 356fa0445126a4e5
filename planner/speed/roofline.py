"""The built-in speed provider: a roofline with measured efficiencies.

A decode step reads the weights once for the whole batch and the cache of every sequence, and multiplies the token of
every sequence with the weights; it takes the longer of reading and multiplying, plus fixed overheads and, with tensor
parallelism, two all-reduces per layer (S. Williams et al., "Roofline", CACM 52(4), 2009; the efficiencies are fitted,
see ``catalogs/speed/roofline.toml``).

A provider is any function that returns a `SpeedModel`; consumers see only that type and `planner.speed.step`.
"""

from __future__ import annotations

import numpy as np

from planner import units
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import CacheKind, CacheRole, ModelShape
from planner.errors import Problems
from planner.memory.states import SGLANG_STATES, VLLM_STATES, states_bytes
from planner.memory.types import Sizing, WeightDtype
from planner.speed.facts import SpeedFacts
from planner.speed.flops import allreduces, attention_flops, body_flops, cache_reads, head_flops, window_flops
from planner.speed.formats import Peaks, peaks_of
from planner.speed.types import FloatArray, SpeedModel, StepCoefficients

ACTIVATION_BYTES = 2
"""All-reduced activations are 16-bit in vLLM and SGLang, whatever the weights are."""
FIGURES_USED = frozenset(
    {"memory_bandwidth_gb_s", "bf16_tflops", "fp8_tflops", "fp4_tflops", "int8_tops", "interconnect_gb_s"}
)
"""Fields of a GPU that a prediction rests on."""


def speed_model(shape: ModelShape, gpu: Gpu, sizing: Sizing, facts: SpeedFacts) -> SpeedModel:
    """Step-time coefficients of one replica.

    With η the bandwidth efficiency, BW the memory bandwidth in bytes/s, W the weight bytes of one rank and F the FLOPs
    of one token on one rank (`planner.speed.flops`):

        dense_read_s        = (W.dense + W.lm_head) / (η BW)
        expert_read_s       = W.experts / (η BW)
        kv_read_s_per_token = bytes_per_token × layers that read / layers that keep / (η BW)
        compute_s_per_token = Σ over formats F / (0.45 × dense peak of the format)
        fixed_s             = overhead per layer × layers + all-reduces × all-reduce latency [tp > 1]
        allreduce_s_per_token = all-reduces × 2 hidden × 2 (tp − 1)/tp / one-direction bandwidth [tp > 1]
        sequence_s          = overhead per sequence + 2 × states of a sequence / (η BW)

    Sparse attention is charged as dense: the whole cache is read and multiplied.

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
    _check_figures(gpu, sizing.deployment.weight_dtype, sizing.deployment.tp)
    peaks = peaks_of(gpu, sizing.deployment.weight_dtype, facts)
    fit = facts.fitted_gpu(gpu.id)
    efficiency = fit.bandwidth_efficiency if fit else facts.bandwidth_efficiency_default.value
    coefficients = _coefficients(shape, gpu, sizing, facts, peaks=peaks, efficiency=efficiency)
    bands = facts.bands
    return SpeedModel(
        coefficients=coefficients,
        tpot_band=(bands.tpot_fitted if fit else bands.tpot_unfitted).band,
        ttft_band=(bands.ttft_fitted if fit else bands.ttft_unfitted).band,
        source=_source(shape, gpu, facts, peaks),
    )


def _source(shape: ModelShape, gpu: Gpu, facts: SpeedFacts, peaks: Peaks) -> str:
    """What the prediction rests on, for the reader of the plan."""
    fit = facts.fitted_gpu(gpu.id)
    if fit is None:
        text = (
            f"roofline {facts.as_of}: no fit for {gpu.id}, default bandwidth efficiency "
            f"{facts.bandwidth_efficiency_default.value:.2f} (guess, wide band)"
        )
    else:
        text = f"roofline {facts.as_of}: bandwidth efficiency {fit.bandwidth_efficiency:.2f} {fit.source}"
    text += "".join(f"; {note}" for note in (peaks.note, *_simplifications(shape)) if note)
    guesses = [name for name in gpu.unverified if name in FIGURES_USED]
    if guesses:
        text += f"; unverified GPU figures: {', '.join(guesses)}"
    caution = facts.cautions.get(gpu.id)
    return f"{text}; caution: {caution}" if caution else text


def _simplifications(shape: ModelShape) -> list[str]:
    """What the step of this model leaves out, or charges too high."""
    notes = []
    if any(layers.role is CacheRole.INDEX for layers in shape.cache_layers):
        notes.append("sparse attention charged as dense (slow side)")
    if shape.state_layers:
        notes.append("recurrent layers by their states and matrices; no measurement of such a model behind the fit")
    return notes


def _check_figures(gpu: Gpu, dtype: WeightDtype, tp: int) -> None:
    """The figures that the formats and the link of a tensor-parallel group need; every missing one is named."""
    problems = Problems()
    where = f"gpus.csv, {gpu.id}"
    if gpu.bf16_tflops is None:
        problems.add(where, "the dense 16-bit peak is missing", "Add it with its source", field="bf16_tflops")
    if dtype is WeightDtype.FP8 and gpu.fp8_weights == "native" and gpu.fp8_tflops is None:
        problems.add(where, "FP8 is native but its peak is missing", "Add it with its source", field="fp8_tflops")
    if tp > 1 and gpu.interconnect_gb_s is None:
        problems.add(where, f"tp {tp} needs the link between GPUs", "Add it with its source", field="interconnect_gb_s")
    problems.raise_if_any()


def _coefficients(
    shape: ModelShape, gpu: Gpu, sizing: Sizing, facts: SpeedFacts, *, peaks: Peaks, efficiency: float
) -> StepCoefficients:
    """Every coefficient in seconds; see `speed_model` for the formulas."""
    tp = sizing.deployment.tp
    bandwidth = units.gb_per_s_to_bytes_per_s(gpu.memory_bandwidth_gb_s) * efficiency
    body_s = _body_s_per_token(shape, peaks, sizing.deployment.weight_dtype, tp)
    allreduce_s = _allreduce_s_per_token(shape, gpu, tp)
    values = {
        "dense_read_s": (sizing.weights.dense + sizing.weights.lm_head) / bandwidth,
        "expert_read_s": sizing.weights.experts / bandwidth,
        "expert_hit_share": shape.experts_per_token / shape.num_experts if shape.is_moe else 0.0,
        "kv_read_s_per_token": sizing.bytes_per_token * cache_reads(shape, CacheKind.FULL) / bandwidth,
        "sliding_read_s_per_token": sizing.sliding_bytes_per_token * cache_reads(shape, CacheKind.SLIDING) / bandwidth,
        "window_tokens": sizing.window_tokens,
        "compute_s_per_token": body_s + head_flops(shape) / peaks.sixteen_bit / tp,
        "fixed_s": _fixed_s(shape, tp, facts),
        "sequence_s": units.ms_to_s(facts.sequence_overhead_ms.value) + _state_bytes(shape, sizing) / bandwidth,
        "allreduce_s_per_token": allreduce_s,
        "prefill_s_per_token": body_s + window_flops(shape) / peaks.sixteen_bit / tp + allreduce_s,
        "prefill_s_per_token2": attention_flops(shape) / peaks.sixteen_bit / tp,
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


def _body_s_per_token(shape: ModelShape, peaks: Peaks, dtype: WeightDtype, tp: int) -> float:
    """Compute of one token through the layers on one rank, seconds: each format at its own peak."""
    flops = body_flops(shape, dtype, tp)
    return flops.four_bit / peaks.four_bit + flops.eight_bit / peaks.eight_bit + flops.sixteen_bit / peaks.sixteen_bit


def _fixed_s(shape: ModelShape, tp: int, facts: SpeedFacts) -> float:
    """Time of a step that no batch changes: kernel launches per layer, and all-reduce latencies."""
    dense_layers = shape.num_layers - shape.num_moe_layers
    overhead_ms = (
        shape.num_moe_layers * facts.moe_layer_overhead_ms.value + dense_layers * facts.dense_layer_overhead_ms.value
    )
    if tp > 1:
        overhead_ms += allreduces(shape) * facts.allreduce_latency_ms.value
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
    return allreduces(shape) * message_bytes * 2 * (tp - 1) / tp / one_way_bytes_per_s
