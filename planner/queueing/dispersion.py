"""How bursty arrivals are at each time scale: of one pool, or of the pools of many candidates at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.traffic.burstiness import idc_at
from planner.traffic.types import Burst, FloatArray, IntArray

BURST_SCALES = 13
SHORTEST_SCALE_S = 1e-9


@dataclass(frozen=True)
class Dispersion:
    """Index of dispersion of counts as a function of the time scale, linear in its logarithm."""

    log_scale: FloatArray
    idc: FloatArray

    def at(self, scale_s: FloatArray) -> FloatArray:
        """IDC at time scales, s; the nearest measured one beyond the measured range."""
        return np.asarray(np.interp(np.log(np.maximum(scale_s, SHORTEST_SCALE_S)), self.log_scale, self.idc))

    @property
    def scales_s(self) -> FloatArray:
        """Time scales at which bursts are looked at, ascending, s."""
        return np.geomspace(np.exp(self.log_scale[0]), np.exp(self.log_scale[-1]), BURST_SCALES)


def dispersion_of(burst: Burst) -> Dispersion:
    """The dispersion curve of a burst table, at least 1 everywhere."""
    ascending = np.sort(burst.scale_s)
    return Dispersion(np.log(ascending), np.array([idc_at(burst, float(scale)) for scale in ascending]))


@dataclass(frozen=True)
class Dispersions:
    """Several dispersion curves and, for each candidate, which one is its own.

    All curves are put on the knots of all of them, which changes none: they are straight between their own knots.

    Attributes
    ----------
    log_scale
        Knots, ascending, shape (knots,).
    idc
        Shape (curves, knots).
    scales_s, scale_idc
        Time scales at which bursts are looked at, and the IDC there, shape (curves, `BURST_SCALES`).
    of
        The curve of each candidate.
    """

    log_scale: FloatArray
    idc: FloatArray
    scales_s: FloatArray
    scale_idc: FloatArray
    of: IntArray

    def at(self, scale_s: FloatArray) -> FloatArray:
        """IDC of each candidate at its own time scale, s."""
        log_scale = np.log(np.maximum(scale_s, SHORTEST_SCALE_S))
        if len(self.log_scale) == 1:
            return np.asarray(self.idc[self.of, 0])
        place = np.searchsorted(self.log_scale, log_scale).clip(1, len(self.log_scale) - 1)
        left, right = self.log_scale[place - 1], self.log_scale[place]
        share = np.clip((log_scale - left) / (right - left), 0.0, 1.0)
        below, above = self.idc[self.of, place - 1], self.idc[self.of, place]
        return np.asarray(below + (above - below) * share)

    def take(self, index: IntArray) -> Dispersions:
        """Those of the candidates at ``index``."""
        return Dispersions(self.log_scale, self.idc, self.scales_s, self.scale_idc, self.of[index])


def stack_dispersions(curves: Sequence[Dispersion], of: IntArray) -> Dispersions:
    """Curves of several pools, with the curve of each candidate."""
    knots = np.unique(np.concatenate([curve.log_scale for curve in curves])) if curves else np.zeros(1)
    scales = [curve.scales_s for curve in curves]
    return Dispersions(
        log_scale=knots,
        idc=np.array([np.interp(knots, c.log_scale, c.idc) for c in curves]).reshape(len(curves), len(knots)),
        scales_s=np.array(scales).reshape(len(curves), BURST_SCALES),
        scale_idc=np.array([c.at(s) for c, s in zip(curves, scales, strict=True)]).reshape(len(curves), BURST_SCALES),
        of=of,
    )
