"""What a plan promises of a pool, and what a replay saw: limit by limit, with intervals of confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from planner import units
from planner.plan import Pool
from planner.replay.pool import PoolOutcome
from planner.replay.types import Fate
from planner.report import facts

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Observed:
    """A figure over several repeats."""

    value: float
    """Mean of the repeats."""
    low: float
    high: float
    """Interval of confidence of the mean; NaN where there is one repeat."""


@dataclass(frozen=True)
class Promise:
    """One limit of a pool."""

    pool: str
    constraint: str
    planned: float
    limit: float
    observed: Observed
    unit: str

    @property
    def passed(self) -> bool:
        """Whether the limit is not refuted: the interval, or the one value there is, does not lie beyond it.

        Where nothing was observed, such as the TPOT of a pool that refuses all it gets, nothing is refuted.
        """
        if np.isnan(self.observed.value):
            return True
        least = self.observed.low if np.isfinite(self.observed.low) else self.observed.value
        return bool(least <= self.limit)


@dataclass(frozen=True)
class Seen:
    """What one repeat saw of a pool."""

    requests: int
    served: int
    refused: int
    unfinished: int
    served_tokens: int
    preemptions: int
    short_share: float
    """Of the replicas' time: a request waited for room in the pool, or had been preempted."""
    full_share: float
    """Of the replicas' time: a request waited because max_num_seqs ran."""
    busy_share: float
    live_requests: float
    """Mean of one replica."""
    live_tokens: float
    queue_requests: float
    most_waiting: int
    ttft_ms: float
    """At the percentile of the pool's target."""
    tpot_ms: float


def seen(pool: Pool, outcome: PoolOutcome) -> Seen:
    """Figures of one replayed pool.

    Times are NaN where there was nothing to serve, and infinite where something was and nothing was served in time.
    """
    fate = outcome.fate
    ttft = outcome.ttft_s
    served = outcome.served
    unfinished = int((fate == Fate.UNFINISHED).sum())
    none = float("inf") if unfinished and not len(served) else float("nan")
    tokens = outcome.requests.prompt_tokens[served].sum() + outcome.requests.output_tokens[served].sum()
    return Seen(
        requests=len(fate),
        served=len(served),
        refused=int(((fate == Fate.REFUSED_LENGTH) | (fate == Fate.REFUSED_POOL)).sum()),
        unfinished=unfinished,
        served_tokens=int(tokens),
        preemptions=int(outcome.preemptions.sum()),
        short_share=float(outcome.share_of_time("short_s").mean()),
        full_share=float(outcome.share_of_time("full_s").mean()),
        busy_share=float(outcome.share_of_time("busy_s").mean()),
        live_requests=float(outcome.share_of_time("live_request_s").mean()),
        live_tokens=float(outcome.share_of_time("used_token_s").mean()),
        queue_requests=float(outcome.share_of_time("queue_request_s").mean()),
        most_waiting=max(each.most_waiting for each in outcome.replicas),
        ttft_ms=units.s_to_ms(float(np.quantile(ttft, pool.speed.ttft_percentile))) if len(ttft) else none,
        tpot_ms=units.s_to_ms(outcome.tpot_s) if len(served) else none,
    )


def observed(values: Sequence[float]) -> Observed:
    """Mean and Student's interval of independent repeats (W. S. Gosset, Biometrika 6(1), 1908)."""
    figures = np.array([value for value in values if not np.isnan(value)])
    if not len(figures):
        return Observed(float("nan"), float("nan"), float("nan"))
    if np.isinf(figures).any():
        return Observed(float("inf"), float("inf"), float("inf"))
    mean = float(figures.mean())
    if len(figures) == 1:
        return Observed(mean, float("nan"), float("nan"))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(figures) - 1) * figures.std(ddof=1) / np.sqrt(len(figures)))
    return Observed(mean, mean - half, mean + half)


def promises(pool: Pool, repeats: Sequence[Seen]) -> tuple[Promise, ...]:
    """Every limit of a pool that a replay can see.

    The plan's work share has no counterpart: it is work, not busy time, and keeps the queue finite; a queue that grows
    shows in TTFT.
    """
    overflow = pool.load.overflow_probability
    sequences = facts.margin(pool, "sequences")
    rows = [
        ("token pool", pool.load.expected_overflow, overflow, [s.short_share for s in repeats], "share of time"),
        (
            "concurrent sequences", overflow if sequences else 0.0, overflow, [s.full_share for s in repeats],
            "share of time",
        ),
        (
            "tail budget", pool.refused_request_share, pool.tail_budget,
            [s.refused / max(s.requests, 1) for s in repeats], "share of requests",
        ),
    ]  # fmt: skip
    for word, figure, values in (
        ("tpot", pool.speed.tpot_ms.used, [s.tpot_ms for s in repeats]),
        ("ttft", pool.speed.ttft_ms.used, [s.ttft_ms for s in repeats]),
    ):
        target = facts.margin(pool, word)
        if target is not None:
            rows.append((target.constraint, figure, target.limit, values, "ms"))
    return tuple(
        Promise(pool.name, name, planned, limit, observed(values), unit) for name, planned, limit, values, unit in rows
    )
