"""Questions to a burst table: the index of dispersion at any scale, why there is none, and one that is stated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.errors import InputError, Problem
from planner.traffic.types import Burst

SIGNIFICANT_SD = 2.0
"""A log whose index is less than this many standard deviations above that of a Poisson process shows no burst."""
COARSEST_TICKS = 4
"""A window of fewer ticks of the clock says nothing about bursts."""
STATED_IDC = "traffic.options = {idc = 3}"
"""How a request states an index of dispersion, by example."""


def idc_at(burst: Burst, scale_s: float) -> float:
    """Index of dispersion of counts at a time scale, at least 1.

    Interpolated linearly in the logarithm of the scale between the scales that the log resolves; beyond them, the
    nearest one holds. A log that can be told from a Poisson process neither at a scale nor at a finer one is Poisson
    at that scale: in half an hour chance alone shows an index of 1.1. Where the clock resolves no scale well, windows
    of at least four ticks are taken: a coarse clock makes batches of requests that came one by one, so it may show
    bursts that are none and never hides one.

    Raises
    ------
    InputError
        If the log resolves no scale at all.
    """
    measured = np.isfinite(burst.idc)
    good = burst.resolution_ok & measured
    if not good.any():
        good = measured & (burst.scale_s >= COARSEST_TICKS * burst.resolution_s) & (burst.resolution_s > 0)
    if not good.any():
        fix = (
            "Give a log over a longer time or with finer time stamps, or state the index of dispersion of the arrivals "
            f"in the request: {STATED_IDC} (1 is Poisson; more is burstier)"
        )
        raise InputError(
            Problem("traffic", "no burst can be measured: the log is too short or its clock too coarse", fix)
        )
    idc = burst.idc[good]
    if burst.poisson_sd is not None:
        bursty = idc > 1.0 + SIGNIFICANT_SD * burst.poisson_sd[good]
        idc = np.where(np.logical_or.accumulate(bursty), idc, 1.0)
    value = np.interp(np.log(max(scale_s, 1e-9)), np.log(burst.scale_s[good]), idc)
    return max(1.0, float(value))


def unmeasured(burst: Burst) -> dict[str, list[float]]:
    """Scales in seconds at which no index of dispersion could be measured, by the reason."""
    found: dict[str, list[float]] = {}
    # A log that is long enough for one scale is long enough for every finer one.
    coarsest = max(burst.scale_s[burst.resolution_ok], default=0.0)
    for scale, idc, good in zip(burst.scale_s, burst.idc, burst.resolution_ok, strict=True):
        if not good and (np.isfinite(idc) or scale < coarsest):
            found.setdefault("the clock of the log is too coarse", []).append(float(scale))
        elif not np.isfinite(idc):
            found.setdefault("the log is too short", []).append(float(scale))
    return found


def state_idc(burst: Burst, idc: float) -> Burst:
    """The burst table with the index of dispersion that the user states, at every scale."""
    stated = np.full(burst.scale_s.shape, float(idc))
    sure = np.ones(stated.shape, dtype=np.bool_)
    return replace(burst, idc=stated, var_n=stated * burst.mean_n, resolution_ok=sure, poisson_sd=None)
