"""Time to first token at the planned load: waiting for other prompts, for the running step, and the prompt itself.

Prompts are prefilled first come, first served. One prompt keeps the server X(P) = a P + b P^2 + (P / chunk) * step
seconds (its own work, and the decode step that each of its chunks carries along). Prompts arrive in geometric batches
of mean b, so the mean wait is that of a batch-arrival queue M^[X]/G/1: the residual work that a batch finds, and the
members of its own batch that go first, (b − 1) of them on average by size bias,

    E[W] = [rate * E[X^2] / 2 + (b − 1) * E[X]] / (1 − rate * E[X])

(b = 1 is the Pollaczek-Khinchine formula). The tail is taken as exponential above an atom at 0:
P(W > x) = p * exp(−p x / E[W]) with p = 1 − (1 − rho) / b; exact for M/M/1, an approximation otherwise.

Bursts have no single scale: real counts are the more dispersed the longer one looks. At each time scale s that the log
resolves, b = (IDC(s) + 1) / 2, but such a batch comes spread over about s seconds, in which the server works off
(1 − rho) s; `DRAIN` of that is taken off the wait, and the scale with the longest wait counts. `DRAIN` is fitted: on 84
superpositions of public traces (8 to 120 copies over 2 to 20 replicas, rho 0.4 to 0.85) the predicted 95th percentile
is 0.88 to 5.9 times the simulated one, 0.94 at the 5 % quantile, 1.30 in the median; it is far too high only where
waits are short (rho 0.4). tests/queueing repeats a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.queueing.residence import Residence
from planner.traffic.types import FloatArray, IntArray, LengthLaw

DRAIN = 0.12
PROMPT_POINTS = 40
BISECTIONS = 45


@dataclass(frozen=True)
class PromptPoints:
    """The prompt-length law as a few weighted groups of neighbours; of one law, or one row for each of several.

    The mean of a group keeps the work exact; its longest prompt keeps a request's own time from being understated.
    """

    weight: FloatArray
    mean: FloatArray
    longest: FloatArray

    @cached_property
    def powers(self) -> FloatArray:
        """E[P^k] of the groups' means for k = 1..4, tokens^k, along the first axis."""
        return np.stack([(self.weight * self.mean**k).sum(axis=-1) for k in (1, 2, 3, 4)])

    def at(self, index: IntArray) -> PromptPoints:
        """Of several laws, those at ``index``, one for each candidate."""
        return PromptPoints(self.weight[index], self.mean[index], self.longest[index])


def stack_points(laws: Sequence[PromptPoints]) -> PromptPoints:
    """Several laws as rows; the shorter ones are filled up with groups of no weight."""
    most = max((len(points.weight) for points in laws), default=0)

    def rows(name: str) -> FloatArray:
        filled = [np.pad(getattr(points, name), (0, most - len(points.weight))) for points in laws]
        return np.array(filled).reshape(len(laws), most)

    return PromptPoints(rows("weight"), rows("mean"), rows("longest"))


class Occupied(NamedTuple):
    """Moments of the time that a prompt keeps the server, s and s^2."""

    mean_s: FloatArray
    second_s2: FloatArray


def occupied(powers: FloatArray, stay: Residence) -> Occupied:
    """E[X] and E[X^2] of X = s1 P + s2 P^2, from `PromptPoints.powers`."""
    p1, p2, p3, p4 = powers
    linear, square = stay.s1, stay.s2
    return Occupied(linear * p1 + square * p2, linear**2 * p2 + 2.0 * linear * square * p3 + square**2 * p4)


def prompt_points(law: LengthLaw) -> PromptPoints:
    """Groups of equal shares of requests, split finer in the last 5 % so that the tail is kept."""
    order = np.argsort(law.max_prompt, kind="stable")
    share = np.cumsum(law.n[order]) / law.n.sum()
    tail = 1.0 - np.geomspace(0.05, 1e-4, PROMPT_POINTS // 4)
    edges = np.concatenate([np.linspace(0, 0.95, PROMPT_POINTS * 3 // 4)[1:], tail, [1.0]])
    last = np.unique(np.searchsorted(share, edges - 1e-12).clip(max=len(share) - 1))
    weight = np.diff(np.concatenate([[0.0], share[last]]))
    total = np.diff(np.concatenate([[0.0], np.cumsum(law.sum_prompt[order])[last]]))
    return PromptPoints(weight, total / (weight * law.n.sum()), law.max_prompt[order][last].astype(np.float64))


@dataclass(frozen=True)
class Wait:
    """Wait for other prompts: P(W > x) = reached * exp(−(x + drained) / mean), with infinite means where unstable."""

    reached: FloatArray
    mean_s: FloatArray
    """Mean of the exponential above the atom, s."""
    drained_s: FloatArray

    def quantile_s(self, share: float | FloatArray) -> FloatArray:
        """Wait that a share of requests does not exceed, s."""
        return np.maximum(self.mean_s * np.log(np.maximum(self.reached / (1.0 - share), 1e-300)) - self.drained_s, 0.0)


def mean_wait_s(rate_per_s: FloatArray, batch: FloatArray, points: PromptPoints, stay: Residence) -> FloatArray:
    """E[W] of the batch-arrival queue, s; infinite where the queue is not stable.

    ``batch`` may have leading axes, such as one for time scales; the result has its shape.
    """
    return _mean_wait_s(rate_per_s, batch, occupied(points.powers, stay))


def _mean_wait_s(rate_per_s: FloatArray, batch: FloatArray, work: Occupied) -> FloatArray:
    rho = rate_per_s * work.mean_s
    numerator = rate_per_s * work.second_s2 / 2.0 + (batch - 1.0) * work.mean_s
    return np.where(rho < 1.0, numerator / np.maximum(1.0 - rho, 1e-9), np.inf)


def longest_wait(
    rate_per_s: FloatArray, batch: FloatArray, scale_s: FloatArray, points: PromptPoints, stay: Residence, share: float
) -> Wait:
    """The wait at the time scale of bursts that gives the longest quantile.

    Parameters
    ----------
    batch
        Mean batch by scale, shape (scales, candidates).
    scale_s
        Time scales, ascending, s; nothing drains within the shortest.
    share
        Percentile at which scales are compared.
    """
    return longest_wait_of(rate_per_s, batch, scale_s[:, None], occupied(points.powers, stay), share)


def longest_wait_of(
    rate_per_s: FloatArray, batch: FloatArray, scale_s: FloatArray, work: Occupied, share: float | FloatArray
) -> Wait:
    """`longest_wait` from the moments of the work, with scales of shape (scales, 1) or (scales, candidates)."""
    rho = np.clip(rate_per_s * work.mean_s, 0.0, 1.0)
    reached = np.clip(1.0 - (1.0 - rho) / batch, 1e-12, 1.0)
    mean = np.maximum(_mean_wait_s(rate_per_s, batch, work), 1e-12) / reached
    drained = DRAIN * (1.0 - rho) * (scale_s - scale_s[0])
    longest = np.argmax(Wait(reached, mean, drained).quantile_s(share), axis=0)[None, :]
    return Wait(*(np.take_along_axis(values, longest, axis=0)[0] for values in (reached, mean, drained)))


def ttft_quantile_s(
    wait: Wait, points: PromptPoints, stay: Residence, floor_s: FloatArray, percentile: float | FloatArray
) -> FloatArray:
    """TTFT that a share ``percentile`` of requests does not exceed, s; infinite where the queue is not stable.

    TTFT = floor + wait + one running step + residence of the own prompt, with the wait independent of the own length.
    """
    own = stay.resident_s(points.longest) + (floor_s + stay.s0)[:, None]
    stable = np.isfinite(wait.mean_s)
    low, high = own.min(axis=1), own.max(axis=1) + 40.0 * np.where(stable, wait.mean_s, 1.0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        exceeds = _late(middle, wait, points, own) > 1.0 - percentile
        low, high = np.where(exceeds, middle, low), np.where(exceeds, high, middle)
    return np.where(stable, high, np.inf)


def late_share(
    limit_s: FloatArray, wait: Wait, points: PromptPoints, stay: Residence, floor_s: FloatArray
) -> FloatArray:
    """Share of requests whose TTFT exceeds ``limit_s``, with the law of `ttft_quantile_s`; 1 where not stable."""
    return _late(limit_s, wait, points, stay.resident_s(points.longest) + (floor_s + stay.s0)[:, None])


def _late(limit_s: FloatArray, wait: Wait, points: PromptPoints, own_s: FloatArray) -> FloatArray:
    """P(own time + wait > limit); ``own_s`` is the time without the wait, shape (candidates, prompts)."""
    stable = np.isfinite(wait.mean_s)
    mean = np.where(stable, wait.mean_s, 1.0)[:, None]
    spare = limit_s[:, None] - own_s
    beyond = wait.reached[:, None] * np.exp(-(np.maximum(spare, 0.0) + wait.drained_s[:, None]) / mean)
    late = (np.where(spare < 0.0, 1.0, beyond) * points.weight).sum(axis=1)
    return np.where(stable, late, 1.0)
