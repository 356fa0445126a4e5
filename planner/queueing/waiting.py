"""Time to first token at the planned load: waiting for other prompts, for the running step, and the prompt itself.

Prompts are prefilled first come, first served. One prompt keeps the server X(P) = a P + b P^2 + (P / chunk) * step
seconds (its own work, and the decode step that each of its chunks carries along). Prompts arrive in geometric batches
of mean b, so the mean wait is that of a batch-arrival queue M^[X]/G/1: the residual work that a batch finds, and the
members of its own batch that go first, (b − 1) of them on average by size bias,

    E[W] = [rate * E[X^2] / 2 + (b − 1) * E[X]] / (1 − rate * E[X])

(b = 1 is the Pollaczek-Khinchine formula). The tail is taken as exponential above an atom at 0:
P(W > x) = p * exp(−p x / E[W]) with p = 1 − (1 − rho) / b; exact for M/M/1, an approximation otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.traffic.types import FloatArray, LengthLaw

PROMPT_POINTS = 40
BISECTIONS = 45


@dataclass(frozen=True)
class PromptPoints:
    """The prompt-length law as a few weighted groups of neighbours.

    The mean of a group keeps the work exact; its longest prompt keeps a request's own time from being understated.
    """

    weight: FloatArray
    mean: FloatArray
    longest: FloatArray


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
class Prefill:
    """Server time of a prompt, seconds: ``per_token_s P + per_token2_s P^2``, on top of the decode step."""

    per_token_s: FloatArray
    per_token2_s: FloatArray
    chunk_tokens: FloatArray
    step_s: FloatArray
    floor_s: FloatArray

    def occupied_s(self, prompt: FloatArray) -> FloatArray:
        """X(P): time that the prompt keeps others waiting, shape (candidates, points)."""
        work = self.per_token_s[:, None] * prompt + self.per_token2_s[:, None] * prompt**2
        return work + prompt / self.chunk_tokens[:, None] * self.step_s[:, None]

    def resident_s(self, prompt: FloatArray) -> FloatArray:
        """Time from admission to the first token: X(P) and at most one more step for the last, partial chunk."""
        return self.occupied_s(prompt) + self.step_s[:, None]


def mean_wait_s(rate_per_s: FloatArray, batch: FloatArray, points: PromptPoints, prefill: Prefill) -> FloatArray:
    """E[W] of the batch-arrival queue, s; infinite where the queue is not stable."""
    occupied = prefill.occupied_s(points.mean)
    mean, second = occupied @ points.weight, occupied**2 @ points.weight
    rho = rate_per_s * mean
    numerator = rate_per_s * second / 2.0 + (batch - 1.0) * mean
    return np.where(rho < 1.0, numerator / np.maximum(1.0 - rho, 1e-9), np.inf)


def ttft_quantile_s(
    rate_per_s: FloatArray, batch: FloatArray, points: PromptPoints, prefill: Prefill, percentile: float
) -> FloatArray:
    """TTFT that a share ``percentile`` of requests does not exceed, s; infinite where the queue is not stable.

    TTFT = floor + wait + one running step + residence of the own prompt, with the wait independent of the own length.
    """
    wait = mean_wait_s(rate_per_s, batch, points, prefill)
    stable = np.isfinite(wait)
    mean_wait = np.where(stable, np.maximum(wait, 1e-12), 1.0)
    rho = np.clip(rate_per_s * (prefill.occupied_s(points.mean) @ points.weight), 0.0, 1.0)
    waits = np.clip(1.0 - (1.0 - rho) / batch, 1e-12, 1.0)
    own = prefill.resident_s(points.longest) + (prefill.floor_s + prefill.step_s)[:, None]
    low, high = own.min(axis=1), own.max(axis=1) + 40.0 * mean_wait / waits
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        spare = np.maximum(middle[:, None] - own, 0.0)
        late = np.where(
            middle[:, None] < own, 1.0, waits[:, None] * np.exp(-waits[:, None] * spare / mean_wait[:, None])
        )
        exceeds = late @ points.weight > 1.0 - percentile
        low, high = np.where(exceeds, middle, low), np.where(exceeds, high, middle)
    return np.where(stable, high, np.inf)
