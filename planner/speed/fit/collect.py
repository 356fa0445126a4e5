"""From tables of measurements to the points of a fit; what is left out is counted by reason."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from planner import units
from planner.errors import InputError
from planner.speed.cases.deployments import Deployments
from planner.speed.cases.layouts import Layout, layout_of
from planner.speed.cases.rows import TRTLLM_BENCH, measured_of
from planner.speed.fit.sample import FitPoint, Kind
from planner.speed.formats import peaks_of
from planner.speed.points import LoadKind, Point
from planner.speed.work import StepWork, work_of

OLD_TRTLLM = re.compile(r"0\.")
"""Releases before 1.0, which another era covers."""
MOST_PEAK_SHARE = 0.75
"""Work beyond this share of the peak was not done: prompts came from a prefix cache."""
LONGEST_GAP = 1.01
"""Concurrency over the engine's batch: beyond it several replicas or a queue stand behind one row."""


@dataclass(frozen=True)
class Collected:
    """Points of a fit, and how many rows were left out for each reason."""

    points: tuple[FitPoint, ...]
    left_out: Mapping[str, int]


def collect(header: Iterable[str], rows: Iterable[Mapping[str, str]], deployments: Deployments) -> Collected:
    """Closed loops with a measured TPOT, and full loads with a measured throughput, on replicas whose work is known.

    Raises
    ------
    InputError
        If the table is none that is known.
    """
    layout = layout_of(tuple(header))
    engines = frozenset(era.engine for era in deployments.sources.facts.engine)
    found: list[FitPoint] = []
    reasons: Counter[str] = Counter()
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        fit_point, reason = _fit_point(layout, row, deployments, engines)
        if fit_point is None:
            reasons[reason] += 1
            continue
        key = (fit_point.point.served, fit_point.point.load)
        if key in seen:
            reasons["measured twice"] += 1
            continue
        seen.add(key)
        found.append(fit_point)
    return Collected(tuple(found), dict(sorted(reasons.items())))


def _fit_point(
    layout: Layout, row: Mapping[str, str], deployments: Deployments, engines: frozenset[str]
) -> tuple[FitPoint | None, str]:
    """The row as a point of a fit, or why it is none."""
    case = deployments.reader.read(layout, row)
    if case.point is None:
        return None, "not understood"
    point = replace(case.point, measured=measured_of(layout, row, case.point.served.replicas))
    reason = _unfit(point, row, engines)
    if reason:
        return None, reason
    try:
        found = fit_point_of(point, deployments)
    except InputError:
        return None, "does not fit the GPU"
    reason = _implausible(found)
    return (None, reason) if reason else (found, "")


def _unfit(point: Point, row: Mapping[str, str], engines: frozenset[str]) -> str:
    """Why a point says nothing about one replica that is fitted; empty where it does."""
    served, load, measured = point.served, point.load, point.measured
    full = load.kind is LoadKind.MAX_LOAD
    over = _number(row.get("concurrency")) > LONGEST_GAP * _number(row.get("batch_size"))
    reasons = {
        "prefill and decode apart": served.decode_only,
        "neither a closed loop nor a full load": not full
        and (load.kind is not LoadKind.CLOSED_LOOP or load.concurrency is None),
        "no TPOT": not full and (measured.tpot_ms is None or load.output_tokens < 2),
        "full load of another engine than trtllm-bench": full
        and (served.engine != TRTLLM_BENCH or bool(OLD_TRTLLM.match(served.version))),
        "no throughput": full and measured.output_tok_s is None,
        "prefix cache or speculative decoding": load.cached_share > 0 or load.acceptance != 1,
        "engine without overheads": served.engine not in engines,
        "data-parallel attention or pipeline stages": not full and (served.attention_dp > 1 or served.pp > 1),
        "more clients than the batch: several replicas or a queue": over,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def fit_point_of(point: Point, deployments: Deployments) -> FitPoint:
    """The point with its work and its room.

    Raises
    ------
    InputError
        If the deployment does not fit its GPU.
    """
    served = point.served
    shape, gpu, steps, _ = deployments.sized(replace(served, replicas=1, decode_only=False))
    deployed = deployments.of(served)
    return FitPoint(
        point=point,
        kind=Kind(gpu, served.weight_dtype, served.engine, served.version),
        work=work_of(shape, steps),
        room=max(1.0, deployed.room(point.load)),
        most_sequences=deployed.most_sequences,
        architecture=shape.architecture,
    )


def _implausible(found: FitPoint) -> str:
    """Whether the stated rate needs more FLOPs than the GPU has."""
    load, measured = found.point.load, found.point.measured
    if load.kind is LoadKind.MAX_LOAD:
        return ""
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
