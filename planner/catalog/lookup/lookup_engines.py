"""Find the facts of an engine version that a log or a table names, or the release of a day."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.csv_table import read_rows
from planner.catalog.engine import EngineFacts, find_engine, substitution
from planner.catalog.load import Catalog
from planner.catalog.versions import version_key


class Release(BaseModel):
    """One row of ``catalogs/engines/releases.csv``: when a version came out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str
    version: str
    released: dt.date
    source: str = Field(min_length=1)
    as_of: dt.date


@dataclass
class EngineVersions:
    """Engine versions of the catalogue, and the days on which releases came out."""

    catalog: Catalog

    @cached_property
    def releases(self) -> tuple[Release, ...]:
        """Every release with its day."""
        return tuple(read_rows(self.catalog.root / "engines" / "releases.csv", Release))

    def find(self, name: str, version: str, day: dt.date | None) -> tuple[EngineFacts, str]:
        """Facts and a note; the rules are those of `planner.catalog.lookup.lookup.Lookup.engine`.

        Raises
        ------
        InputError
            If the engine is unknown.
        """
        note = ""
        if not version and day is not None:
            out = [release for release in self.releases if release.engine == name and release.released <= day]
            if out:
                version = max(out, key=lambda release: version_key(release.version)).version
                note = f"{name} {version}: the newest release on {day}"
        elif not version:
            note = f"no {name} version is given: the newest in the catalogue is used"
        known = [facts for facts in self.catalog.engines if facts.name == name]
        if version and known and version_key(version) < version_key(known[0].version):
            return known[0], f"{name} {version} is older than the catalogue: facts of {known[0].version} are used"
        facts = find_engine(self.catalog.engines, name, version)
        used = substitution(self.catalog.engines, facts, version)
        return facts, "; ".join(filter(None, (note, used)))
