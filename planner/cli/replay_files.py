"""A replay in the files of its plan: the study, the workbook, the page and the tables once more, with the record."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.cli.plan import prepare
from planner.cli.plan_files import FILES, write_outputs
from planner.errors import InputError, Problem
from planner.plan import FleetPlan, plan_to_json
from planner.plan_file import plan_file, read_named
from planner.replay.drill_types import Drilled
from planner.replay.fleet import PoolReplay, Replay
from planner.replay.mean_based import MeanFleet
from planner.replay.promises import CONFIDENCE
from planner.replay.record import ReplayRecord, record_of
from planner.study import Study, read_study

STUDY_FILE = "study.json"
FIX = "Give the folder that `planner plan` wrote"


def study_of_plan(path: Path, plan: FleetPlan) -> Study:
    """The study that stands beside a plan; without one, a study of the plan alone.

    Raises
    ------
    InputError
        If the study cannot be read, or is of another plan.
    """
    beside = plan_file(path).with_name(STUDY_FILE)
    if not beside.is_file():
        return Study(plan=plan)
    study = read_named(beside, read_study, "study", FIX)
    if plan_to_json(study.plan) != plan_to_json(plan):
        what = f"is of plan {study.plan.run_id}, which is not the {plan_file(path).name} beside it ({plan.run_id})"
        raise InputError(Problem(str(beside), what, FIX))
    return study


def with_replay(study: Study, record: ReplayRecord) -> Study:
    """The study with a replay of its plan in it; an earlier one goes.

    Raises
    ------
    InputError
        If the replay is of another plan.
    """
    if record.run_id != study.plan.run_id:
        what = f"the replay is of plan {record.run_id}, the study of {study.plan.run_id}"
        raise InputError(Problem("replay", what, "Replay the plan of the study"))
    return study.model_copy(update={"replay": record})


@dataclass(frozen=True)
class Kept:
    """Where a replay is written, and how it was asked.

    Attributes
    ----------
    study
        That the replay is written into.
    folder
        Of the files.
    part, edge, slower
        Options of the replay, for the record.
    """

    study: Study
    folder: Path
    part: str
    edge: str
    slower: float

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """The folder, seen to be writable before any work is done; one that was made goes again if the work fails.

        Raises
        ------
        InputError
            If it cannot be made or written.
        """
        made = prepare(self.folder)
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                for each in made:
                    each.rmdir()
            raise

    def write(
        self,
        replay: Replay,
        files: Mapping[str, str],
        fewer: Sequence[PoolReplay] = (),
        means: Sequence[MeanFleet] = (),
        drills: Sequence[Drilled] = (),
    ) -> tuple[Path, ...]:
        """Write all files with the replay in them.

        Parameters
        ----------
        files
            Name of the log of each model.
        """
        record = record_of(
            self.study.plan, replay, files=files, part=self.part, edge=self.edge, slower=self.slower, fewer=fewer,
            means=means, drills=drills, confidence=CONFIDENCE,
        )  # fmt: skip
        return write_replay(self.study, record, self.folder)


def kept_in(folder: Path | None, path: Path, plan: FleetPlan, *, part: str, edge: str, slower: float) -> Kept | None:
    """Where the replay of a plan is written; ``None``: nowhere.

    Raises
    ------
    InputError
        If the study beside the plan cannot be read, or is of another plan.
    """
    return None if folder is None else Kept(study_of_plan(path, plan), folder, part, edge, slower)


def write_replay(study: Study, record: ReplayRecord, folder: Path) -> tuple[Path, ...]:
    """Write all files of the study with the replay in it; they appear together or not at all.

    Returns
    -------
    tuple[Path, ...]
        The files.
    """
    write_outputs(with_replay(study, record), folder)
    return tuple(folder / name for name in FILES)
