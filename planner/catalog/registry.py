"""Model registries: which architectures each release of an engine has a class for.

``catalogs/engines/<engine>_architectures.csv`` lists the first and the last release of each.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.csv_table import read_table
from planner.catalog.versions import version_key
from planner.errors import Problems


class Architecture(BaseModel):
    """One row: the releases that have a class for an architecture.

    ``last`` is empty where the newest release that was read has it; ``max_tp`` is the largest tensor-parallel degree of
    a class that is not split (served by Transformers' own class).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str = Field(min_length=1)
    first: str = Field(min_length=1)
    last: str = ""
    max_tp: int | None = Field(default=None, ge=1)
    source: str = Field(min_length=1)
    as_of: dt.date


@dataclass(frozen=True)
class Registry:
    """The architectures of one engine, by name."""

    rows: Mapping[str, Architecture]

    @cached_property
    def oldest(self) -> tuple[int, ...]:
        """The first release whose registry was read."""
        return min((version_key(row.first) for row in self.rows.values()), default=())

    def knows(self, architecture: str, version: str, tp: int) -> bool:
        """Whether ``version`` has a class for it at this ``tp``; a release older than those read is not judged."""
        if version_key(version) < self.oldest:
            return True
        row = self.rows.get(architecture)
        return row is not None and _between(row, version) and (row.max_tp is None or tp <= row.max_tp)

    def advice(self, architecture: str) -> str:
        """Which versions to use for it."""
        row = self.rows.get(architecture)
        if row is None:
            return "No version that was read has it: write the name that the engine registers"
        versions = f"{row.first} to {row.last}" if row.last else f"{row.first} or newer"
        return f"Use version {versions}" + (f" at tp {row.max_tp}" if row.max_tp else "")


def _between(row: Architecture, version: str) -> bool:
    asked = version_key(version)
    return version_key(row.first) <= asked and (not row.last or asked <= version_key(row.last))


def read_registry(path: Path, problems: Problems) -> Registry | None:
    """The registry of one engine; ``None`` where the catalogue has none."""
    if not path.is_file():
        return None
    rows: dict[str, Architecture] = {}
    for number, row in read_table(path, Architecture, problems):
        if row.architecture in rows:
            problems.add(str(path), f"second row for {row.architecture}", "Keep one of them", row=str(number))
        rows[row.architecture] = row
    return Registry(rows)
