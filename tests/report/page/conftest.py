from __future__ import annotations

from pathlib import Path

import pytest

from planner.plan import FleetPlan, read_plan
from planner.report.page.curves import curves_of
from planner.report.page.document import render_page
from planner.study import Study
from tests.report.page.dom import Node, read

EXAMPLE = Path(__file__).parents[3] / "reports" / "example" / "plan.json"


@pytest.fixture(scope="session")
def example() -> FleetPlan:
    """The example quarter as it is shipped."""
    return read_plan(EXAMPLE)


@pytest.fixture(scope="session")
def example_page(example: FleetPlan) -> str:
    return render_page(example, curves_of(example))


@pytest.fixture(scope="session")
def study_page(study: Study) -> str:
    """The page of the hand-made study, whose texts nobody should trust."""
    return render_page(study, curves_of(study.plan))


@pytest.fixture(scope="session")
def tree(study_page: str) -> Node:
    return read(study_page)


@pytest.fixture(scope="session")
def example_tree(example_page: str) -> Node:
    return read(example_page)
