"""The workbook of a plan alone, and that of a study: every acceptance test runs on both unless it needs a study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from openpyxl import Workbook, load_workbook

from planner.plan import FleetPlan
from planner.report.recalc import convert_with_libreoffice, recalculate_with_libreoffice
from planner.report.table import Book
from planner.report.workbook import layout, write_workbook
from planner.study import Study
from tests.report.acceptance.reading import edited, selector
from tests.report.sample import sample_plan
from tests.report.sample_study import sample_study

SCENARIOS = ("Base", "High", "Low")


def _written(report: Study | FleetPlan, folder: Path) -> Path:
    path = folder / "plan.xlsx"
    write_workbook(report, path)
    return path


@pytest.fixture(scope="session", params=["plan", "study"])
def report(request: pytest.FixtureRequest) -> Study | FleetPlan:
    """What the workbook is made from."""
    return sample_plan() if request.param == "plan" else sample_study()


@pytest.fixture(scope="session")
def base(report: Study | FleetPlan) -> FleetPlan:
    """The plan of the request as it stands."""
    return report.plan if isinstance(report, Study) else report


@pytest.fixture(scope="session")
def xlsx(report: Study | FleetPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workbook; read-only for tests."""
    return _written(report, tmp_path_factory.mktemp("acceptance"))


@pytest.fixture(scope="session")
def book(xlsx: Path) -> Workbook:
    """The workbook as it is written; read-only for tests."""
    return load_workbook(xlsx)


@pytest.fixture(scope="session")
def values(xlsx: Path) -> Workbook:
    """Its stored results; read-only for tests."""
    return load_workbook(xlsx, data_only=True)


@pytest.fixture(scope="session")
def places(report: Study | FleetPlan) -> Book:
    """Where its tables stand."""
    return layout(report)


@pytest.fixture(scope="session")
def again(xlsx: Path, tmp_path_factory: pytest.TempPathFactory) -> Workbook:
    """The workbook as LibreOffice calculates it, from formulas alone."""
    return load_workbook(recalculate_with_libreoffice(xlsx, tmp_path_factory.mktemp("again")), data_only=True)


@pytest.fixture(scope="session")
def pdf(xlsx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workbook in print."""
    return convert_with_libreoffice(xlsx, tmp_path_factory.mktemp("print"), "pdf", 180.0)


@pytest.fixture(scope="session")
def study_xlsx(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workbook of the study, for tests that need several scenarios."""
    return _written(study, tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def study_places(study: Study) -> Book:
    """Where the tables of the study's workbook stand."""
    return layout(study)


@pytest.fixture(scope="session")
def selected(study_xlsx: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Workbook]:
    """The study's workbook with a scenario selected, as LibreOffice calculates it; each once."""
    made: dict[str, Workbook] = {}

    def calculate(name: str) -> Workbook:
        if name not in made:
            found = selector(load_workbook(study_xlsx))
            assert found, "no cell offers the scenarios"
            folder = tmp_path_factory.mktemp("selected")
            source = folder / "plan.xlsx"
            source.write_bytes(edited(study_xlsx, {found[0]: name}))
            made[name] = load_workbook(recalculate_with_libreoffice(source, folder / "out"), data_only=True)
        return made[name]

    return calculate
