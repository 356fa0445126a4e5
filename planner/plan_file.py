"""A plan that somebody names: a plan.json, or the folder that holds it."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from planner.errors import InputError, Problem
from planner.plan import FleetPlan, read_plan

FIX = "Give the plan.json that `planner plan` writes, or its folder"
SHOWN = 5


def plan_at(path: Path) -> FleetPlan:
    """The plan in a file or folder.

    Raises
    ------
    InputError
        If there is none, or it is no plan of this version.
    """
    file = path / "plan.json" if path.is_dir() else path
    try:
        return read_plan(file)
    except FileNotFoundError:
        raise InputError(Problem(str(file), "no such file", FIX)) from None
    except OSError as error:
        raise InputError(Problem(str(file), f"cannot be read: {error.strerror or error}", FIX)) from None
    except UnicodeDecodeError:
        raise InputError(Problem(str(file), "is no UTF-8 text", FIX)) from None
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        found = [
            Problem(str(file), f"is no plan: {item['msg']}", FIX, field=".".join(str(part) for part in item["loc"]))
            for item in wrong[:SHOWN]
        ]
        if len(wrong) > SHOWN:
            found.append(Problem(str(file), f"and {len(wrong) - SHOWN} more that are wrong"))
        raise InputError(found) from None
