"""Continuous batching on one replica, event by event: the scheduler of vLLM V1, compiled.

A step gives every running request its next token and the rest of ``max_num_batched_tokens`` to prompts, chunk by chunk;
waiting requests are admitted first come, first served, while the batch has a seat and the pool holds their prompt. A
running request that finds no block takes those of the request admitted last, which waits at the head of the queue
and is computed again, its tokens so far included (vLLM 0.11.0 to 0.33.0, vllm/v1/core/sched/scheduler.py: `schedule`).

Steps without prompts are taken together until something happens: an arrival, a completion, a full pool. Their time is a
straight line in the tokens held but for the kinks of `planner.speed.step.decode_step_s`, so the sum of k steps is taken
as k times the mean of the first and the last; k is at most `MOST_STEPS`.

The time of a step follows the speed room:

    decode_step(B, T) + a c + b ((d + c)^2 − d^2)       with B tokens decoded and a chunk of c after d tokens
    max(a c, reading) + fixed + b ((d + c)^2 − d^2)     where nothing is decoded

with a and b of `planner.speed.step.prefill_work_s`.

Compiled code knows no objects: what changes is held in arrays whose places have names. ``who``, ``length``, ``todo``
and ``grant`` are of the running requests in order of admission: number, tokens whose cache is held, tokens to be
computed before the next one is made, tokens granted in this step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np

from planner.replay.types import FloatArray, IntArray

F = TypeVar("F", bound=Callable[..., object])

MOST_STEPS = 256
UNFINISHED, SERVED, REFUSED_LENGTH, REFUSED_POOL = 0, 1, 2, 3

(DENSE, EXPERT, HIT, KV, SLIDE, WINDOW, COMPUTE, FIXED, SEQUENCE, REDUCE, PREFILL, PREFILL2, WAIT_STEPS) = range(13)
"""Places in the array of coefficients."""
(FULL, SLIDING, BLOCK, DECODE_WINDOW, PREFILL_WINDOW, STATE) = range(6)
"""Places in the array of holding."""
(SEATS, CHUNK, LONGEST) = range(3)
"""Places in the array of limits."""
(RUNNING, BACKS, HEAD, TAIL, WAITING, IS_SHORT) = range(6)
"""Places in the array of counts: running requests; preempted ones; the queue, head <= request < tail, and how many of
them are not refused; whether the pool holds somebody back in this step."""
(NOW, USED, LAST_STEP, BUDGET, POOL, HORIZON) = range(6)
"""Places in the array of figures."""
(SHORT_S, BUSY_S, USED_S, LIVE_S, QUEUE_S, FULL_S) = range(6)
"""Rows of the integrals over time."""
(MOST_TOKENS, MOST_RUNNING, MOST_WAITING) = range(3)


def compiled(function: F) -> F:
    """Machine code that lets other threads run."""
    return cast("F", numba.njit(cache=True, nogil=True)(function))


@compiled
def _held(h: FloatArray, tokens: float, prefill: bool) -> float:
    """Token-equivalents of a request of so many tokens: whole blocks, the window of sliding layers, its state."""
    blocks = np.ceil(tokens / h[BLOCK]) * h[BLOCK]
    window = h[PREFILL_WINDOW] if prefill else h[DECODE_WINDOW]
    return float(h[FULL] * blocks + h[SLIDING] * min(blocks, window) + h[STATE])


@compiled
def _read_s(c: FloatArray, tokens: float) -> float:
    return float(c[DENSE] + c[EXPERT] * (1.0 - (1.0 - c[HIT]) ** tokens))


@compiled
def _decode_s(c: FloatArray, batch: float, live: float) -> float:
    """`planner.speed.step.decode_step_s`."""
    cache = c[KV] * live + c[SLIDE] * min(live, batch * c[WINDOW])
    busy = max(_read_s(c, batch) + cache, c[COMPUTE] * batch)
    return float(busy + c[FIXED] + (c[SEQUENCE] + c[REDUCE]) * batch)


@compiled
def _steps_s(c: FloatArray, batch: float, live: float, steps: int) -> float:
    """Time of steps in which a batch grows by a token a sequence and step."""
    first = _decode_s(c, batch, live)
    return first if steps == 1 else steps * 0.5 * (first + _decode_s(c, batch, live + batch * (steps - 1)))


@compiled
def _refuse(fate: IntArray, prompt: IntArray, output: IntArray, h: FloatArray, limits: IntArray, pool: float) -> None:
    """What is too long, or alone larger than the pool."""
    for i in range(fate.size):
        if prompt[i] + output[i] > limits[LONGEST]:
            fate[i] = REFUSED_LENGTH
        elif _held(h, float(prompt[i] + output[i]), True) > pool:
            fate[i] = REFUSED_POOL


@compiled
def _arrive(arrival: FloatArray, fate: IntArray, k: IntArray, f: FloatArray, wait_steps: float) -> None:
    """Queue what has arrived; an engine that looks for requests every few steps sees it that much later."""
    delay = max(wait_steps - 1.0, 0.0) * f[LAST_STEP]
    while k[TAIL] < arrival.size and arrival[k[TAIL]] + delay <= f[NOW]:
        k[WAITING] += fate[k[TAIL]] == UNFINISHED
        k[TAIL] += 1
    while k[HEAD] < k[TAIL] and fate[k[HEAD]] != UNFINISHED:
        k[HEAD] += 1


@compiled
def _grow(
    who: IntArray, length: FloatArray, todo: FloatArray, grant: FloatArray, back: IntArray, preempted: IntArray,
    h: FloatArray, k: IntArray, f: FloatArray,
) -> None:  # fmt: skip
    """Tokens for those that run; one that finds no room takes that of the last ones admitted, its own at the end."""
    i = 0
    while i < k[RUNNING]:
        grant[i] = min(todo[i] if todo[i] > 0 else 1.0, f[BUDGET])
        if todo[i] == 0 and grant[i] > 0:
            grown = _held(h, length[i] + 1.0, False) - _held(h, length[i], False)
            while f[USED] + grown > f[POOL] and k[RUNNING] > i:
                k[RUNNING] -= 1
                last = k[RUNNING]
                f[USED] -= _held(h, length[last] + todo[last], todo[last] > 0)
                preempted[who[last]] += 1
                back[k[BACKS]] = who[last]
                k[BACKS] += 1
                k[IS_SHORT] = 1
            if k[RUNNING] <= i:
                return
            f[USED] += grown
        f[BUDGET] -= grant[i]
        i += 1


@compiled
def _admit(
    who: IntArray, length: FloatArray, todo: FloatArray, grant: FloatArray, back: IntArray, made: IntArray,
    fate: IntArray, prompt: IntArray, cached: IntArray, h: FloatArray, k: IntArray, f: FloatArray, seats: int,
) -> None:  # fmt: skip
    """Seat those that wait, preempted ones first, while there is a budget and the pool holds all they bring."""
    while k[IS_SHORT] == 0 and f[BUDGET] > 0 and k[RUNNING] < seats and k[BACKS] + k[WAITING] > 0:
        new = back[k[BACKS] - 1] if k[BACKS] > 0 else k[HEAD]
        total = float(prompt[new] + made[new])
        need = _held(h, total, True)
        if f[USED] + need > f[POOL]:
            k[IS_SHORT] = 1
            return
        if k[BACKS] > 0:
            k[BACKS] -= 1
        else:
            k[WAITING] -= 1
            k[HEAD] += 1
            while k[HEAD] < k[TAIL] and fate[k[HEAD]] != UNFINISHED:
                k[HEAD] += 1
        at = k[RUNNING]
        who[at] = new
        # The last token of a prompt is computed even where all of it is cached: it makes the first output token.
        length[at] = min(float(cached[new]), total - 1.0) if made[new] == 0 else 0.0
        todo[at] = total - length[at]
        grant[at] = min(todo[at], f[BUDGET])
        f[BUDGET] -= grant[at]
        f[USED] += need
        k[RUNNING] += 1


@compiled
def _steps_together(
    who: IntArray, length: FloatArray, made: IntArray, output: IntArray, arrival: FloatArray, c: FloatArray,
    h: FloatArray, k: IntArray, f: FloatArray, seats: int, live: float,
) -> int:  # fmt: skip
    """Steps of a batch that only decodes until something happens: a completion, an arrival, a full pool."""
    batch, steps = k[RUNNING], MOST_STEPS
    for i in range(batch):
        steps = min(steps, output[who[i]] - made[who[i]])
    if batch < seats and k[IS_SHORT] == 0:
        if k[WAITING] > 0:
            return 1
        if k[TAIL] < arrival.size:
            left, low = arrival[k[TAIL]] - f[NOW], 1
            while low < steps:
                middle = (low + steps + 1) // 2
                if _steps_s(c, batch, live, middle - 1) < left:
                    low = middle
                else:
                    steps = middle - 1
    while steps > 1 and f[USED] + (h[FULL] + h[SLIDING]) * batch * (steps + h[BLOCK]) > f[POOL]:
        after = 0.0
        for i in range(batch):
            after += _held(h, length[i] + steps, False)
        if after <= f[POOL]:
            break
        steps = steps // 2
    return max(steps, 1)


@compiled
def _record(area: FloatArray, most: FloatArray, k: IntArray, f: FloatArray, took: float, seats: int) -> None:
    """Add a step to the window in which it began."""
    queue = k[WAITING] + k[BACKS]
    at = min(area.shape[1] - 1, int(f[NOW] / f[HORIZON] * area.shape[1]))
    span = min(took, f[HORIZON] - f[NOW])
    area[SHORT_S, at] += span * (k[IS_SHORT] == 1 or k[BACKS] > 0)
    area[BUSY_S, at] += span
    area[USED_S, at] += span * f[USED]
    area[LIVE_S, at] += span * k[RUNNING]
    area[QUEUE_S, at] += span * queue
    area[FULL_S, at] += span * (k[RUNNING] == seats and queue > 0)
    most[MOST_RUNNING] = max(most[MOST_RUNNING], k[RUNNING])
    most[MOST_WAITING] = max(most[MOST_WAITING], queue)


@compiled
def _advance(
    who: IntArray, length: FloatArray, todo: FloatArray, grant: FloatArray, made: IntArray, output: IntArray,
    fate: IntArray, first: FloatArray, beside: IntArray, end: FloatArray, h: FloatArray, k: IntArray, f: FloatArray,
    steps: int,
) -> float:  # fmt: skip
    """What a step has made; those that are done leave. Returns the tokens held just before they did."""
    kept, used, peak, running = 0, 0.0, 0.0, k[RUNNING]
    for i in range(running):
        me = who[i]
        if grant[i] > 0 and todo[i] > 0:
            length[i] += grant[i]
            todo[i] -= grant[i]
            if todo[i] == 0:
                if made[me] == 0:
                    first[me], beside[me] = f[NOW], running
                made[me] += 1
        elif grant[i] > 0:
            length[i] += steps
            made[me] += steps
        holds = _held(h, length[i] + todo[i], todo[i] > 0)
        peak += holds
        if todo[i] == 0 and made[me] >= output[me]:
            fate[me], end[me] = SERVED, f[NOW]
        else:
            used += holds
            who[kept], length[kept], todo[kept] = me, length[i], todo[i]
            kept += 1
    k[RUNNING], f[USED] = kept, used
    return peak


@compiled
def run(
    arrival: FloatArray, prompt: IntArray, output: IntArray, cached: IntArray, c: FloatArray, h: FloatArray,
    limits: IntArray, pool: float, horizon: float, windows: int,
) -> tuple[IntArray, FloatArray, FloatArray, IntArray, IntArray, FloatArray, FloatArray]:  # fmt: skip
    """Serve requests until all have ended or the horizon is reached.

    Returns
    -------
    tuple
        By request: fate, first token (s), end (s), preemptions, and running requests at its first token; integrals over
        time by window, shape (6, windows); most tokens held, requests running and requests waiting.
    """
    n, seats = arrival.size, limits[SEATS]
    fate, preempted, beside, made = np.zeros((4, n), np.int64)
    first, end = np.full(n, np.nan), np.full(n, np.nan)
    area, most = np.zeros((6, windows)), np.zeros(3)
    who, back = np.zeros(seats, np.int64), np.zeros(seats + 1, np.int64)
    length, todo, grant = np.zeros((3, seats))
    k, f = np.zeros(6, np.int64), np.zeros(6)
    f[POOL], f[HORIZON] = pool, horizon
    _refuse(fate, prompt, output, h, limits, pool)
    while f[NOW] < horizon:
        _arrive(arrival, fate, k, f, c[WAIT_STEPS])
        if k[RUNNING] + k[WAITING] + k[BACKS] == 0:
            if k[TAIL] == n:
                break
            f[NOW], f[LAST_STEP] = max(f[NOW], arrival[k[TAIL]]), 0.0
            continue
        f[BUDGET], k[IS_SHORT] = limits[CHUNK], 0
        _grow(who, length, todo, grant, back, preempted, h, k, f)
        _admit(who, length, todo, grant, back, made, fate, prompt, cached, h, k, f, seats)
        batch, live, work, tokens = 0, 0.0, 0.0, 0.0
        for i in range(k[RUNNING]):
            if todo[i] > 0:
                tokens += grant[i]
                work += c[PREFILL2] * ((length[i] + grant[i]) ** 2 - length[i] ** 2)
            elif grant[i] > 0:
                batch += 1
                live += length[i]
        steps = 1
        if tokens > 0 and batch > 0:
            took = _decode_s(c, batch, live) + c[PREFILL] * tokens + work
        elif tokens > 0:
            took = max(c[PREFILL] * tokens, _read_s(c, tokens)) + c[FIXED] + work
        else:
            if batch == k[RUNNING]:
                steps = _steps_together(who, length, made, output, arrival, c, h, k, f, seats, live)
            took = _steps_s(c, batch, live, steps)
        _record(area, most, k, f, took, seats)
        f[NOW] += took
        f[LAST_STEP] = took / steps
        if f[NOW] > horizon:
            break
        peak = _advance(who, length, todo, grant, made, output, fate, first, beside, end, h, k, f, steps)
        most[MOST_TOKENS] = max(most[MOST_TOKENS], peak)
    return fate, first, end, preempted, beside, area, most
