"""The requests of a log, one by one, on the pools that were planned for them: what is refused, and what overflows.

What is assumed, besides the growth of a request (`planner.actuals.sweep`):

* a request goes to the pool that the routing table names (`planner.actuals.route`), and is refused where prompt plus
  output is longer than that pool's ``max_model_len``;
* the pool's replicas take turns (round robin by arrival) over those that the plan runs in the period;
* every stream has the planned TTFT (at its percentile) and decode rate of the busiest period, and nothing waits;
* a replica that the plan switches off ends what it has, and its time does not count any more;
* the replay begins empty at the start of each log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner import units
from planner.actuals.route import UNKNOWN, Routing, Turns
from planner.actuals.spans import within
from planner.actuals.store import Part, Store
from planner.actuals.sweep import NONE, Pace, Swept, arrivals, sweep
from planner.actuals.timetable import Piece
from planner.plan import Pool
from planner.report.facts import token_pool
from planner.traffic.grid import Span
from planner.traffic.types import FloatArray, IntArray


@dataclass(frozen=True)
class PoolReplayed:
    """One pool."""

    pool: Pool
    requests: int
    """That the routing table sends to it."""
    refused: int
    swept: Swept | None
    """``None`` where the plan cannot tell how many replicas run."""
    stranded: int
    """Requests in periods in which it runs no replica."""

    @property
    def limit_tokens(self) -> float:
        """Live tokens that one replica may hold."""
        return token_pool(self.pool)

    @property
    def overflow(self) -> float | None:
        """Share of the replicas' time with more live tokens than the pool holds."""
        if self.swept is None or self.swept.replica_s <= 0:
            return None
        return self.swept.over_s / self.swept.replica_s


@dataclass(frozen=True)
class Replayed:
    """All requests of one model within the hours of the logs."""

    requests: int
    fitted_input_tokens: int
    fitted_output_tokens: int
    pools: tuple[PoolReplayed, ...]
    without_tenant: int
    """Requests whose tenant the log does not name, where the routing table tells tenants apart."""

    @property
    def refused_share(self) -> float:
        """Share of the requests that are longer than their pool takes."""
        return sum(pool.refused for pool in self.pools) / self.requests if self.requests else 0.0


def replay(store: Store, model: str, pools: Sequence[Pool], routing: Routing, pieces: Sequence[Piece]) -> Replayed:
    """Every request of a model, in order of arrival.

    Parameters
    ----------
    pools
        In the order of ``routing``.
    pieces
        The hours of the logs, in order, cut where the period changes.
    """
    turns, fit = Turns(routing), np.zeros(2, dtype=np.int64)
    runs = [_Run(pool, pieces[0].span.start_us) for pool in pools]
    requests = without_tenant = 0
    for part in store.parts(model):
        number = turns.pools(part.prompt, part.tenant)
        requests += number.size
        without_tenant += int((part.tenant == UNKNOWN).sum()) if len(routing.tenants) > 1 else 0
        for place, run in enumerate(runs):
            mine = np.flatnonzero(number == place)
            fit += run.add(part, mine)
        for piece in pieces:
            span = within(piece.span, part.span)
            if span.end_us > span.start_us:
                for run in runs:
                    run.advance(span, piece.period)
    return Replayed(requests, int(fit[0]), int(fit[1]), tuple(run.result() for run in runs), without_tenant)


def extra_tokens(pool: Pool) -> float:
    """What a live request of the plan holds beside its tokens: the rest of its last block, windows, states.

        extra = mean formula tokens / mean live requests - (mean prompt + mean output / 2)

    The plan's product of means charges a request halfway through its output by the rules of its cache
    (`planner.queueing.holding`), in tokens of the layers that keep everything; lengths are those that it serves. Taken
    alike for every request: exact for blocks and states, at mean lengths for sliding windows. Never below 0.
    """
    served = pool.offered_requests * (1.0 - pool.refused_request_share)
    if not (served > 0 and pool.load.mean_live_requests > 0):
        return 0.0
    tokens = units.TOKENS_PER_MTOK * (pool.served_input_mtok + pool.served_output_mtok / 2) / served
    return max(pool.load.mean_formula_tokens / pool.load.mean_live_requests - tokens, 0.0)


def pace_of(pool: Pool) -> Pace:
    """How a request grows in a pool, by its plan."""
    return Pace(units.ms_to_s(pool.speed.ttft_ms.used), pool.speed.decode_tokens_per_s, extra_tokens(pool))


def replicas_in(pool: Pool, period: int | None) -> int | None:
    """Replicas that the plan runs; ``None`` where it differs by period and the period is not known."""
    counts = [run.replicas for run in pool.periods] or [pool.replicas]
    if period is None or not pool.periods:
        return counts[0] if len(set(counts)) == 1 else None
    return counts[period]


class _Run:
    """One pool while its requests go by."""

    def __init__(self, pool: Pool, origin_us: int) -> None:
        self._pool, self._origin_us = pool, origin_us
        """Seconds are counted from there: small numbers keep their digits."""
        self._pace, self._limit = pace_of(pool), token_pool(pool)
        self._requests = self._refused = self._stranded = self._turn = 0
        self._live = NONE
        self._swept: Swept | None = Swept()
        self._waiting = (np.empty(0), np.empty(0), np.empty(0))
        """Arrival in s, prompt and output of requests that have no replica yet, in order of arrival."""

    def add(self, part: Part, mine: IntArray) -> IntArray:
        """Take the requests at these places of a part; returns input and output tokens of those that fit."""
        prompt, output = part.prompt[mine], part.output[mine]
        fits = np.flatnonzero(prompt + output <= self._pool.max_model_len)
        self._requests += mine.size
        self._refused += mine.size - fits.size
        prompt, output = prompt[fits], output[fits]
        arrival_s = self._seconds(part.ts_us[mine[fits]])
        self._waiting = arrival_s, prompt.astype(np.float64), output.astype(np.float64)
        return np.array([prompt.sum(), output.sum()])

    def advance(self, span: Span, period: int | None) -> None:
        """Go through a stretch of time in one period."""
        start_s, end_s = (float(moment) for moment in self._seconds(np.array(span)))
        arrival_s, prompt, output = self._waiting
        count = int(np.searchsorted(arrival_s, end_s))
        self._waiting = arrival_s[count:], prompt[count:], output[count:]
        replicas = replicas_in(self._pool, period)
        if replicas is None or self._swept is None:
            self._swept = None
            return
        if not replicas:
            self._stranded += count
            return
        replica = (self._turn + np.arange(count)) % replicas
        self._turn += count
        new = arrivals(arrival_s[:count], prompt[:count], output[:count], replica, self._pace)
        self._live = self._live.after(start_s).with_more(new)
        self._swept += sweep(self._live, start_s, end_s, replicas, self._limit, self._pace)

    def result(self) -> PoolReplayed:
        """What has gone by.

        Raises
        ------
        AssertionError
            If a request came after the last stretch of time: a bug.
        """
        if self._waiting[0].size:
            raise AssertionError(f"{self._pool.name}: {self._waiting[0].size} requests outside the hours")
        return PoolReplayed(self._pool, self._requests, self._refused, self._swept, self._stranded)

    def _seconds(self, moments_us: IntArray) -> FloatArray:
        return np.asarray((moments_us - self._origin_us) / 1e6)
