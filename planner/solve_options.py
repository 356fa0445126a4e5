"""How a request is solved, beyond its own [solver] table; nothing here changes which fleets are feasible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from planner.errors import InputError, Problem
from planner.optimise.solve.solvers import Watch
from planner.request import PlanRequest, Solver

OPTIONS = {"name": "--solver", "gap": "--gap", "time_limit_s": "--time-limit", "threads": "--threads", "seed": "--seed"}
"""The command-line option of each key of [solver]."""


@dataclass(frozen=True)
class SolveOptions:
    """What is asked of the solve."""

    overrides: Mapping[str, object] = field(default_factory=dict)
    """Keys of [solver] with the values that take the place of the request's."""
    last_plan: Path | None = None
    """A plan whose choice the first solve begins from."""
    lp_file: Path | None = None
    """Where to write the last program of the plan's own solve."""
    watch: Watch | None = None
    """Called with a report while the solver works on the plan."""

    @property
    def words(self) -> tuple[str, ...]:
        """The overrides as somebody would type them."""
        return tuple(f"{OPTIONS[key]} {value}" for key, value in sorted(self.overrides.items()))

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader of the plan must know of them."""
        return (f"solved with {', '.join(self.words)} in place of the request's [solver]",) if self.overrides else ()


AS_REQUESTED = SolveOptions()


def overridden(request: PlanRequest, overrides: Mapping[str, object]) -> PlanRequest:
    """The request with other values in its [solver] table.

    Raises
    ------
    InputError
        If a value is out of range; each is named as its command-line option.
    """
    return request.model_copy(update={"solver": solver_of(request.solver.model_dump() | dict(overrides))})


def solver_of(values: Mapping[str, object]) -> Solver:
    """A [solver] table of options.

    Raises
    ------
    InputError
        If a value is out of range; each is named as its command-line option.
    """
    try:
        return Solver.model_validate(values)
    except ValidationError as error:
        found = [(OPTIONS[str(item["loc"][0])], str(item["msg"]), item["input"]) for item in error.errors()]
        raise InputError(
            [Problem(option, f"{message[0].lower()}{message[1:]} (got {value})") for option, message, value in found]
        ) from None
