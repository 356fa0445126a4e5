"""A plan that somebody names: a plan.json, or the folder that holds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from planner.errors import InputError, Problem
from planner.plan import FleetPlan, read_plan

FIX = "Give the plan.json that `planner plan` writes, or its folder"
SHOWN = 5
T = TypeVar("T")


def plan_file(path: Path) -> Path:
    """The file of a plan that is named by its folder or itself."""
    return path / "plan.json" if path.is_dir() else path


def plan_at(path: Path) -> FleetPlan:
    """The plan in a file or folder.

    Raises
    ------
    InputError
        If there is none, or it is no plan of this version.
    """
    return read_named(plan_file(path), read_plan, "plan", FIX)


def read_named(file: Path, read: Callable[[Path], T], what: str, fix: str) -> T:
    """What a function reads from a file that somebody names.

    Parameters
    ----------
    what
        What the file should be, such as ``plan``.
    fix
        What to do where it is not.

    Raises
    ------
    InputError
        If there is no such file, or it is something else.
    """
    try:
        return read(file)
    except FileNotFoundError:
        raise InputError(Problem(str(file), "no such file", fix)) from None
    except OSError as error:
        raise InputError(Problem(str(file), f"cannot be read: {error.strerror or error}", fix)) from None
    except UnicodeDecodeError:
        raise InputError(Problem(str(file), "is no UTF-8 text", fix)) from None
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        found = [
            Problem(str(file), f"is no {what}: {item['msg']}", fix, field=".".join(str(part) for part in item["loc"]))
            for item in wrong[:SHOWN]
        ]
        if len(wrong) > SHOWN:
            found.append(Problem(str(file), f"and {len(wrong) - SHOWN} more that are wrong"))
        raise InputError(found) from None
