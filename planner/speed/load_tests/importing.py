"""From files of load tests to points: read, judged, named, each run once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.catalog.lookup.lookup import Lookup
from planner.errors import InputError, Problem, Problems
from planner.speed.load_tests.checks import Steady, judged
from planner.speed.load_tests.collect import merged
from planner.speed.load_tests.formats import NAMES, format_of
from planner.speed.load_tests.identity import Given, Identities, check_given
from planner.speed.load_tests.types import Findings, Format, Record, Rejected, Run
from planner.speed.points import Load

SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".prom", ".txt"})
"""Files of a folder that are looked at."""
REPEATS = "runs listed again in the same folder"
OTHER = "files that are no load test"


@dataclass(frozen=True)
class Imported:
    """What came of the files.

    Attributes
    ----------
    steady
        The run behind each record.
    skipped
        Files and runs that are no measurement by design, by what they are.
    notes
        Which names were read as another's.
    """

    records: tuple[Record, ...]
    steady: tuple[Steady, ...]
    rejected: tuple[Rejected, ...]
    skipped: dict[str, int]
    notes: tuple[str, ...] = ()


def import_points(
    paths: Sequence[Path], given: Given, lookup: Lookup, tool: Format | None = None, *, keep_speculative: bool = True
) -> Imported:
    """The points of files and folders, in the order given; a folder's in the order of their names.

    Parameters
    ----------
    tool
        The format of every file; ``None``: told by the content.
    keep_speculative
        Whether runs with speculative decoding give points (their ``acceptance`` says so) or are rejected.

    Raises
    ------
    InputError
        Listing every file that cannot be read, every name that is not known, everything that is missing and every
        contradiction.
    """
    problems = Problems()
    check_given(given, problems)
    found = merged(_findings(paths, tool, problems))
    problems.raise_if_any()
    runs, repeated = _once(found.runs)
    verdicts = [judged(run, keep_speculative) for run in _told(runs, given)]
    steady = [verdict for verdict in verdicts if isinstance(verdict, Steady)]
    identities = Identities(given, lookup, problems)
    records = [record for one in steady if (record := _record(one, identities)) is not None]
    identities.say_missing()
    _grouped(problems).raise_if_any()
    rejected = [verdict for verdict in verdicts if isinstance(verdict, Rejected)]
    everything = (*found.rejected, *rejected, *repeated)
    return Imported(tuple(records), tuple(steady), everything, dict(found.skipped), (*identities.notes,))


def _findings(paths: Sequence[Path], tool: Format | None, problems: Problems) -> Iterator[Findings]:
    for path in paths:
        if path.is_dir():
            yield _without_repeats(merged(_of_folder(path, tool)))
            continue
        read = problems.attempt(lambda path=path: _read(path, tool))  # type: ignore[misc]
        if read is not None:
            yield read


def _read(path: Path, tool: Format | None) -> Findings:
    """One file that was named: it has to be a load test.

    Raises
    ------
    InputError
        If it cannot be read, or its format is not known.
    """
    kind = tool or format_of(path)
    if kind is None:
        fix = f"Name its tool with --format ({', '.join(NAMES[1:])}) if it is one of these"
        raise InputError(Problem(str(path), "is no result of a load test that is known", fix))
    return kind.read(path)


def _of_folder(folder: Path, tool: Format | None) -> Iterator[Findings]:
    """Every load test below a folder; what cannot be read is rejected, what is something else is counted."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        try:
            kind = format_of(path) if path.suffix.lower() in SUFFIXES else None
            wanted = kind is not None and tool in (None, kind)
            yield kind.read(path) if wanted and kind is not None else Findings(skipped={OTHER: 1})
        except InputError as error:
            yield Findings(rejected=tuple(Rejected(problem.where, problem.message) for problem in error.problems))


def _without_repeats(found: Findings) -> Findings:
    """Each run of a folder once: a sweep lists its runs again in summaries."""
    runs, repeated = _once(found.runs)
    skipped = {**found.skipped, **({REPEATS: len(repeated)} if repeated else {})}
    return Findings(tuple(runs), found.rejected, skipped)


def _grouped(problems: Problems) -> Problems:
    """The same problem of many runs said once."""
    groups: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems.found:
        groups.setdefault((problem.message, problem.fix, problem.field), []).append(problem)
    more = {key: f" (and {len(found) - 1} more)" if len(found) > 1 else "" for key, found in groups.items()}
    return Problems([replace(found[0], where=found[0].where + more[key]) for key, found in groups.items()])


def _once(runs: Iterable[Run]) -> tuple[list[Run], list[Rejected]]:
    """Each run once: files are given twice, and sweeps list their runs again."""
    first: dict[str, Run] = {}
    repeated = []
    for run in runs:
        known = first.setdefault(run.digest, run)
        if known is not run:
            repeated.append(Rejected(run.place, f"is the same run as {known.place}"))
    return list(first.values()), repeated


def _told(runs: Iterable[Run], given: Given) -> Iterator[Run]:
    """With the acceptance that the user gives, a run whose file names speculative decoding can be judged."""
    for run in runs:
        told = run.acceptance is None and given.acceptance is not None
        yield replace(run, acceptance=given.acceptance) if told else run


def _record(one: Steady, identities: Identities) -> Record | None:
    served = identities.served(one.run)
    run = one.run
    cached, acceptance = identities.share(run, "cached_share"), identities.share(run, "acceptance")
    if served is None:
        return None
    assert run.input_tokens is not None
    assert run.output_tokens is not None
    load = Load(
        one.kind, run.input_tokens, run.output_tokens, one.concurrency, one.rate_per_s, cached or 0.0, acceptance or 1.0
    )
    return Record(
        id=f"{run.tool}-{run.digest}",
        served=served,
        load=load,
        concurrency_from=one.concurrency_from,
        cached_share=cached,
        acceptance=acceptance,
        output_tok_s=run.output_tok_s,
        total_tok_s=run.total_tok_s,
        ttft=run.ttft,
        tpot=run.tpot,
        measured_on=run.measured_on,
        source=run.place,
    )
