"""Futures of a request in their order, and each of them planned beside the request as it stands."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner import units
from planner.assemble import Reasons, assemble
from planner.catalog.model_shape import ModelShape
from planner.errors import InfeasibleError, SolverError
from planner.futures.adjust import adjust
from planner.futures.check import changes_of, sensitivity_name
from planner.futures.words import words_of
from planner.inputs import Inputs
from planner.optimise.explain.reasons import rejected_classes
from planner.optimise.needs.configurations import Replicas
from planner.optimise.solve.warm import warm_columns
from planner.optimise.types import Decision
from planner.pipeline import Planned, Progress, Quarter, context_of, decide, silent
from planner.plan import Assumption, FleetPlan
from planner.preparing import prepare_beside
from planner.request import PlanRequest
from planner.request_study import Adjustments
from planner.solve_options import SolveOptions
from planner.study import Side


@dataclass(frozen=True)
class Future:
    """One change that is planned for."""

    name: str
    change: Adjustments
    factor: float | None = None
    """Of a driver: its end. ``None``: a scenario, which gets a complete plan."""

    @property
    def label(self) -> str:
        """The future in words, such as ``scenario High: arrivals x 1.3``."""
        kind = "scenario" if self.factor is None else "sensitivity"
        return f"{kind} {self.name}: {words_of(self.change)}"


@dataclass(frozen=True)
class Failed:
    """Why a scenario has no plan."""

    why: str


Answer = FleetPlan | Side | Failed


def scenarios_of(request: PlanRequest) -> tuple[Future, ...]:
    """Scenarios in the order of the request."""
    return tuple(Future(each.name, each) for each in request.scenario)


def ends_of(request: PlanRequest) -> tuple[Future, ...]:
    """The low and the high end of each driver, in the order of the request."""
    return tuple(
        Future(sensitivity_name(asked), change, factor)
        for asked in request.sensitivity
        for change, factor in zip(changes_of(asked), (asked.low, asked.high), strict=True)
    )


@dataclass(frozen=True)
class Beside:
    """What every future is planned from: the base, and how it was asked for."""

    base: Planned
    created_at: dt.datetime
    options: SolveOptions
    replicas: dict[ModelShape, Replicas] = field(default_factory=dict)
    """Sizings and speeds found so far: only a memory."""

    def answer(self, future: Future, progress: Progress = silent) -> Answer:
        """The plan of a scenario, or the cost at one end of a driver; where there is none, why.

        Raises
        ------
        InputError
            If the inputs contradict one another.
        """
        try:
            inputs, quarter, decision = self._decided(future, progress)
        except (InfeasibleError, SolverError) as error:
            why = one_line(error)
            return Failed(why) if future.factor is None else Side(factor=future.factor, note=why)
        if future.factor is None:
            return self._plan(future, inputs, quarter, decision)
        return Side(
            factor=future.factor,
            usd=decision.usd,
            usd_per_mtok=decision.usd_per_token * units.TOKENS_PER_MTOK,
            gap=decision.gap,
        )

    def _decided(self, future: Future, progress: Progress) -> tuple[Inputs, Quarter, Decision]:
        """A future's fleet, looked for from the base's pools on."""
        inputs = adjust(self.base.inputs, future.change, future.label)
        quarter = prepare_beside(self.base.quarter, self.base.inputs, inputs, progress, self.replicas)
        start = warm_columns(self.base.plan, quarter.fleet.data().columns)
        return inputs, quarter, decide(quarter, inputs.request, start)

    def _plan(self, future: Future, inputs: Inputs, quarter: Quarter, decision: Decision) -> FleetPlan:
        """The complete plan; runners-up and the worth of quotas are those of the base alone."""
        context = context_of(inputs, quarter, decision, self.created_at, self.options, future.label)
        stood = {row.id: row for row in self.base.plan.assumptions}
        rows = tuple(_noted(row, stood, future.label) for row in context.assumptions)
        reasons = Reasons(None, {}, rejected_classes(quarter.rejections))
        return assemble(replace(context, assumptions=rows), decision, reasons)


def _noted(row: Assumption, stood: Mapping[str, Assumption], label: str) -> Assumption:
    """An assumption with a note where its value is not that of the request as it stands."""
    before = stood.get(row.id)
    if before is not None and before.value == row.value:
        return row
    was = "" if before is None else f" (request: {before.value:g})" if isinstance(before.value, float) else ""
    note = f"{label}{was}"
    return row.model_copy(update={"note": f"{row.note}; {note}" if row.note else note})


def one_line(error: Exception) -> str:
    """An error on one line."""
    return "; ".join(line.removeprefix("  - ") for line in str(error).splitlines())
