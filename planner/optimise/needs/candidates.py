"""For every slice of a model and every way to serve it, the replicas that it needs in every period.

The needs are lower bounds (`planner.queueing.live_tokens.quantile_lower_bound`); `planner.optimise.needs.exact` makes
exact those that a plan relies on. All slices, ways and periods are looked at together, as columns of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from planner.catalog.gpu import Gpu
from planner.optimise.needs.approved import approved_formats
from planner.optimise.needs.asks import asks_for
from planner.optimise.needs.candidate_table import Table, table_of
from planner.optimise.needs.configurations import Replicas, places_of, ways_of
from planner.optimise.types import Config, Need, Period, Rejection, Serving, Workload
from planner.queueing.replicas import peak_replicas, period_replicas, reachable
from planner.queueing.screen import MAX_REPLICAS, BoolArray
from planner.request import Policy
from planner.traffic.types import IntArray

NO_LINKS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class CandidateSet:
    """Configurations of one model with the lower bounds of their needs, and why others are not usable."""

    needs: tuple[Need, ...]
    rejections: tuple[Rejection, ...]


def candidate_needs(
    workload: Workload,
    gpus: Sequence[Gpu],
    serving: Serving,
    policy: Policy,
    periods: Sequence[Period],
    multi_node: Mapping[str, float] = NO_LINKS,
    prune: bool = True,
    replicas: Replicas | None = None,
) -> CandidateSet:
    """Configurations of one model with the lower bound of their replicas in every period, and all rejections.

    Parameters
    ----------
    gpus
        GPU types that the model may use.
    periods
        Those of the rates of the workload's slices.
    multi_node
        By GPU id, the bandwidth between nodes for replicas that span several, GB/s a GPU.
    prune
        Whether to leave out configurations that no best plan has: see `planner.queueing.replicas.peak_replicas` and
        `undominated`. What needs more replicas of a GPU type and degree in the busiest period is taken to need no fewer
        in any other period; nothing else is assumed.
    replicas
        Those of another model of the same weights under the same ``serving`` and ``multi_node``, to save time.
    """
    asks, too_long = asks_for(workload, policy, len(periods))
    formats, unapproved = approved_formats(workload.request, workload.shape, serving.facts)
    if not asks or not formats:
        return CandidateSet((), (*unapproved, *too_long))
    replicas = replicas or Replicas(workload.shape, serving, multi_node)
    places = places_of(workload.request, workload.shape, gpus, formats, multi_node)
    lengths = sorted({ask.length.max_model_len for ask in asks})
    ways, refused = ways_of(workload, places, lengths, replicas)
    if not ways:
        return CandidateSet((), (*unapproved, *too_long, *refused))
    table = table_of(asks, ways, replicas, policy)
    everyone = np.arange(len(table))
    can = reachable(table.screen, everyone)
    kept, counts = least_counts(table, everyone[can], prune)
    return CandidateSet(
        needs_of(workload, table, kept, counts),
        (*unapproved, *too_long, *refused, *missed(workload, table, everyone[~can])),
    )


def least_counts(table: Table, candidates: IntArray, prune: bool) -> tuple[IntArray, IntArray]:
    """Candidates that are worth offering, and their least replicas by the bound, shape (candidates, periods)."""
    group = table.group if prune else np.arange(len(table))
    at_peak = peak_replicas(table.screen, candidates, group[candidates], table.rank[candidates])
    candidates, at_peak = candidates[at_peak > 0], at_peak[at_peak > 0]
    counts = period_replicas(table.screen, candidates, at_peak)
    kept = undominated(table, candidates, counts) if prune else np.ones(len(candidates), dtype=bool)
    return candidates[kept], counts[kept]


def undominated(table: Table, candidates: IntArray, counts: IntArray) -> BoolArray:
    """Candidates without those that another of the same steady state beats with a pool at least as large.

    The other one's bounds are no higher in any period. Every limit but the pool's is judged exactly by the bound, and
    the larger pool needs no more replicas: so the other one's exact need is no higher either. Among equals the least
    cap on sequences stays.
    """
    screen = table.screen
    state, pools, caps = screen.state[candidates], screen.pool_tokens[candidates], screen.max_num_seqs[candidates]
    order = np.lexsort((caps, -pools, state))
    beaten = np.zeros(len(candidates), dtype=bool)
    # Neighbours in this order that share a state stand behind those with a larger pool.
    for distance in range(1, _longest_run(state[order])):
        before, after = order[:-distance], order[distance:]
        worse = (state[before] == state[after]) & np.all(counts[before] <= counts[after], axis=1)
        beaten[after[worse]] = True
    return ~beaten


def _longest_run(ordered: IntArray) -> int:
    """Most equal neighbours in an ordered column."""
    return int(np.unique(ordered, return_counts=True)[1].max(initial=0))


def needs_of(workload: Workload, table: Table, candidates: IntArray, counts: IntArray) -> tuple[Need, ...]:
    """Candidates as needs."""
    needs = []
    rates = [tuple(ask.rate_per_s.tolist()) for ask in table.asks]
    for candidate, count in zip(candidates.tolist(), counts.tolist(), strict=True):
        number = int(table.ask[candidate])
        ask = table.asks[number]
        config = config_of(workload, table, candidate)
        needs.append(Need(ask.slice, config, ask.demand, ask.limits, rates[number], tuple(count), exact=False))
    return tuple(needs)


def config_of(workload: Workload, table: Table, candidate: int) -> Config:
    """A candidate's configuration."""
    way, kind = table.ways[table.way[candidate]], table.kinds[table.kind[candidate]]
    marks, moments = table.geometries[table.geometry[candidate]]
    return Config(
        model=workload.name,
        gpu=way.place.gpu,
        sizing=way.sizing,
        speed=kind.speed,
        length=table.asks[table.ask[candidate]].length,
        marks=marks,
        moments=moments,
        pool_token_equivalents=way.pool_token_equivalents,
        tpot_edge=kind.tpot_edge,
        ttft_edge=kind.ttft_edge,
        score_drop=way.place.formats.score_drop,
    )


def missed(workload: Workload, table: Table, candidates: IntArray) -> tuple[Rejection, ...]:
    """Candidates that no number of replicas saves: the constraint that stays broken on an almost idle replica."""
    screen = table.screen
    states, first = np.unique(screen.state[candidates], return_index=True)
    if not states.size:
        return ()
    shares = screen.misses(states, MAX_REPLICAS)
    names, values = list(shares), np.stack(list(shares.values()))
    worst = np.argmax(values, axis=0)
    found = []
    for column, candidate in enumerate(candidates[first].tolist()):
        ask, place = table.asks[table.ask[candidate]], table.ways[table.way[candidate]].place
        share = float(values[worst[column], column])
        words = (
            f"{ask.slice.key} on {place.gpu.id} tp{place.tp} {place.formats.weights}/{place.formats.kv} kv, "
            f"max_model_len {ask.length.max_model_len}: {share:.2f} times the limit even on an almost idle replica"
        )
        alone = int(np.sum(values[:, column] > 1.0)) == 1
        found.append(Rejection(workload.name, place.gpu.id, place.tp, str(names[worst[column]]), words, share, alone))
    return tuple(found)
