"""The study of a quarter: its plan, every other future solved from the same inputs, and last quarter."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from planner.catalog.load import Catalog
from planner.futures.adjust import adjust
from planner.futures.check import check_futures, sensitivity_name
from planner.futures.futures import Answer, Beside, Failed, Future, ends_of, scenarios_of
from planner.futures.regret import cells_of, regret_of
from planner.futures.shared_out import each
from planner.futures.words import driver_words, words_of
from planner.inputs import Inputs
from planner.pipeline import Progress, plan_inputs, read_asked, silent
from planner.plan import FleetPlan
from planner.request import PlanRequest
from planner.request_study import BASE, Adjustments, ScenarioRequest
from planner.solve_options import AS_REQUESTED, SolveOptions
from planner.study import Regret, RegretCell, Scenario, Sensitivity, Side, Study, Unsolved


def study_quarter(
    request_path: Path,
    catalog: Catalog,
    *,
    created_at: dt.datetime,
    progress: Progress = silent,
    options: SolveOptions = AS_REQUESTED,
    processes: int | None = None,
    base_only: bool = False,
) -> Study:
    """Plan the fleet that a request file asks for, in every future that it names.

    Files are read once. A future that has no plan is no failure: the study says why.

    Parameters
    ----------
    request_path
        The request (TOML); paths inside it are relative to its folder.
    catalog
        GPUs, offers, models, engines.
    created_at
        The time stamp of all plans.
    progress
        Called with one line before each long step.
    options
        How all plans are solved; a start, an LP file and a watch are for the base alone.
    processes
        Over which the futures are shared out, with the same results; ``None``: as many as the solver has threads.
    base_only
        Leave scenarios and sensitivities out.

    Raises
    ------
    InputError
        If the request, a future in it, the catalogue, or a file that is read cannot be used.
    InfeasibleError
        If no fleet satisfies the request as it stands.
    SolverError
        If the solver fails on it.
    """
    inputs = read_asked(request_path, catalog, created_at, progress, options)
    check_futures(inputs)
    base = plan_inputs(inputs, created_at=created_at, progress=progress, options=options)
    if base_only:
        return Study(plan=base.plan, last=inputs.last)
    request, count = inputs.request, processes or inputs.request.solver.threads
    futures = (*scenarios_of(request), *ends_of(request))
    answers = list(_answers(Beside(base, created_at, options), futures, count, progress))
    scenarios = answers[: len(request.scenario)]
    solved = _solved(request, scenarios)
    return Study(
        plan=base.plan,
        others=solved,
        unsolved=_unsolved(request, scenarios),
        sensitivities=_sensitivities(request, answers[len(request.scenario) :], base.plan),
        regret=_regret(inputs, base.plan, solved, count, progress),
        last=inputs.last,
    )


def _answers(beside: Beside, futures: Sequence[Future], processes: int, progress: Progress) -> Iterator[Answer]:
    """Every future planned, in order."""
    for number, (future, answer) in enumerate(zip(futures, each(beside.answer, futures, processes), strict=True), 1):
        progress(f"futures: {number} of {len(futures)}, {future.label}")
        yield answer


def _words(asked: ScenarioRequest) -> str:
    """What differs, and why, where the request says so."""
    return words_of(asked) + (f" ({asked.why})" if asked.why else "")


def _solved(request: PlanRequest, answers: Sequence[Answer]) -> tuple[Scenario, ...]:
    return tuple(
        Scenario(name=asked.name, words=_words(asked), source=asked.source, source_date=asked.source_date, plan=answer)
        for asked, answer in zip(request.scenario, answers, strict=True)
        if isinstance(answer, FleetPlan)
    )


def _unsolved(request: PlanRequest, answers: Sequence[Answer]) -> tuple[Unsolved, ...]:
    return tuple(
        Unsolved(name=asked.name, words=_words(asked), why=answer.why)
        for asked, answer in zip(request.scenario, answers, strict=True)
        if isinstance(answer, Failed)
    )


def _sensitivities(request: PlanRequest, ends: Sequence[Answer], base: FleetPlan) -> tuple[Sensitivity, ...]:
    """Drivers, the largest swing first; equal ones in the order of the request."""
    sides = [end for end in ends if isinstance(end, Side)]
    found = [
        Sensitivity(
            driver=asked.driver.value,
            name=sensitivity_name(asked),
            words=driver_words(
                asked.driver, Adjustments(models=asked.models, providers=asked.providers, gpus=asked.gpus)
            ),
            owner=asked.owner,
            source=asked.source,
            source_date=asked.source_date,
            low=low,
            high=high,
        )
        for asked, low, high in zip(request.sensitivity, sides[::2], sides[1::2], strict=True)
    ]
    return tuple(sorted(found, key=lambda driver: -driver.swing_usd(base.totals.usd)))


def _regret(
    inputs: Inputs, base: FleetPlan, others: Sequence[Scenario], processes: int, progress: Progress
) -> Regret | None:
    """Every fleet in every future that has a plan; ``None`` where that is the base alone."""
    if not others:
        return None
    fleets = (Scenario(name=BASE, words="", plan=base), *others)
    changes = {asked.name: asked for asked in inputs.request.scenario}
    cells: list[RegretCell] = []
    row = partial(_row, inputs, changes, fleets)
    for number, found in enumerate(each(row, fleets, processes), 1):
        progress(f"every fleet in every future: {number} of {len(fleets)}")
        cells += found
    order = [fleet.name for fleet in fleets]
    cells.sort(key=lambda cell: (order.index(cell.fleet), order.index(cell.future)))
    return regret_of(cells)


def _row(
    inputs: Inputs, changes: Mapping[str, Adjustments], fleets: Sequence[Scenario], future: Scenario
) -> tuple[RegretCell, ...]:
    change = changes.get(future.name)
    return cells_of(future, inputs if change is None else adjust(inputs, change), fleets)
