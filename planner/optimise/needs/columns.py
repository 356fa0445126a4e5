"""What the integer program chooses among: needs with their spares and scaling rules, placed and priced in tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.optimise.supply.supplies import can_stand
from planner.optimise.types import Column, Config, Need, Part, Period, Placement, Slice, Supply, Workload
from planner.request import ModelRequest, Scaling


def running(replicas: Sequence[int], spare: int, scaling: Scaling) -> tuple[int, ...]:
    """Replicas that are kept running in each period.

    That is step * ceil(max(need + spare, least) / step); where nothing may scale, the largest of them in every period.
    """
    steps = [-(-max(need + spare, scaling.min_replicas) // scaling.step) for need in replicas]
    kept = tuple(step * scaling.step for step in steps)
    return (max(kept),) * len(kept) if scaling.fixed else kept


def placement_of(model: ModelRequest, slice_: Slice, config: Config) -> Placement:
    """What a supplier sees of a configuration's replicas."""
    return Placement(
        gpu=config.gpu.id,
        gpus_per_replica=config.tp,
        interruptible=model.interruptible,
        regions=tuple(sorted(set(model.regions))),
        spread=slice_.key if model.survives_region_loss else "",
    )


def columns_of(
    workload: Workload, needs: Sequence[Need], spare: int, periods: tuple[Period, ...], supplies: Sequence[Supply]
) -> tuple[Column, ...]:
    """Needs that can stand somewhere, one part each, without those that another need of the slice makes pointless."""
    parts: dict[tuple[str, str], list[Part]] = {}
    placements: dict[tuple[str, str, int], Placement | None] = {}
    counts: dict[tuple[tuple[int, ...], str], tuple[int, ...]] = {}
    for need in needs:
        slice_, config = need.slice, need.config
        where, many = (slice_.key, config.gpu.id, config.tp), (need.replicas, slice_.key)
        if where not in placements:
            wanted = placement_of(workload.request, slice_, config)
            placements[where] = wanted if any(can_stand(wanted, supply) for supply in supplies) else None
        if many not in counts:
            counts[many] = running(need.replicas, spare, slice_.scaling)
        placement = placements[where]
        if placement is not None:
            parts.setdefault(where[:2], []).append(Part(placement, need, counts[many]))
    columns = [
        column_of(workload, (part,), periods)
        for group in parts.values()
        for part in undominated_parts(workload, group, periods)
    ]
    return tuple(sorted(columns, key=lambda column: column.key))


def undominated_parts(workload: Workload, parts: Sequence[Part], periods: Sequence[Period]) -> list[Part]:
    """Parts on one GPU type for one slice without those that another one beats.

    The other one has no larger degree, so that it stands and packs wherever this one does; takes no more GPUs in any
    period; and refuses no more tokens. Among equals the formats that the owner names first win, so that nothing is
    quantised without a gain.
    """
    if len(parts) == 1:
        return list(parts)
    hours = np.array([period.hours for period in periods])
    gpus = np.array([part.running for part in parts]) * np.array([[part.need.config.tp] for part in parts])
    hourly = gpus @ hours
    order = sorted(range(len(parts)), key=lambda i: (hourly[i], *_order(workload, parts[i].need.config)))
    ranked = gpus[order]
    degrees = np.array([parts[i].need.config.tp for i in order])
    refused = np.array([parts[i].need.config.length.refused_token_share for i in order])
    beats = np.all(ranked[:, None, :] <= ranked[None, :, :], axis=2)
    beats &= (degrees[:, None] <= degrees) & (refused[:, None] <= refused)
    # Only those before: two that are equal must not leave each other out.
    beaten = np.triu(beats, 1).any(axis=0)
    return [parts[i] for i, out in zip(order, beaten, strict=True) if not out]


def _order(workload: Workload, config: Config) -> tuple[float, int, tuple[int, int], tuple[int, int]]:
    """Order among parts of the same GPU-hours: what refuses less, of a smaller degree, of the owner's first formats."""
    preference = _preference(workload.request, config)
    caps = (config.sizing.max_model_len, config.sizing.max_num_seqs)
    return (config.length.refused_token_share, config.tp, preference, caps)


def _preference(request: ModelRequest, config: Config) -> tuple[int, int]:
    """Rank of a configuration's formats in the owner's order; smaller is preferred."""
    d = config.sizing.deployment
    return request.weight_dtypes.index(d.weight_dtype), request.kv_dtypes.index(d.kv_dtype)


def config_key(config: Config) -> str:
    """Configuration as text that sorts."""
    d, sizing = config.sizing.deployment, config.sizing
    return (
        f"{config.gpu.id}|tp{d.tp:02d}|{d.weight_dtype}|{d.kv_dtype}|{sizing.max_model_len:07d}|"
        f"{sizing.max_num_seqs:05d}"
    )


def column_of(workload: Workload, parts: tuple[Part, ...], periods: tuple[Period, ...]) -> Column:
    """A column that serves a slice with parts that share it."""
    slice_ = parts[0].need.slice
    kept = sum(part.load_share * (1.0 - part.need.config.length.refused_token_share) for part in parts)
    names = [
        config_key(part.need.config) + ("" if part.load_share == 1.0 else f" {part.load_share:g}") for part in parts
    ]
    return Column(
        key="|".join([slice_.key, *names]),
        model=workload.name,
        start=slice_.start,
        end=slice_.end,
        parts=parts,
        served_tokens=slice_.offered_tokens(periods) * kept,
    )
