"""``planner size --cases``: a table of cases in, the same rows with predictions out."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console
from rich.table import Table

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.errors import InputError, Problem
from planner.memory.starts.case_answers import answer_cells, answer_columns
from planner.memory.starts.case_rows import CaseTable, Given, Row, read_case, table_of
from planner.memory.starts.cases import Answer, answer
from planner.memory.starts.scores import Score, score
from planner.report.accuracy import HEADER, accuracy_tables, grouping, score_lines, with_accuracy


@dataclass(frozen=True)
class CaseOptions:
    """What was asked of a table of cases."""

    source: Path
    output: Path | None = None
    given: str = ""
    engine: str = ""
    models: Path | None = None
    score: bool = False
    score_by: str = ""
    score_into: Path | None = None


def size_cases(options: CaseOptions) -> None:
    """Answer every row, write the table, and print what was done or how near it came.

    Raises
    ------
    InputError
        If the table cannot be read or is none that is known, or an option names what there is not.
    """
    terms, words = given_terms(options.given), _words(options.score_by)
    by = grouping(words)
    if options.output is None and not options.score and options.score_into is None:
        raise InputError(Problem("-o", "is missing", "Say where --cases writes its table, or ask for --score"))
    if options.models is not None and not options.models.is_dir():
        raise InputError(Problem("--models", f"{options.models} is no folder", "Name a folder of config.json files"))
    lookup = Lookup(load_catalog(), options.models, options.source.parent)
    lookup.ready()
    with _opened(options.source) as file:
        header, lines = read_lines(options.source, file)
        table = table_of(header)
        answered = [(row, one_answer(table, row, terms, options.engine, lookup)) for row in rows_of(header, lines)]
    if options.output is not None:
        write_rows(options.output, header, table, answered)
        done = sum(result.sizing is not None for _, result in answered)
        typer.echo(f"{options.output}: {len(answered):,} rows of {table}, {done:,} answered")
    if options.score:
        _print_scores(score(table, answered, by))
    if options.score_into is not None:
        tables = accuracy_tables(answered, table, words or ("family", "gpu", "version"))
        _put(options.score_into, tables)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _put(path: Path, tables: str) -> None:
    """Put the tables between the marks of a Markdown file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from error
    path.write_text(with_accuracy(text, tables, str(path)), encoding="utf-8")


def _print_scores(scores: Mapping[str, Score]) -> None:
    grid = Table(*HEADER)
    for line in score_lines(scores):
        grid.add_row(*line)
    Console(highlight=False, width=200).print(grid)


def given_terms(text: str) -> frozenset[Given]:
    """``weights,available`` as terms.

    Raises
    ------
    InputError
        If a word is neither.
    """
    words = _words(text)
    unknown = [word for word in words if word not in list(Given)]
    if unknown:
        raise InputError(Problem("--given", f"{unknown[0]!r:.40} is no term", f"Choose among {', '.join(Given)}"))
    return frozenset(Given(word) for word in words)


def one_answer(table: CaseTable, row: Row, given: frozenset[Given], engine: str, lookup: Lookup) -> Answer:
    """The answer to one row; a cell that cannot be read is a reason."""
    try:
        case = read_case(table, row, given, engine)
    except InputError as error:
        return Answer(None, tuple(str(problem) for problem in error.problems))
    return answer(case, lookup)


def _opened(path: Path) -> TextIO:
    """The file; bytes that are no UTF-8 pass through unchanged."""
    try:
        return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from error


def read_lines(path: Path, file: Iterable[str]) -> tuple[list[str], list[list[str]]]:
    """Header and lines of cells.

    Raises
    ------
    InputError
        If the file is no CSV, or two of its columns have one name.
    """
    try:
        header, *lines = [cells for cells in csv.reader(file) if cells] or [[]]
    except csv.Error as error:
        raise InputError(Problem(str(path), f"is no CSV: {error}")) from error
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(Problem(str(path), f"column {twice[0]!r:.40} occurs twice", "Keep one of them", row="1"))
    return header, lines


def rows_of(header: list[str], lines: Iterable[list[str]]) -> Iterator[Row]:
    """Lines as rows; one that is short has empty cells at its end, one that is long keeps its surplus in the last."""
    for cells in lines:
        surplus = cells[len(header) - 1 :]
        whole = cells if len(cells) <= len(header) else [*cells[: len(header) - 1], ",".join(surplus)]
        yield dict(zip_longest(header, whole, fillvalue=""))


def write_rows(output: Path, header: list[str], table: CaseTable, answered: Iterable[tuple[Row, Answer]]) -> None:
    """Write the input rows with the predictions beside them."""
    added = answer_columns(table)
    with output.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*header, *added))
        for row, result in answered:
            cells = answer_cells(table, result)
            writer.writerow([*row.values(), *(cells[name] for name in added)])
