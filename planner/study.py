"""A study: the plan of a quarter, other futures solved beside it, last quarter's plan and what came of that, and a
replay of the plan.

Written as study.json beside plan.json; the workbook and the HTML page are made from it.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Self

from pydantic import model_validator

from planner.plan import FleetPlan, Frozen
from planner.replay.record import ReplayRecord
from planner.request_study import BASE

STUDY_VERSION = 1


class Scenario(Frozen):
    """One future and the plan for it."""

    name: str
    words: str
    """What differs from the request, such as ``arrivals x 1.3``; empty for `BASE`."""
    source: str = ""
    source_date: dt.date | None = None
    plan: FleetPlan


class Unsolved(Frozen):
    """A future for which there is no plan."""

    name: str
    words: str
    why: str
    """What is short, or why the solver gave no answer."""


class Side(Frozen):
    """One end of a driver, planned again."""

    factor: float
    usd: float | None = None
    """Cost of the horizon; ``None`` where there is no plan."""
    usd_per_mtok: float | None = None
    gap: float | None = None
    note: str = ""
    """Why there is no plan."""


class Sensitivity(Frozen):
    """One driver at both ends; every figure is a re-solve."""

    driver: str
    name: str
    words: str
    """What is multiplied, such as ``prices of aws, H100-SXM``."""
    owner: str
    source: str
    source_date: dt.date | None
    low: Side
    high: Side

    def swing_usd(self, base_usd: float) -> float:
        """Distance between the cheapest and the dearest of low, base and high."""
        known = [base_usd, *(side.usd for side in (self.low, self.high) if side.usd is not None)]
        return max(known) - min(known)


class RegretCell(Frozen):
    """One fleet in one future: its pools and commitments stay, counts of replicas follow the load."""

    fleet: str
    """Scenario whose pools (GPU type, tp, formats, lengths, routes) and new commitments are taken."""
    future: str
    """Scenario that comes."""
    usd: float | None
    """Cost then; ``None`` where the fleet cannot serve that future."""
    regret_usd: float | None
    """Over the best fleet of that future."""
    note: str = ""


class Regret(Frozen):
    """Every fleet in every future."""

    cells: tuple[RegretCell, ...]
    choice: str
    """The fleet whose largest regret is least."""
    largest_usd: float
    """That largest regret."""


class ModelActual(Frozen):
    """One model: what was planned for a stretch of time and what happened in it."""

    model: str
    hours: float
    """Of the logs, within the plan's horizon."""
    planned_requests: float
    actual_requests: float
    planned_input_mtok: float
    actual_input_mtok: float
    planned_output_mtok: float
    actual_output_mtok: float
    planned_peak_per_s: float
    """Planning rate of the busiest period."""
    actual_peak_per_s: float
    """Busiest ten minutes."""
    planned_refused_share: float
    actual_refused_share: float
    """Requests longer than the planned max_model_len of their pool."""
    allowed_overflow: float
    actual_overflow: float | None
    """Share of time with more live tokens than the pool holds, replayed at the planned decode rate; ``None`` where it
    cannot be told."""
    planned_usd: float
    """Of the plan, for the hours of the logs."""
    planned_usd_per_mtok: float
    actual_usd_per_mtok: float
    """The same money over the tokens that really came and fitted."""
    note: str = ""
    mean_rate_per_s: float | None = None
    """Mean arrivals of the horizon, if all of it went as these hours: the planned mean times actual over planned
    requests; ``None`` where nothing was planned in these hours."""
    growth: float | None = None
    """That rate over the mean rate that the plan states before its own growth."""


class Actuals(Frozen):
    """A past plan against what happened."""

    run_id: str
    """Of the plan."""
    title: str
    start: dt.datetime
    end: dt.datetime
    """Exclusive."""
    models: tuple[ModelActual, ...]
    files: tuple[tuple[str, str], ...]
    """Logs that were read, with their sha256."""
    notes: tuple[str, ...] = ()


class LastQuarter(Frozen):
    """The plan that was issued last quarter."""

    path: str
    sha256: str
    plan: FleetPlan
    actuals: Actuals | None = None


class Study(Frozen):
    """All that is reported about a quarter."""

    version: int = STUDY_VERSION
    plan: FleetPlan
    """Of the request as it stands: scenario `BASE`."""
    others: tuple[Scenario, ...] = ()
    """Other futures with a plan, in the order of the request."""
    unsolved: tuple[Unsolved, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()
    """Largest swing first."""
    regret: Regret | None = None
    """``None`` where there is one future only."""
    last: LastQuarter | None = None
    replay: ReplayRecord | None = None
    """Of ``plan``; ``None`` where it was not replayed."""

    @model_validator(mode="after")
    def _replay_is_of_the_plan(self) -> Self:
        if self.replay is not None and self.replay.run_id != self.plan.run_id:
            raise ValueError(f"the replay is of plan {self.replay.run_id}, the study of {self.plan.run_id}")
        return self

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """All that were solved, `BASE` first."""
        return (Scenario(name=BASE, words="", plan=self.plan), *self.others)


def study_to_json(study: Study) -> str:
    """The study as JSON text, stable in order and digits."""
    return study.model_dump_json(indent=1) + "\n"


def read_study(path: Path) -> Study:
    """Read a study written by `study_to_json`."""
    return Study.model_validate_json(path.read_text(encoding="utf-8"))
