"""What a limit costs: the fleet planned anew over a range of one limit, the frontier of cost against it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from planner import units
from planner.errors import InfeasibleError, InputError, Problem, SolverError
from planner.inputs import Inputs
from planner.optimise.types import Decision, Lot
from planner.pipeline import Progress, Quarter, decide, prepare, prepare_again, silent
from planner.plan import SolveStatus
from planner.request import ModelRequest, PlanRequest


class Axis(StrEnum):
    """The limit that is varied."""

    TTFT = "ttft"
    """TTFT target, ms."""
    TPOT = "tpot"
    """TPOT target, ms."""
    TAIL = "tail"
    """Tail budget: largest share of requests refused as longer than max_model_len."""
    OVERFLOW = "overflow"
    """Largest probability that live tokens exceed a pool; of the whole policy, not of one model."""


UNITS = {Axis.TTFT: "ms", Axis.TPOT: "ms", Axis.TAIL: "share of requests", Axis.OVERFLOW: "probability"}


@dataclass(frozen=True)
class Fleet:
    """One point's fleet."""

    usd: float
    usd_per_mtok: float
    gpus: int
    """Largest number that runs in a period."""
    served_share: float
    gap: float
    proven: bool
    """Whether the gap target was met."""
    at: float
    """The value that the fleet was planned for: a tighter one may still be the best found for a looser one."""


@dataclass(frozen=True)
class Point:
    """One value of the limit; ``fleet`` is ``None`` where none was found.

    ``why`` says what is short where nothing is feasible, and that time was short where the solver found nothing.
    """

    value: float
    fleet: Fleet | None
    why: str = ""


def frontier(
    inputs: Inputs, axis: Axis, values: Collection[float], models: Sequence[str] = (), progress: Progress = silent
) -> tuple[Point, ...]:
    """The best fleet for every value, from the tightest to the loosest.

    A fleet that holds a tighter limit holds a looser one too, so a point never has a dearer fleet than those before it:
    where its own solve ends within the gap but above them, theirs is kept and ``at`` says whose it is.

    Parameters
    ----------
    axis
        What is varied; everything else is as the request states it.
    values
        Limits to plan for, in the axis' unit; each once.
    models
        Whose limit is varied; empty: every model's.

    Raises
    ------
    InputError
        If a value or a model cannot be meant.
    """
    _check(inputs.request, axis, values, models)
    points: list[Point] = []
    best: Fleet | None = None
    quarter: Quarter | None = None
    start: tuple[str, ...] = ()
    touched = _touched(inputs.request, axis, models)
    for value in sorted(set(values)):
        progress(f"{axis.value} {value:g}")
        request = varied(inputs.request, axis, value, models)
        under = inputs.under(request)
        try:
            quarter = prepare_again(quarter, under, touched, progress) if quarter else prepare(under, progress)
            decision = decide(quarter, request, start)
        except (InfeasibleError, SolverError) as error:
            points.append(Point(value, best, _why(error)))
            continue
        offered = sum(w.whole.offered_tokens(quarter.horizon.periods) for w in quarter.workloads)
        found = _fleet(decision, value, offered, quarter.fleet.data().lots)
        best = found if best is None or found.usd_per_mtok < best.usd_per_mtok else best
        start = tuple(column.key for column in decision.columns)
        points.append(Point(value, best))
    return tuple(points)


def _touched(request: PlanRequest, axis: Axis, models: Collection[str]) -> frozenset[str]:
    """Models that the axis changes anything for."""
    everyone = axis is Axis.OVERFLOW or not models
    return frozenset(model.name for model in request.model if everyone or model.name in models)


def _why(error: InfeasibleError | SolverError) -> str:
    """An error on one line."""
    return "; ".join(line.removeprefix("  - ") for line in str(error).splitlines())


def varied(request: PlanRequest, axis: Axis, value: float, models: Collection[str] = ()) -> PlanRequest:
    """The request with one limit at another value."""
    if axis is Axis.OVERFLOW:
        return request.model_copy(update={"policy": request.policy.model_copy(update={"overflow_probability": value})})
    changed = tuple(_changed(m, axis, value) if not models or m.name in models else m for m in request.model)
    return request.model_copy(update={"model": changed})


def _changed(model: ModelRequest, axis: Axis, value: float) -> ModelRequest:
    if axis is Axis.TAIL:
        return model.model_copy(update={"tail_budget": value})
    field = "ttft_ms" if axis is Axis.TTFT else "tpot_ms"
    return model.model_copy(update={"targets": model.targets.model_copy(update={field: value})})


def _fleet(decision: Decision, value: float, offered_tokens: float, lots: Sequence[Lot]) -> Fleet:
    size = {lot.id: lot.gpus_per_instance for lot in lots}
    by_period = zip(*([n * size[lot] for n in counts] for lot, counts in decision.running.items()), strict=True)
    return Fleet(
        usd=decision.usd,
        usd_per_mtok=decision.usd_per_token * units.TOKENS_PER_MTOK,
        gpus=max(sum(gpus) for gpus in by_period),
        served_share=decision.served_tokens / offered_tokens,
        gap=decision.gap,
        proven=decision.status is SolveStatus.OPTIMAL,
        at=value,
    )


def _check(request: PlanRequest, axis: Axis, values: Collection[float], models: Sequence[str]) -> None:
    problems = []
    names = {m.name for m in request.model}
    problems += [
        Problem("--model", f"'{m}' is not in the request", "Name one of its models") for m in models if m not in names
    ]
    if models and axis is Axis.OVERFLOW:
        problems.append(Problem("--model", "the overflow probability is the policy's, not a model's", "Leave it out"))
    below_one = axis in (Axis.TAIL, Axis.OVERFLOW)
    for value in values:
        least_holds = value >= 0 if axis is Axis.TAIL else value > 0
        if not (least_holds and value < (1 if below_one else float("inf"))):
            allowed = "in [0, 1)" if axis is Axis.TAIL else "in (0, 1)" if below_one else "above 0"
            problems.append(Problem("--values", f"{value:g} is not {allowed}", f"Give {UNITS[axis]}"))
    if not values:
        problems.append(Problem("--values", "no value is given", f"Give {UNITS[axis]}, such as 20,40,80"))
    if problems:
        raise InputError(problems)
