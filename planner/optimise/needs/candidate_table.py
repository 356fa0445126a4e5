"""The candidates of one model as columns of arrays: which ask, which way, which kind of replica, which moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.optimise.needs.asks import Ask
from planner.optimise.needs.configurations import Replicas, Way, edges_of, expected_loads
from planner.optimise.types import Config
from planner.queueing.footprint import Marks, Moments, marks_held, moments_of, stack_moments
from planner.queueing.holding import Holding, holding_of
from planner.queueing.load import Candidates, scaled
from planner.queueing.screen import Screen, asks_of
from planner.request import Policy
from planner.speed.step import stack
from planner.speed.types import Band, SpeedModel
from planner.traffic.types import FloatArray, IntArray

EDGES = ("lower", "middle", "upper")
"""Edges of the speed band: fast, middle, slow."""


@dataclass(frozen=True)
class Kind:
    """A kind of replica as constraints see it: its speed, at edges of its bands."""

    speed: SpeedModel
    tpot_edge: str
    ttft_edge: str


Geometry = tuple[Marks, Moments]
"""A length law as a pool charges it."""


@dataclass(frozen=True)
class Table:
    """Candidates of one model, one entry each in `ask`, `way`, `kind` and `geometry`: places in the tuples above them.

    Candidates that differ in their way's pool and cap on sequences alone share ask, kind and geometry, and with them
    one steady state.
    """

    asks: tuple[Ask, ...]
    ways: tuple[Way, ...]
    kinds: tuple[Kind, ...]
    geometries: tuple[Geometry, ...]
    ask: IntArray
    way: IntArray
    kind: IntArray
    geometry: IntArray

    def __len__(self) -> int:
        return len(self.way)

    @cached_property
    def screen(self) -> Screen:
        """These candidates for `planner.queueing.replicas`."""
        keys = (self.ask * len(self.kinds) + self.kind) * len(self.geometries) + self.geometry
        _, first, state = np.unique(keys, return_index=True, return_inverse=True)
        pools = np.array([way.pool_token_equivalents for way in self.ways])
        caps = np.array([float(way.place.max_num_seqs) for way in self.ways])
        tpot, ttft = factors_of([(kind.speed, kind.tpot_edge, kind.ttft_edge) for kind in self.kinds])
        asks = self.asks
        return Screen(
            asks=asks_of([a.demand for a in asks], [a.limits for a in asks], np.array([a.rate_per_s for a in asks])),
            coefficients=scaled(stack([kind.speed for kind in self.kinds]), tpot),
            ttft_edge=ttft,
            moments=stack_moments([moments for _, moments in self.geometries]),
            kind=self.kind[first],
            moment=self.geometry[first],
            ask=self.ask[first],
            state=state.reshape(-1),
            pool_tokens=pools[self.way],
            max_num_seqs=caps[self.way],
        )

    @cached_property
    def group(self) -> IntArray:
        """Number of each candidate's slice, GPU type and tensor-parallel degree together."""
        slices = {key: number for number, key in enumerate(dict.fromkeys(ask.slice.key for ask in self.asks))}
        chips = {key: number for number, key in enumerate(dict.fromkeys(_chips(way) for way in self.ways))}
        of_ask = np.array([slices[ask.slice.key] for ask in self.asks], dtype=np.int64)
        of_way = np.array([chips[_chips(way)] for way in self.ways], dtype=np.int64)
        return of_ask[self.ask] * len(chips) + of_way[self.way]

    @cached_property
    def rank(self) -> IntArray:
        """Rank of each candidate's max_model_len in its slice, from the one that refuses least."""
        return np.array([ask.rank for ask in self.asks], dtype=np.int64)[self.ask]


def _chips(way: Way) -> tuple[str, int]:
    return (way.place.gpu.id, way.place.tp)


def table_of(asks: Sequence[Ask], ways: Sequence[Way], replicas: Replicas, policy: Policy) -> Table:
    """Every way for every ask of its max_model_len."""
    holdings = [holding_of(way.longer) for way in ways]
    kinds: dict[object, Kind] = {id(way.speed): _plain_kind(way.speed, policy) for way in ways if way.speed}
    place_of = {key: number for number, key in enumerate(kinds)}
    plain = np.array([place_of.get(id(way.speed), -1) for way in ways], dtype=np.int64)
    distinct = {holding: number for number, holding in enumerate(dict.fromkeys(holdings))}
    held = np.array([distinct[holding] for holding in holdings], dtype=np.int64)
    lengths = np.array([way.max_model_len for way in ways], dtype=np.int64)
    geometries: list[Geometry] = []
    columns: list[IntArray] = []
    for number, ask in enumerate(asks):
        places = np.nonzero(lengths == ask.length.max_model_len)[0]
        used = np.unique(held[places])
        geometry = len(geometries) + np.searchsorted(used, held[places])
        geometries += [geometry_of(ask, holding) for holding, at in distinct.items() if at in used]
        kind = plain[places]
        for row in np.nonzero(kind < 0)[0]:
            way = ways[places[row]]
            kind[row] = len(kinds)
            kinds[len(kinds)] = _measured_kind(way, geometries[geometry[row]][1], replicas, policy)
        columns.append(np.stack([np.full(len(places), number), places, kind, geometry]))
    return Table(tuple(asks), tuple(ways), tuple(kinds.values()), tuple(geometries), *np.concatenate(columns, axis=1))


def geometry_of(ask: Ask, holding: Holding) -> Geometry:
    """The law of what an ask serves, as a pool charges it."""
    marks = marks_held(ask.length.law, holding)
    return marks, moments_of(marks, ask.length.law)


def _plain_kind(speed: SpeedModel, policy: Policy) -> Kind:
    """The kind of replica of a way that was not measured."""
    return Kind(speed, *edges_of(speed, None, policy))


def _measured_kind(way: Way, moments: Moments, replicas: Replicas, policy: Policy) -> Kind:
    """The kind of replica of a way that was measured, under the loads that its ask may bring."""
    expected = expected_loads(way.place.max_num_seqs, moments)
    speed = replicas.speed_under(way.place, way.sizing, expected)
    return Kind(speed, *edges_of(speed, expected, policy))


def factors_of(kinds: Sequence[tuple[SpeedModel, str, str]]) -> tuple[FloatArray, FloatArray]:
    """Factors on the times of models at the edges that constraints see.

    The first multiplies the time per token and all that a step consists of; the second what TTFT follows from times at
    that edge.
    """
    tpot = np.array([_edge(speed.tpot_band, edge) for speed, edge, _ in kinds])
    ttft = np.array([_edge(speed.ttft_band, edge) for speed, _, edge in kinds])
    return tpot, ttft / tpot


def _edge(band: Band, edge: str) -> float:
    return {"lower": band.low, "middle": 1.0, "upper": band.high}[edge]


def stacked(configs: Sequence[Config], edge: str | None = None) -> Candidates:
    """Configurations of one pool's demand as columns of arrays, with step times at an edge of the band.

    ``edge`` is one of `EDGES`, or ``None`` for those that each configuration's constraints see.
    """
    tpot, ttft = factors_of([(c.speed, edge or c.tpot_edge, edge or c.ttft_edge) for c in configs])
    distinct = {id(c.moments): c.moments for c in configs}
    position = {key: index for index, key in enumerate(distinct)}
    return Candidates(
        coefficients=scaled(stack([c.speed for c in configs]), tpot),
        moments=stack_moments(list(distinct.values())),
        moment_index=np.array([position[id(c.moments)] for c in configs], dtype=np.int64),
        pool_tokens=np.array([c.pool_token_equivalents for c in configs]),
        max_num_seqs=np.array([float(c.sizing.max_num_seqs) for c in configs]),
        ttft_edge=ttft,
    )
