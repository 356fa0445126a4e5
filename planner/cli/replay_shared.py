"""What `planner replay`, `planner replay-week` and `planner drill` share: where requests come from, and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.actuals.assign import split
from planner.errors import InputError, Problem, Problems
from planner.plan import FleetPlan
from planner.replay.trace import Source, Trace, read_trace
from planner.report import facts
from planner.request import read_request
from planner.traffic.source import parse_pairs

REFUTED = 1
"""Exit code where a promise is refuted."""

PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json, or its folder.")]
TrafficOption = Annotated[
    list[str] | None,
    typer.Option("--traffic", metavar="LOG[=MODEL]", help="Log of requests of a model; repeatable."),
]
RequestOption = Annotated[
    Path | None, typer.Option("--request", help="Take every model's log from this request instead.")
]
PartOption = Annotated[str, typer.Option("--part", metavar="FROM:TO", help="Stretch of each log, as shares.")]


def stretch_of(text: str) -> tuple[float, float]:
    """Shares of a log's time, from FROM:TO.

    Raises
    ------
    InputError
        If it is no such stretch.
    """
    try:
        low, high = (float(word) for word in text.split(":"))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 <= low < high <= 1:
        raise InputError(Problem("--part", f"'{text}' is no stretch", "Write FROM:TO, such as 0.5:1"))
    return low, high


def sources_of(
    plan: FleetPlan, traffic: list[str], request: Path | None, log_format: str, option: list[str]
) -> dict[str, Source]:
    """Where each model's requests are.

    Raises
    ------
    InputError
        If neither or both of logs and a request are given, or a log needs the name of its model.
    """
    if (request is None) == (not traffic):
        raise InputError(Problem("--traffic, --request", "one of the two is needed", "Name logs, or a request"))
    models = facts.models(plan)
    if request is not None:
        asked = read_request(request)
        return {
            m.name: Source(request.parent / m.traffic.path, m.traffic.format, m.traffic.model, m.traffic.options)
            for m in asked.model
            if m.name in models
        }
    options, found = parse_pairs("--option", ",".join(option)), dict[str, Source]()
    for text in traffic:
        path, model = split(text, plan)
        if not model and len(models) > 1:
            fix = f"Write {text}=MODEL, of {', '.join(models)}"
            raise InputError(Problem(text, "the plan has several models", fix))
        found[model or models[0]] = Source(path, log_format, "", options)
    return found


def needed(plan: FleetPlan, sources: dict[str, Source], pools: Sequence[str]) -> dict[str, Source]:
    """Logs of the models whose pools are asked for; all of them where a pool is unknown, which is told later."""
    wanted = {pool.model for pool in plan.pools if not pools or pool.name in pools}
    return {model: source for model, source in sources.items() if model in wanted} or sources


def traces_of(sources: Mapping[str, Source], stretch: tuple[float, float], part: str) -> dict[str, Trace]:
    """A stretch of each log; ``part`` is its name in messages.

    Raises
    ------
    InputError
        If a log cannot be read, or none of its requests lies there.
    """
    problems, found = Problems(), dict[str, Trace]()
    for model, source in sources.items():
        trace = problems.attempt(lambda source=source: read_trace(source), f"model '{model}'")  # type: ignore[misc]
        if trace is not None:
            found[model] = trace.part(*stretch)
            if not len(found[model]):
                problems.add(f"model '{model}'", f"no request lies in {part} of its log", "Take a wider --part")
    problems.raise_if_any()
    return found


def figure(value: float, unit: str) -> str:
    """A figure of a promise, as printed."""
    if not math.isfinite(value):
        return "none served" if value > 0 else "none"
    return f"{value:,.1f} ms" if unit == "ms" else f"{value:.4%}"


def finite(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
