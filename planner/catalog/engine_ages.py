"""Dates of the facts that a plan takes from the catalogue about its engine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from planner.catalog.engine import EngineFacts


@dataclass(frozen=True)
class DatedFact:
    """One fact that holds for a release.

    Attributes
    ----------
    name
        Of the fact, or the architecture whose releases a registry lists.
    file
        Of the catalogue.
    entry
        How that file names the entry.
    """

    name: str
    file: str
    entry: str
    as_of: dt.date
    source: str


def dated_facts(facts: EngineFacts, architectures: Iterable[str]) -> tuple[DatedFact, ...]:
    """Every fact that holds for the release, and the registry's rows of the architectures, the oldest first.

    Which of the facts a model's sizing touches is not told apart: the oldest of all is never younger than the oldest
    that was touched.
    """
    held = [
        DatedFact(name, f"engines/{facts.name}.toml", f"fact {name} since {source.since}", source.as_of, source.source)
        for name, source in facts.sources.items()
    ]
    rows = facts.registry.rows if facts.registry is not None else {}
    listed = [rows[name] for name in sorted(set(architectures)) if name in rows]
    table = f"engines/{facts.name}_architectures.csv"
    held += [
        DatedFact(row.architecture, table, f"architecture {row.architecture}", row.as_of, row.source) for row in listed
    ]
    return tuple(sorted(held, key=lambda fact: (fact.as_of, fact.name)))
