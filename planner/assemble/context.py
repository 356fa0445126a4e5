"""What a plan is about, besides the decisions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from planner.catalog.load import Catalog
from planner.optimise.periods.horizon import Horizon
from planner.optimise.types import ProgramData, SolverSettings, Workload
from planner.plan import Assumption, InputFile, Rejected, RunnerUp
from planner.request import PlanRequest


@dataclass(frozen=True)
class Context:
    """The request and what was read for it."""

    request: PlanRequest
    workloads: Mapping[str, Workload]
    data: ProgramData
    """The program that was decided: its lots, supplies, periods and rules."""
    settings: SolverSettings
    inputs: tuple[InputFile, ...]
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]
    run_id: str
    created_at: dt.datetime
    horizon: Horizon | None = None
    """Which hours the periods are; ``None`` where only their lengths are known."""
    catalog: Catalog | None = None
    """Where list prices and figures of GPUs that no decision needs stand; ``None``: the plan does without."""


@dataclass(frozen=True)
class Reasons:
    """What re-solves found out about a decision."""

    runners_up: Mapping[str, RunnerUp | None] | None
    """By model; ``None`` where nothing else can serve it; a model whose re-solve ended without an answer is absent.
    ``None`` instead of them all: they were not looked for."""
    quota_worth: Mapping[str, float]
    """USD in the horizon that one more unit of a limit would save, by its name; those not looked for are absent."""
    rejected: tuple[Rejected, ...] = ()
