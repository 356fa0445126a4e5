"""A study or a plan that somebody names."""

from __future__ import annotations

from pathlib import Path

from planner.plan import FleetPlan
from planner.plan_file import plan_at, read_named
from planner.study import Study, read_study

STUDY_FILE = "study.json"
FIX = "Give the study.json or plan.json that `planner plan` writes, or its folder"


def report_at(path: Path) -> Study | FleetPlan:
    """The study or plan in a file or folder; of a folder that holds both, the study.

    A file is taken for a study by its name.

    Raises
    ------
    InputError
        If there is none, or it cannot be read as one.
    """
    file = path / STUDY_FILE if path.is_dir() and (path / STUDY_FILE).is_file() else path
    if not file.is_dir() and "study" in file.stem:
        return read_named(file, read_study, "study", FIX)
    return plan_at(path)
