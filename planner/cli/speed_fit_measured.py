"""`planner speed fit-measured`: how much to believe of a few points, from deployments that were measured often."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.cli.speed_fit import POINTS_FILES, all_points, date_of, enough, write_text
from planner.errors import InputError, Problem
from planner.speed.cases.deployments import Deployments
from planner.speed.cases.rows import Reader
from planner.speed.chain import load_sources
from planner.speed.facts import load_speed_facts
from planner.speed.fit.belief import as_toml, belief_lines, refit_belief, unseen_deployments
from planner.speed.fit.refit import fittable
from planner.speed.fit.sample import sample_of

FEWEST_DEPLOYMENTS = 20


def register(group: typer.Typer) -> None:
    """Add the command to the group."""
    group.command("fit-measured")(speed_fit_measured)


def speed_fit_measured(
    points: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Measured points, several files; else the catalogue's.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the spreads as TOML.")
    ] = None,
    as_of: Annotated[
        str, typer.Option(metavar="DATE", help="Date that the spreads carry; the roofline's if left out.")
    ] = "",
) -> None:
    """Refit how far a few measured points of a deployment carry, and print errors of points held out."""
    catalog = load_catalog()
    base = load_speed_facts(catalog.root)
    date = date_of(as_of) if as_of else base.as_of
    deployments = Deployments(Reader(Lookup(catalog)), load_sources(catalog.root))
    paths = points or [catalog.root / file for file in POINTS_FILES]
    sample = enough(fittable(sample_of(all_points(paths, deployments).points), base))
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    with console.status("refit") as status:
        data = unseen_deployments(sample, base, status.update)
        if len(data.rows()) < FEWEST_DEPLOYMENTS:
            message = f"hold {len(data.rows())} deployments with points enough"
            fix = f"Spreads of deployments need {FEWEST_DEPLOYMENTS} of them"
            raise InputError(Problem(", ".join(map(str, paths)), message, fix))
        found = refit_belief(data, date, status.update)
    typer.echo("\n".join(belief_lines(found)))
    if output is not None:
        write_text(output, as_toml(found))
