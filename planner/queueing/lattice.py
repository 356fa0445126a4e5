"""The exact law of the live tokens, inverted from its transform on a lattice.

The transform of a compound is a product over requests, its logarithm an integral over ages (`live_tokens` states it).
Three things keep it exact and cheap:

* *Tilting*: the density is inverted times ``exp(−TILT k / POINTS)``, which damps what lies beyond the lattice and would
  fold back onto it by exp(−TILT). So the lattice need only reach a little beyond the quantile that is asked for, and
  a request that holds more than the lattice can be left out of it: with it the sum lies beyond (Gruebel and
  Hermesmeier, Computation of compound distributions, ASTIN Bulletin 29, 1999).
* *Ages*: a cell of ages takes each request for the part of the cell in which it is alive, at the middle of that part,
  so that the mean of a footprint that grows in a straight line is exact however wide the cell is.
* *Spans* are powers of the square root of two, so that loads which differ in rate alone share a lattice and its
  transforms, and a load has the same law whether it is asked for alone or among others.

A footprint between two lattice points is split between them so that its mean is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.queueing.footprint import Marks
from planner.queueing.residence import Residence
from planner.traffic.types import FloatArray

ComplexArray = npt.NDArray[np.complex128]

POINTS = 2**12
AGE_CELLS = 64
TILT = float(np.log(1e8))
SPANS_AN_OCTAVE = 2
SMALLEST_RATE_CV2 = 1e-9
"""A rate that is surer than this is certain: below, the mixture is lost in rounding."""


@dataclass(frozen=True)
class Ages:
    """For each cell of ages, its length in seconds and the tilted transform of what a request holds in it."""

    length_s: FloatArray
    transform: ComplexArray
    points: int


def span_at_least(tokens: float) -> float:
    """The least span of a lattice that reaches ``tokens``."""
    return float(2.0 ** (np.ceil(np.log2(tokens) * SPANS_AN_OCTAVE) / SPANS_AN_OCTAVE))


def ages_of(
    marks: Marks, stay: Residence, mean_footprint: float, span: float, *, points: int = POINTS, cells: int = AGE_CELLS
) -> Ages:
    """Transforms of what one request holds, age by age.

    Parameters
    ----------
    mean_footprint
        Exact mean of the integral of the footprint over a life, token-equivalents x s, to which the lattice is
        scaled: it holds each cell of the length law at its mean.
    span
        Token-equivalents that the lattice reaches.
    """
    prefill = stay.resident_s(marks.prompt)
    life = prefill + stay.token_s * marks.output
    longest = float(life.max())
    shortest = min(longest * 1e-3, float(life.min()) + 1e-9)
    edges = np.concatenate([[0.0], np.geomspace(shortest, longest, cells)])
    length = np.diff(edges)
    alive = np.clip((life - edges[:-1, None]) / length[:, None], 0.0, 1.0)
    age = edges[:-1, None] + length[:, None] * alive / 2.0
    generated = np.clip((age - prefill) / stay.token_s, 0.0, None)
    filling = marks.prefilling(np.clip(age / np.maximum(prefill, 1e-300), 0.0, 1.0))
    held = np.where(age < prefill, filling, marks.held(generated))
    weight = marks.weight * alive
    held *= mean_footprint / float(length @ (held * weight).sum(axis=1))
    # Requests of a cell differ in their prompts, and grow while the cell of ages lasts: two points with that variance.
    grown = np.where(age < prefill, 0.0, alive * length[:, None] / stay.token_s)
    spread = np.minimum(marks.holding.full * np.sqrt(marks.prompt_sd**2 + grown**2 / 12.0), held)
    law = np.zeros((cells, points))
    for side in (-1.0, 1.0):
        law += _on_lattice((held + side * spread) * (points / span), weight / 2.0, points)
    law[:, 0] += 1.0 - weight.sum(axis=1)
    return Ages(length, np.fft.rfft(law * np.exp(-np.arange(points) * (TILT / points)), axis=1), points)


def _on_lattice(place: FloatArray, weight: FloatArray, points: int) -> FloatArray:
    """Weights at real places, row by row, split between the two neighbouring points; what lies beyond is left out."""
    inside = (weight > 0.0) & (place < points)
    row = np.nonzero(inside)[0]
    place, weight = place[inside], weight[inside]
    below = place.astype(np.int64)
    share = place - below
    cell = row * (points + 1) + below
    size = inside.shape[0] * (points + 1)
    law = np.bincount(cell, weight * (1.0 - share), size) + np.bincount(cell + 1, weight * share, size)
    return np.asarray(law.reshape(-1, points + 1)[:, :points])


def exponent_of(ages: Ages, batch: float) -> ComplexArray:
    """Logarithm of the transform of the live tokens per unit of rate: linear in the rate, shared by all rates.

    With geometric batches of mean b, G(psi) − 1 over b, integrated over ages, where G(z) = z / (b − (b − 1) z).
    """
    if batch <= 1.0:
        return np.asarray(ages.length_s @ (ages.transform - 1.0))
    generated = ages.transform / (batch - (batch - 1.0) * ages.transform)
    return np.asarray(ages.length_s @ (generated - 1.0) / batch)


def density_of(exponent: ComplexArray, rate_per_s: float, rate_cv2: float, points: int) -> FloatArray:
    """The density on the lattice; it sums to less than 1 by what lies beyond.

    A rate that is itself uncertain, gamma with mean ``rate_per_s`` and squared coefficient of variation ``rate_cv2``,
    turns exp(rate K) into (1 − cv2 rate K)^(−1/cv2).
    """
    logarithm: ComplexArray = rate_per_s * exponent
    if rate_cv2 > SMALLEST_RATE_CV2:
        logarithm = np.asarray(-np.log1p(-rate_cv2 * logarithm) / rate_cv2, dtype=np.complex128)
    tilted = np.fft.irfft(np.exp(logarithm), n=points)
    return np.asarray(np.clip(tilted * np.exp(np.arange(points) * (TILT / points)), 0.0, None), dtype=np.float64)
