"""Answers to rows: times and throughputs with bands and sources, many rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner import units
from planner.errors import InputError
from planner.speed.cases.deployments import Deployed, Deployments
from planner.speed.cases.operate import Asked, Settled, column, settle_all
from planner.speed.cases.rows import Case
from planner.speed.chain import bands_of
from planner.speed.curve import Loads
from planner.speed.points import LoadKind, Point, Served
from planner.speed.step import stack
from planner.speed.types import Band, Banded, StepCoefficients

NO_BANDS = (Band(np.nan, np.nan), Band(np.nan, np.nan))
NO_TPOT = "no TPOT: the answer has one token"
NO_PREFILL = "no TTFT: the parallelism of the prefill workers is not given"
NO_ROOM = "the cache does not hold one request of these lengths"
LEAST_ROOM = 0.5
"""Requests of a load that must fit at once: a closed loop of requests that just do not fit was run, so pools differ."""
NO_QUEUE = "no TTFT: all requests queue at once"
OVERLOAD = "no TTFT: requests arrive faster than the replica serves them, the queue grows"


@dataclass(frozen=True)
class Answer:
    """What is predicted for a row; totals of all replicas.

    Attributes
    ----------
    source
        What the step times rest on.
    notes
        What was assumed or read instead of what is written.
    reason
        Why there is no answer, or which figure has none.
    concurrency
        Mean requests in a replica.
    """

    id: str
    tpot_ms: Banded | None = None
    ttft_ms: Banded | None = None
    output_tok_s: float | None = None
    total_tok_s: float | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    reason: str = ""
    concurrency: float | None = None
    provider: str = ""


def answer_all(cases: Sequence[Case], deployments: Deployments) -> list[Answer]:
    """One answer to each case, in order; what stands in the way is a reason, never an exception.

    What the cases measured is not looked at. A deployment is modelled once, and rows are settled together.
    """
    ready, reasons = _modelled(cases, deployments)
    open_cases = [case for case in cases if case.point is not None and case.point.served in ready]
    settled = iter(_settled(open_cases, ready))
    found = []
    for case in cases:
        if case.point is None:
            found.append(Answer(case.id, reason=case.reason))
        elif case.point.served in ready:
            found.append(next(settled))
        else:
            found.append(Answer(case.id, reason=reasons[case.point.served]))
    return found


def _modelled(
    cases: Sequence[Case], deployments: Deployments
) -> tuple[Mapping[Served, Deployed], Mapping[Served, str]]:
    """Deployments by what is served, and why those that cannot be modelled cannot."""
    ready: dict[Served, Deployed] = {}
    reasons: dict[Served, str] = {}
    for served in dict.fromkeys(case.point.served for case in cases if case.point is not None):
        try:
            ready[served] = deployments.of(served)
        except InputError as error:
            reasons[served] = "; ".join(problem.message for problem in error.problems)
    return ready, reasons


def _settled(cases: Sequence[Case], ready: Mapping[Served, Deployed]) -> list[Answer]:
    """Answers to cases whose deployments are modelled."""
    if not cases:
        return []
    points = [case.point for case in cases if case.point is not None]
    places = {served: place for place, served in enumerate(ready)}
    stacked = stack([deployed.model for deployed in ready.values()])
    rows = np.array([places[point.served] for point in points])
    asked = Asked(
        loads=tuple(point.load for point in points),
        coefficients=StepCoefficients(**{name: values[rows] for name, values in vars(stacked).items()}),
        room=np.array([ready[point.served].room(point.load) for point in points]),
        most=np.array([ready[point.served].most_sequences for point in points]),
        held_share=np.array([ready[point.served].held_share for point in points]),
        decode_only=np.array([float(point.served.decode_only) for point in points]),
    )
    settled = settle_all(asked)
    bands = _bands(points, ready, asked, settled)
    return [
        _answer(case, point, ready[point.served], settled, bands[i], i)
        for i, (case, point) in enumerate(zip(cases, points, strict=True))
    ]


def _bands(
    points: Sequence[Point], ready: Mapping[Served, Deployed], asked: Asked, settled: Settled
) -> list[tuple[Band, Band]]:
    """Bands of TPOT and TTFT of each row, at its own load; one call for each deployment."""
    rows: dict[Served, list[int]] = {}
    for place, point in enumerate(points):
        rows.setdefault(point.served, []).append(place)
    found: list[tuple[Band, Band]] = [NO_BANDS] * len(points)
    for served, places in rows.items():
        loads_here = [points[i].load for i in places]
        loads = Loads(
            clients=settled.concurrency[places],
            input_tokens=column(loads_here, "input_tokens"),
            output_tokens=column(loads_here, "output_tokens"),
            cached_share=column(loads_here, "cached_share"),
            room=np.maximum(asked.room[places], 1.0),
        )
        for place, bands in zip(places, bands_of(ready[served].model, loads), strict=True):
            found[place] = bands
    return found


def _answer(
    case: Case, point: Point, deployed: Deployed, settled: Settled, bands: tuple[Band, Band], row: int
) -> Answer:
    """The answer to the case of a row, whose point this is."""
    if settled.output_tok_s[row] == 0 or deployed.room(point.load) < LEAST_ROOM:
        return Answer(case.id, notes=case.notes, reason=NO_ROOM)
    replicas = point.served.replicas
    source = deployed.model.source
    notes = (*case.notes, *deployed.notes, *_beyond(deployed, point, settled, row), *_waiting(deployed, point))
    ttft_s = np.nan if point.served.decode_only else settled.ttft_s[row]
    return Answer(
        id=case.id,
        tpot_ms=_banded(settled.tpot_s[row], bands[0], source),
        ttft_ms=_banded(ttft_s, bands[1], source),
        output_tok_s=_total(settled.output_tok_s[row], replicas),
        total_tok_s=_total(settled.total_tok_s[row], replicas),
        source=source,
        notes=notes,
        reason=_missing(point, bool(settled.overloaded[row] == 1)),
        concurrency=float(settled.concurrency[row]),
        provider=str(deployed.model.provider),
    )


def _beyond(deployed: Deployed, point: Point, settled: Settled, row: int) -> tuple[str, ...]:
    """Whether the load lies beyond what the deployment's measurements reach."""
    reach = deployed.model.reach
    context = point.load.input_tokens + point.load.output_tokens / 2
    running = min(float(settled.concurrency[row]), max(1.0, deployed.room(point.load)))
    beyond = reach is not None and not reach.covers(running, context)
    return ("beyond what was measured: at least the model's band",) if beyond else ()


def _waiting(deployed: Deployed, point: Point) -> tuple[str, ...]:
    """Whether a stated number of requests is more than the cache holds: TTFT then is mostly waiting."""
    asked, room = point.load.concurrency, max(1.0, deployed.room(point.load))
    if point.load.kind is LoadKind.MAX_LOAD or asked is None or asked <= room:
        return ()
    return (f"the cache holds {room:,.4g} of {asked:,.4g} requests at once: the others wait",)


def _missing(point: Point, overloaded: bool) -> str:
    """Which figures have no meaning for the row."""
    missing = {
        NO_TPOT: point.load.output_tokens <= 1,
        NO_PREFILL: point.served.decode_only,
        NO_QUEUE: point.load.kind is LoadKind.MAX_LOAD,
        OVERLOAD: overloaded,
    }
    return "; ".join(reason for reason, holds in missing.items() if holds)


def _banded(value_s: float, band: Band, source: str) -> Banded | None:
    """Seconds as banded milliseconds; ``None`` where there is no figure."""
    if not np.isfinite(value_s) or value_s <= 0:
        return None
    value_ms = units.s_to_ms(float(value_s))
    return Banded(value_ms, value_ms * band.low, value_ms * band.high, source)


def _total(per_replica: float, replicas: int) -> float | None:
    return float(per_replica) * replicas if np.isfinite(per_replica) else None
