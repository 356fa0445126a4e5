"""The record of a replay: what was asked and what came out, frozen, as the study keeps it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from planner.plan import Frozen

if TYPE_CHECKING:
    from planner.plan import FleetPlan
    from planner.replay.drill_types import Drilled
    from planner.replay.fleet import PoolReplay, Replay
    from planner.replay.mean_based import MeanFleet
    from planner.replay.promises import Promise, Seen

NONE_SERVED = "none served"
"""Word of an infinite figure: something came and nothing was served in time."""
NOTHING_SEEN = "nothing to measure"
"""Word of a figure that is not defined, such as the TPOT of a pool that got no request."""
ONE_REPEAT = "one repeat"
"""Word of the end of an interval that one repeat alone does not give."""


class Figure(Frozen):
    """A number, or the word that stands for one: JSON has no infinity and no NaN."""

    value: float | None = None
    word: str = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.value is None) == (not self.word):
            raise ValueError("a figure is a number or a word")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError("a figure that is not finite is a word")
        return self

    @property
    def number(self) -> float:
        """The number; infinite or NaN where there is a word."""
        if self.value is not None:
            return self.value
        return math.inf if self.word == NONE_SERVED else math.nan


def figure(value: float, undefined: str = NOTHING_SEEN) -> Figure:
    """A figure; ``undefined`` is the word for NaN."""
    if math.isfinite(value):
        return Figure(value=float(value))
    return Figure(word=NONE_SERVED if value > 0 else undefined)


class PromiseRecord(Frozen):
    """One limit of a pool: planned, allowed, observed."""

    constraint: str
    unit: str
    """``ms``, ``share of time`` or ``share of requests``."""
    planned: Figure
    limit: float
    observed: Figure
    """Mean of the repeats."""
    low: Figure
    high: Figure
    """Interval of confidence of that mean."""
    passed: bool
    """Whether the limit is not refuted: the whole interval, or the one figure there is, does not lie beyond it."""


class SeenRecord(Frozen):
    """Figures of a pool, each the mean of the repeats but ``most_waiting``, which is the largest."""

    requests: float
    served: float
    refused: float
    unfinished: float
    served_tokens: float
    preemptions: float
    live_requests: float
    """Of one replica."""
    live_tokens: float
    """Of one replica."""
    queue_requests: float
    """Of one replica."""
    most_waiting: int
    busy_share: float


class PoolRecord(Frozen):
    """One pool with some number of replicas."""

    pool: str
    replicas: int
    promises: tuple[PromiseRecord, ...]
    seen: SeenRecord | None = None
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no limit is refuted."""
        return all(promise.passed for promise in self.promises)


class DrillRecord(Frozen):
    """One failure drill of one pool; seconds from the start of the replay."""

    name: str
    pool: str
    what: str
    from_s: float
    until_s: float
    requests: int
    resent: int
    worst_ttft_ms: Figure
    worst_tpot_ms: Figure
    over_s: float
    """Time over a limit."""
    recovered_after_s: float | None
    """``None``: not recovered by the end."""
    served_tokens: int
    served_tokens_undisturbed: int
    unfinished: int
    sentence: str


class SourceRecord(Frozen):
    """The log of one model."""

    model: str
    file: str
    rate_per_s: float
    """Planning rate at which it was replayed."""


class ReplayRecord(Frozen):
    """A replay of a plan."""

    run_id: str
    """Of the plan."""
    seed: int
    repeats: int
    hours: float
    """Length of each repeat."""
    stress: float
    """Factor on every planning rate."""
    sustained: bool
    """Whether the planning rate was kept all the time; else in the busiest ten minutes of each repeat, as planned."""
    edge: str
    """Edge of the speed band: upper (slow), middle, lower (fast); empty: the plan's own."""
    slower: float
    """Factor on every step time."""
    part: str
    """Stretch of each log, as shares of its time."""
    confidence: float
    lost: tuple[tuple[str, int], ...] = ()
    """Replicas that were gone, by pool."""
    sources: tuple[SourceRecord, ...]
    not_replayed: tuple[str, ...] = ()
    """Models without a log."""
    pools: tuple[PoolRecord, ...]
    fewer: tuple[PoolRecord, ...] = ()
    """Each pool with one replica fewer, at the planning rate all the time."""
    means: tuple[PoolRecord, ...] = ()
    """Each pool with the replicas of the rule of means, at the planning rate all the time."""
    drills: tuple[DrillRecord, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no promise of the plan is refuted."""
        return all(pool.passed for pool in self.pools)

    @property
    def refuted(self) -> tuple[tuple[str, str], ...]:
        """Pool and limit of each promise that is refuted."""
        return tuple((pool.pool, one.constraint) for pool in self.pools for one in pool.promises if not one.passed)


def record_of(
    plan: FleetPlan,
    replay: Replay,
    *,
    files: Mapping[str, str],
    part: str,
    edge: str = "",
    slower: float = 1.0,
    fewer: Sequence[PoolReplay] = (),
    means: Sequence[MeanFleet] = (),
    drills: Sequence[Drilled] = (),
    confidence: float = 0.95,
) -> ReplayRecord:
    """The record of a replay.

    Parameters
    ----------
    files
        Name of the log of each model, without its folder.
    part, edge, slower
        As the engines and logs were asked for.
    confidence
        Of the intervals (`planner.replay.promises.CONFIDENCE`).
    """
    ask, models = replay.ask, dict.fromkeys(pool.model for pool in plan.pools)
    return ReplayRecord(
        run_id=plan.run_id, seed=ask.seed, repeats=ask.repeats, hours=ask.hours, stress=ask.stress,
        sustained=ask.sustained, edge=edge, slower=slower, part=part, confidence=confidence,
        lost=tuple(sorted(ask.fewer.items())),
        sources=tuple(
            SourceRecord(model=name, file=files.get(name, ""), rate_per_s=rate)
            for name, rate in sorted(replay.rates_per_s.items())
        ),
        not_replayed=tuple(name for name in models if name not in replay.rates_per_s),
        pools=tuple(_pool(each) for each in replay.pools),
        fewer=tuple(_pool(each) for each in fewer),
        means=tuple(_mean(each) for each in means),
        drills=tuple(_drill(each) for each in drills),
    )  # fmt: skip


def _pool(each: PoolReplay) -> PoolRecord:
    return PoolRecord(
        pool=each.pool.name,
        replicas=each.replicas,
        promises=_promises(each.promises),
        seen=_seen(each.repeats) if each.repeats else None,
        notes=each.notes,
    )


def _mean(each: MeanFleet) -> PoolRecord:
    notes = () if each.promises else ("the rule of means asks for no fewer replicas than the plan",)
    return PoolRecord(pool=each.pool, replicas=each.mean_replicas, promises=_promises(each.promises), notes=notes)


def _promises(promises: Iterable[Promise]) -> tuple[PromiseRecord, ...]:
    return tuple(
        PromiseRecord(
            constraint=one.constraint,
            unit=one.unit,
            planned=figure(one.planned),
            limit=one.limit,
            observed=figure(one.observed.value),
            low=figure(one.observed.low, _end(one)),
            high=figure(one.observed.high, _end(one)),
            passed=one.passed,
        )
        for one in promises
    )


def _end(one: Promise) -> str:
    """The word of an interval's end that is not there."""
    return NOTHING_SEEN if math.isnan(one.observed.value) else ONE_REPEAT


def _seen(repeats: Sequence[Seen]) -> SeenRecord:
    return SeenRecord(
        requests=fmean(one.requests for one in repeats),
        served=fmean(one.served for one in repeats),
        refused=fmean(one.refused for one in repeats),
        unfinished=fmean(one.unfinished for one in repeats),
        served_tokens=fmean(one.served_tokens for one in repeats),
        preemptions=fmean(one.preemptions for one in repeats),
        live_requests=fmean(one.live_requests for one in repeats),
        live_tokens=fmean(one.live_tokens for one in repeats),
        queue_requests=fmean(one.queue_requests for one in repeats),
        most_waiting=max(one.most_waiting for one in repeats),
        busy_share=fmean(one.busy_share for one in repeats),
    )


def _drill(each: Drilled) -> DrillRecord:
    drill = each.drill
    return DrillRecord(
        name=str(drill.name), pool=drill.pool, what=drill.what, from_s=drill.from_s, until_s=drill.until_s,
        requests=each.requests, resent=each.resent, worst_ttft_ms=figure(each.worst_ttft_ms),
        worst_tpot_ms=figure(each.worst_tpot_ms), over_s=each.over_s, recovered_after_s=each.recovered_after_s,
        served_tokens=each.served_tokens, served_tokens_undisturbed=each.served_tokens_undisturbed,
        unfinished=each.unfinished, sentence=each.sentence,
    )  # fmt: skip
