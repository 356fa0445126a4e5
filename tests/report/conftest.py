from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from openpyxl import Workbook, load_workbook

from planner.plan import FleetPlan
from planner.report.workbook import write_workbook
from planner.study import Study
from tests.report.sample_study import sample_study


@pytest.fixture(scope="session")
def sample() -> ModuleType:
    """The module of the hand-made plan (tests are no package, so it is loaded by path)."""
    path = Path(__file__).with_name("sample.py")
    spec = importlib.util.spec_from_file_location("report_sample", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def plan(sample: ModuleType) -> FleetPlan:
    return sample.sample_plan()


@pytest.fixture(scope="session")
def study() -> Study:
    """The hand-made study: three futures, last quarter, sensitivities."""
    return sample_study()


@pytest.fixture(scope="session")
def xlsx(plan: FleetPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workbook of the hand-made plan; read-only for tests."""
    path = tmp_path_factory.mktemp("report") / "plan.xlsx"
    write_workbook(plan, path)
    return path


@pytest.fixture(scope="session")
def book(xlsx: Path) -> Workbook:
    """The workbook of the hand-made plan as it is written: formulas, styles; read-only for tests."""
    return load_workbook(xlsx)


@pytest.fixture(scope="session")
def values(xlsx: Path) -> Workbook:
    """The workbook of the hand-made plan with the stored results of its formulas; read-only for tests."""
    return load_workbook(xlsx, data_only=True)
