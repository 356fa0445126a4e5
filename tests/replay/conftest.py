"""The example's plan, and the engines of its pools."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.catalog.load import load_catalog
from planner.plan_file import plan_at
from planner.replay.engines import engines_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plan():
    return plan_at(ROOT / "reports" / "example")


@pytest.fixture(scope="module")
def engines(plan):
    return engines_of(plan, load_catalog())
