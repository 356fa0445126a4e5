"""``planner size --cases``: a table of cases in, the same rows with predictions out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.cli.case_table import AnswerWriter, read_lines, rows_of
from planner.cli.files import is_stream, replacing
from planner.errors import InputError, Problem, Problems
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
    words = _words(options.score_by)
    problems = Problems()
    terms = problems.attempt(lambda: given_terms(options.given))
    by = problems.attempt(lambda: grouping(words))
    _check_paths(options, problems)
    read = problems.attempt(lambda: read_lines(options.source))
    table = problems.attempt(lambda: table_of(read[0]), str(options.source)) if read is not None else None
    if table in (CaseTable.VLLM, CaseTable.WEIGHTS) and options.engine == "sglang":
        problems.add("--engine", f"sglang is not what the rows of {table} are about", "Leave it out")
    problems.raise_if_any()
    assert terms is not None
    assert by is not None
    assert read is not None
    assert table is not None
    lookup = Lookup(load_catalog(), options.models, options.source.parent)
    lookup.ready()
    answered = _answered(options, table, read, terms, lookup)
    if options.score:
        _print_scores(score(table, answered, by))
    if options.score_into is not None:
        _put(options.score_into, accuracy_tables(answered, table, words or ("family", "gpu", "version")))


def _check_paths(options: CaseOptions, problems: Problems) -> None:
    """Whether there is somewhere to write, and the folder of models."""
    scored = options.score or options.score_into is not None
    if options.output is None and not scored:
        problems.add("-o", "is missing", "Say where --cases writes its table, or ask for --score")
    if options.score_by and not scored:
        problems.add("--score-by", "needs --score or --score-into", "Add one of them")
    if options.output is not None and _same_file(options.output, options.source):
        problems.add("-o", f"{options.output} is the table that --cases reads", "Write to another file")
    if options.models is not None and not options.models.is_dir():
        problems.add("--models", f"{options.models} is no folder", "Name a folder of config.json files")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _answered(
    options: CaseOptions,
    table: CaseTable,
    read: tuple[list[str], list[list[str]]],
    terms: frozenset[Given],
    lookup: Lookup,
) -> list[tuple[Row, Answer]]:
    """Answer row by row and write each at once; the answers themselves are kept only for a score."""
    header, lines = read
    kept: list[tuple[Row, Answer]] = []
    done = 0
    with contextlib.ExitStack() as stack:
        output = options.output
        writer = AnswerWriter(stack.enter_context(replacing(output)), header, table) if output is not None else None
        advance = stack.enter_context(_progress(len(lines)))
        for row in rows_of(header, lines):
            result = one_answer(table, row, terms, options.engine, lookup)
            done += result.sizing is not None
            if writer is not None:
                writer.write(row, result)
            if options.score or options.score_into is not None:
                kept.append((row, result))
            advance()
    if output is not None:
        typer.echo(f"{output}: {len(lines):,} rows of {table}, {done:,} answered", err=is_stream(output))
    return kept


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error where that is a terminal."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("rows", total=total)
        yield lambda: bar.advance(task)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _put(path: Path, tables: str) -> None:
    """Put the tables between the marks of a Markdown file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from error
    with replacing(path) as file:
        file.write(with_accuracy(text, tables, str(path)))


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
