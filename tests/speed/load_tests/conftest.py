"""Files of load tests, as they lie in tests/data and changed in one place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.load_tests.identity import Given

DATA = Path(__file__).parents[2] / "data" / "load_tests"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture(scope="session")
def lookup() -> Lookup:
    return Lookup(load_catalog())


@pytest.fixture
def given() -> Given:
    """All that no tool records."""
    return Given(MODEL, "H100", "vllm", tp=1, weights=WeightDtype.BF16, kv=KvDtype.BF16)


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A file of tests/data with members changed, each under its dotted path; ``...`` takes a member out."""

    def changed(name: str, **members: Any) -> Path:
        document = json.loads((DATA / name).read_text())
        for path, value in members.items():
            *parents, last = path.split("__")
            here = document
            for parent in parents:
                here = here[int(parent)] if parent.isdigit() else here[parent]
            if value is ...:
                del here[last]
            else:
                here[last] = value
        file = tmp_path / Path(name).name
        file.write_text(json.dumps(document))
        return file

    return changed
