"""From tables of measurements to the points of a fit; what is left out is counted by reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from planner import units
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError
from planner.memory.size import size
from planner.memory.types import Deployment, Sizing
from planner.speed.cases.layouts import layout_of
from planner.speed.cases.rows import Reader, measured_of
from planner.speed.fit.sample import FitPoint, Kind
from planner.speed.formats import peaks_of
from planner.speed.points import LoadKind, Point
from planner.speed.roofline import check_figures
from planner.speed.work import StepWork, work_of

LENGTH_MARGIN_TOKENS = 256
"""Benchmarks start the engine with a little more than the prompt and the output."""
MOST_PEAK_SHARE = 0.75
"""Work beyond this share of the peak was not done: prompts came from a prefix cache."""
LONGEST_GAP = 1.01
"""Concurrency over the engine's batch: beyond it several replicas or a queue stand behind one row."""


@dataclass(frozen=True)
class Collected:
    """Points of a fit, and how many rows were left out for each reason."""

    points: tuple[FitPoint, ...]
    left_out: Mapping[str, int]


def collect(
    header: Iterable[str], rows: Iterable[Mapping[str, str]], reader: Reader, engines: frozenset[str]
) -> Collected:
    """Closed loops with a measured TPOT on one replica whose work is known.

    Parameters
    ----------
    header, rows
        The table; columns in lower case.
    reader
        Finds what the rows name.
    engines
        Those whose overheads are fitted.

    Raises
    ------
    InputError
        If the table is none that is known.
    """
    layout = layout_of(tuple(header))
    found: list[FitPoint] = []
    reasons: Counter[str] = Counter()
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        case = reader.read(layout, row)
        if case.point is None:
            reasons["not understood"] += 1
            continue
        point = replace(case.point, measured=measured_of(layout, row, case.point.served.replicas))
        reason = _unfit(point, row, engines)
        key = (point.served, point.load)
        if not reason and key in seen:
            reason = "measured twice"
        fit_point = None if reason else fit_point_of(point, reader)
        if fit_point is not None:
            reason = _implausible(fit_point)
        if reason or fit_point is None:
            reasons[reason or "cannot be sized"] += 1
            continue
        seen.add(key)
        found.append(fit_point)
    return Collected(tuple(found), dict(sorted(reasons.items())))


def _unfit(point: Point, row: Mapping[str, str], engines: frozenset[str]) -> str:
    """Why a point says nothing about one replica in a closed loop; empty where it does."""
    served, load = point.served, point.load
    over = _number(row.get("concurrency")) > LONGEST_GAP * _number(row.get("batch_size"))
    reasons = {
        "prefill and decode apart": served.decode_only,
        "no closed loop": load.kind is not LoadKind.CLOSED_LOOP or load.concurrency is None,
        "no TPOT": point.measured.tpot_ms is None or load.output_tokens < 2,
        "prefix cache or speculative decoding": load.cached_share > 0 or load.acceptance != 1,
        "engine without overheads": served.engine not in engines,
        "data-parallel attention or pipeline stages": served.attention_dp > 1 or served.pp > 1,
        "more clients than the batch: several replicas or a queue": over,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def fit_point_of(point: Point, reader: Reader) -> FitPoint | None:
    """The point with its work; ``None`` where the deployment cannot be sized."""
    catalog, served = reader.lookup.catalog, point.served
    try:
        shape, gpu = catalog.model_shape(served.model), catalog.gpu(served.gpu)
        check_figures(gpu, served.weight_dtype, served.tp)
        sizing = sizing_of(point, reader, catalog, shape, gpu)
    except InputError:
        return None
    return FitPoint(
        point=point,
        kind=Kind(gpu, served.weight_dtype, served.engine, served.version),
        work=work_of(shape, sizing),
        room=_room(sizing, point),
        architecture=shape.architecture,
    )


def sizing_of(point: Point, reader: Reader, catalog: Catalog, shape: ModelShape, gpu: Gpu) -> Sizing:
    """The replica behind a point, started for its lengths."""
    served, load = point.served, point.load
    deployment = Deployment(
        served.tp,
        served.weight_dtype,
        served.kv_dtype,
        max_model_len=math.ceil(load.input_tokens + load.output_tokens) + LENGTH_MARGIN_TOKENS,
        pp=served.pp,
        expert_parallel=served.ep > 1,
        attention_dp=served.attention_dp,
    )
    sizing = size(shape, gpu, reader.facts(served.engine, served.version), deployment)
    return replace(sizing, engine=served.engine, engine_version=served.version)


def _room(sizing: Sizing, point: Point) -> float:
    """Requests that run at once: pool over the tokens that a request holds on average while it runs.

    A replica whose weights should not fit was measured all the same: its label is wrong, and the pool not known.
    """
    held = point.load.input_tokens + point.load.output_tokens / 2
    pool = sizing.pool_tokens / held if sizing.pool_tokens > 0 else np.inf
    return float(min(pool, sizing.max_num_seqs)) if sizing.pool_tokens > 0 else np.inf


def _implausible(found: FitPoint) -> str:
    """Whether the stated rate needs more FLOPs than the GPU has."""
    load, measured = found.point.load, found.point.measured
    assert load.concurrency is not None
    assert measured.tpot_ms is not None
    life_s = units.ms_to_s((measured.ttft_ms or 0.0) + (load.output_tokens - 1) * measured.tpot_ms)
    running = min(load.concurrency, found.room)
    token_s = _least_s_per_token(found.work, found.kind)
    busy = running / life_s * (load.input_tokens + load.output_tokens) * token_s
    return "more work than the GPU can do: prompts were cached" if busy > MOST_PEAK_SHARE else ""


def _least_s_per_token(work: StepWork, kind: Kind) -> float:
    peaks = peaks_of(kind.gpu, kind.dtype)
    return float(
        (work.dense_flops_4bit + work.expert_flops_4bit) / peaks.four_bit.flops
        + (work.dense_flops_8bit + work.expert_flops_8bit) / peaks.eight_bit.flops
        + (work.dense_flops_16bit + work.expert_flops_16bit) / peaks.sixteen_bit.flops
    )


def _number(text: str | None) -> float:
    """A cell as a number; NaN, which compares false, where it is none."""
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
