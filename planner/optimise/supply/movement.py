"""Last quarter's fleet, as a limit on how far this one may move away from it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import InputError, Problem
from planner.optimise.types import Movement
from planner.request import PlanRequest

KNOWN_SCHEMAS = (1, 2, 3)


class _Read(BaseModel):
    """A part of a plan that is read here; the rest is let pass, so that plans of older planners can be read too."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _LastPeriod(_Read):
    replicas: int = Field(ge=0)


class _LastPool(_Read):
    model: str = Field(min_length=1)
    gpu: str = Field(min_length=1)
    tp: int = Field(ge=1)
    gpus: int = Field(ge=0)
    periods: tuple[_LastPeriod, ...] = ()

    def gpus_by_period(self, periods: int) -> list[int]:
        """GPUs in each period of the plan; a plan without periods runs the same all the time."""
        return [p.replicas * self.tp for p in self.periods] if self.periods else [self.gpus] * periods


class _LastPlan(_Read):
    schema_version: int
    periods: tuple[object, ...] = ()
    """None in schema 1: the whole horizon was one."""
    pools: tuple[_LastPool, ...] = Field(min_length=1)


def movement_of(request: PlanRequest, folder: Path) -> Movement | None:
    """The limit on movement that a request asks for; ``None`` where it asks for none.

    GPUs of a model on a GPU type are those of all its pools, at their largest over the periods of last quarter's plan.

    Parameters
    ----------
    folder
        The request's own: `MovementLimit.last_plan` is relative to it.

    Raises
    ------
    InputError
        If the file cannot be read or is no plan.
    """
    if request.movement is None:
        return None
    last = _read(folder / request.movement.last_plan)
    count = max(1, len(last.periods))
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * count)
    for pool in last.pools:
        total = totals[pool.model, pool.gpu]
        for t, gpus in enumerate(pool.gpus_by_period(count)):
            total[t] += gpus
    largest = {key: max(total) for key, total in sorted(totals.items())}
    return Movement(largest, request.movement.max_moved_gpus)


def _read(path: Path) -> _LastPlan:
    fix = "Give the plan.json that `planner plan` wrote last quarter"
    try:
        plan = _LastPlan.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise InputError(Problem(str(path), "no such file", fix, field="movement.last_plan")) from None
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror}", fix)) from None
    except ValidationError as error:
        found = [item for item in error.errors() if item["type"] != "too_short" or not item["input"]]
        raise InputError([_problem(path, item["loc"], item["msg"], fix) for item in found]) from None
    if plan.schema_version not in KNOWN_SCHEMAS:
        raise InputError(Problem(str(path), f"is a plan of schema {plan.schema_version}, not 1, 2 or 3", fix))
    for pool in plan.pools:
        if pool.periods and len(pool.periods) != len(plan.periods):
            message = f"the pool of {pool.model} has {len(pool.periods)} periods, the plan {len(plan.periods)}"
            raise InputError(Problem(str(path), message, fix))
    return plan


def _problem(path: Path, location: tuple[int | str, ...], message: str, fix: str) -> Problem:
    field = ".".join(str(part) for part in location)
    return Problem(str(path), f"is no plan: {message[0].lower()}{message[1:]}", fix, field=field)
