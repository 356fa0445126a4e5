"""What a canonical distribution says, in figures: what `planner traffic show` prints and draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem
from planner.traffic import burstiness
from planner.traffic import law as laws
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import of_model
from planner.traffic.grid import Span, counts_by_minute
from planner.traffic.schema import Kind
from planner.traffic.source import to_traffic
from planner.traffic.types import Cap, IntArray, LengthLaw, Traffic

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
BATCHES_SHOWN = 5
TAIL_SHARES = (0.01, 0.001)
HOUR_MINUTES = 60


class Lengths(NamedTuple):
    """One kind of length, tokens."""

    mean: float
    quantiles: dict[float, int]
    """Upper bounds: at most one cell too high; exact where the largest totals reach."""
    most: int


@dataclass(frozen=True)
class ModelFigures:
    """One model of a distribution."""

    model: str
    requests: int
    arrivals_per_s: float
    """Mean over the window, the sampling of the log undone."""
    peak_minute_per_s: float
    peak_hour_per_s: float
    """Of 60 minutes in a row; of a log without so many, the mean."""
    lengths: dict[str, Lengths]
    """``prompt``, ``output`` and ``total``; empty where the source holds sums only."""
    idc: dict[float, float]
    """Index of dispersion by scale in seconds, as the log measures it."""
    idc_unknown: dict[float, str]
    """Why there is none at the other scales."""
    batches: dict[int, int]
    """The largest numbers of arrivals that share a time stamp, and how often."""
    stamp_s: float
    """Resolution of the stamps that they share."""
    cached_share: float | None
    """Share of the prompt tokens that the log calls cached; None without lengths."""
    caps: tuple[Cap, ...]
    warnings: tuple[str, ...]


def figures_of(canonical: Canonical, where: Path, models: Sequence[str] = ()) -> tuple[ModelFigures, ...]:
    """The figures of each model, by name.

    Raises
    ------
    InputError
        If a model is not in the distribution.
    """
    wanted = list(dict.fromkeys(models)) or list(canonical.models())
    missing = [model for model in wanted if model not in canonical.manifest.models]
    if missing:
        known = f"It holds: {', '.join(canonical.models()[:20])}"
        raise InputError([Problem(str(where), f"holds no model '{model}'", known, field="model") for model in missing])
    return tuple(_model(canonical, where, model) for model in wanted)


def _model(canonical: Canonical, where: Path, model: str) -> ModelFigures:
    manifest = canonical.manifest
    traffic = None
    if manifest.kind is not Kind.SUMS:
        traffic = to_traffic(canonical, model=model, name=model, where=where, sha256="")
    rates = of_model(canonical.rates, model)
    logged = manifest.sampling_fraction
    batches, stamp_s = _batches(of_model(canonical.burst, model))
    return ModelFigures(
        model=model,
        requests=manifest.models[model],
        arrivals_per_s=(pc.sum(rates["n"]).as_py() or 0) / manifest.window.seconds / logged,
        peak_minute_per_s=(pc.max(rates["n"]).as_py() or 0) / 60 / logged,
        peak_hour_per_s=busiest_hour(rates, manifest.window) / logged,
        lengths=_lengths(traffic) if traffic else {},
        idc=_idc(traffic) if traffic else {},
        idc_unknown=_unknown(traffic) if traffic else {},
        batches=batches,
        stamp_s=stamp_s,
        cached_share=_cached(traffic.law) if traffic else None,
        caps=traffic.caps if traffic else (),
        warnings=_warnings(traffic) if traffic else ("sums only: no lengths, no bursts",),
    )


def busiest_hour(rates: pa.Table, span: Span) -> float:
    """Most arrivals per second over 60 minutes in a row; of a log without so many, the mean."""
    (counts,) = counts_by_minute(rates, (span,))
    if counts.size < HOUR_MINUTES:
        return (pc.sum(rates["n"]).as_py() or 0) / span.seconds
    running = np.concatenate([[0], np.cumsum(counts)])
    return float((running[HOUR_MINUTES:] - running[:-HOUR_MINUTES]).max()) / (60 * HOUR_MINUTES)


def _lengths(traffic: Traffic) -> dict[str, Lengths]:
    law = traffic.law
    n = law.requests
    return {
        "prompt": Lengths(law.mean_prompt, _marginal(law, law.max_prompt), int(law.max_prompt.max())),
        "output": Lengths(law.mean_output, _marginal(law, law.max_output), int(law.max_output.max())),
        "total": Lengths(
            float(law.sum_prompt.sum() + law.sum_output.sum()) / n,
            {q: laws.length_at_tail(traffic, round(1 - q, 12)) for q in QUANTILES},
            int(law.max_total.max()),
        ),
    }


def _marginal(law: LengthLaw, largest: IntArray) -> dict[float, int]:
    """The least length that at least this share of the requests does not exceed, each cell at its largest."""
    order = np.argsort(largest, kind="stable")
    reached = np.cumsum(law.n[order])
    needed = [math.ceil(round(q * law.requests, 6)) for q in QUANTILES]
    return {q: int(largest[order][np.searchsorted(reached, k)]) for q, k in zip(QUANTILES, needed, strict=True)}


def _idc(traffic: Traffic) -> dict[float, float]:
    burst = traffic.burst
    good = burst.resolution_ok & np.isfinite(burst.idc)
    return {float(s): float(i) for s, i in zip(burst.scale_s[good], burst.idc[good], strict=True)}


def _unknown(traffic: Traffic) -> dict[float, str]:
    return {
        scale: reason for reason, scales in sorted(burstiness.unmeasured(traffic.burst).items()) for scale in scales
    }


def _batches(burst: pa.Table) -> tuple[dict[int, int], float]:
    rows = sorted((r for r in burst.to_pylist() if r["kind"] == "batch"), key=lambda row: -row["max_n"])
    found: dict[int, int] = {}
    for row in rows:
        found[row["max_n"]] = found.get(row["max_n"], 0) + row["windows"]
    return dict(list(found.items())[:BATCHES_SHOWN]), max((row["scale_s"] for row in rows), default=0.0)


def _cached(law: LengthLaw) -> float:
    prompts = float(law.sum_prompt.sum())
    return float(law.sum_cached.sum()) / prompts if prompts else 0.0


def _warnings(traffic: Traffic) -> tuple[str, ...]:
    found = (laws.sampling_warning(traffic, share) for share in TAIL_SHARES)
    return tuple(warning for warning in found if warning)


def as_plain(figures: ModelFigures) -> dict[str, Any]:
    """The figures as JSON has them."""
    return {
        "requests": figures.requests,
        "arrivals_per_s": figures.arrivals_per_s,
        "peak_minute_per_s": figures.peak_minute_per_s,
        "peak_hour_per_s": figures.peak_hour_per_s,
        "lengths_tokens": {
            side: {
                "mean": found.mean,
                **{f"p{100 * q:.12g}": tokens for q, tokens in found.quantiles.items()},
                "max": found.most,
            }
            for side, found in figures.lengths.items()
        },
        "idc": {f"{scale:.12g}": idc for scale, idc in figures.idc.items()},
        "idc_not_measurable": {f"{scale:.12g}": reason for scale, reason in figures.idc_unknown.items()},
        "largest_batches": {str(size): times for size, times in figures.batches.items()},
        "stamp_s": figures.stamp_s,
        "cached_share": figures.cached_share,
        "caps": [{"side": c.side, "tokens": c.tokens, "requests": c.requests, "share": c.share} for c in figures.caps],
        "warnings": list(figures.warnings),
    }
