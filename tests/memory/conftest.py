from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.catalog.load import Catalog, load_catalog

DATA = Path(__file__).parents[1] / "data" / "memory"


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


def rows(name: str) -> Iterator[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
