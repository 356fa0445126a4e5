"""Series of metrics in order: one track for each, and which pool of a plan each belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import InputError, Problem
from planner.observe.metrics import Kind, MetricName
from planner.plan import FleetPlan
from planner.prometheus import Series
from planner.traffic.histograms.series import RANK_LABELS, REPLICA_LABELS, Track, joined

UP, STARTED = "up", "process_start_time_seconds"
PARTS = ("_bucket", "_sum", "_count")
TARGET_LABELS = ("target", "instance", "pod", "namespace", "job")
"""Labels by which targets are told apart."""
POOL = "pool"
"""Label of the series that names the pool."""
MODEL = "model_name"
NO_TIME_S = 0.0
"""Where a scrape stands that was taken nobody knows when."""


@dataclass(frozen=True)
class Assigned:
    """The tracks of each pool by the pool's name, and what belongs to none."""

    pools: Mapping[str, tuple[Track, ...]]
    notes: tuple[str, ...]


def wanted_names(names: Sequence[MetricName]) -> frozenset[str]:
    """Series that are read: those of histograms by their parts."""
    plain = {row.name for row in names if row.kind is not Kind.HISTOGRAM}
    parts = {row.name + part for row in names if row.kind is Kind.HISTOGRAM for part in PARTS}
    return frozenset(plain | parts | {UP, STARTED})


def tracks_in(series: Iterable[Series], wanted: frozenset[str], start_s: float, end_s: float) -> tuple[Track, ...]:
    """The wanted series between two times, both included; a scrape without a time stands at `NO_TIME_S`.

    Ranks of one replica repeat each other's figures, and SGLang repeats its gauges for each priority: the first rank
    and the sum over priorities count.

    Raises
    ------
    InputError
        If a figure is infinite, or one series has two values at one time.
    """
    found = []
    for one in series:
        if one.name not in wanted or one.labels.get("priority") or _of_other_rank(one):
            continue
        pairs = np.asarray(one.samples, dtype=np.float64).reshape(-1, 2)
        untimed = np.isnan(pairs[:, 0])
        pairs[:, 0] = np.where(untimed, NO_TIME_S, pairs[:, 0])
        pairs = pairs[untimed | ((pairs[:, 0] >= start_s) & (pairs[:, 0] <= end_s))]
        if not np.isfinite(pairs[:, 1]).all():
            shown = ", ".join(f"{name}={text}" for name, text in sorted(one.labels.items()))
            raise InputError(
                Problem(f"{one.name}{{{shown}}}"[:200], "holds a figure that is infinite", "Fetch it again")
            )
        if len(pairs):
            labels = {name: text for name, text in one.labels.items() if name not in REPLICA_LABELS}
            twin = len(labels) < len(one.labels)
            pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
            found.append(Track(one.name, labels, pairs[:, 0].copy(), pairs[:, 1].copy(), twin))
    return joined(found)


def _of_other_rank(one: Series) -> bool:
    return any(one.labels.get(label, "0") != "0" for label in RANK_LABELS)


def assigned(plan: FleetPlan, tracks: Sequence[Track], pool_label: str = POOL) -> Assigned:
    """Which pool each track belongs to: by the label, else by the model's name where one pool serves it.

    Tracks that name neither (such as vLLM's ``cache_config_info``) follow their target.

    Raises
    ------
    InputError
        If a model's name fits several pools and no label tells them apart, or nothing fits any pool.
    """
    names = {pool.name for pool in plan.pools}
    labelled = any(pool_label in track.labels for track in tracks)
    by_model = {} if labelled else _by_model(plan, {track.labels[MODEL] for track in tracks if MODEL in track.labels})
    of_track = [
        track.labels.get(pool_label) if labelled else by_model.get(track.labels.get(MODEL, "")) for track in tracks
    ]
    of_target: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for track, pool in zip(tracks, of_track, strict=True):
        if pool:
            of_target[target_of(track)].add(pool)
    found: dict[str, list[Track]] = {pool.name: [] for pool in plan.pools}
    strange: set[str] = set()
    for track, pool in zip(tracks, of_track, strict=True):
        follows = of_target.get(target_of(track), set())
        name = pool or (next(iter(follows)) if len(follows) == 1 and not _other_model(track, by_model) else "")
        if name in names:
            found[name].append(track)
        elif name or MODEL in track.labels:
            strange.add(name or track.labels[MODEL])
    if not any(found.values()):
        seen = f" (they name {', '.join(sorted(strange)[:5])})" if strange else ""
        fix = f"Give each target the label {pool_label} with the pool's name, or name another label: --pool-label"
        raise InputError(Problem("metrics", f"no series belongs to a pool of the plan{seen}", fix))
    notes = tuple(f"{name!r:.80} is no pool of the plan: its series are left out" for name in sorted(strange))
    return Assigned({name: tuple(own) for name, own in found.items()}, notes)


def _other_model(track: Track, by_model: Mapping[str, str]) -> bool:
    return MODEL in track.labels and track.labels[MODEL] not in by_model and bool(by_model)


def _by_model(plan: FleetPlan, seen: set[str]) -> dict[str, str]:
    """The pool of each model's name that an engine shows: that of the weights, or that of the request."""
    found: dict[str, str] = {}
    for name in sorted(seen):
        pools = [pool.name for pool in plan.pools if name in (pool.weights, pool.model, pool.name)]
        if len(pools) > 1:
            fix = f"Give each target the label {POOL} with the pool's name, or name another label: --pool-label"
            raise InputError(Problem("metrics", f"model {name} is served by pools {', '.join(pools)}", fix))
        found |= {name: pools[0]} if pools else {}
    return found


def target_of(track: Track) -> tuple[str, ...]:
    """What tells the track's target from others."""
    return tuple(track.labels.get(label, "") for label in TARGET_LABELS)
