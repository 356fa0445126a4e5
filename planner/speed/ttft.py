"""Mean time to first token in a closed loop: a fixed number of clients, each of which asks again when it is answered.

A request that runs waits

    1. for the front end: a floor, and a little for each request that it serves at the same time;
    2. for the scheduler: some steps of the running batch until its prompt is taken in and its first token comes out
       (SGLang looks for new requests every ``scheduler-recv-interval`` steps);
    3. for its own prompt, chunk by chunk;
    4. for the prompts that arrive together with it: on average half of them go first;

and before that, where there are more clients than room, for another request to end.

The share of prompts that arrive together is 1/R for a benchmark of R requests per client: the clients start at once and
drift apart from then on. It is 1 for an engine that finishes every waiting prompt before it decodes again, when outputs
have one length: its requests keep in step for ever. Steady traffic has 0.

Points that were measured state one TTFT, whose growth with the clients is that of a mean over such a run. They hold no
percentiles, so there are none here; those of a plan come from arrivals over time (`planner.queueing.waiting`).
"""

from __future__ import annotations

import numpy as np

from planner.speed.step import Number, prefill_s, prefill_work_s
from planner.speed.types import FloatArray, StepCoefficients


def running_ttft_s(
    c: StepCoefficients,
    running: Number,
    prompt_tokens: Number,
    step_s: Number,
    cached_share: Number = 0.0,
) -> FloatArray:
    """Mean TTFT of a request from the moment it is admitted, seconds.

    With B running requests, P prompt tokens and prefill and work as in `planner.speed.step`:

        floor + client × B + wait steps × step + prefill(P) + together × (B − 1) / 2 × work(P)

    with the engine's constants ``ttft_floor_s``, ``ttft_client_s``, ``ttft_wait_steps`` and ``ttft_together_share``.

    Parameters
    ----------
    c
        Coefficients of the replica.
    running
        Requests in the replica, B ≥ 1.
    prompt_tokens, cached_share
        Length of the prompts, and the share of it that a prefix cache holds.
    step_s
        Mean time between two tokens of a running request, prompts of others included: TPOT without speculation.
    """
    b = np.asarray(running, dtype=np.float64)
    engine_s = c.ttft_floor_s + c.ttft_client_s * b + c.ttft_wait_steps * np.asarray(step_s, dtype=np.float64)
    others_s = c.ttft_together_share * np.maximum(b - 1.0, 0.0) / 2.0 * prefill_work_s(c, prompt_tokens, cached_share)
    return np.asarray(engine_s + prefill_s(c, prompt_tokens, cached_share) + others_s)


def admission_wait_s(clients: Number, room: Number, life_s: Number) -> FloatArray:
    """Mean wait of a client for a place in the replica, seconds.

    N clients share room for C requests: the C that run leave at the rate C / life, and the N − C that wait are served
    at this rate, so that by Little's law (J. Little, Oper. Res. 9(3), 1961) each waits

        (N − C) / (C / life) = (N / C − 1) × life,     0 for N ≤ C.

    Parameters
    ----------
    clients
        N.
    room
        C, requests that the token pool and ``max_num_seqs`` hold at once: pool tokens over the tokens that a request
        holds on average while it runs (prompt + output / 2); may be fractional or infinite.
    life_s
        Time that a request runs, from admission to its last token.

    Returns
    -------
    FloatArray
        Seconds; infinite where there is no room.
    """
    n, c = np.broadcast_arrays(np.asarray(clients, dtype=np.float64), np.asarray(room, dtype=np.float64))
    turns = np.divide(n, c, out=np.full(n.shape, np.inf), where=c > 0)
    return np.asarray(np.maximum(turns - 1.0, 0.0) * np.asarray(life_s, dtype=np.float64))


def closed_loop_ttft_s(
    c: StepCoefficients,
    clients: Number,
    prompt_tokens: Number,
    output_tokens: Number,
    tpot_s: Number,
    *,
    room: Number = np.inf,
    cached_share: Number = 0.0,
    acceptance: Number = 1.0,
) -> FloatArray:
    """Mean TTFT of ``clients`` that send their next request when the last one is answered, seconds.

    `running_ttft_s` of the min(N, room) requests that run, plus `admission_wait_s` with life = running TTFT +
    (O − 1) TPOT. With speculative decoding a step lasts ``acceptance`` TPOT. The other parameters are those of the two.
    """
    tpot, output = np.asarray(tpot_s, dtype=np.float64), np.asarray(output_tokens, dtype=np.float64)
    running = np.minimum(np.asarray(clients, dtype=np.float64), np.asarray(room, dtype=np.float64))
    step_s = tpot * np.asarray(acceptance, dtype=np.float64)
    admitted_s = running_ttft_s(c, running, prompt_tokens, step_s, cached_share)
    return np.asarray(admitted_s + admission_wait_s(clients, room, admitted_s + np.maximum(output - 1.0, 0.0) * tpot))
