"""What a sheet is built from: one scenario of a study."""

from __future__ import annotations

from dataclasses import dataclass

from planner.plan import FleetPlan
from planner.study import Study


@dataclass(frozen=True)
class View:
    """One scenario of a study; every sheet is built once for each, and the workbook shows the one that is selected."""

    study: Study
    number: int = 0
    """Among `Study.scenarios`."""

    @property
    def plan(self) -> FleetPlan:
        """The scenario's plan."""
        return self.study.scenarios[self.number].plan

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.study.scenarios[self.number].name


def views_of(report: Study | FleetPlan) -> tuple[View, ...]:
    """All scenarios of a study; a plan alone is a study of one."""
    study = report if isinstance(report, Study) else Study(plan=report)
    return tuple(View(study, number) for number in range(len(study.scenarios)))
