"""What one decode step is spent on, part by part, at the operating point of an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner import units
from planner.speed.cases.answers import Answer
from planner.speed.points import Load, LoadKind
from planner.speed.step import coverage, decode_step_s
from planner.speed.types import FloatArray, StepCoefficients


@dataclass(frozen=True)
class StepParts:
    """Milliseconds of a mean decode step.

    Attributes
    ----------
    decoding
        Sequences that decode at once in a replica.
    weights_read_ms, kv_read_ms, compute_ms
        Reading and multiplying overlap: the step is charged for their combination, ``busy_ms``.
    fixed_ms
        What no batch changes: launches, and latencies of all-reduces.
    sequence_ms
        Work for each sequence: sampling, scheduling, recurrent states.
    allreduce_ms
        Transfers of all-reduces.
    prefill_ms
        What prompts of other requests add, in the mean.
    """

    decoding: float
    weights_read_ms: float
    kv_read_ms: float
    compute_ms: float
    busy_ms: float
    fixed_ms: float
    sequence_ms: float
    allreduce_ms: float
    prefill_ms: float


def step_parts(c: StepCoefficients, load: Load, answer: Answer, replicas: int = 1) -> StepParts | None:
    """The parts of the step behind an answer's TPOT; ``None`` where it has none.

    By Little's law the sequences that decode are requests a second x (O − 1) TPOT; a static batch decodes whole. The
    parts that a batch does not share are the coefficients times the batch or its live tokens; what combining reading
    and computing gives is the whole step less the overheads.
    """
    if answer.tpot_ms is None or answer.output_tok_s is None:
        return None
    step_s = units.ms_to_s(answer.tpot_ms.value) * load.acceptance
    if load.kind is LoadKind.STATIC_BATCH:
        batch = float(answer.concurrency or 1.0)
    else:
        share = (load.output_tokens - 1) / load.output_tokens
        batch = answer.output_tok_s / replicas * units.ms_to_s(answer.tpot_ms.value) * share
    live = batch * (load.input_tokens + load.output_tokens / 2)
    plain_s = float(decode_step_s(c, batch, live))
    nothing = np.asarray(0.0)
    no_overheads = replace(c, fixed_s=nothing, sequence_s=nothing, allreduce_s_per_token=nothing)
    parts_s: dict[str, FloatArray] = {
        "weights_read_ms": c.dense_read_s + c.expert_read_s * coverage(batch, c.expert_hit_share),
        "kv_read_ms": c.kv_read_s_per_token * live
        + c.sliding_read_s_per_token * min(live, batch * float(c.window_tokens)),
        "compute_ms": c.compute_s_per_token * batch,
        "busy_ms": decode_step_s(no_overheads, batch, live),
        "fixed_ms": c.fixed_s,
        "sequence_ms": c.sequence_s * batch,
        "allreduce_ms": c.allreduce_s_per_token * batch,
        "prefill_ms": np.asarray(max(0.0, step_s - plain_s)),
    }
    return StepParts(decoding=batch, **{name: units.s_to_ms(float(value)) for name, value in parts_s.items()})
