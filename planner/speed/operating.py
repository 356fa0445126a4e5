"""The operating point of a replica under a load: TPOT, TTFT and throughput from step coefficients.

Pure and vectorised: coefficients are scalars or one entry per point (`planner.speed.step.stack`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.speed.step import Number, decode_step_s, interfered_tpot_s, prefill_s, prefill_work_s
from planner.speed.ttft import closed_loop_ttft_s, running_ttft_s
from planner.speed.types import FloatArray, StepCoefficients

HALVINGS = 36
"""Of the interval that holds the TPOT, on a logarithmic scale: to a millionth of a millionth."""


@dataclass(frozen=True)
class Operating:
    """Where a replica settles, per point."""

    tpot_s: FloatArray
    ttft_s: FloatArray
    concurrency: FloatArray
    """Requests in the replica."""
    output_tok_s: FloatArray
    total_tok_s: FloatArray


def closed_loop(
    c: StepCoefficients,
    clients: Number,
    prompt_tokens: Number,
    output_tokens: Number,
    *,
    room: Number = np.inf,
    cached_share: Number = 0.0,
    acceptance: Number = 1.0,
) -> Operating:
    """``clients`` send their next request when the last one ends.

    At most ``room`` requests run at once, what the token pool and ``max_num_seqs`` hold; the others wait. A running
    request lives TTFT + (O − 1) TPOT; of the B running ones the share (O − 1) TPOT / life decodes, and prompts take the
    share u = B / life × E[prefill work] of the replica. TPOT is the one root of

        TPOT = decode_step(streams(TPOT)) / (1 − u(TPOT)) / acceptance,

    found by bisection: the right side over the left falls with TPOT, since streams grow slower than TPOT and u falls. A
    step yields ``acceptance`` tokens of a sequence (1 without speculative decoding; the draft's own time is not
    modelled).
    """
    n, p, o = (np.asarray(value, dtype=np.float64) for value in (clients, prompt_tokens, output_tokens))
    per_step = np.asarray(acceptance, dtype=np.float64)
    running, later = np.minimum(n, room), np.maximum(o - 1.0, 0.0)
    work = running * prefill_work_s(c, p, cached_share)
    held = p + o / 2
    full_s = decode_step_s(c, running, running * held) / per_step
    low = decode_step_s(c, np.zeros_like(running), np.zeros_like(held)) / per_step
    high = 2.0 * full_s + 2.0 * work / np.maximum(later, 1.0)
    for _ in range(HALVINGS):
        tpot = np.sqrt(low * high)
        life = running_ttft_s(c, running, p, tpot * per_step, cached_share) + later * tpot
        streams = running * later * tpot / life
        step_s = interfered_tpot_s(c, streams, streams * held, work / life) / per_step
        low, high = np.where(step_s > tpot, tpot, low), np.where(step_s > tpot, high, tpot)
    ttft = closed_loop_ttft_s(c, n, p, o, high, room=room, cached_share=cached_share, acceptance=acceptance)
    rate = n / (ttft + later * high)
    return Operating(high, ttft, n, rate * o, rate * (p + o))


def static_batch_s(c: StepCoefficients, batch: int, prompt_tokens: int, output_tokens: int) -> float:
    """Latency of a batch that is prefilled at once and decodes in lockstep, seconds."""
    prefill = max(float(prefill_s(c, prompt_tokens)), batch * float(prefill_work_s(c, prompt_tokens)))
    lengths = prompt_tokens + np.arange(1, output_tokens)
    return prefill + float(decode_step_s(c, batch, batch * lengths).sum())
