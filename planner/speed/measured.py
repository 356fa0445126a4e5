"""Measured points of a deployment: which ones hold for it, and the step-time model that they make of another one.

A point holds for a deployment of the same model, GPU type, engine, parallelism and formats. One of another engine
version is used where there is none of the planned version: it is believed less (`VERSION_SPREAD`), the source names
both versions, and the deployment does not count as measured, so constraints keep the slow edge of the band, which holds
the model's. Points of other formats are never used.

Where nothing near was measured (beyond `REACH`, another version, a time that no point holds), bands hold the interval
of the model without measurements as well: a fast point never hides that the model says slow elsewhere. A point that is
faster than the model by a factor of 20 is a wrong unit or another deployment; it is left out, and the source says so.
Slow points always count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from planner import units
from planner.catalog.versions import VERSION, version_key
from planner.memory.types import Sizing
from planner.speed.curve import LARGEST, Correction, Loads, bands_at, corrected, fit_correction, log_times
from planner.speed.max_load import held_share_of
from planner.speed.points import LoadKind, Point
from planner.speed.prior import SpeedPrior
from planner.speed.types import Band, FloatArray, Provider, Reach, SpeedModel, StepCoefficients

REACH = 2.0
"""A measurement carries to this multiple of the largest measured batch and context; beyond, the model's band holds."""
VERSION_SPREAD = 0.2
"""Standard deviation of the logarithm of a time from one engine version to another: the medians of eight deployments
that were measured under two versions differ by 0.05 to 0.5."""
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
        return Match(
            kept, sizing.engine, min(p.served.version for p in kept) or "of unknown version", version, bool(same)
        )

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
        Beyond the reach of the measurements its band holds the base model's as well. The base model itself, and why,
        if every point is absurd.
    """
    points, odd = _plausible(base, match.points, sizing)
    if not points:
        return replace(base, source=f"{base.source}; {odd}")
    loads, measured_s = _columns(points, sizing)
    carry = _reach(loads, measured_s)
    believed = prior if match.same_version else _less_believed(prior, len(points))
    correction = _cached_fit(_frozen(base.coefficients), _rows(loads, measured_s), believed)
    expected = expected or _corners(loads)
    near = _Near(carry, REACH * float(loads.clients.max()), match.same_version)
    at_loads = partial(_bands_at, base, correction, believed, near)
    bands = at_loads(expected)
    source = "; ".join(filter(None, (_story(match, points, loads), odd, f"corrects {base.source}")))
    if not near.covers(expected).all():
        source += f"; beyond {REACH:g} x the measured load: at least the model's band"
    return SpeedModel(
        coefficients=corrected(base.coefficients, correction.log_factors),
        tpot_band=_hull([tpot for tpot, _ in bands]),
        ttft_band=_hull([ttft for _, ttft in bands]),
        source=source,
        provider=Provider.MEASURED_CURVE if _distinct(loads) > 1 else Provider.MEASURED_POINT,
        reach=carry if match.same_version else None,
        bands_at=at_loads,
    )


@dataclass(frozen=True)
class _Near:
    """Where the bands of the corrected model hold alone."""

    reach: Reach
    clients: float
    same_version: bool

    def covers(self, loads: Loads) -> npt.NDArray[np.bool_]:
        """Whether each load lies within reach: those that run, those that wait with them, and their lengths."""
        running = np.minimum(loads.clients, loads.room)
        context = loads.context_tokens <= self.reach.context_tokens
        return np.asarray((running <= self.reach.batch) & (loads.clients <= self.clients) & context)

    def holds(self, loads: Loads) -> npt.NDArray[np.bool_]:
        """The same for TPOT and TTFT, shape (loads, 2): not where a time, or this version, was not measured."""
        measured = np.array([self.reach.tpot, self.reach.ttft]) & self.same_version
        return np.asarray(self.covers(loads)[:, np.newaxis] & measured)


def _bands_at(
    base: SpeedModel, correction: Correction, prior: SpeedPrior, near: _Near, loads: Loads
) -> tuple[tuple[Band, Band], ...]:
    """Bands at each load; where the measurements do not reach, the model's interval without them is held as well."""
    loads = Loads(*np.broadcast_arrays(*np.atleast_1d(*vars(loads).values())))
    found = bands_at(base.coefficients, correction, loads, prior)
    before, after = (log_times(base.coefficients, theta, loads) for theta in (0.0, correction.log_factors))
    moved = np.exp(before - after)
    holds = near.holds(loads)
    models = (base.tpot_band, base.ttft_band)

    def band(row: int, column: int) -> Band:
        if holds[row, column]:
            return found[row][column]
        model, ratio = models[column], float(moved[row, column])
        return _hull([found[row][column], model, Band(model.low * ratio, model.high * ratio)])

    return tuple((band(row, 0), band(row, 1)) for row in range(len(found)))


def _reach(loads: Loads, measured_s: FloatArray) -> Reach:
    return Reach(
        batch=REACH * float(np.minimum(loads.clients, loads.room).max()),
        context_tokens=REACH * float(loads.context_tokens.max()),
        tpot=bool(np.isfinite(measured_s[:, 0]).any()),
        ttft=bool(np.isfinite(measured_s[:, 1]).any()),
    )


def _less_believed(prior: SpeedPrior, points: int) -> SpeedPrior:
    """Scatter that holds what another version differs by; all its points differ by the same, so it grows with them."""
    changed = {}
    for name in ("tpot_noise", "ttft_noise"):
        fact = getattr(prior, name)
        changed[name] = fact.model_copy(update={"value": math.sqrt(fact.value**2 + points * VERSION_SPREAD**2)})
    return prior.model_copy(update=changed)


def _plausible(base: SpeedModel, points: Sequence[Point], sizing: Sizing) -> tuple[tuple[Point, ...], str]:
    """The points that are not absurdly fast, and what is said of the others."""
    loads, measured_s = _columns(points, sizing)
    ordered = sorted(points, key=_order)
    ratio = log_times(base.coefficients, 0.0, loads) - np.log(measured_s)
    odd = np.asarray((ratio > LARGEST).any(axis=1))
    kept = tuple(point for point, left in zip(ordered, odd, strict=True) if not left)
    count = int(odd.sum())
    if not count:
        return kept, ""
    noun = "measured point" if count == 1 else "measured points"
    return kept, f"{count} {noun} left out: faster than the model by {math.exp(np.nanmax(ratio)):,.0f} times"


def _room(sizing: Sizing, loads: Loads) -> FloatArray:
    """Requests that the pool holds at once: its bytes over those of a request of mean length; infinite if not known.

    The cap on sequences is left out: the measured engine may have run with another one.
    """
    tokens = loads.input_tokens + held_share_of(sizing.engine) * loads.output_tokens
    window = sizing.sliding_bytes_per_token * np.minimum(tokens, sizing.window_tokens)
    held = sizing.bytes_per_token * tokens + window + sizing.pool_state_bytes_per_request
    workers = max(sizing.workers, sizing.deployment.attention_dp)
    if sizing.pool_bytes <= 0:
        return np.full_like(tokens, np.inf)
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


def _columns(points: Sequence[Point], sizing: Sizing) -> tuple[Loads, FloatArray]:
    """Loads in order, with the times that were measured, in seconds; NaN where a time was not."""
    ordered = sorted(points, key=_order)
    loads = Loads(*np.array([_order(point)[:4] for point in ordered]).T)
    times_s = [[_seconds(point.measured.tpot_ms), _seconds(_steady_ttft_ms(point))] for point in ordered]
    return replace(loads, room=_room(sizing, loads)), np.array(times_s)


def _order(point: Point) -> tuple[float, ...]:
    """Points sort by load, then by what was measured: their order in a file has no meaning."""
    load, figures = point.load, point.measured
    times = (figures.tpot_ms or 0.0, _steady_ttft_ms(point) or 0.0)
    return (load.concurrency or 0.0, load.input_tokens, load.output_tokens, load.cached_share, *times)


def _steady_ttft_ms(point: Point) -> float | None:
    """TTFT; not that of arrivals at a rate, which wait in a queue that clients do not."""
    return None if point.load.kind is LoadKind.OPEN_LOOP else point.measured.ttft_ms


def _seconds(milliseconds: float | None) -> float:
    return math.nan if milliseconds is None else units.ms_to_s(milliseconds)


def _distinct(loads: Loads) -> int:
    columns = (loads.clients, loads.input_tokens, loads.output_tokens, loads.cached_share)
    return len(np.unique(np.stack(columns, axis=-1), axis=0))


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


def _story(match: Match, points: Sequence[Point], loads: Loads) -> str:
    """Where the figures come from: how many points, at which loads, of which version, from which files."""
    low, high = loads.clients.min(), loads.clients.max()
    at = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    names = sorted({point.source for point in points if point.source})
    named = ", ".join(names[:SOURCES_NAMED]) + (
        f" and {len(names) - SOURCES_NAMED} more" if names[SOURCES_NAMED:] else ""
    )
    noun = "point" if len(points) == 1 else "points"
    text = f"{len(points)} measured {noun} at {at} sequences, {match.engine} {match.measured_version}"
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
