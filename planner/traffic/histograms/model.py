"""The tables of one model from what its targets counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from planner.traffic.grid import whole_growth
from planner.traffic.histograms.collect import COUNT, SUM, ModelCounts, Side
from planner.traffic.histograms.counters import Counted
from planner.traffic.histograms.couple import coupled, largest_total
from planner.traffic.histograms.names import Vocabulary
from planner.traffic.histograms.place import Bucketed, Marginal, feasible_support, merged, place, square_bounds
from planner.traffic.histograms.rates import Span, a_minute, bursts, cached_by_hour, minute_edges
from planner.traffic.schema import Coupling
from planner.traffic.types import FloatArray, IntArray

OF_NOTE = 0.01
"""Shares below this are left unsaid."""


@dataclass(frozen=True)
class Beside:
    """Counters beside the histograms, by target."""

    hits: Sequence[Counted] = ()
    queries: Sequence[Counted] = ()
    prompt_total: Sequence[Counted] = ()


@dataclass(frozen=True)
class ModelTables:
    """One model's share of the canonical tables."""

    lengths: pa.Table
    tail: Mapping[str, Any]
    rates: Mapping[str, Any]
    bursts: list[dict[str, Any]]
    prefix: list[dict[str, Any]]
    kept: int
    offered: int
    remarks: list[str]


def tables_of(
    model: str, counts: ModelCounts, beside: Beside, vocabulary: Vocabulary, span: Span, limit: int | None
) -> ModelTables:
    """Lengths under both couplings, arrivals by minute, bursts, cached tokens, of a model with requests.

    Raises
    ------
    InputError
        If no placement within the buckets has the stated mean.
    """
    prompts, outputs = _requests(counts.prompt), _requests(counts.output)
    first, prompt_note, longest_prompt = _marginal(f"{model}, prompts", counts.prompt, outputs, limit)
    second, output_note, longest_output = _marginal(f"{model}, outputs", counts.output, outputs, limit)
    offered = max(prompts, outputs)
    arrivals = counts.prompt if prompts >= outputs else counts.output
    edges = minute_edges(span)
    n = a_minute([side.counted for side in arrivals], edges, COUNT, offered)
    tokens = [
        a_minute([side.counted for side in sides], edges, SUM, law.tokens)
        for sides, law in ((counts.prompt, first), (counts.output, second))
    ]
    cached = _cached(model, beside, edges, n)
    share = min(sum(row["sum_cached"] for row in cached) / sum(row["sum_prompt"] for row in cached), 1) if cached else 0
    couplings = (Coupling.COMONOTONE, Coupling.COUNTERMONOTONE)
    return ModelTables(
        lengths=pa.concat_tables(
            [coupled(model, first, second, c, cached_share=share, limit=limit) for c in couplings]
        ),
        tail=largest_total(model, longest_prompt, longest_output, limit),
        rates=_rates(model, edges, n, *tokens),
        bursts=bursts(model, [side.counted for side in arrivals], COUNT, span),
        prefix=cached,
        kept=outputs,
        offered=offered,
        remarks=[
            *counts.notes,
            prompt_note,
            output_note,
            *_differing(prompts, outputs, vocabulary),
            *_unaccounted(counts, beside, vocabulary),
            *_restarts(counts),
        ],
    )


def _requests(sides: Sequence[Side]) -> int:
    return round(float(sum(side.in_buckets.sum() for side in sides)))


def _marginal(where: str, sides: Sequence[Side], requests: int, limit: int | None) -> tuple[Marginal, str, int]:
    """The law of one length of so many requests, how sure its second moment is, and the largest possible length."""
    parts = _bucketed(sides, requests)
    supports = [feasible_support(where, part, limit) for part in parts]
    law = merged([place(support, part.tokens) for support, part in zip(supports, parts, strict=True)])
    bounds = [square_bounds(support, part.tokens) for support, part in zip(supports, parts, strict=True)]
    square = float((law.weight * law.value.astype(np.float64) ** 2).sum())
    low, high = sum(b[0] for b in bounds), sum(b[1] for b in bounds)
    side, longest = where.rpartition(", ")[2], max(int(support.high.max()) for support in supports)
    note = (
        f"mean of the squared {side} is a guess of where in their buckets the lengths lie: {square / requests:,.0f} "
        f"tokens², where the buckets and the exact mean allow {low / requests:,.0f} to {high / requests:,.0f}; "
        f"the largest is one too, and may be {longest:,} tokens"
    )
    return law, note, longest


def _bucketed(sides: Sequence[Side], requests: int) -> list[Bucketed]:
    """Requests by bucket, one entry for each set of bounds, brought to ``requests`` in all."""
    by_bounds: dict[tuple[float, ...], list[Side]] = defaultdict(list)
    for side in sides:
        by_bounds[side.bounds].append(side)
    entries = [
        (bounds, np.sum([side.in_buckets for side in same], axis=0), sum(side.counted.total[SUM] for side in same))
        for bounds, same in sorted(by_bounds.items())
    ]
    n = np.concatenate([counts for _, counts, _ in entries])
    scale = requests / n.sum()
    upto = np.append(0.0, np.cumsum(n) * scale)
    upto[-1] = requests
    whole, found, at = whole_growth(upto).astype(np.int64), [], 0
    for bounds, counts, tokens in entries:
        part = whole[at : at + counts.size]
        at += counts.size
        if part.sum():
            found.append(Bucketed(bounds, part, round(float(tokens) * part.sum() / float(counts.sum()))))
    return found


def _rates(model: str, edges: FloatArray, n: IntArray, prompt: IntArray, output: IntArray) -> dict[str, Any]:
    seen = (n > 0) | (prompt > 0) | (output > 0)
    minutes = pa.array((edges[:-1][seen] * 1e6).astype(np.int64)).cast(pa.timestamp("us"))
    size = int(seen.sum())
    return {
        "model": [model] * size,
        "minute_utc": minutes,
        "n": n[seen],
        "sum_prompt": prompt[seen],
        "sum_output": output[seen],
    }


def _cached(model: str, beside: Beside, edges: FloatArray, n: IntArray) -> list[dict[str, Any]]:
    totals = [round(float(sum(one.total[0] for one in counted))) for counted in (beside.queries, beside.hits)]
    if not beside.hits or totals[0] <= 0:
        return []
    queries, hits = (
        a_minute(c, edges, 0, total) for c, total in zip((beside.queries, beside.hits), totals, strict=True)
    )
    return cached_by_hour(model, n, queries, np.minimum(hits, queries), edges)


def _differing(prompts: int, outputs: int, vocabulary: Vocabulary) -> list[str]:
    if prompts == outputs:
        return []
    why = "it counts prompts as they arrive" if vocabulary.at_arrival else "they were counted at different times"
    return [
        f"{prompts:,} prompts and {outputs:,} outputs were counted ({vocabulary.engine}: {why}); prompt lengths are "
        "taken to be the same for the requests that have an output, and the larger number are the arrivals"
    ]


def _unaccounted(counts: ModelCounts, beside: Beside, vocabulary: Vocabulary) -> list[str]:
    """Prefill that belongs to no finished request: aborted ones hold KV cache too."""
    every = sum(one.total[0] for one in beside.prompt_total)
    known = sum(side.counted.total[SUM] for side in counts.prompt)
    share = 1 - known / every if every > 0 else 0.0
    if vocabulary.engine != "vllm" or share <= OF_NOTE:
        return []
    return [
        f"{100 * share:.1f} % of the prefilled tokens belong to requests in no histogram (aborted, or not yet done): "
        "they are a load that the lengths and rates do not show"
    ]


def _restarts(counts: ModelCounts) -> list[str]:
    restarts = sum(side.counted.restarts for side in counts.output)
    if not restarts:
        return []
    return [f"{restarts} restart{'s' if restarts > 1 else ''}: what was counted after the last scrape before is lost"]
