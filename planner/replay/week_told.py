"""What a replayed week says of a pool: hour by hour, period by period, change by change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from planner import units
from planner.plan import Pool
from planner.replay.promises import Promise, Seen, promises
from planner.replay.segments import Lived
from planner.replay.types import Fate, FloatArray, IntArray


@dataclass(frozen=True)
class HourSeen:
    """One replayed hour of a pool; requests are those that arrived in it."""

    number: int
    """Hour of the week."""
    before: int
    """Period of the hour before."""
    period: int
    weight: int
    """Hours of the week that it stands for."""
    replicas_before: int
    replicas: int
    seen: Seen
    turned_away: int
    """No replica ran."""
    worst_ttft_ms: float
    """Of the worst minute, at the percentile of the pool's target; NaN where nothing was timed."""
    worst_minute: int
    """Minute of the hour in which it was, from 0."""


@dataclass(frozen=True)
class PeriodSeen:
    """A pool in one period: means over its hours by their weights; counts are of all hours stood for."""

    period: str
    hours: int
    replicas: int
    requests: int
    served: int
    refused: int
    turned_away: int
    unfinished: int
    short_share: float
    busy_share: float
    ttft_ms: float
    tpot_ms: float
    promises: tuple[Promise, ...]
    usd: float
    """Of the replicas asked for in these hours, at the pool's mean cost of a replica and hour."""
    usd_per_mtok: float
    """Per million tokens served; NaN where none is."""


@dataclass(frozen=True)
class WeekPool:
    """A pool over the week."""

    pool: Pool
    hours: tuple[HourSeen, ...]
    periods: tuple[PeriodSeen, ...]
    usd_per_mtok: float
    """At the replayed traffic."""
    usd_per_mtok_planned: float
    """At the plan's mean traffic."""
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[HourSeen, ...]:
        """Hours at whose beginning replicas come or go."""
        return tuple(hour for hour in self.hours if hour.replicas != hour.replicas_before)

    @property
    def passed(self) -> bool:
        """Whether no promise is refuted in any period, and no request found no replica."""
        turned = any(period.turned_away for period in self.periods)
        return not turned and all(p.passed for period in self.periods for p in period.promises)


def hour_seen(pool: Pool, lived: Lived, core: tuple[int, int]) -> tuple[Seen, int, float, int]:
    """Figures of the requests that arrived in the windows [core), turned away, the worst minute's TTFT and which.

    A request without a first token counts with its wait so far; TPOT is infinite where something was to be served and
    nothing was.

    Raises
    ------
    AssertionError
        If a request was lost, sent twice, or ended twice.
    """
    low, high = core[0] * lived.window_s, core[1] * lived.window_s
    arrival, fate = lived.requests.arrival_s, lived.fate
    mine = (arrival >= low) & (arrival < high)
    count = {kind: int((fate[mine] == kind).sum()) for kind in Fate}
    _check_conserved(lived)
    served = np.flatnonzero(mine & (fate == Fate.SERVED))
    timed = mine & ((fate == Fate.SERVED) | (fate == Fate.UNFINISHED))
    until = np.where(np.isnan(lived.seen_s), lived.horizon_s, lived.seen_s)
    wait, when = (until - arrival)[timed], ((arrival[timed] - low) // lived.window_s).astype(np.int64)
    worst, minute = _worst(wait, when, core[1] - core[0], pool.speed.ttft_percentile)
    request = lived.requests
    tokens = request.prompt_tokens[served].sum() + request.output_tokens[served].sum()
    inside = slice(*core)
    up = float(lived.up_s[inside].sum())

    def share(name: str) -> float:
        return float(lived.integral(name)[inside].sum()) / up if up else 0.0

    seen = Seen(
        requests=int(mine.sum()), served=len(served), refused=count[Fate.REFUSED_LENGTH] + count[Fate.REFUSED_POOL],
        unfinished=count[Fate.UNFINISHED], served_tokens=int(tokens), preemptions=int(lived.preemptions[mine].sum()),
        short_share=share("short_s"), full_share=share("full_s"), busy_share=share("busy_s"),
        live_requests=share("live_request_s"), live_tokens=share("used_token_s"),
        queue_requests=share("queue_request_s"), most_waiting=lived.most_waiting,
        ttft_ms=units.s_to_ms(float(np.quantile(wait, pool.speed.ttft_percentile))) if len(wait) else float("nan"),
        tpot_ms=_tpot_ms(lived, served) if len(served) or not count[Fate.UNFINISHED] else float("inf"),
    )  # fmt: skip
    return seen, count[Fate.UNROUTED], worst, minute


def _check_conserved(lived: Lived) -> None:
    """Where no replica is lost, a request is sent once or turned away, and has an end just where it was served."""
    fate, ended = lived.fate, ~np.isnan(lived.end_s)
    if (
        not np.isin(fate, list(Fate)).all()
        or (lived.sent != (fate != Fate.UNROUTED)).any()
        or (ended != (fate == Fate.SERVED)).any()
        or (lived.end_s[ended] < lived.requests.arrival_s[ended]).any()
    ):
        raise AssertionError("a request of the replay was lost, or was sent or ended twice")


def pool_of_week(
    pool: Pool, period_hours: Sequence[float], hours: Sequence[HourSeen], full: bool, notes: tuple[str, ...] = ()
) -> WeekPool:
    """A pool's periods and its verdict.

    Where every hour was replayed, hours are the repeats of a promise, with an interval of confidence; else the mean by
    weight is one value, without one.

    Parameters
    ----------
    period_hours
        Hours of each period in the plan's horizon.
    """
    usd_h = usd_per_replica_h(pool, period_hours)
    periods = []
    for k, planned in enumerate(pool.periods):
        mine = [hour for hour in hours if hour.period == k]
        if mine:
            together = _mean(mine)
            kept = _promises(pool, mine, full)
            periods.append(_period(planned.period, mine, together, kept, usd_h))
    tokens = sum(hour.weight * hour.seen.served_tokens for hour in hours)
    usd = sum(period.usd for period in periods)
    planned_mtok = pool.served_input_mtok + pool.served_output_mtok
    planned_usd = pool.usd / planned_mtok if planned_mtok else float("nan")
    return WeekPool(pool, tuple(hours), tuple(periods), _usd_per_mtok(usd, tokens), planned_usd, notes)


def _promises(pool: Pool, hours: Sequence[HourSeen], full: bool) -> tuple[Promise, ...]:
    """Promises of the hours that follow one of the same period, and apart from them of those after a change.

    An hour in which the rate still rises would hide in a mean what the period's full rate breaks.
    """
    found: list[Promise] = []
    for changed, word in ((False, ""), (True, " after a change")):
        mine = [hour for hour in hours if (hour.before != hour.period) == changed]
        if mine:
            kept = promises(pool, [hour.seen for hour in mine] if full else [_mean(mine)])
            found += [replace(p, constraint=p.constraint + word) for p in kept]
    return tuple(found)


def usd_per_replica_h(pool: Pool, period_hours: Sequence[float]) -> float:
    """The pool's mean cost of a replica and hour: its USD / Σ replicas x hours of each period; 0 where none runs."""
    total = sum(period.replicas * hours for period, hours in zip(pool.periods, period_hours, strict=True))
    return pool.usd / total if total else 0.0


def _period(
    name: str, hours: Sequence[HourSeen], together: Seen, kept: tuple[Promise, ...], usd_per_replica_hour: float
) -> PeriodSeen:
    count, replicas = sum(hour.weight for hour in hours), hours[0].replicas
    usd = usd_per_replica_hour * replicas * count
    return PeriodSeen(
        name, count, replicas, together.requests, together.served, together.refused,
        sum(hour.weight * hour.turned_away for hour in hours), together.unfinished, together.short_share,
        together.busy_share, together.ttft_ms, together.tpot_ms, kept, usd, _usd_per_mtok(usd, together.served_tokens),
    )  # fmt: skip


def _mean(hours: Sequence[HourSeen]) -> Seen:
    """All hours as one: counts added up by weight, the other figures as means by weight over hours that have them."""
    weights = np.array([hour.weight for hour in hours])
    found: dict[str, Any] = {}
    for item in fields(Seen):
        values = np.array([getattr(hour.seen, item.name) for hour in hours], dtype=np.float64)
        if item.name == "most_waiting":
            found[item.name] = int(values.max())
        elif item.type in ("int", int):
            found[item.name] = sum(hour.weight * getattr(hour.seen, item.name) for hour in hours)
        else:
            known = ~np.isnan(values)
            found[item.name] = float(np.average(values[known], weights=weights[known])) if known.any() else float("nan")
    return Seen(**found)


def _worst(wait: FloatArray, minute: IntArray, minutes: int, percentile: float) -> tuple[float, int]:
    """TTFT of the worst minute, ms, and which it is; NaN and 0 where nothing was timed."""
    figures = [
        float(np.quantile(wait[minute == k], percentile)) if (minute == k).any() else -1.0 for k in range(minutes)
    ]
    worst = max(figures)
    return (units.s_to_ms(worst), figures.index(worst)) if worst >= 0 else (float("nan"), 0)


def _tpot_ms(lived: Lived, served: IntArray) -> float:
    """Mean time of an output token after the first, over all tokens, as `PoolOutcome.tpot_s`."""
    index = served[lived.requests.output_tokens[served] > 1]
    tokens = int((lived.requests.output_tokens[index] - 1).sum())
    decode = float((lived.end_s[index] - lived.first_token_s[index]).sum())
    return units.s_to_ms(decode / tokens) if tokens else float("nan")


def _usd_per_mtok(usd: float, tokens: int) -> float:
    return units.usd_per_mtok(usd, tokens) if tokens else float("nan")
