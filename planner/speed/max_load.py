"""A replica as full as its token pool and its caps allow, and one to which requests arrive at a rate.

Both rest on one balance. With B requests in the replica, each of which brings w = `prefill_work_s` of prompt work and
takes O − 1 decode steps of step(B, T) seconds with T = B (P + O/2) live tokens, a place is taken for

    life = (O − 1) step(B, T) + B w,

because in that time the replica decodes O − 1 steps and, in a steady state, prefills one prompt for each of its B
places. It ends B requests in every life. (The same as TPOT = step / (1 − u) with u = B w / life, see
`planner.speed.step.interfered_tpot_s`, solved for the life.)

Pure and vectorised: coefficients are scalars or one entry per point (`planner.speed.step.stack`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from planner.speed.operating import Operating
from planner.speed.step import Number, decode_step_s, prefill_s, prefill_work_s
from planner.speed.ttft import running_ttft_s
from planner.speed.types import FloatArray, StepCoefficients

GROWN_SHARE = 0.5
"""Of the output, that a request in a random phase of its decoding holds: engines that take blocks as they go."""
RESERVED_SHARE = 1.0
"""The same for an engine that admits a request only where its whole output fits: TensorRT-LLM, whose default scheduler
policy is ``GUARANTEED_NO_EVICT`` (https://nvidia.github.io/TensorRT-LLM/features/paged-attention-ifb-scheduler.html)."""
RESERVING_ENGINE = "trtllm"
HALVINGS = 60
"""Of the interval in which the concurrency of an open loop lies: below the rounding of a float."""


def held_share_of(engine: str) -> float:
    """Share of its output that a running request holds under an engine, served or driven offline."""
    return RESERVED_SHARE if engine.startswith(RESERVING_ENGINE) else GROWN_SHARE


def full_batch(
    pool_tokens: Number,
    max_num_seqs: Number,
    prompt_tokens: Number,
    output_tokens: Number,
    *,
    held_share: Number = GROWN_SHARE,
    requests: Number = np.inf,
) -> FloatArray:
    """Requests that run at once when more are always waiting.

        B = min(pool / (P + held_share × O), max_num_seqs, requests)

    Parameters
    ----------
    pool_tokens
        Tokens that the replica's KV pool holds, all data-parallel ranks together.
    max_num_seqs
        The engine's cap of running sequences, ranks together.
    prompt_tokens, output_tokens
        Mean lengths P and O.
    held_share
        `GROWN_SHARE` or `RESERVED_SHARE`.
    requests
        Length of the list, where it is finite.

    Returns
    -------
    FloatArray
        At least 1 where the longest moment of one request, P + O tokens, fits the pool; else 0: the request can never
        end, and engines refuse it.
    """
    pool, p, o = (np.asarray(value, dtype=np.float64) for value in (pool_tokens, prompt_tokens, output_tokens))
    held = p + np.asarray(held_share, dtype=np.float64) * o
    places = np.minimum(np.minimum(pool / held, max_num_seqs), requests)
    return np.asarray(np.where(pool >= p + o, np.maximum(places, 1.0), 0.0))


def max_load(
    c: StepCoefficients,
    pool_tokens: Number,
    max_num_seqs: Number,
    prompt_tokens: Number,
    output_tokens: Number,
    *,
    held_share: Number = GROWN_SHARE,
    requests: Number = np.inf,
    longest_output_tokens: Number | None = None,
) -> Operating:
    """All requests queue at once: the replica stays as full as it can be.

    An endless list gives B O / life output tokens per second. A list of N requests ends later than that, as its last
    requests leave places empty. Where N ≤ B it is one round, as long as its longest output L, in which N O / L requests
    run on average:

        makespan = N w + (L − 1) step(N O / L).

    Else requests of one length that start together end together, hence ⌈N/B⌉ rounds, of which N/B + ½ is the mean over
    unknown remainders; with outputs of several lengths the empty half round is one of the longest:

        makespan = N w + (N/B (O − 1) + ½ (L − 1)) step(B).

    TTFT is the mean wait in the list, (makespan − life) / 2, plus the prompt's own prefill; infinite without an end.

    Parameters
    ----------
    c
        Coefficients of the replica.
    pool_tokens, max_num_seqs, prompt_tokens, output_tokens, held_share, requests
        As in `full_batch`.
    longest_output_tokens
        L of a list that ends; ``None`` where all outputs are as long as the mean.

    Returns
    -------
    Operating
        Where the pool holds no request: nothing runs, no tokens, infinite times.
    """
    p, o, n = (np.asarray(value, dtype=np.float64) for value in (prompt_tokens, output_tokens, requests))
    batch = full_batch(pool_tokens, max_num_seqs, p, o, held_share=held_share, requests=n)
    running = np.maximum(batch, 1.0)
    work_s, step_s = prefill_work_s(c, p), decode_step_s(c, running, running * (p + o / 2))
    life_s = _life_s(step_s, work_s, running, o)
    finite = np.isfinite(n)
    count = np.where(finite, n, 1.0)
    longest = o if longest_output_tokens is None else np.maximum(longest_output_tokens, o)
    makespan_s = count * work_s + _decoding_s(c, step_s, running, count, p, o, longest)
    per_s = np.where(finite, count / makespan_s, running / life_s)
    wait_s = np.where(finite, np.maximum(makespan_s - life_s, 0.0) / 2, np.inf)
    found = Operating(
        tpot_s=_tpot_s(step_s, work_s, running, o),
        ttft_s=np.asarray(c.ttft_floor_s + prefill_s(c, p) + wait_s),
        concurrency=running,
        output_tok_s=np.asarray(per_s * o),
        total_tok_s=np.asarray(per_s * (p + o)),
    )
    return _nothing_where(found, batch < 1)


def open_loop(
    c: StepCoefficients,
    rate_per_s: Number,
    prompt_tokens: Number,
    output_tokens: Number,
    pool_tokens: Number,
    max_num_seqs: Number,
    *,
    held_share: Number = GROWN_SHARE,
) -> Operating:
    """Requests arrive at a rate λ: the mean concurrency n at which as many end as arrive.

        n = λ (TTFT(n + 1) + (O − 1) TPOT(n + 1)),     TPOT(n) = step(n, n (P + O/2)) / (1 − λ w)

    (J. Little, Oper. Res. 9(3), 1961); a request runs beside the n others that Poisson arrivals meet (R. Wolff, Oper.
    Res. 30(2), 1982). TTFT is `running_ttft_s` of prompts that arrive one by one. Found by bisection. Waiting for a
    free place is not in it: that is `planner.queueing`'s.

    Parameters
    ----------
    rate_per_s
        Arrivals at this replica, λ.
    c, prompt_tokens, output_tokens, pool_tokens, max_num_seqs, held_share
        As in `max_load`.

    Returns
    -------
    Operating
        Overloaded, that is λ at or above what `max_load` serves or no settled concurrency within `full_batch`: infinite
        concurrency and TTFT, and TPOT and tokens of the full replica. Where the pool holds no request: as `max_load`.
    """
    rate, p, o = (np.asarray(value, dtype=np.float64) for value in (rate_per_s, prompt_tokens, output_tokens))
    full = max_load(c, pool_tokens, max_num_seqs, p, o, held_share=held_share)
    most = full.concurrency
    left = 1.0 - rate * prefill_work_s(c, p)
    one_by_one = replace(c, ttft_together_share=np.zeros(()))

    def tpot_s(n: FloatArray) -> FloatArray:
        met = n + 1.0
        return np.asarray(decode_step_s(c, met, met * (p + o / 2)) / np.where(left > 0, left, np.nan))

    def first_s(n: FloatArray) -> FloatArray:
        return running_ttft_s(one_by_one, n + 1.0, p, tpot_s(n))

    def arrived(n: FloatArray) -> FloatArray:
        return np.asarray(rate * (first_s(n) + (o - 1) * tpot_s(n)))

    settles = (left > 0) & (rate * o < full.output_tok_s) & (arrived(most) <= most)
    low, high = np.zeros_like(most + rate), most + 0.0 * rate
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        more = arrived(middle) > middle
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return Operating(
        tpot_s=np.where(settles, tpot_s(high), full.tpot_s),
        ttft_s=np.where(settles, first_s(high), np.inf),
        concurrency=np.where(settles, high, np.where(full.output_tok_s > 0, np.inf, 0.0)),
        output_tok_s=np.where(settles, rate * o, full.output_tok_s),
        total_tok_s=np.where(settles, rate * (p + o), full.total_tok_s),
    )


def _decoding_s(
    c: StepCoefficients,
    step_s: FloatArray,
    batch: FloatArray,
    count: FloatArray,
    prompt: FloatArray,
    output: FloatArray,
    longest: FloatArray,
) -> FloatArray:
    """Decoding time of a list of ``count`` requests, by the two cases of `max_load`."""
    alive = np.maximum(batch * output / longest, 1.0)
    one_round_s = (longest - 1) * decode_step_s(c, alive, alive * (prompt + output / 2))
    rounds_s = (count / batch * (output - 1) + (longest - 1) / 2) * step_s
    return np.asarray(np.where(count <= batch, one_round_s, rounds_s))


def _life_s(step_s: FloatArray, work_s: FloatArray, batch: FloatArray, output: FloatArray) -> FloatArray:
    """How long a request keeps its place: the balance of the module."""
    return np.asarray((output - 1) * step_s + batch * work_s)


def _tpot_s(step_s: FloatArray, work_s: FloatArray, batch: FloatArray, output: FloatArray) -> FloatArray:
    """Of a life, what is not the request's own prefill, per token after the first; NaN where there is none."""
    later = np.where(output > 1, output - 1, np.nan)
    return np.asarray((_life_s(step_s, work_s, batch, output) - work_s) / later)


def _nothing_where(found: Operating, none: npt.NDArray[np.bool_]) -> Operating:
    """The operating point of a replica that can run no request, where this is one."""
    return Operating(
        tpot_s=np.where(none, np.inf, found.tpot_s),
        ttft_s=np.where(none, np.inf, found.ttft_s),
        concurrency=np.where(none, 0.0, found.concurrency),
        output_tok_s=np.where(none, 0.0, found.output_tok_s),
        total_tok_s=np.where(none, 0.0, found.total_tok_s),
    )
