"""A hand-made replay of a plan: figures that stand and that are refuted, infinite, undefined, and of one repeat."""

from __future__ import annotations

import random

from planner.plan import FleetPlan
from planner.replay.drill_types import Drill, Drilled
from planner.replay.fleet import Ask, PoolReplay, Replay
from planner.replay.mean_based import MeanFleet
from planner.replay.promises import Observed, Promise, Seen
from planner.replay.record import ReplayRecord, record_of

INF, NAN = float("inf"), float("nan")
HOSTILE_FILE = "=cmd|'/C calc'!A0.csv"
SEEN = Seen(
    requests=3_600, served=3_590, refused=4, unfinished=6, served_tokens=9_000_000, preemptions=2, short_share=0.001,
    full_share=0.0, busy_share=0.71, live_requests=22.5, live_tokens=81_000.0, queue_requests=0.02, most_waiting=3,
    ttft_ms=410.0, tpot_ms=24.0,
)  # fmt: skip
OTHER = Seen(
    requests=3_800, served=3_800, refused=0, unfinished=0, served_tokens=9_400_000, preemptions=0, short_share=0.0,
    full_share=0.0, busy_share=0.75, live_requests=23.5, live_tokens=83_000.0, queue_requests=0.04, most_waiting=9,
    ttft_ms=430.0, tpot_ms=25.0,
)  # fmt: skip
CASES = (
    # observed, low, high, whether it stands against a limit of 50
    (Observed(24.5, 24.0, 25.0), True),
    (Observed(51.0, 49.0, 53.0), True),
    (Observed(55.0, 50.5, 59.5), False),
    (Observed(51.0, NAN, NAN), False),
    (Observed(49.0, NAN, NAN), True),
    (Observed(INF, INF, INF), False),
    (Observed(NAN, NAN, NAN), True),
    (Observed(1.0, -3.0, 5.0), True),
)
"""Every shape of an observation, with its verdict by hand."""


def promise(pool: str, observed: Observed, constraint: str = "TPOT", limit: float = 50.0) -> Promise:
    """A limit of TPOT, ms."""
    return Promise(pool, constraint, 40.0, limit, observed, "ms")


def share(pool: str, observed: Observed) -> Promise:
    """A limit of time."""
    return Promise(pool, "token pool", 0.0004, 0.01, observed, "share of time")


def sample_record(plan: FleetPlan, cases: tuple[tuple[Observed, bool], ...] = CASES) -> ReplayRecord:
    """The cases over the pools of a plan in turn, beside one share each."""
    own: dict[str, list[Promise]] = {pool.name: [share(pool.name, Observed(0.001, 0.0, 0.002))] for pool in plan.pools}
    for n, (observed, _) in enumerate(cases):
        name = plan.pools[n % len(plan.pools)].name
        own[name].append(promise(name, observed, f"case {n}"))
    pools = tuple(
        PoolReplay(
            pool, pool.replicas, (SEEN, OTHER), tuple(own[pool.name]), ("the plan's pool is replayed",) * (n == 0)
        )
        for n, pool in enumerate(plan.pools)
    )
    first = plan.pools[0]
    models = dict.fromkeys(pool.model for pool in plan.pools)
    rates = dict.fromkeys(list(models)[: max(1, len(models) - 1)], 2.5)
    broken = PoolReplay(first, first.replicas, (SEEN,), (promise(first.name, Observed(90.0, 80.0, 100.0)),))
    drill = Drill("node", first.name, "an instance is lost", 600.0, 1_200.0, 1, 2)
    return record_of(
        plan, Replay(pools, rates, Ask(repeats=2, fewer={first.name: 1})),
        files=dict.fromkeys(models, HOSTILE_FILE), part="0.5:1", slower=1.1, fewer=(broken,),
        means=(MeanFleet(first.name, first.replicas, 1, (promise(first.name, Observed(INF, INF, INF)),)),),
        drills=(drilled(drill, INF, None), drilled(drill, 900.0, 300.0)),
    )  # fmt: skip


def drilled(drill: Drill, worst_ttft_ms: float, recovered_after_s: float | None) -> Drilled:
    """What a drill did."""
    return Drilled(
        drill=drill, requests=3_600, resent=12, turned_away=0, refused=0, unfinished=3, worst_ttft_ms=worst_ttft_ms,
        worst_tpot_ms=NAN, ttft_limit_ms=1_000.0, tpot_limit_ms=50.0, ttft_percentile=0.99, over_s=240.0,
        over_s_undisturbed=0.0, recovered_after_s=recovered_after_s, short_share=0.1, short_share_undisturbed=0.0,
        short_limit=0.01, most_waiting=40, served_tokens=8_000_000, served_tokens_undisturbed=9_000_000, windows=(),
        sentence="Clients wait for four minutes.",
    )  # fmt: skip


def random_record(rng: random.Random, plan: FleetPlan) -> ReplayRecord:
    """Some cases by chance."""
    return sample_record(plan, tuple(rng.choice(CASES) for _ in range(rng.randint(0, 2 * len(plan.pools)))))
