"""Which formats of weights and cache a model may be served with: what its owner has approved, and measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.catalog.engine import EngineFacts
from planner.catalog.model_shape import ModelShape
from planner.memory.kv import auto_kv
from planner.memory.types import KvDtype, WeightDtype
from planner.optimise.types import Rejection
from planner.request import ModelRequest

QUALITY = "quality"
"""Reason of rejections by the owner's rules of quality."""


@dataclass(frozen=True)
class Formats:
    """A pair of formats that may be used."""

    weights: WeightDtype
    kv: KvDtype
    score_drop: float | None
    """Measured by the model's owner; ``None``: none is stated."""


def approved_formats(
    request: ModelRequest, shape: ModelShape, facts: EngineFacts
) -> tuple[tuple[Formats, ...], tuple[Rejection, ...]]:
    """Pairs that may be used, in the owner's order, and why the others may not.

    A pair must be among ``weight_dtypes`` and ``kv_dtypes``; where the owner lists measured pairs (``quality``), among
    them as well; and where a largest drop is stated (``max_score_drop``), its drop must be measured and no larger. The
    checkpoint's own formats are what drops are measured against: they need no measurement.
    """
    listed = {(pair.weight_dtype, pair.kv_dtype): pair.score_drop for pair in request.quality}
    own = (shape.native_weight_dtype, auto_kv(shape, facts))
    approved: list[Formats] = []
    rejected: list[Rejection] = []
    grid = [(weights, kv) for weights in request.weight_dtypes for kv in request.kv_dtypes]
    for weights, kv in dict.fromkeys(grid):
        drop = listed.get((weights, kv))
        why, excess = _objection(request, drop, (weights, kv) == own)
        if why:
            rejected.append(Rejection(request.name, "any", 0, QUALITY, f"{weights}/{kv} kv: {why}", excess))
        else:
            approved.append(Formats(weights, kv, drop))
    for weights, kv in listed.keys() - set(grid):
        why = "a measured pair that is not among weight_dtypes and kv_dtypes"
        rejected.append(Rejection(request.name, "any", 0, QUALITY, f"{weights}/{kv} kv: {why}", np.inf))
    return tuple(approved), tuple(sorted(rejected, key=lambda r: r.detail))


def _objection(request: ModelRequest, drop: float | None, own: bool) -> tuple[str, float]:
    """Why a pair may not be used, and how far it is beyond the limit; no words where it may."""
    if drop is None and request.quality:
        return "not in the owner's list of measured formats", np.inf
    limit = request.max_score_drop
    if limit is None or (drop is None and own):
        return "", 0.0
    if drop is None:
        return f"no measured score drop, and the model's owner accepts {limit:.2%} at most", np.inf
    if drop > limit:
        return f"its score drop {drop:.2%} is above the {limit:.2%} that is accepted", drop / limit if limit else np.inf
    return "", 0.0
