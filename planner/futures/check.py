"""Whether the futures that a request names can be meant: all problems at once, before anything is planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from planner.errors import InputError, Problem
from planner.futures.adjust import adjusted, repriced, touches
from planner.futures.words import differing
from planner.inputs import Inputs
from planner.request import ModelRequest, PlanRequest
from planner.request_study import Adjustments, Driver, SensitivityRequest


def changes_of(asked: SensitivityRequest) -> tuple[Adjustments, Adjustments]:
    """The change at the low and at the high end of a driver."""
    names = {"models": asked.models, "providers": asked.providers, "gpus": asked.gpus}
    low, high = (Adjustments.model_validate(names | {asked.driver.value: each}) for each in (asked.low, asked.high))
    return low, high


def sensitivity_name(asked: SensitivityRequest) -> str:
    """What the tornado calls a driver."""
    return asked.name or asked.driver.value


def check_futures(inputs: Inputs) -> None:
    """Refuse futures that name what is not there, or that vary nothing.

    Raises
    ------
    InputError
        Listing everything that is wrong with all of them.
    """
    request, where = inputs.request, str(inputs.path)
    found: list[Problem] = []
    for scenario in request.scenario:
        row = f"scenario '{scenario.name}'"
        found += _problems(inputs, scenario, where, row)
    for asked in request.sensitivity:
        row = f"sensitivity '{sensitivity_name(asked)}'"
        for change in changes_of(asked):
            found += _problems(inputs, change, where, row)
    names = Counter(sensitivity_name(asked) for asked in request.sensitivity)
    found += [
        Problem(where, "the name stands twice", "Give each a name of its own", f"sensitivity '{name}'", "name")
        for name, count in names.items()
        if count > 1
    ]
    if found:
        raise InputError(tuple(dict.fromkeys(found)))


def _problems(inputs: Inputs, change: Adjustments, where: str, row: str) -> Iterator[Problem]:
    yield from _unknown(inputs, change, where, row)
    for driver in differing(change):
        if not _anything(driver, inputs, change):
            message = f"nothing in the request is multiplied by '{driver.value}'"
            yield Problem(where, message, "Remove it, or name what there is", row, driver.value)
    for model, budget in _budgets(adjusted(inputs.request, change)):
        if budget >= 1.0:
            message = f"the tail budget of '{model}' becomes {budget:g}, and must stay below 1"
            yield Problem(where, message, "Choose a smaller factor", row, "tail")


def _unknown(inputs: Inputs, change: Adjustments, where: str, row: str) -> Iterator[Problem]:
    offers = inputs.offers.usable
    known: Mapping[str, set[str]] = {
        "models": {model.name for model in inputs.request.model},
        "providers": {offer.provider for offer in offers},
        "gpus": {offer.gpu for offer in offers},
    }
    for field, names in known.items():
        for name in getattr(change, field):
            if name not in names:
                what = "is not a model of the request" if field == "models" else "has no offer that the plan may use"
                yield Problem(where, f"'{name}' {what}", f"Known: {', '.join(sorted(names))}", row, field)
    if change.engine_version:
        try:
            inputs.catalog.engine(inputs.request.engine.name, change.engine_version)
        except InputError as error:
            for problem in error.problems:
                yield Problem(where, problem.message, problem.fix, row, "engine_version")


def _anything(driver: Driver, inputs: Inputs, change: Adjustments) -> bool:
    """Whether a driver changes anything at all."""
    request = inputs.request
    touched = [model for model in request.model if touches(change, model.name)]
    there = {
        Driver.GROWTH: bool(touched),
        Driver.PRICE: any(repriced(change, offer) for offer in inputs.offers.usable),
        Driver.TARGETS: any(_has_target(model) for model in touched),
        Driver.TAIL: any(budget > 0 for name, budget in _budgets(request) if touches(change, name)),
        Driver.ELECTRICITY: any(site.usd_per_kwh > 0 for site in request.site),
        Driver.QUOTAS: bool(request.quota),
    }
    return there[driver]


def _has_target(model: ModelRequest) -> bool:
    targets = [model.targets, *(tenant.targets for tenant in model.tenant if tenant.targets is not None)]
    return any(each.tpot_ms is not None or each.ttft_ms is not None for each in targets)


def _budgets(request: PlanRequest) -> Iterator[tuple[str, float]]:
    """Tail budgets of models and tenants, by model."""
    for model in request.model:
        yield model.name, model.tail_budget
        for tenant in model.tenant:
            if tenant.tail_budget is not None:
                yield model.name, tenant.tail_budget
