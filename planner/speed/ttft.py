"""Mean time to first token in a closed loop: a fixed number of clients, each of which asks again when it is answered.

A request that runs waits, in this order,

    1. for the front end: a floor, and a little for each other request that it serves at the same time;
    2. for the scheduler: some steps of the running batch until its prompt is taken in and its first token comes out;
    3. for its own prompt, chunk by chunk;
    4. for the prompts that arrived together with it: on average half of them go first;
    5. if the token pool holds fewer requests than there are clients, for a running request to end.

The constants of 1, 2 and 4 are an engine's, and a benchmark's. Measurements behind them state one TTFT per point, whose
growth with the number of clients is that of a mean over a run that all clients start at once; they hold no percentiles,
so there are none here. Those of a plan come from arrivals over time (`planner.queueing.waiting`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.speed.step import Number, prefill_s, prefill_work_s
from planner.speed.types import FloatArray, StepCoefficients


@dataclass(frozen=True)
class FirstToken:
    """What an engine adds to a first token; scalars, or one entry per point.

    The floor is the coefficient ``ttft_floor_s``, which open loops have as well.
    """

    client_s: FloatArray
    """Front-end time for each running request: HTTP, tokeniser and streaming share one event loop."""
    wait_steps: FloatArray
    """Steps of the running batch, each one TPOT long, from the arrival of a request to its first token: the step that
    runs already, those until the scheduler looks for new requests again, and those that carry the prompt's chunks.
    SGLang looks every ``scheduler-recv-interval`` steps."""
    together_share: FloatArray
    """Share of the other running requests whose prompts arrive together with this one, between 0 and 1.

    A benchmark that sends all its first requests at once and then R − 1 more per client has a share of 1/R on average
    over the run; steady traffic has 0. An engine that finishes every waiting prompt before it decodes again keeps
    requests of equal output length in step for ever, which is 1."""


def running_ttft_s(
    c: StepCoefficients,
    first: FirstToken,
    running: Number,
    prompt_tokens: Number,
    tpot_s: Number,
    cached_share: Number = 0.0,
) -> FloatArray:
    """Mean TTFT of a request from the moment it is admitted, seconds.

    With B running requests, P prompt tokens and prefill and work as in `planner.speed.step`:

        floor + client × B + prefill(P) + wait_steps × TPOT + together × (B − 1) / 2 × work(P)

    Parameters
    ----------
    c, first
        Coefficients of the replica, and what its engine adds.
    running
        Requests in the replica, B ≥ 1.
    prompt_tokens, cached_share
        Length of the prompts, and the share of it that a prefix cache holds.
    tpot_s
        Time per output token of the running requests, prompts of others included.
    """
    b = np.asarray(running, dtype=np.float64)
    engine_s = c.ttft_floor_s + first.client_s * b + first.wait_steps * np.asarray(tpot_s, dtype=np.float64)
    others_s = first.together_share * np.maximum(b - 1.0, 0.0) / 2.0 * prefill_work_s(c, prompt_tokens, cached_share)
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
    first: FirstToken,
    clients: Number,
    prompt_tokens: Number,
    output_tokens: Number,
    tpot_s: Number,
    room: Number = np.inf,
    cached_share: Number = 0.0,
) -> FloatArray:
    """Mean TTFT of ``clients`` that send their next request when the last one is answered, seconds.

    `running_ttft_s` of the min(N, room) requests that run, plus `admission_wait_s` with life = running TTFT +
    (O − 1) TPOT. The parameters are those of the two.
    """
    running = np.minimum(np.asarray(clients, dtype=np.float64), np.asarray(room, dtype=np.float64))
    admitted_s = running_ttft_s(c, first, running, prompt_tokens, tpot_s, cached_share)
    decoding_s = (np.asarray(output_tokens, dtype=np.float64) - 1.0) * np.asarray(tpot_s, dtype=np.float64)
    return np.asarray(admitted_s + admission_wait_s(clients, room, admitted_s + decoding_s))
