"""Last quarter: the plan that was issued, what came of it, and rates of this quarter that are taken from that."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path

from planner import units
from planner.errors import Problems
from planner.plan_file import plan_at, plan_file, read_named
from planner.request import ModelRequest, PlanRequest
from planner.study import Actuals, LastQuarter, ModelActual

FIX = "Give the file that `planner actuals` writes"


def last_quarter_of(request: PlanRequest, request_path: Path) -> LastQuarter | None:
    """The plan that the request names as last quarter's; ``None`` where it names none.

    Raises
    ------
    InputError
        If a file cannot be read or is something else, the actuals are another plan's, or either reaches into the new
        quarter.
    """
    asked = request.last_quarter
    if asked is None:
        return None
    folder, problems = request_path.parent, Problems()
    plan = problems.attempt(lambda: plan_at(folder / asked.plan), "last_quarter.plan")
    actuals = None
    if asked.actuals:
        actuals = problems.attempt(lambda: actuals_at(folder / asked.actuals), "last_quarter.actuals")
    problems.raise_if_any()
    assert plan is not None
    start, where = request.quarter.start, str(request_path)
    if plan.horizon_end > start:
        _overlaps(problems, where, f"the plan runs to {plan.horizon_end} (exclusive)", start, "last_quarter.plan")
    if actuals is not None:
        if actuals.end > dt.datetime.combine(start, dt.time(), actuals.end.tzinfo):
            text = f"the actuals run to {actuals.end.isoformat()} (exclusive)"
            _overlaps(problems, where, text, start, "last_quarter.actuals")
        if actuals.run_id != plan.run_id:
            message = f"the actuals are of plan {actuals.run_id}, and the plan is {plan.run_id}"
            problems.add(where, message, "Give both of the same plan", field="last_quarter.actuals")
    problems.raise_if_any()
    sha256 = hashlib.sha256(plan_file(folder / asked.plan).read_bytes()).hexdigest()
    return LastQuarter(path=asked.plan, sha256=sha256, plan=plan, actuals=actuals)


def actuals_at(path: Path) -> Actuals:
    """What came of a plan, from a file.

    Raises
    ------
    InputError
        If it cannot be read, or holds no actuals.
    """
    return read_named(path, lambda file: Actuals.model_validate_json(file.read_bytes()), "actuals", FIX)


def with_actual_rates(request: PlanRequest, last: LastQuarter | None, where: str) -> PlanRequest:
    """The request with the mean rates that it takes from the actuals as stated ones.

        rate per s  =  requests that came  /  hours of the logs  /  3600

    The day of the rate, which growth counts from, is the middle of the logs.

    Raises
    ------
    InputError
        If there are no actuals, or none of a model.
    """
    problems = Problems()
    models = tuple(
        _with_rate(model, last, where, problems) if model.traffic.rate_from_actuals else model
        for model in request.model
    )
    problems.raise_if_any()
    return request.model_copy(update={"model": models}) if models != request.model else request


def _with_rate(model: ModelRequest, last: LastQuarter | None, where: str, problems: Problems) -> ModelRequest:
    row, field = f"model '{model.name}'", "traffic.rate_from_actuals"
    actuals = None if last is None else last.actuals
    if actuals is None:
        problems.add(where, "the request names no actuals", "Add actuals to [last_quarter]", row=row, field=field)
        return model
    found = next((each for each in actuals.models if each.model == model.name), None)
    if found is None or found.hours <= 0 or found.actual_requests <= 0:
        message = f"the actuals hold no requests of it ({', '.join(each.model for each in actuals.models) or 'none'})"
        problems.add(where, message, "State rate_per_s instead", row=row, field=field)
        return model
    traffic = model.traffic
    source = f"actuals of plan {actuals.run_id}: {found.actual_requests:,.0f} requests in {found.hours:,.0f} h"
    update = {
        "rate_per_s": actual_rate_per_s(found),
        "source": f"{source}; {traffic.source}" if traffic.source else source,
        "source_date": (actuals.start + (actuals.end - actuals.start) / 2).date(),
    }
    return model.model_copy(update={"traffic": traffic.model_copy(update=update)})


def actual_rate_per_s(actual: ModelActual) -> float:
    """Mean arrivals, per s.

    Of the plan's week where the comparison could tell it, since logs may hold busy hours alone; else requests over the
    hours of the logs.
    """
    if actual.mean_rate_per_s is not None:
        return actual.mean_rate_per_s
    return actual.actual_requests / units.hours_to_s(actual.hours)


def _overlaps(problems: Problems, where: str, what: str, start: dt.date, field: str) -> None:
    fix = "Name a plan of an earlier quarter"
    problems.add(where, f"{what}, and the new quarter starts on {start}", fix, field=field)
