"""Many candidates of many pools judged at once: whether a number of replicas holds every constraint in a period.

What is judged is what `planner.queueing.load.used_shares` states, as yes or no: a limit on a quantile is then one value
of a distribution function instead of a search for the quantile. Candidates that differ in their pool and their cap on
sequences alone share one steady state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc

from planner.queueing.dispersion import Dispersions, stack_dispersions
from planner.queueing.footprint import Moments
from planner.queueing.live_tokens import batch_mean, thinned_idc
from planner.queueing.load import (
    Candidates,
    Constraint,
    Demand,
    Limits,
    PoolCheck,
    ReplicaLoad,
    front_end_s,
    pool_figure,
    settle_at,
    work_s,
)
from planner.queueing.waiting import (
    PromptPoints,
    Wait,
    late_share,
    longest_wait_of,
    occupied,
    stack_points,
    ttft_quantile_s,
)
from planner.speed.types import StepCoefficients
from planner.traffic.types import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

MAX_REPLICAS = 1 << 30
"""No load that a request may state needs more; a candidate that fails with so many can never hold its limits."""


@dataclass(frozen=True)
class Asks:
    """What several pools ask in every period, and their limits.

    Attributes
    ----------
    rate_per_s
        Accepted planning rate, shape (asks, periods).
    dispersion
        Burst curves, with the curve of each ask.
    prompts
        One row for each ask.
    tpot_s, ttft_s, ttft_percentile
        Targets, shape (asks,); infinite where there is none.
    load_cv
        How unsure what a request holds is, shape (asks,).
    overflow, max_work_share
        Limits that all pools share.
    """

    rate_per_s: FloatArray
    dispersion: Dispersions
    prompts: PromptPoints
    tpot_s: FloatArray
    ttft_s: FloatArray
    ttft_percentile: FloatArray
    load_cv: FloatArray
    overflow: float
    max_work_share: float

    @property
    def busiest(self) -> IntArray:
        """The period of the highest rate, for each ask."""
        return np.asarray(np.argmax(self.rate_per_s, axis=1), dtype=np.int64)


def asks_of(demands: Sequence[Demand], limits: Sequence[Limits], rate_per_s: FloatArray) -> Asks:
    """Several pools' demands and limits; all limits have the same overflow and work share."""
    curves = {id(demand.dispersion): demand.dispersion for demand in demands}
    place = {key: index for index, key in enumerate(curves)}
    return Asks(
        rate_per_s=rate_per_s,
        dispersion=stack_dispersions(
            list(curves.values()), np.array([place[id(d.dispersion)] for d in demands], dtype=np.int64)
        ),
        prompts=stack_points([demand.prompts for demand in demands]),
        tpot_s=np.array([each.tpot_s for each in limits]),
        ttft_s=np.array([each.ttft_s for each in limits]),
        ttft_percentile=np.array([each.ttft_percentile for each in limits]),
        load_cv=np.array([demand.load_cv for demand in demands]),
        overflow=limits[0].overflow_probability,
        max_work_share=limits[0].max_work_share,
    )


@dataclass(frozen=True)
class Screen:
    """Candidates of several pools, column by column.

    Attributes
    ----------
    coefficients, ttft_edge
        Of the distinct kinds of replica (step times at the edge that constraints see).
    moments
        Stacked footprint moments.
    kind, moment, ask
        Of each steady state: its kind of replica, its moments and whose load it carries.
    state, pool_tokens, max_num_seqs
        Of each candidate: its steady state, its pool, its cap on concurrent sequences.
    """

    asks: Asks
    coefficients: StepCoefficients
    ttft_edge: FloatArray
    moments: Moments
    kind: IntArray
    moment: IntArray
    ask: IntArray
    state: IntArray
    pool_tokens: FloatArray
    max_num_seqs: FloatArray

    def __len__(self) -> int:
        return len(self.state)

    @property
    def peak(self) -> IntArray:
        """The busiest period of each candidate's pool."""
        return np.asarray(self.asks.busiest[self.ask[self.state]])

    def least_by_work(self) -> IntArray:
        """Replicas that the work of the busiest period alone needs, for each candidate: a lower bound, at least 1."""
        rate = self.asks.rate_per_s.max(axis=1)[self.ask]
        work = work_s(coefficients_at(self.coefficients, self.kind), self.moments.at(self.moment))
        least = np.ceil(rate * work / self.asks.max_work_share * (1.0 - 1e-9))
        return np.asarray(np.clip(least, 1, MAX_REPLICAS), dtype=np.int64)[self.state]

    def holds(
        self, candidate: IntArray, period: IntArray, replicas: IntArray, checks: tuple[PoolCheck, ...]
    ) -> list[BoolArray]:
        """Whether candidates hold every constraint with their numbers of replicas, one answer for each pool check.

        The first check must be the loosest: what fails it fails the others.
        """
        states, inverse = _distinct(self.state[candidate], period, replicas, self.asks.rate_per_s.shape[1])
        at, when, count = states
        ask = self.ask[at]
        moments = self.moments.at(self.moment[at])
        c = coefficients_at(self.coefficients, self.kind[at])
        rate = self.asks.rate_per_s[ask, when] / count
        dispersion = self.asks.dispersion.take(ask)
        n, longest_s, load_cv = count.astype(np.float64), self.asks.tpot_s[ask], self.asks.load_cv[ask]
        load = settle_at(c, moments, dispersion, rate, n, longest_s, load_cv)
        eps, pool = self.asks.overflow, self.pool_tokens[candidate]
        calm = np.isfinite(load.token_s) & (load.work_share <= self.asks.max_work_share)
        calm &= load.token_s <= self.asks.tpot_s[ask]
        fits = [pool_figure(check, load, moments, eps)[inverse] <= pool for check in checks]
        held = calm[inverse] & fits[0]
        held[held] = self._sequences(load, inverse[held], self.max_num_seqs[candidate[held]])
        limit_s = self.asks.ttft_s[ask] / self.ttft_edge[self.kind[at]]
        late = self._late(load, front_end_s(c, load), ask, count, limit_s, np.unique(inverse[held]))
        held &= ~late[inverse]
        return [held & fit for fit in fits]

    def misses(self, state: IntArray, replicas: int) -> dict[str, FloatArray]:
        """Planned over limit of the speed targets in the busiest period: what is missed however little the load is."""
        ask = self.ask[state]
        count = np.full(len(state), float(replicas))
        c, moments = coefficients_at(self.coefficients, self.kind[state]), self.moments.at(self.moment[state])
        rate = self.asks.rate_per_s.max(axis=1)[ask] / count
        load = settle_at(c, moments, self.asks.dispersion.take(ask), rate, count)
        wait = self._wait(load, ask, count)
        percentile = self.asks.ttft_percentile[ask]
        prompts = self.asks.prompts.at(ask)
        ttft = ttft_quantile_s(wait, prompts, load.stay, front_end_s(c, load), percentile)
        return {
            Constraint.TPOT: load.token_s / self.asks.tpot_s[ask],
            Constraint.TTFT: ttft * self.ttft_edge[self.kind[state]] / self.asks.ttft_s[ask],
        }

    def _sequences(self, load: ReplicaLoad, at: IntArray, max_num_seqs: FloatArray) -> BoolArray:
        """Whether the quantile of the live requests is at most the cap: `live_request_quantile` as yes or no."""
        live, spread = np.maximum(load.live_requests[at], 1e-9), load.live_dispersion[at]
        return np.asarray(gammainc(live / spread, max_num_seqs / spread) >= 1.0 - self.asks.overflow)

    def _late(
        self,
        load: ReplicaLoad,
        front_end: FloatArray,
        ask: IntArray,
        replicas: IntArray,
        limit_s: FloatArray,
        wanted: IntArray,
    ) -> BoolArray:
        """Whether too many first tokens come later than ``limit_s``, for the ``wanted`` states; False for others."""
        late = np.zeros(len(ask), dtype=bool)
        wanted = wanted[np.isfinite(limit_s[wanted])]
        if not wanted.size:
            return late
        whose, some = ask[wanted], load.at(wanted)
        wait = self._wait(some, whose, replicas[wanted].astype(np.float64))
        prompts = self.asks.prompts.at(whose)
        share = late_share(limit_s[wanted], wait, prompts, some.stay, front_end[wanted])
        late[wanted] = share > 1.0 - self.asks.ttft_percentile[whose]
        return late

    def _wait(self, load: ReplicaLoad, ask: IntArray, replicas: FloatArray) -> Wait:
        """Wait for other prompts, as in `planner.queueing.load.ttft_s`."""
        curve = self.asks.dispersion.of[ask]
        idc, scales_s = self.asks.dispersion.scale_idc[curve].T, self.asks.dispersion.scales_s[curve].T
        work = occupied(self.asks.prompts.powers[:, ask], load.stay)
        batch = batch_mean(thinned_idc(idc, replicas))
        return longest_wait_of(load.rate_per_s, batch, scales_s, work, self.asks.ttft_percentile[ask])


def coefficients_at(c: StepCoefficients, index: IntArray) -> StepCoefficients:
    """Of stacked coefficients, those at ``index``."""
    return StepCoefficients(**{item.name: getattr(c, item.name)[index] for item in fields(StepCoefficients)})


def screen_of(candidates: Candidates, demand: Demand, limits: Limits) -> Screen:
    """Candidates of one pool in one period."""
    each = np.arange(len(candidates), dtype=np.int64)
    return Screen(
        asks=asks_of([demand], [limits], np.array([[demand.rate_per_s]])),
        coefficients=candidates.coefficients,
        ttft_edge=candidates.ttft_edge,
        moments=candidates.moments,
        kind=each,
        moment=candidates.moment_index,
        ask=np.zeros_like(each),
        state=each,
        pool_tokens=candidates.pool_tokens,
        max_num_seqs=candidates.max_num_seqs,
    )


def _distinct(
    state: IntArray, period: IntArray, replicas: IntArray, periods: int
) -> tuple[tuple[IntArray, IntArray, IntArray], IntArray]:
    """Distinct triples of steady state, period and replicas, and which of them each one is."""
    _, first, inverse = np.unique(
        (state * periods + period) * (2 * MAX_REPLICAS) + replicas, return_index=True, return_inverse=True
    )
    return (state[first], period[first], replicas[first]), inverse.reshape(-1)
