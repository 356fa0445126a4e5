"""The roofline's arithmetic: work over what the machine reaches, plus overheads, as step coefficients.

Everything is elementwise, so that one deployment, a stack of candidates and a fit on a thousand points share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from planner import units
from planner.catalog.gpu import Gpu
from planner.memory.types import WeightDtype
from planner.speed.facts import ComputeEfficiency, EraFacts, SpeedFacts
from planner.speed.formats import Unit, peaks_of
from planner.speed.types import FloatArray, StepCoefficients
from planner.speed.work import StepWork


@dataclass(frozen=True)
class Machine:
    """What a GPU reaches, efficiencies included, and what its engine adds; scalars or one entry per deployment.

    Rates in bytes/s and FLOP/s, times in seconds.
    """

    dense_read: FloatArray
    expert_read: FloatArray
    cache_read: FloatArray
    dense_4bit: FloatArray
    dense_8bit: FloatArray
    dense_16bit: FloatArray
    expert_4bit: FloatArray
    expert_8bit: FloatArray
    expert_16bit: FloatArray
    link: FloatArray
    """One way; infinite without a link, where nothing is exchanged."""
    compute_tp_factor: FloatArray
    step_s: FloatArray
    dense_layer_s: FloatArray
    moe_layer_s: FloatArray
    sparse_layer_s: FloatArray
    linear_layer_s: FloatArray
    allreduce_s: FloatArray
    sequence_s: FloatArray
    prefill_factor: FloatArray
    ttft_floor_s: FloatArray
    ttft_client_s: FloatArray = field(default_factory=lambda: np.asarray(0.0))
    ttft_wait_steps: FloatArray = field(default_factory=lambda: np.asarray(0.0))
    ttft_together_share: FloatArray = field(default_factory=lambda: np.asarray(0.0))


def machine_of(gpu: Gpu, dtype: WeightDtype, facts: SpeedFacts, era: EraFacts) -> Machine:
    """A GPU with the efficiencies fitted for it, or the default ones."""
    fit = facts.fitted_gpu(gpu.id)
    efficiency = fit.bandwidth_efficiency if fit else facts.bandwidth_efficiency_default.value
    host = fit.overhead_factor if fit else 1.0
    bandwidth = units.gb_per_s_to_bytes_per_s(gpu.memory_bandwidth_gb_s) * efficiency
    link = units.gb_per_s_to_bytes_per_s(gpu.interconnect_gb_s) / 2 if gpu.interconnect_gb_s else np.inf
    peaks, first = peaks_of(gpu, dtype), era.first_token
    by_bits = {"4bit": peaks.four_bit, "8bit": peaks.eight_bit, "16bit": peaks.sixteen_bit}
    values = {
        "dense_read": bandwidth,
        "expert_read": bandwidth * facts.expert_read_efficiency.value,
        "cache_read": bandwidth * facts.cache_read_efficiency.value,
        **{f"dense_{bits}": p.flops * reached(facts.dense_compute, p.unit) for bits, p in by_bits.items()},
        **{f"expert_{bits}": p.flops * reached(facts.expert_compute, p.unit) for bits, p in by_bits.items()},
        "link": link / facts.allreduce_transfer_factor.value,
        "compute_tp_factor": facts.compute_tp_factor.value,
        "step_s": units.ms_to_s(era.step_ms) * host,
        "dense_layer_s": units.ms_to_s(era.dense_layer_ms) * host,
        "moe_layer_s": units.ms_to_s(era.moe_layer_ms) * host,
        "sparse_layer_s": units.ms_to_s(facts.sparse_layer_ms.value) * host,
        "linear_layer_s": units.ms_to_s(facts.linear_layer_ms.value) * host,
        "allreduce_s": units.ms_to_s(facts.allreduce_latency_ms.value) * host,
        "sequence_s": units.ms_to_s(era.sequence_ms),
        "prefill_factor": era.prefill_factor,
        "ttft_floor_s": units.ms_to_s(first.floor_ms if first else facts.ttft_floor_ms.value),
        "ttft_client_s": units.ms_to_s(first.client_ms) if first else 0.0,
        "ttft_wait_steps": first.wait_steps if first else 0.0,
        "ttft_together_share": first.together_share if first else 0.0,
    }
    return Machine(**{name: np.asarray(value, dtype=np.float64) for name, value in values.items()})


def reached(efficiency: ComputeEfficiency, unit: Unit) -> float:
    """Share of a unit's peak."""
    fact = {
        Unit.BF16: efficiency.bf16,
        Unit.FP8: efficiency.fp8,
        Unit.INT8: efficiency.int8,
        Unit.FP4: efficiency.fp4,
    }[unit]
    return fact.value


def step_coefficients(work: StepWork, machine: Machine) -> StepCoefficients:
    """Seconds of every part of a step.

    dense_read_s           = dense bytes / bandwidth reached
    expert_read_s          = expert bytes / bandwidth reached by experts
    kv_read_s_per_token    = cache bytes / bandwidth reached by the cache; the same for windows
    compute_s_per_token    = (Σ over formats FLOPs / peak reached + head) × factor ^ log2(tp)
    fixed_s                = step + layers × overhead of a layer + all-reduces × latency
    sequence_s             = overhead of a sequence + states read and written back / bandwidth
    allreduce_s_per_token  = bytes exchanged / link
    prefill_s_per_token    = (body + attention over windows) × prefill factor + all-reduces
    prefill_s_per_token2   = attention × prefill factor
    """
    slicing = machine.compute_tp_factor ** np.log2(work.tp)
    body_s = _body_s(work, machine) * slicing
    sixteen = machine.dense_16bit
    exchange_s = work.allreduce_bytes / machine.link
    return StepCoefficients(
        dense_read_s=work.dense_bytes / machine.dense_read,
        expert_read_s=work.expert_bytes / machine.expert_read,
        expert_hit_share=work.expert_hit_share,
        kv_read_s_per_token=work.cache_bytes_per_token / machine.cache_read,
        sliding_read_s_per_token=work.window_bytes_per_token / machine.cache_read,
        window_tokens=work.window_tokens,
        compute_s_per_token=body_s + work.head_flops / sixteen * slicing,
        fixed_s=_fixed_s(work, machine),
        sequence_s=machine.sequence_s + work.state_bytes / machine.dense_read,
        allreduce_s_per_token=exchange_s,
        prefill_s_per_token=(body_s + work.window_flops / sixteen) * machine.prefill_factor + exchange_s,
        prefill_s_per_token2=work.attention_flops / sixteen * machine.prefill_factor,
        chunk_tokens=work.chunk_tokens,
        ttft_floor_s=machine.ttft_floor_s,
        ttft_client_s=machine.ttft_client_s,
        ttft_wait_steps=machine.ttft_wait_steps,
        ttft_together_share=machine.ttft_together_share,
    )


def _body_s(work: StepWork, machine: Machine) -> FloatArray:
    """Compute of one token through the layers on one rank: each format at what it reaches."""
    return np.asarray(
        work.dense_flops_4bit / machine.dense_4bit
        + work.dense_flops_8bit / machine.dense_8bit
        + work.dense_flops_16bit / machine.dense_16bit
        + work.expert_flops_4bit / machine.expert_4bit
        + work.expert_flops_8bit / machine.expert_8bit
        + work.expert_flops_16bit / machine.expert_16bit
    )


def _fixed_s(work: StepWork, machine: Machine) -> FloatArray:
    """Time of a step that no batch changes: kernel launches per layer, and all-reduce latencies."""
    return np.asarray(
        machine.step_s
        + work.dense_layers * machine.dense_layer_s
        + work.moe_layers * machine.moe_layer_s
        + work.sparse_layers * machine.sparse_layer_s
        + work.linear_layers * machine.linear_layer_s
        + work.allreduces * machine.allreduce_s
    )
