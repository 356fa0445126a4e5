"""Last quarter's plan as a start for this one: the columns that are most like its pools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from planner.optimise.types import Column, Part
from planner.plan import FleetPlan, Pool

Served = tuple[str, tuple[str, ...], int, int | None]
"""Model, tenants, and the stretch of prompt lengths."""
Family = tuple[str, int, str, str]


def warm_columns(last: FleetPlan, columns: Sequence[Column]) -> tuple[str, ...]:
    """Keys of the columns that a solve may begin from: one for each stretch of prompts of the last plan that is there.

    A column is like the pools of a stretch when it serves the same model, tenants and prompt lengths on the same GPU
    types, tp and dtypes. Of several the one with the nearest max_model_len and max_num_seqs is taken, then the first.
    What has no counterpart is left out: a start saves time, and changes neither what is feasible nor what is proven.
    """
    pools: dict[tuple[Served, tuple[Family, ...]], list[Pool]] = {}
    by_stretch: dict[Served, list[Pool]] = defaultdict(list)
    for pool in last.pools:
        by_stretch[pool.model, tuple(sorted(pool.tenants)), pool.prompt_lo_tokens, pool.prompt_hi_tokens].append(pool)
    for stretch, found in by_stretch.items():
        pools[stretch, tuple(sorted(_family(pool) for pool in found))] = found
    best: dict[tuple[Served, tuple[Family, ...]], tuple[float, str]] = {}
    for column in columns:
        like = (_served(column), tuple(sorted(part.need.config.family for part in column.parts)))
        if like in pools:
            ranked = (_distance(column.parts, pools[like]), column.key)
            best[like] = min(best.get(like, ranked), ranked)
    return tuple(sorted(key for _, key in best.values()))


def _family(pool: Pool) -> Family:
    return (pool.gpu, pool.tp, pool.weight_dtype, pool.kv_dtype)


def _served(column: Column) -> Served:
    slice_ = column.parts[0].need.slice
    return (column.model, tuple(sorted(slice_.tenants)), slice_.prompt_lo_tokens, slice_.prompt_hi_tokens)


def _distance(parts: Sequence[Part], pools: Sequence[Pool]) -> float:
    """How far apart lengths, caps and shares are, family by family; 0 for the same."""
    total = 0.0
    for part, pool in zip(
        sorted(parts, key=lambda part: part.need.config.family), sorted(pools, key=_family), strict=True
    ):
        sizing = part.need.config.sizing
        total += abs(sizing.max_model_len - pool.max_model_len) / max(pool.max_model_len, 1)
        total += abs(sizing.max_num_seqs - pool.max_num_seqs) / max(pool.max_num_seqs, 1)
        total += abs(part.load_share - pool.load_share)
    return total
