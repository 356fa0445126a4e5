"""`planner speed fit`: refit the roofline on the catalogue's measured points, and show how far it is from them."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.cli.files import replacing
from planner.errors import InputError, Problem, Problems
from planner.report.accuracy import with_accuracy
from planner.report.speed_accuracy import accuracy_markdown, accuracy_text
from planner.speed.cases.deployments import Deployments
from planner.speed.cases.rows import Reader, lowered
from planner.speed.chain import load_sources
from planner.speed.facts import load_speed_facts
from planner.speed.fit.collect import Collected, collect
from planner.speed.fit.refit import as_toml, differences, fittable, refit
from planner.speed.fit.sample import Sample, sample_of

POINTS_FILES = tuple(Path("speed") / "points" / f"{name}.csv.gz" for name in ("silicon_points", "measured_throughput"))
STALE_CODE = 1
FEWEST_POINTS = 100


def register(group: typer.Typer) -> None:
    """Add the command to the group."""
    group.command("fit")(speed_fit)


def speed_fit(
    points: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Measured points, several files; else the catalogue's.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the facts as TOML.")
    ] = None,
    tables_into: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Put the error tables between the marks of a Markdown file.")
    ] = None,
    as_of: Annotated[
        str, typer.Option(metavar="DATE", help="Date that the facts carry; the catalogue's if left out.")
    ] = "",
    check: Annotated[bool, typer.Option("--check", help="Fail where the catalogue differs from the refit.")] = False,
) -> None:
    """Refit the roofline's coefficients and bands from measured points, and print errors of points held out."""
    catalog = load_catalog()
    base = load_speed_facts(catalog.root)
    date = date_of(as_of) if as_of else base.as_of
    marked = _text(tables_into) if tables_into is not None else ""
    deployments = Deployments(Reader(Lookup(catalog)), load_sources(catalog.root))
    collected = all_points(points or [catalog.root / file for file in POINTS_FILES], deployments)
    sample = enough(fittable(sample_of(collected.points), base))
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    with console.status("refit") as status:
        found = refit(sample, base, date, status.update)
    typer.echo(accuracy_text(found, sample, collected.left_out))
    if tables_into is not None:
        tables = accuracy_markdown(found, sample, collected.left_out)
        write_text(tables_into, with_accuracy(marked, tables, str(tables_into)))
    if output is not None:
        write_text(output, as_toml(found.facts))
    outdated = differences(found.facts, base)
    if check and outdated:
        typer.echo(f"the catalogue differs from the refit: {', '.join(outdated)}", err=True)
        raise typer.Exit(STALE_CODE)


def enough(sample: Sample) -> Sample:
    """The sample, if TPOT and TTFT were both measured often enough for a fit and its bands.

    Raises
    ------
    InputError
        If one of them was not; names it and how often it was.
    """
    problems = Problems()
    for name, figures in (("TPOT", sample.tpot_s), ("TTFT", sample.ttft_s)):
        count = int(np.isfinite(figures).sum())
        if count < FEWEST_POINTS:
            message = f"{count} points of fitted GPUs and engines hold a {name}"
            problems.add("--points", message, f"A fit needs {FEWEST_POINTS}")
    problems.raise_if_any()
    return sample


def all_points(paths: Sequence[Path], deployments: Deployments) -> Collected:
    """Points of every table, and what was left out of them.

    Raises
    ------
    InputError
        Listing every file that cannot be read or is no table that is known; or if there are too few points.
    """
    problems = Problems()
    found = [problems.attempt(partial(_collected, path, deployments)) for path in paths]
    problems.raise_if_any()
    tables = [table for table in found if table is not None]
    points = tuple(point for table in tables for point in table.points)
    if len(points) < FEWEST_POINTS:
        message = f"hold {len(points)} points of closed loops and full loads on one replica"
        names = ", ".join(str(path) for path in paths)
        raise InputError(Problem(names, message, f"A fit needs {FEWEST_POINTS}"))
    left_out: Counter[str] = Counter()
    for table in tables:
        left_out.update(table.left_out)
    return Collected(points, dict(sorted(left_out.items())))


def _collected(path: Path, deployments: Deployments) -> Collected:
    """Points of a table, compressed or not.

    Raises
    ------
    InputError
        If the file cannot be read or is no table that is known.
    """
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="surplus", restval="")
            rows = [lowered(row) for row in reader]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}", "Give a CSV of measured points")) from error
    problems = Problems()
    found = problems.attempt(lambda: collect(reader.fieldnames or (), rows, deployments), str(path))
    problems.raise_if_any()
    assert found is not None
    return found


def date_of(text: str) -> dt.date:
    """A date as it was typed.

    Raises
    ------
    InputError
        If it is none.
    """
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise InputError(Problem("--as-of", f"{text!r:.40} is no date", "Write it as 2026-11-30")) from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from error


def write_text(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    with replacing(path) as file:
        file.write(text)
