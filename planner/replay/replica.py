"""One replica: its engine as arrays for the compiled scheduler, and what comes back."""

from __future__ import annotations

import numpy as np

from planner.replay import kernel
from planner.replay.types import Engine, FloatArray, Outcome, Requests

WINDOWS = 20
"""Windows of time whose means give intervals of confidence."""


def replay_replica(requests: Requests, engine: Engine, horizon_s: float, windows: int = WINDOWS) -> Outcome:
    """Serve requests on one replica until all have ended, or the horizon is reached.

    Parameters
    ----------
    requests
        In order of arrival, all before the horizon.
    engine
        The replica.
    horizon_s
        When the replay stops, s; later completions count as unfinished.
    windows
        Equal windows of [0, horizon) for the integrals over time.

    Raises
    ------
    ValueError
        If arrivals are not in order, a length is below 1, or the horizon is not above 0.
    """
    _check(requests, horizon_s)
    fate, first, end, preempted, beside, area, most = kernel.run(
        np.ascontiguousarray(requests.arrival_s, dtype=np.float64),
        np.ascontiguousarray(requests.prompt_tokens, dtype=np.int64),
        np.ascontiguousarray(requests.output_tokens, dtype=np.int64),
        np.ascontiguousarray(requests.cached_tokens, dtype=np.int64),
        _coefficients(engine), _holding(engine),
        np.array([engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len], dtype=np.int64),
        float(engine.pool_tokens), float(horizon_s), windows,
    )  # fmt: skip
    c = engine.coefficients
    seen = first + float(c.ttft_floor_s) + float(c.ttft_client_s) * beside
    short, busy, used, live, queue, full = area
    return Outcome(
        fate=fate, seen_s=seen, first_token_s=first, end_s=end, preemptions=preempted, short_s=short, full_s=full,
        busy_s=busy, used_token_s=used, live_request_s=live, queue_request_s=queue, most_tokens=float(most[0]),
        most_running=int(most[1]), most_waiting=int(most[2]),
    )  # fmt: skip


def _check(requests: Requests, horizon_s: float) -> None:
    if horizon_s <= 0:
        raise ValueError("the horizon must be above 0 s")
    if len(requests) and np.any(np.diff(requests.arrival_s) < 0):
        raise ValueError("requests must come in order of arrival")
    if np.any(requests.prompt_tokens < 1) or np.any(requests.output_tokens < 1):
        raise ValueError("prompts and outputs have at least one token")


def _coefficients(engine: Engine) -> FloatArray:
    """Coefficients in the order of the kernel's places."""
    c = engine.coefficients
    return np.array(
        [
            c.dense_read_s, c.expert_read_s, c.expert_hit_share, c.kv_read_s_per_token, c.sliding_read_s_per_token,
            c.window_tokens, c.compute_s_per_token, c.fixed_s, c.sequence_s, c.allreduce_s_per_token,
            c.prefill_s_per_token, c.prefill_s_per_token2, c.ttft_wait_steps,
        ],
        dtype=np.float64,
    )  # fmt: skip


def _holding(engine: Engine) -> FloatArray:
    """Holding in the order of the kernel's places."""
    h = engine.holding
    return np.array([h.full, h.sliding, h.block_tokens, h.window_tokens, h.reserve_tokens, h.state], dtype=np.float64)
