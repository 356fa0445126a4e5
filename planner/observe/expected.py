"""What a plan expects of one pool at a moment, and at another load than the planned one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner import units
from planner.actuals.timetable import STEP_US, Timetable
from planner.plan import FleetPlan, Pool
from planner.report import facts

MOST_WORK = 0.99
"""A replica with more work than this has no steady state."""


@dataclass(frozen=True)
class Expected:
    """One pool in one period. Figures of a replica are those at its planning rate, ``rate_per_replica_per_s``.

    Attributes
    ----------
    period
        Name of the period; empty where the plan does not say which hours its periods have.
    replicas
        That run.
    mean_rate_per_s, planning_rate_per_s
        Accepted arrivals of the pool: on average, and the most that it must hold.
    rate_per_replica_per_s
        The rate at which the figures below hold.
    stay_s
        Mean time that a request is live, by Little's law: live requests over rate.
    prompt_tokens, output_tokens
        Mean of accepted requests.
    tpot_low_s, tpot_s
        Best case of the speed band, and the time that the plan was made with.
    ttft_s, ttft_percentile
        That the plan was made with, and the share of requests that are to be faster.
    work_share, prefill_work_share
        Share of time that the load's own work takes, and the part of it that prompts take.
    live_requests, live_tokens
        Mean of one replica.
    pool_tokens
        That one replica may hold, in the unit of ``live_tokens``.
    """

    period: str
    replicas: int
    mean_rate_per_s: float
    planning_rate_per_s: float
    rate_per_replica_per_s: float
    stay_s: float
    prompt_tokens: float
    output_tokens: float
    tpot_low_s: float
    tpot_s: float
    ttft_s: float
    ttft_percentile: float
    work_share: float
    prefill_work_share: float
    live_requests: float
    live_tokens: float
    pool_tokens: float

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that is live at the planning rate."""
        return self.live_tokens / self.pool_tokens

    @property
    def rate_ratio(self) -> float:
        """Planning rate of one of the replicas that run, over the rate at which the figures of a replica hold."""
        return self.planning_rate_per_s / max(self.replicas, 1) / max(self.rate_per_replica_per_s, 1e-12)

    @property
    def live_ratio(self) -> float:
        """Live requests of a replica at its planning rate in this period, over ``live_requests``: rate times stay.

        The figures of a replica are those of the pool's busiest period; with fewer replicas another may load each more.
        """
        decode_s = min(self.output_tokens * self.tpot_s, self.stay_s)
        slower = self.tpot_ratio(self.work_at(self.rate_ratio))
        stay_s = self.stay_s - decode_s + decode_s * slower
        return self.rate_ratio * stay_s / self.stay_s if self.stay_s > 0 else self.rate_ratio

    def work_at(self, rate: float, prompt: float = 1.0, output: float = 1.0) -> float:
        """Share of time that the work of another load takes: prompts and outputs each in proportion.

        ``rate``, ``prompt`` and ``output`` are ratios to the figures of the plan, of one replica.
        """
        decode = self.work_share - self.prefill_work_share
        return rate * (self.prefill_work_share * prompt + decode * output)

    def tpot_ratio(self, work_share: float) -> float:
        """Time per output token at another work share, over that at the planned one: (1 − w0) / (1 − w).

        A step takes its fixed time and what the load's work adds in it: step = fixed + w × step, so that
        step = fixed / (1 − w) (`planner.queueing.load.work_s`). Work beyond `MOST_WORK` counts as that much.
        """
        w0, w = min(self.work_share, MOST_WORK), min(work_share, MOST_WORK)
        return (1.0 - w0) / (1.0 - w)


def expected_of(plan: FleetPlan, pool: Pool, period: int | None) -> Expected:
    """The plan of a pool in a period; ``None``: the plan cannot tell which, and its busiest one is taken."""
    rates = _rates(plan, pool, period)
    load, speed = pool.load, pool.speed
    accepted = max(pool.offered_requests * (1.0 - pool.refused_request_share), 1e-12)
    rate = load.rate_per_replica_per_s
    return Expected(
        period="" if period is None else plan.periods[period].name,
        replicas=rates[2],
        mean_rate_per_s=rates[0] * (1.0 - pool.refused_request_share),
        planning_rate_per_s=rates[1],
        rate_per_replica_per_s=rate,
        stay_s=load.mean_live_requests / rate if rate > 0 else 0.0,
        prompt_tokens=pool.served_input_mtok * units.TOKENS_PER_MTOK / accepted,
        output_tokens=pool.served_output_mtok * units.TOKENS_PER_MTOK / accepted,
        tpot_low_s=units.ms_to_s(min(speed.tpot_ms.low, speed.tpot_ms.used)),
        tpot_s=units.ms_to_s(speed.tpot_ms.used),
        ttft_s=units.ms_to_s(speed.ttft_ms.used),
        ttft_percentile=speed.ttft_percentile,
        work_share=load.work_share,
        prefill_work_share=load.prefill_work_share,
        live_requests=load.mean_live_requests,
        live_tokens=load.mean_live_tokens,
        pool_tokens=facts.token_pool(pool),
    )


def _rates(plan: FleetPlan, pool: Pool, period: int | None) -> tuple[float, float, int]:
    """Mean and planning rate, and replicas."""
    if period is not None and pool.periods:
        run = pool.periods[period]
        return run.mean_rate_per_s, run.planning_rate_per_s, run.replicas
    mean = pool.offered_requests / units.hours_to_s(plan.horizon_hours)
    return mean, pool.load.planning_rate_per_s, pool.replicas


def period_at(table: Timetable, time_s: float) -> int | None:
    """The period that a moment belongs to; ``None`` where the plan does not tell, or outside of its horizon."""
    time_us = math.floor(time_s * 1e6)
    if table.label is None or not table.horizon.start_us <= time_us < table.horizon.end_us:
        return None
    label = int(table.label[(time_us - table.horizon.start_us) // STEP_US])
    return label if label >= 0 else None


def quantile_requests(pool: Pool, live_ratio: float) -> float:
    """Live requests of a replica that the plan allows for: its quantile, in proportion where a period has more load.

    The quantile grows more slowly than the mean, so that in proportion it lies on the high side.
    """
    return pool.load.quantile_live_requests * max(live_ratio, 1.0)


def quantile_usage(pool: Pool, live_ratio: float) -> float:
    """Share of the KV cache that the plan allows to be live, as `quantile_requests`; at most all of it."""
    return min(pool.load.quantile_live_tokens * max(live_ratio, 1.0) / facts.token_pool(pool), 1.0)


def most_live_ratio(plan: FleetPlan, pool: Pool) -> float:
    """The largest `Expected.live_ratio` of any period in which the pool runs."""
    running = [k for k, run in enumerate(pool.periods) if run.replicas > 0]
    return max((expected_of(plan, pool, k).live_ratio for k in running), default=1.0)


def target_s(pool: Pool, word: str) -> float | None:
    """The pool's target for ``tpot`` or ``ttft``, seconds; ``None`` where the request states none."""
    margin = facts.margin(pool, word)
    return None if margin is None else units.ms_to_s(margin.limit)


def allowed_preemptions_per_s(pool: Pool) -> float:
    """Preemptions that the allowed overflow explains: its probability times the planning rate.

    A guess at the upper end: while the live tokens exceed the pool, which they may for that share of the time, every
    request that is accepted preempts one.
    """
    return pool.load.overflow_probability * pool.load.planning_rate_per_s
