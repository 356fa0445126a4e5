"""Operating points of many loads at once, by kind of load; pure, on top of `planner.speed.operating`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from planner.speed.max_load import full_batch, max_load, open_loop
from planner.speed.operating import Operating, closed_loop, static_batch_s
from planner.speed.points import Load, LoadKind
from planner.speed.types import FloatArray, StepCoefficients

LENGTHS = ("input_tokens", "output_tokens", "cached_share", "acceptance")
OF_A_STEP = (
    "dense_read_s",
    "expert_read_s",
    "kv_read_s_per_token",
    "sliding_read_s_per_token",
    "compute_s_per_token",
    "fixed_s",
    "sequence_s",
    "allreduce_s_per_token",
)
"""Coefficients that a decode step pays, whatever it yields."""


@dataclass(frozen=True)
class Asked:
    """Loads of replicas, one entry per row.

    Attributes
    ----------
    room
        Requests of these lengths that the pool holds at once, by `held_share` of their output.
    most
        ``max_num_seqs``: limits loads that do not state their concurrency. A closed loop and a batch are taken to be
        let in as far as the pool goes.
    decode_only
        Prompts are computed elsewhere.
    """

    loads: tuple[Load, ...]
    coefficients: StepCoefficients
    room: FloatArray
    most: FloatArray
    held_share: FloatArray
    decode_only: FloatArray


@dataclass(frozen=True)
class Settled:
    """Where the replicas settle, one entry per row; NaN where a figure has no meaning."""

    tpot_s: FloatArray
    ttft_s: FloatArray
    concurrency: FloatArray
    output_tok_s: FloatArray
    total_tok_s: FloatArray
    overloaded: FloatArray
    """Whether requests arrive faster than the replica serves them."""


def settle_all(asked: Asked) -> Settled:
    """The operating point of every row.

    A closed loop runs its clients, at most ``room`` of them at once. Max load and arrivals at a rate are
    `planner.speed.max_load`'s. A static batch is prefilled at once and decodes in lockstep; one that is larger than the
    room runs in turns. A decode-only replica pays nothing for prompts.
    """
    settled = Settled(*(np.full(len(asked.loads), np.nan) for _ in fields(Settled)))
    kinds = np.array([str(load.kind) for load in asked.loads])
    for kind, settle in SETTLERS.items():
        rows = np.flatnonzero(kinds == str(kind))
        if len(rows):
            found = settle(_at(asked, rows))
            for item in fields(Settled):
                getattr(settled, item.name)[rows] = getattr(found, item.name)
    return settled


def _closed(asked: Asked) -> Settled:
    """A closed loop; one output token has no TPOT."""
    prompts, outputs, cached, acceptance = (_values(asked, name) for name in LENGTHS)
    clients, room = _values(asked, "concurrency"), np.maximum(asked.room, 1.0)
    c = _without_prompts(asked)
    return _settled(
        closed_loop(c, clients, prompts, outputs, room=room, cached_share=cached, acceptance=acceptance), outputs
    )


def _full(asked: Asked) -> Settled:
    """As many requests as there is room for; a stated number of prompts is a list that ends. The TTFT is the list's."""
    prompts, outputs, _, _ = (_values(asked, name) for name in LENGTHS)
    stated, longest = _values(asked, "concurrency"), _values(asked, "longest_output_tokens")
    found = max_load(
        _per_token(asked),
        _pool_tokens(asked, prompts, outputs),
        asked.most,
        prompts,
        outputs,
        held_share=asked.held_share,
        requests=np.where(np.isfinite(stated), stated, np.inf),
        longest_output_tokens=np.where(np.isfinite(longest), longest, outputs),
    )
    return replace(_settled(found, outputs), ttft_s=np.full(len(prompts), np.nan))


def _open(asked: Asked) -> Settled:
    """Arrivals at a rate; where they are too many, the replica is full and its queue grows."""
    prompts, outputs, _, _ = (_values(asked, name) for name in LENGTHS)
    pool, rate = _pool_tokens(asked, prompts, outputs), _values(asked, "rate_per_s")
    c, share = _per_token(asked), asked.held_share
    found = open_loop(c, rate, prompts, outputs, pool, asked.most, held_share=share)
    overloaded = ~np.isfinite(found.concurrency)
    places = full_batch(pool, asked.most, prompts, outputs, held_share=share)
    return replace(
        _settled(found, outputs),
        ttft_s=np.where(np.isfinite(found.ttft_s), found.ttft_s, np.nan),
        concurrency=np.where(overloaded, places, found.concurrency),
        overloaded=overloaded.astype(np.float64),
    )


def _static(asked: Asked) -> Settled:
    rows = [_one_batch(asked, i) for i in range(len(asked.loads))]
    return Settled(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))


def _one_batch(asked: Asked, row: int) -> tuple[float, ...]:
    """TPOT, TTFT, batch, output and total tokens a second of one static batch."""
    load = asked.loads[row]
    c = StepCoefficients(
        **{item.name: np.asarray(getattr(asked.coefficients, item.name)[row]) for item in fields(StepCoefficients)}
    )
    prompt, output = round(load.input_tokens), max(1, round(load.output_tokens))
    batch = max(1, round(load.concurrency or 1))
    running = max(1, min(batch, int(min(asked.room[row], batch))))
    first_s = static_batch_s(c, running, prompt, 1)
    latency_s = first_s + (static_batch_s(c, running, prompt, output) - first_s) / load.acceptance
    tpot_s = (latency_s - first_s) / (output - 1) if output > 1 else np.nan
    whole_s = latency_s * batch / running
    return tpot_s, first_s, running, batch * output / whole_s, batch * (prompt + output) / whole_s, 0.0


SETTLERS = {
    LoadKind.CLOSED_LOOP: _closed,
    LoadKind.MAX_LOAD: _full,
    LoadKind.OPEN_LOOP: _open,
    LoadKind.STATIC_BATCH: _static,
}


def _settled(found: Operating, outputs: FloatArray) -> Settled:
    """An operating point as a table has it: infinite times are none."""
    tpot_s, ttft_s = (np.where(np.isfinite(value), value, np.nan) for value in (found.tpot_s, found.ttft_s))
    return Settled(
        tpot_s=np.where(outputs > 1, tpot_s, np.nan),
        ttft_s=ttft_s,
        concurrency=np.asarray(found.concurrency, dtype=np.float64),
        output_tok_s=np.asarray(found.output_tok_s, dtype=np.float64),
        total_tok_s=np.asarray(found.total_tok_s, dtype=np.float64),
        overloaded=np.zeros(len(outputs)),
    )


def _pool_tokens(asked: Asked, prompts: FloatArray, outputs: FloatArray) -> FloatArray:
    """Tokens of a pool that holds ``room`` requests of these lengths, whatever else a request holds."""
    return np.asarray(asked.room * (prompts + asked.held_share * outputs))


def _without_prompts(asked: Asked) -> StepCoefficients:
    """Coefficients in which the prompts of a decode-only replica cost nothing."""
    here = np.where(asked.decode_only > 0, 0.0, 1.0)
    c = asked.coefficients
    return replace(
        c,
        prefill_s_per_token=np.asarray(c.prefill_s_per_token * here),
        prefill_s_per_token2=np.asarray(c.prefill_s_per_token2 * here),
    )


def _per_token(asked: Asked) -> StepCoefficients:
    """Coefficients per token that is made and per prompt token that is computed.

    A step that yields a tokens of a sequence costs 1/a for each; of a prompt with the share s cached, (1 − s) P tokens
    are multiplied, with attention over P² (1 − s²).
    """
    cached, acceptance = _values(asked, "cached_share"), _values(asked, "acceptance")
    c = _without_prompts(asked)
    steps = {name: np.asarray(getattr(c, name) / acceptance) for name in OF_A_STEP}
    return replace(
        c,
        **steps,
        prefill_s_per_token=np.asarray(c.prefill_s_per_token * (1 - cached)),
        prefill_s_per_token2=np.asarray(c.prefill_s_per_token2 * (1 - cached**2)),
    )


def _at(asked: Asked, rows: npt.NDArray[np.intp]) -> Asked:
    picked = {item.name: getattr(asked.coefficients, item.name)[rows] for item in fields(StepCoefficients)}
    loads = tuple(asked.loads[int(i)] for i in rows)
    per_row = (asked.room, asked.most, asked.held_share, asked.decode_only)
    return Asked(loads, StepCoefficients(**picked), *(values[rows] for values in per_row))


def _values(asked: Asked, name: str) -> FloatArray:
    """A field of the loads; NaN where it is not stated."""
    return column(asked.loads, name)


def column(loads: Sequence[Load], name: str) -> FloatArray:
    """A field of loads as numbers; NaN where it is not stated."""
    return np.array([getattr(load, name) for load in loads], dtype=np.float64)
