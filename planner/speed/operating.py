"""The operating point of a replica under a load: TPOT, TTFT and throughput from step coefficients.

Pure and vectorised: coefficients are scalars or one entry per point (`planner.speed.step.stack`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.speed.step import Number, decode_step_s, interfered_tpot_s, prefill_s, prefill_work_s
from planner.speed.types import FloatArray, StepCoefficients

TTFT_SLOPE = 0.16
"""In a closed loop a prompt waits this share of a prefill for each other client."""
ITERATIONS = 100


@dataclass(frozen=True)
class Operating:
    """Where a replica settles, per point."""

    tpot_s: FloatArray
    ttft_s: FloatArray
    concurrency: FloatArray
    """Requests in the replica."""
    output_tok_s: FloatArray
    total_tok_s: FloatArray


def closed_loop(c: StepCoefficients, clients: Number, prompt_tokens: Number, output_tokens: Number) -> Operating:
    """``clients`` send their next request when the last one ends, by iterating to the fixed point.

    A request lives TTFT + (O − 1) TPOT; of N clients the share (O − 1) TPOT / life decodes, and prompts take the share
    N / life × E[prefill work] of the replica.
    """
    n, p, o = (np.asarray(value, dtype=np.float64) for value in (clients, prompt_tokens, output_tokens))
    ttft = c.ttft_floor_s + prefill_s(c, p) * (1 + TTFT_SLOPE * (n - 1))
    work = prefill_work_s(c, p)
    tpot = decode_step_s(c, n, n * (p + o / 2))
    for _ in range(ITERATIONS):
        life = ttft + (o - 1) * tpot
        streams = n * (o - 1) * tpot / life
        share = np.minimum(n / life * work, 0.95)
        tpot = (tpot + interfered_tpot_s(c, streams, streams * (p + o / 2), share)) / 2
    rate = n / (ttft + (o - 1) * tpot)
    return Operating(tpot, ttft, n, rate * o, rate * (p + o))


def static_batch_s(c: StepCoefficients, batch: int, prompt_tokens: int, output_tokens: int) -> float:
    """Latency of a batch that is prefilled at once and decodes in lockstep, seconds."""
    prefill = max(float(prefill_s(c, prompt_tokens)), batch * float(prefill_work_s(c, prompt_tokens)))
    lengths = prompt_tokens + np.arange(1, output_tokens)
    return prefill + float(decode_step_s(c, batch, batch * lengths).sum())
