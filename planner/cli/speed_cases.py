"""``planner speed --cases``: a table of points in, one row of predictions out for each."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.cli.case_table import read_lines, rows_of
from planner.cli.files import is_stream, replacing
from planner.errors import InputError, Problem, Problems
from planner.speed.cases.answers import Answer, answer_all
from planner.speed.cases.cells import COLUMNS, answer_cells
from planner.speed.cases.deployments import Deployments
from planner.speed.cases.layouts import Layout, Row, layout_of
from planner.speed.cases.rows import Case, Reader, lowered, measured_of, read_measured
from planner.speed.cases.scores import GROUPS, Score, Scored, score
from planner.speed.chain import SpeedSources, load_sources
from planner.speed.measured import MeasuredSet
from planner.speed.points import Figures
from planner.speed.types import MEASURED_PROVIDERS

USUAL_GROUPS = ("all", "engine", "gpu", "model")


@dataclass(frozen=True)
class SpeedCaseOptions:
    """What was asked of a table of points."""

    source: Path
    output: Path | None = None
    calibrate_with: Path | None = None
    score: bool = False
    score_by: str = ""


@dataclass(frozen=True)
class PointTable:
    """A table as it was read."""

    layout: Layout
    rows: tuple[Row, ...]


def speed_cases(options: SpeedCaseOptions) -> None:
    """Answer every row, write the table, and print what was done or how near it came.

    Raises
    ------
    InputError
        If a table cannot be read or is none that is known, or an option names what there is not.
    """
    problems = Problems()
    by = problems.attempt(lambda: _grouping(options.score_by))
    _check_paths(options, problems)
    table = problems.attempt(lambda: read_points_table(options.source))
    given = options.calibrate_with
    measured = problems.attempt(lambda: read_points_table(given)) if given is not None else None
    problems.raise_if_any()
    assert table is not None
    catalog = load_catalog()
    reader = Reader(Lookup(catalog))
    sources = load_sources(catalog.root)
    if measured is not None and given is not None:
        sources = calibrated(sources, reader, measured, given)
    cases = [reader.read(table.layout, row) for row in table.rows]
    answers = answer_all(cases, Deployments(reader, sources))
    if options.output is not None:
        _write(options.output, answers)
        _print_done(options, table, answers)
    if options.score:
        _print_scores(score(scored(table, cases, answers), by or USUAL_GROUPS))


def read_points_table(path: Path) -> PointTable:
    """A table of points, its column names in lower case; lines without a cell that says anything are no rows.

    Raises
    ------
    InputError
        If it cannot be read, or none of its columns is of a layout that is known.
    """
    header, lines = read_lines(path)
    names = [name.casefold() for name in header]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(Problem(str(path), f"column {twice[0]!r:.40} occurs twice", "Keep one of them", row="1"))
    try:
        layout = layout_of(names)
    except InputError as error:
        raise InputError([replace(problem, where=str(path), row="1") for problem in error.problems]) from error
    kept = [cells for cells in lines if len(cells) > 1 or cells[0].strip()]
    return PointTable(layout, tuple(lowered(row) for row in rows_of(names, kept)))


def calibrated(sources: SpeedSources, reader: Reader, table: PointTable, path: Path) -> SpeedSources:
    """The sources with the points that the table measured, which say that they come from this file.

    Points that cannot correct a model are told on standard error, by reason.

    Raises
    ------
    InputError
        If the table measured nothing that can be used.
    """
    points = read_measured(reader, table.layout, table.rows)
    if not points:
        fix = "It needs rows whose model and GPU are known, with tpot_ms, ttft_ms or a throughput"
        raise InputError(Problem(f"--calibrate-with {path}", "holds no measured point that can be read", fix))
    measured = MeasuredSet(tuple(replace(point, source=path.name) for point in points))
    for line in measured.left_out():
        typer.echo(f"{path}: {line}", err=True)
    return replace(sources, measured=measured)


def scored(table: PointTable, cases: Sequence[Case], answers: Sequence[Answer]) -> list[Scored]:
    """Rows that hold measurements, beside their answers."""
    found = []
    for row, case, answer in zip(table.rows, cases, answers, strict=True):
        measured = measured_of(table.layout, row)
        if case.point is not None and measured != Figures():
            found.append(Scored(case.point, answer, measured))
    return found


def _check_paths(options: SpeedCaseOptions, problems: Problems) -> None:
    if options.output is None and not options.score:
        problems.add("-o", "is missing", "Say where --cases writes its table, or ask for --score")
    if options.score_by and not options.score:
        problems.add("--score-by", "needs --score", "Add it")
    for name, path in (("--cases", options.source), ("--calibrate-with", options.calibrate_with)):
        if options.output is not None and path is not None and _same_file(options.output, path):
            problems.add("-o", f"{options.output} is the table that {name} reads", "Write to another file")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _grouping(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    unknown = [word for word in words if word not in GROUPS]
    if unknown:
        raise InputError(
            Problem("--score-by", f"{unknown[0]!r:.40} is no grouping", f"Choose among {', '.join(GROUPS)}")
        )
    return words


def _write(path: Path, answers: Sequence[Answer]) -> None:
    with replacing(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(answer_cells(answer) for answer in answers)


def _print_done(options: SpeedCaseOptions, table: PointTable, answers: Sequence[Answer]) -> None:
    """How many rows were answered, and how many of them from measured points where some were given."""
    assert options.output is not None
    done = [answer for answer in answers if answer.output_tok_s is not None]
    text = f"{options.output}: {len(answers):,} rows of {table.layout}, {len(done):,} answered"
    if options.calibrate_with is not None:
        measured = sum(answer.provider in MEASURED_PROVIDERS for answer in done)
        text += f", {measured:,} of them from measured points"
    typer.echo(text, err=is_stream(options.output))


def _print_scores(scores: dict[tuple[str, str, str], Score]) -> None:
    if not scores:
        typer.echo("no row holds a measured figure that was predicted")
        return
    grid = Table("by", "group", "figure", "rows", "median error", "p90", "predicted / measured", "in the band")
    for (by, group, figure), found in scores.items():
        covered = "" if found.covered is None else f"{found.covered:.0%}"
        errors = (f"{found.median:.1%}", f"{found.p90:.1%}", f"{found.bias:.2f}")
        grid.add_row(by, escape(group), figure, f"{found.rows:,}", *errors, covered)
    Console(highlight=False, width=150).print(grid)
