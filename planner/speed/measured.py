"""Measured points of a deployment: which ones hold for it, and the step-time model that they make of another one.

A point holds for a deployment of the same model, GPU type, engine, parallelism and formats. One of another engine
version is used where there is none of the planned version: the source then names both versions, and the deployment does
not count as measured, so constraints keep the slow edge of the band. Points of other formats are never used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from planner import units
from planner.catalog.versions import VERSION, version_key
from planner.memory.types import Sizing
from planner.speed.curve import Correction, Loads, bands_at, corrected, fit_correction
from planner.speed.points import LoadKind, Point
from planner.speed.prior import SpeedPrior
from planner.speed.types import Band, FloatArray, Provider, Reach, SpeedModel, StepCoefficients

REACH = 2.0
"""A measurement carries to this multiple of the largest measured batch and context; beyond, the model's band holds."""
SOURCES_NAMED = 3


@dataclass(frozen=True)
class Match:
    """Points that hold for a deployment."""

    points: tuple[Point, ...]
    engine: str
    measured_version: str
    planned_version: str
    same_version: bool


@dataclass(frozen=True)
class MeasuredSet:
    """All measured points that a user gives, of whatever deployments."""

    points: tuple[Point, ...] = ()

    def match(self, sizing: Sizing, version: str) -> Match | None:
        """The usable points of a deployment: of this engine version, else of the newest version that was measured."""
        found = [point for point in self.points if not why_not(point) and _same_deployment(point, sizing)]
        if not found:
            return None
        same = [point for point in found if _plain(point.served.version) == _plain(version)]
        chosen = _plain(version if same else max((p.served.version for p in found), key=_age))
        kept = tuple(point for point in found if _plain(point.served.version) == chosen)
        return Match(kept, sizing.engine, kept[0].served.version or "of unknown version", version, bool(same))

    def left_out(self) -> tuple[str, ...]:
        """One line for each reason why points are not used, with their number."""
        reasons = Counter(reason for point in self.points if (reason := why_not(point)))
        return tuple(f"{count} measured points not used: {reason}" for reason, count in sorted(reasons.items()))


NOTHING_MEASURED = MeasuredSet()


def why_not(point: Point) -> str:
    """Why a point cannot correct a model; empty if it can."""
    load, figures = point.load, point.measured
    reasons = {
        f"a {load.kind} says nothing about a steady state": load.kind not in (LoadKind.CLOSED_LOOP, LoadKind.OPEN_LOOP),
        "the mean concurrency is not known": load.concurrency is None,
        "neither TPOT nor TTFT was measured": figures.tpot_ms is None and figures.ttft_ms is None,
        "an output of one token has no TPOT": load.output_tokens < 2,
        "speculative decoding": load.acceptance != 1.0,
        "a decode-only replica": point.served.decode_only,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def measured_model(
    base: SpeedModel, match: Match, sizing: Sizing, prior: SpeedPrior, expected: Loads | None = None
) -> SpeedModel:
    """A model corrected by the measured points of its deployment.

    Parameters
    ----------
    base
        The model; its groups of coefficients are multiplied by factors.
    match, sizing
        Points of the deployment, and its pool.
    prior
        How much to believe of them.
    expected
        Loads over which the bands hold, the widest of each load's (`SpeedModel.bands_at`); by default the corners of
        what the measurements reach.

    Returns
    -------
    SpeedModel
        Beyond the reach of the measurements its band holds the base model's band as well.
    """
    loads, measured_s = _merged(match.points)
    loads = replace(loads, room=_room(sizing, loads.context_tokens))
    reach = Reach(
        batch=REACH * float(np.minimum(loads.clients, loads.room).max()),
        context_tokens=REACH * float(loads.context_tokens.max()),
        tpot=bool(np.isfinite(measured_s[:, 0]).any()),
        ttft=bool(np.isfinite(measured_s[:, 1]).any()),
    )
    correction = _cached_fit(_frozen(base.coefficients), _rows(loads, measured_s), prior)
    expected = expected or _corners(loads)
    at_loads = partial(_bands_at, base, correction, prior, reach)
    bands = at_loads(expected)
    source = f"{_story(match, loads)}; corrects {base.source}"
    if not _covered(reach, expected).all():
        source += f"; beyond {REACH:g} x the measured load: at least the model's band"
    return SpeedModel(
        coefficients=corrected(base.coefficients, correction.log_factors),
        tpot_band=_hull([tpot for tpot, _ in bands]),
        ttft_band=_hull([ttft for _, ttft in bands]),
        source=source,
        provider=Provider.MEASURED_CURVE if len(loads.clients) > 1 else Provider.MEASURED_POINT,
        reach=reach if match.same_version else None,
        bands_at=at_loads,
    )


def _bands_at(
    base: SpeedModel, correction: Correction, prior: SpeedPrior, reach: Reach, loads: Loads
) -> tuple[tuple[Band, Band], ...]:
    """Bands at each load; where the measurements do not reach, those of the model without them are held as well."""
    found = bands_at(base.coefficients, correction, loads, prior)
    return tuple(
        bands if covered else (_hull([bands[0], base.tpot_band]), _hull([bands[1], base.ttft_band]))
        for bands, covered in zip(found, _covered(reach, loads).tolist(), strict=True)
    )


def _covered(reach: Reach, loads: Loads) -> npt.NDArray[np.bool_]:
    return np.asarray((loads.clients <= reach.batch) & (loads.context_tokens <= reach.context_tokens))


def _room(sizing: Sizing, context_tokens: FloatArray) -> FloatArray:
    """Requests that the pool holds at once: its bytes over those of a request of mean length; infinite if not known.

    The cap on sequences is left out: the measured engine may have run with another one.
    """
    window = sizing.sliding_bytes_per_token * np.minimum(context_tokens, sizing.window_tokens)
    held = sizing.bytes_per_token * context_tokens + window + sizing.pool_state_bytes_per_request
    workers = max(sizing.workers, sizing.deployment.attention_dp)
    if sizing.pool_bytes <= 0:
        return np.full_like(context_tokens, np.inf)
    return np.maximum(sizing.pool_bytes * workers / held, 1.0)


def _same_deployment(point: Point, sizing: Sizing) -> bool:
    served, planned = point.served, sizing.deployment
    return (
        (served.engine, served.model, served.gpu) == (sizing.engine, sizing.model_id, sizing.gpu_id)
        and (served.tp, served.pp, served.attention_dp) == (planned.tp, planned.pp, planned.attention_dp)
        and (served.ep > 1) == planned.expert_parallel
        and (served.weight_dtype, served.kv_dtype) == (planned.weight_dtype, planned.kv_dtype)
        and planned.speculative is None
    )


def _plain(version: str) -> str:
    return version.strip().lower().removeprefix("v").partition("+")[0]


def _age(version: str) -> tuple[tuple[int, ...], str]:
    """Orders versions by number; what is no version comes first."""
    return (version_key(version) if VERSION.fullmatch(version.strip()) else (), version)


def _merged(points: Sequence[Point]) -> tuple[Loads, FloatArray]:
    """Distinct loads in order, with the geometric mean of the times measured at each."""
    at: dict[tuple[float, float, float, float], list[tuple[float, float]]] = {}
    for point in points:
        load = point.load
        key = (load.concurrency or 0.0, load.input_tokens, load.output_tokens, load.cached_share)
        queued = load.kind is LoadKind.OPEN_LOOP
        ttft_ms = None if queued else point.measured.ttft_ms  # arrivals at a rate wait in a queue that clients do not
        at.setdefault(key, []).append((_log_s(point.measured.tpot_ms), _log_s(ttft_ms)))
    keys = sorted(at)
    columns = np.array(keys, dtype=np.float64).T
    return Loads(*columns), np.array([[_mean_s(column) for column in zip(*at[key], strict=True)] for key in keys])


def _log_s(milliseconds: float | None) -> float:
    return float("nan") if milliseconds is None else float(np.log(units.ms_to_s(milliseconds)))


def _mean_s(logs: Iterable[float]) -> float:
    known = [value for value in logs if np.isfinite(value)]
    return float(np.exp(np.mean(known))) if known else float("nan")


def _corners(loads: Loads) -> Loads:
    """The measured loads, and the longest of them at the largest reach of the batch."""
    longest = int(np.argmax(loads.context_tokens))
    return Loads(
        np.append(loads.clients, REACH * loads.clients.max()),
        np.append(loads.input_tokens, loads.input_tokens[longest]),
        np.append(loads.output_tokens, loads.output_tokens[longest]),
    )


def _hull(bands: Sequence[Band]) -> Band:
    return Band(min(band.low for band in bands), max(band.high for band in bands))


def _story(match: Match, loads: Loads) -> str:
    """Where the figures come from: how many points, at which loads, of which version, from which files."""
    low, high = loads.clients.min(), loads.clients.max()
    at = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    names = sorted({point.source for point in match.points if point.source})
    named = ", ".join(names[:SOURCES_NAMED]) + (
        f" and {len(names) - SOURCES_NAMED} more" if names[SOURCES_NAMED:] else ""
    )
    noun = "point" if len(match.points) == 1 else "points"
    text = f"{len(match.points)} measured {noun} at {at} sequences, {match.engine} {match.measured_version}"
    if not match.same_version:
        text += f" (planned {match.planned_version}: another version, so the slow edge of the band is kept)"
    return f"{text} ({named})" if named else text


_Rows = tuple[tuple[float, ...], ...]


def _rows(loads: Loads, measured_s: FloatArray) -> _Rows:
    columns = (loads.clients, loads.input_tokens, loads.output_tokens, loads.cached_share, loads.room)
    return tuple(map(tuple, np.column_stack([*columns, np.nan_to_num(measured_s)]).tolist()))


def _frozen(c: StepCoefficients) -> tuple[tuple[str, float], ...]:
    return tuple((name, float(value)) for name, value in vars(c).items())


@lru_cache(maxsize=4096)
def _cached_fit(values: tuple[tuple[str, float], ...], rows: _Rows, prior: SpeedPrior) -> Correction:
    """`fit_correction`, once for the candidates that share their coefficients; a time of 0 was not measured."""
    c = StepCoefficients(**{name: np.asarray(value) for name, value in values})
    table = np.array(rows)
    measured_s = np.where(table[:, 5:] > 0, table[:, 5:], np.nan)
    return fit_correction(c, Loads(*table[:, :5].T), measured_s, prior)
