"""The rows that the charts of a distribution draw: densities, shares, rates and bursts of each model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from planner.traffic import law as laws
from planner.traffic.buckets import EDGES
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import of_model
from planner.traffic.figures import ModelFigures
from planner.traffic.grid import HOUR_US, HOURS_A_WEEK, Span, counts_by_minute, hour_of_week
from planner.traffic.schema import Kind
from planner.traffic.source import to_traffic
from planner.traffic.tables.definitions import MINUTE_US
from planner.traffic.types import FloatArray, IntArray, LengthLaw, Traffic

Rows = list[dict[str, Any]]
ZERO_AT = 0.5
"""Where a logarithmic axis draws lengths of 0 tokens."""
MOST_POINTS = 700
"""Points of a rate line."""
BINS_MIN = (1, 5, 10, 30, 60, 180, 360, 1440)
"""Minutes that a point of a rate line may stand for."""
HOUR_MINUTES = 60
BAND = (0.1, 0.9)
"""Quantiles over weeks that the band of a week's profile shows."""


def traffic_of(canonical: Canonical, model: str) -> Traffic | None:
    """One model as plans see it; None where only sums are known."""
    if canonical.manifest.kind is Kind.SUMS:
        return None
    return to_traffic(canonical, model=model, name=model, where=Path(model), sha256="")


def density_rows(canonical: Canonical, model: str) -> Rows:
    """Cells of the length law with the share of requests per square octave; at most four cells an octave."""
    if canonical.manifest.kind is Kind.SUMS:
        return []
    cells = of_model(canonical.lengths, model)
    cells = cells.filter(pc.equal(cells["period"], "all"))
    cells = cells.filter(pc.equal(cells["coupling"], cells["coupling"][0]))
    boxes: dict[tuple[float, float, float, float], int] = {}
    names = ("prompt_lo", "prompt_hi", "output_lo", "output_hi", "n")
    for prompt_lo, prompt_hi, output_lo, output_hi, n in zip(*(cells[c].to_pylist() for c in names), strict=True):
        box = (*_quarter(prompt_lo, prompt_hi), *_quarter(output_lo, output_hi))
        boxes[box] = boxes.get(box, 0) + n
    total = sum(boxes.values())
    return [
        {"p": p, "p2": p2, "o": o, "o2": o2, "share": _round(n / total / (math.log2(p2 / p) * math.log2(o2 / o)))}
        for (p, p2, o, o2), n in sorted(boxes.items())
    ]


def _quarter(low: int, high: int) -> tuple[float, float]:
    """The side of a cell on a logarithmic axis: a quarter octave that holds it, or itself where it is wider."""
    if low == 0:
        return ZERO_AT, max(float(high), 1.0)
    k = math.floor(4 * math.log2(low) + 1e-9)
    start, end = math.ceil(2 ** (k / 4)), math.ceil(2 ** ((k + 1) / 4))
    return (float(start), float(end)) if high <= end else (float(low), float(high))


def share_rows(traffic: Traffic, model: str) -> dict[str, Rows]:
    """Share of requests up to a length: of prompts, outputs, totals; and ``beyond``, of totals that are longer."""
    law = traffic.law
    longest = int(law.max_total.max())
    edges = sorted({edge for edge in EDGES if 0 < edge < longest} | {longest})
    refused = [(x, laws.refused_shares(traffic, x).requests) for x in edges]
    return {
        "prompt": _marginal(law, law.max_prompt, model),
        "output": _marginal(law, law.max_output, model),
        "total": [{"model": model, "tokens": x, "share": _round(1 - beyond)} for x, beyond in refused],
        "beyond": [{"model": model, "tokens": x, "share": _round(beyond)} for x, beyond in refused if beyond > 0],
    }


def _marginal(law: LengthLaw, largest: IntArray, model: str) -> Rows:
    """Cumulated shares at the largest length of each bucket."""
    bucket = np.searchsorted(np.asarray(EDGES), largest, side="right")
    found = []
    reached = 0
    for k in sorted(set(bucket.tolist())):
        inside = bucket == k
        reached += int(law.n[inside].sum())
        tokens = max(float(largest[inside].max()), ZERO_AT)
        found.append({"model": model, "tokens": tokens, "share": _round(reached / law.requests)})
    return found


def bin_minutes(span: Span) -> int:
    """Minutes that each point of a rate line stands for."""
    minutes = span.seconds / 60
    return next((bin_min for bin_min in BINS_MIN if minutes / bin_min <= MOST_POINTS), BINS_MIN[-1])


def rate_rows(canonical: Canonical, model: str) -> Rows:
    """Mean arrivals per second of each bin, and those of its busiest minute; from the first whole minute on."""
    span = canonical.manifest.window
    width = bin_minutes(span)
    counts = _counts(canonical, model, span)
    bins = counts.size // width
    if not bins:
        return []
    inside = counts[: bins * width].reshape(bins, width)
    start, _ = span.whole_minutes
    logged = canonical.manifest.sampling_fraction
    return [
        {
            "t": (start + i * width) * MINUTE_US // 1000,
            "mean": _round(total / width / 60 / logged),
            "peak": _round(most / 60 / logged),
        }
        for i, (total, most) in enumerate(zip(inside.sum(axis=1).tolist(), inside.max(axis=1).tolist(), strict=True))
    ]


def _counts(canonical: Canonical, model: str, span: Span) -> IntArray:
    (counts,) = counts_by_minute(of_model(canonical.rates, model), (span,))
    return counts


def _round(value: float) -> float:
    """Six significant digits: what a picture can show, in fewer bytes."""
    return float(f"{value:.6g}")


def hour_rates(canonical: Canonical, model: str) -> tuple[int, FloatArray]:
    """The first whole clock hour, since 1970 or the start of the log, and the mean rates from there on, per s."""
    span = canonical.manifest.window
    first_minute, _ = span.whole_minutes
    counts = _counts(canonical, model, span)
    skipped = -first_minute % HOUR_MINUTES
    hours = max(counts.size - skipped, 0) // HOUR_MINUTES
    whole = counts[skipped : skipped + hours * HOUR_MINUTES].reshape(hours, HOUR_MINUTES).sum(axis=1)
    return (first_minute + skipped) // HOUR_MINUTES, whole / 3600 / canonical.manifest.sampling_fraction


def weeks_seen(canonical: Canonical) -> int:
    """How often the least seen hour of the week was seen whole; 0 for a log that knows no calendar."""
    if canonical.manifest.time_base != "UTC":
        return 0
    span = canonical.manifest.window
    first, end = -(-span.start_us // HOUR_US), span.end_us // HOUR_US
    return max(end - first, 0) // HOURS_A_WEEK


def week_rows(canonical: Canonical, model: str) -> Rows:
    """Of each UTC hour of the week: median, band and largest of its mean rates over the weeks."""
    first, rates = hour_rates(canonical, model)
    slot = hour_of_week((np.arange(rates.size) + first) * HOUR_US)
    found = []
    for hour in range(HOURS_A_WEEK):
        seen = rates[slot == hour]
        low, mid, high = np.quantile(seen, (BAND[0], 0.5, BAND[1]))
        found.append(
            {"hour": hour, "low": _round(low), "mid": _round(mid), "high": _round(high), "most": _round(seen.max())}
        )
    return found


def hour_rows(canonical: Canonical, model: str) -> Rows:
    """The whole clock hours of a shorter log, each with its mean rate."""
    first, rates = hour_rates(canonical, model)
    return [{"t": (first + i) * 3_600_000, "mean": _round(rate)} for i, rate in enumerate(rates.tolist())]


def burst_rows(found: Iterable[ModelFigures]) -> Rows:
    """Index of dispersion by scale."""
    return [
        {"model": one.model, "scale": scale, "idc": idc}
        for one in found
        for scale, idc in sorted(one.idc.items())
        if idc > 0
    ]


def limit_rows(longest: int, limits: Sequence[int]) -> Rows:
    """Candidates of max_model_len that lie among the lengths, and the first that refuses nothing."""
    shown = [limit for limit in limits if limit < longest] + [limit for limit in limits if limit >= longest][:1]
    return [{"limit": limit, "name": f"{limit // 1024}k" if limit % 1024 == 0 else f"{limit:,}"} for limit in shown]
