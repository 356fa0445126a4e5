"""Speed curves of a plan's pools, predicted again from the catalogue: a plan holds one operating point of each."""

from __future__ import annotations

from collections.abc import Mapping

from planner.catalog.load import load_catalog
from planner.errors import InputError
from planner.plan import FleetPlan
from planner.report.speed_curve import SpeedCurve
from planner.speed.chain import load_sources

Curves = Mapping[str, SpeedCurve | str]
"""By pool: its curve, or why there is none."""


def curves_of(plan: FleetPlan) -> Curves:
    """The curve of every pool, as far as the catalogue that is installed here knows its parts."""
    from planner.cli.speed_plot_plan import pool_curve  # noqa: PLC0415  # as `planner speed plot --plan` draws it

    try:
        catalog = load_catalog()
        sources = load_sources(catalog.root)
    except InputError as error:
        return dict.fromkeys((pool.name for pool in plan.pools), _why(error))
    found: dict[str, SpeedCurve | str] = {}
    for pool in plan.pools:
        try:
            found[pool.name] = pool_curve(pool, catalog, sources)
        except InputError as error:
            found[pool.name] = _why(error)
    return found


def _why(error: InputError) -> str:
    return "; ".join(f"{problem.where}: {problem.message}" for problem in error.problems)
