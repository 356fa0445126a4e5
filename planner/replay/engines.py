"""The engine of a plan's pool, sized and timed again from the catalogue."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.catalog.load import Catalog
from planner.deployed import deployment_of
from planner.errors import InputError, Problem, Problems
from planner.memory.size import size
from planner.plan import FleetPlan, Pool
from planner.queueing.holding import holding_of, pool_token_equivalents
from planner.queueing.load import scaled
from planner.replay.types import Engine
from planner.speed.chain import SpeedSources, load_sources, speed_of

EDGES = ("upper", "middle", "lower")
"""Edges of the speed band that may be replayed: slow, as predicted, fast."""


@dataclass(frozen=True)
class PoolEngine:
    """A pool's replica as it is replayed."""

    pool: Pool
    engine: Engine
    edge: str
    notes: tuple[str, ...]
    """Where it differs from what the plan says."""


def engines_of(plan: FleetPlan, catalog: Catalog, edge: str = "", slower: float = 1.0) -> tuple[PoolEngine, ...]:
    """Engines of all pools of a plan.

    Parameters
    ----------
    plan, catalog
        The catalogue must be the one that the plan was made from.
    edge
        Edge of the speed band; empty: the one that the plan's own limits saw.
    slower
        Factor on every step time.

    Raises
    ------
    InputError
        If the catalogue lacks a model, GPU or engine, or a replica no longer starts; with all problems.
    """
    problems, sources = Problems(), load_sources(catalog.root)
    found = [
        problems.attempt(lambda pool=pool: engine_of(pool, catalog, sources, edge, slower), f"pool {pool.name}")  # type: ignore[misc]
        for pool in plan.pools
    ]
    problems.raise_if_any()
    return tuple(each for each in found if each is not None)


def engine_of(pool: Pool, catalog: Catalog, sources: SpeedSources, edge: str, slower: float) -> PoolEngine:
    """One pool's engine.

    The step time is that of the edge: with the TPOT band's multiplier at the slow (`high`) or fast (`low`) edge.

    Raises
    ------
    InputError
        As `engines_of`.
    """
    shape, gpu = catalog.model_shape(pool.weights), catalog.gpu(pool.gpu)
    sizing = size(shape, gpu, catalog.engine(pool.engine, pool.engine_version), deployment_of(pool))
    if not sizing.starts:
        raise InputError(
            [Problem(pool.name, f"does not start ({r.rule}): {r.message}", "Plan again") for r in sizing.refusals]
        )
    model = speed_of(shape, gpu, sizing, replace(sources, version=pool.engine_version))
    used = edge or pool.speed.tpot_ms.edge
    factor = {"upper": model.tpot_band.high, "middle": 1.0, "lower": model.tpot_band.low}[used] * slower
    tokens = pool_token_equivalents(sizing)
    notes = []
    if not np.isclose(sizing.pool_tokens, pool.memory.pool_tokens, rtol=1e-6):
        notes.append(
            f"the catalogue sizes its pool at {sizing.pool_tokens:,} tokens, the plan at {pool.memory.pool_tokens:,}; "
            "the plan's is replayed"
        )
        tokens *= pool.memory.pool_tokens / sizing.pool_tokens
    engine = Engine(
        coefficients=scaled(model.coefficients, factor),
        holding=holding_of(sizing),
        pool_tokens=tokens,
        max_num_seqs=pool.max_num_seqs,
        max_num_batched_tokens=pool.max_num_batched_tokens,
        max_model_len=pool.max_model_len,
    )
    return PoolEngine(pool, engine, used, tuple(notes))
