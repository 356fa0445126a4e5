"""How bursty the requests of a stretch of prompt lengths are: measured from the log, else the sure bound.

Var, excess and share are those of counts in windows of one scale; N is the count of all requests, N_b that of the
stretch, s its share of the requests:

    measured   IDC_b = sum of the bands' covariances inside the stretch / mean of N_b
    bound      IDC_b - 1 = (IDC - 1) / s: the whole excess variance over Poisson comes from this stretch alone

The bound follows from Var N = Var N_b + Var N_rest + 2 Cov, where Cov >= 0 and the rest is at least as variable as a
Poisson process. Where a measured stretch C is the smallest that covers the wanted one, N is that of C: a stretch of
measured bands is measured, any other one is bounded as tightly as the log allows.

Why no rule of thumb: random thinning, IDC_b - 1 = s (IDC - 1), holds where lengths and times are independent. On real
and regenerated logs they are not. Eight bands of equal work, all 35 stretches of them, windows of 1 to 60 s: largest
ratio of the measured index to a rule, after a sampling error of two standard deviations; above 1 the rule fails
(2026-11-30, ``python -m tests.benchmarks.prompt_bursts``; ServeGen in windows of two hours):

    log                                         thinning    whole's IDC    bound
    Azure code 2023 (8,819 requests)                1.16           0.91     0.86
    Azure conversation 2023 (19,366)               10.5            1.37     0.94
    Mooncake conversation (2,500)                   1.07           0.90     0.88
    ServeGen m-mid, 4 windows                      26.0            4.31     0.96
    ServeGen m-small, 4 windows                    63.0            6.87     0.97
    ServeGen deepseek-r1 and mm-image, 4 windows    8.84           2.56     0.98
    ServeGen m-large, its busy window (34,586)      1.05           0.96     0.95
    ServeGen m-large, 3 windows below 6,000         2.60           2.05     2.04

Clients with lengths of their own come and go: their bursts stay in a few bands. The last row is the one where the bound
fails: a handful of regenerated clients, one of which sends more regularly than a Poisson process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.traffic.law import BoolArray, corners
from planner.traffic.types import Burst, FloatArray, IntArray, LengthLaw, PromptBursts, Traffic

MEASURED = "bursts of a band of prompt lengths are measured in the log, band by band"
BOUNDED = (
    "bursts of a band of prompt lengths are not known: all bursts are taken to come from that band alone "
    "(IDC_b - 1 = (IDC - 1) / share), an upper bound that makes pools by prompt length look dear"
)
"""Assumptions for the plan's provenance."""


def burst_assumption(traffic: Traffic) -> str:
    """What a plan with pools by prompt length assumes about the bursts of this traffic's bands."""
    return BOUNDED if traffic.prompt_bursts is None else MEASURED


class _Cover(NamedTuple):
    """The smallest stretch around the wanted one whose bursts are known."""

    idc: FloatArray
    requests: int


def burst_of_prompts(traffic: Traffic, lo: int, hi: int | None) -> Burst:
    """The burst table of the requests with ``lo <= prompt < hi``.

    Counts scale with the share of requests; ``max_n`` stays that of the whole, an upper bound. The index is the
    measured one where the bands of `Traffic.prompt_bursts` make up the stretch, else the bound above.

    Raises
    ------
    ValueError
        If no request lies in the stretch.
    """
    inside = requests_between(traffic, lo, hi)
    if not inside:
        raise ValueError(f"no request has a prompt in [{lo}, {hi})")
    whole = traffic.burst
    cover = _cover(traffic, lo, hi)
    spread = cover.requests / inside
    idc = cover.idc if cover.requests == inside else 1.0 + np.maximum(cover.idc - 1.0, 0.0) * spread
    mean = whole.mean_n * (inside / traffic.law.requests)
    return replace(
        whole,
        mean_n=mean,
        var_n=idc * mean,
        idc=idc,
        resolution_ok=whole.resolution_ok & np.isfinite(idc),
        poisson_sd=None if whole.poisson_sd is None else whole.poisson_sd * spread,
    )


def requests_between(traffic: Traffic, lo: int, hi: int | None) -> int:
    """Requests of the cells that reach into [lo, hi)."""
    return int(traffic.law.n[_reaching(traffic.law, lo, hi)].sum())


def _reaching(law: LengthLaw, lo: int, hi: int | None) -> BoolArray:
    inside = law.max_prompt >= lo
    return inside if hi is None else inside & (corners(law)[0] < hi)


def _cover(traffic: Traffic, lo: int, hi: int | None) -> _Cover:
    """Of the measured bands, those that the prompts of the stretch lie in."""
    law, bands = traffic.law, traffic.prompt_bursts
    if bands is None or (lo == 0 and hi is None):
        return _Cover(traffic.burst.idc, law.requests)
    inside = _reaching(law, lo, hi)
    first = int(np.searchsorted(bands.edges, corners(law)[0][inside].min(), side="right")) - 1
    end = int(np.searchsorted(bands.edges, law.max_prompt[inside].max(), side="right"))
    top = None if end == bands.edges.size else int(bands.edges[end])
    return _Cover(
        _idc_of_bands(bands, slice(first, end), traffic.burst.scale_s),
        requests_between(traffic, int(bands.edges[first]), top),
    )


def _idc_of_bands(bands: PromptBursts, part: slice, scale_s: FloatArray) -> FloatArray:
    """Index of dispersion of some neighbouring bands together, at the scales of the burst table."""
    mean = bands.mean_n[:, part].sum(axis=1)
    variance = bands.covariance[:, part, part].sum(axis=(1, 2))
    known = {float(s): v / m for s, v, m in zip(bands.scale_s, variance, mean, strict=True) if m > 0}
    return np.array([known.get(float(scale), np.nan) for scale in scale_s])


def unsampled_bursts(
    edges: IntArray, scale_s: FloatArray, mean_n: FloatArray, cov: FloatArray, share: float
) -> PromptBursts:
    """Bursts by band of all requests, of which the log holds a random share.

    Counts of a sample: mean p m, variance p^2 (V - m) + p m, covariance p^2 C.
    """
    poisson = mean_n[:, :, None] * np.eye(edges.size)
    whole = (cov - poisson) / share**2 + poisson / share
    return PromptBursts(edges, scale_s, mean_n / share, whole)
