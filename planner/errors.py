"""The error tree: bad input (exit 2), infeasible (exit 3), solver failure (exit 4).

Bad input is collected, not raised at the first problem: the user sees everything that is wrong at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the input, and what to do about it.

    Attributes
    ----------
    where
        The file, or the command-line option, that holds the problem.
    message
        What is wrong, in the user's words.
    fix
        What to do about it.
    row
        Row (1-based, counting the header as row 1) or table entry, when there is one.
    field
        Column or key, when there is one.
    """

    where: str
    message: str
    fix: str = ""
    row: str = ""
    field: str = ""

    def __str__(self) -> str:
        place = self.where
        if self.row:
            place += f", row {self.row}" if self.row.isdigit() else f", {self.row}"
        if self.field:
            place += f", field {self.field}"
        text = f"{place}: {self.message}"
        return f"{text}. {self.fix}" if self.fix else text


class PlannerError(Exception):
    """Base of everything that the planner raises on purpose."""

    exit_code = 1


class InputError(PlannerError):
    """The input cannot be used; carries every problem found."""

    exit_code = 2

    def __init__(self, problems: list[Problem] | tuple[Problem, ...] | Problem) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InfeasibleError(PlannerError):
    """No fleet satisfies the request; says what is short and the smallest relaxation found."""

    exit_code = 3

    def __init__(self, message: str, shortages: list[str] | tuple[str, ...] = ()) -> None:
        self.shortages: tuple[str, ...] = tuple(shortages)
        super().__init__("\n".join([message, *(f"  - {line}" for line in self.shortages)]))


class SolverError(PlannerError):
    """The solver failed or is missing."""

    exit_code = 4


@dataclass
class Problems:
    """A collector of problems; ``raise_if_any`` ends the validation."""

    found: list[Problem] = field(default_factory=list)

    def add(self, where: str, message: str, fix: str = "", *, row: str = "", field: str = "") -> None:
        """Note one problem and go on."""
        self.found.append(Problem(where, message, fix, row, field))

    def attempt(self, step: Callable[[], T], place: str = "") -> T | None:
        """The step's result, or ``None`` with its problems noted when it raises `InputError`.

        ``place`` is where the user asked for the step, put before each problem.
        """
        try:
            return step()
        except InputError as error:
            prefix = f"{place}: " if place else ""
            self.found.extend(replace(problem, where=prefix + problem.where) for problem in error.problems)
            return None

    def raise_if_any(self) -> None:
        """Raise one `InputError` listing every problem noted so far.

        Raises
        ------
        InputError
            If at least one problem was noted.
        """
        if self.found:
            raise InputError(self.found)
