"""Raw logs in, canonical distribution out: stage every row with its verdict, then aggregate."""

from __future__ import annotations

import difflib
import os
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from planner.errors import InputError, PlannerError, Problem, Problems
from planner.traffic import aggregate
from planner.traffic.buckets import PER_OCTAVE
from planner.traffic.canonical import Canonical, digest, is_canonical, is_canonical_file
from planner.traffic.disk import usable
from planner.traffic.dropped import describe, first_dropped
from planner.traffic.engine import connect, progress_bar
from planner.traffic.law import STATED_IDC
from planner.traffic.readers import find_reader
from planner.traffic.readers.base import Opened, Reader
from planner.traffic.readers.columns import OptionValue, Wanted
from planner.traffic.readers.head import Head, check_gzip, read_head
from planner.traffic.readers.relation import reason, rejected_lines
from planner.traffic.readers.servegen import TRACE_NAME, lengths_path
from planner.traffic.rules import TREATMENTS, Rule
from planner.traffic.schema import Counts, Manifest

LOG_ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz")
SHORTEST_WINDOW_US = 60 * 1_000_000
"""A log of a few rows is taken to observe at least a minute."""
USE_CANONICAL = "give it as the path of model.traffic in the request"
LONGEST_WINDOW_US = 3 * 366 * 86_400 * 1_000_000


@dataclass(frozen=True)
class Order:
    """What to ingest and how."""

    files: tuple[Path, ...]
    log_format: str = "auto"
    model: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    time_zone: str = "UTC"
    """Zone of naive time stamps."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)


def log_files(path: Path) -> tuple[Path, ...]:
    """The log files of a folder, by name; a file stands for itself.

    Raises
    ------
    InputError
        If the folder cannot be read or holds no log file, or the path is of a canonical folder.
    """
    with usable(path):
        if not path.is_dir():
            if is_canonical_file(path):
                what = f"is part of a canonical folder, {path.parent}, which is already a distribution"
                raise InputError(Problem(str(path), what, f"Use the folder as it is: {USE_CANONICAL}"))
            return (path,)
        files = tuple(sorted(p for p in path.iterdir() if p.name.endswith(LOG_ENDINGS) and p.name[0] != "."))
        if not files and is_canonical(path):
            fix = f"Use it as it is: {USE_CANONICAL}"
            raise InputError(Problem(str(path), "is already a canonical folder", fix))
    if not files:
        fix = f"Log files end in {', '.join(LOG_ENDINGS)}; a canonical folder holds manifest.json"
        raise InputError(Problem(str(path), "the folder holds no log file", fix))
    return files


def ingest(order: Order, *, show_progress: bool = False) -> Canonical:
    """Read the logs into a canonical distribution.

    Raises
    ------
    InputError
        If a file cannot be read, the format is unknown, or no row remains; says how many rows each rule dropped.
    """
    try:
        with usable(order.files[0] if order.files else Path()):
            return _ingest(order, show_progress)
    except duckdb.Error as error:
        message = f"the aggregation broke off: {str(error).splitlines()[0][:200]}"
        raise PlannerError(f"{message}. Check the free disk space of the temporary folder (TMPDIR)") from None


def _ingest(order: Order, show_progress: bool) -> Canonical:
    heads = _heads(order.files)
    reader = find_reader(order.log_format, heads, mapped=bool(order.mapping))
    _check(order, reader)
    wanted = Wanted(order.model, order.mapping, order.aliases, order.options)
    with connect(order.time_zone) as connection, progress_bar(connection, "reading logs", wanted=show_progress):
        opened = reader.open(connection, heads, wanted)
        malformed = stage(connection, opened)
        aggregate.mark_duplicates(connection)
        counts = _counts(connection, opened, wanted, malformed)
        if not counts.kept:
            raise InputError(_nothing_left(order, reader, counts))
        return _aggregate(connection, order, reader, opened, counts)


def _heads(files: Sequence[Path]) -> tuple[Head, ...]:
    """Heads of all files; the second file of a ServeGen client belongs to the first and has no head of its own."""
    problems = Problems()
    heads = []
    companions = {lengths_path(path) for path in files if TRACE_NAME.match(path.name)}
    for path in files:
        if path in companions:
            continue
        try:
            heads.append(read_head(path))
        except InputError as error:
            problems.found.extend(error.problems)
    if not files:
        problems.add("FILE", "no log file is given")
    if len({os.path.realpath(p) for p in files}) < len(files):
        problems.add("FILE", "the same file is given twice", "Its requests would count twice")
    problems.raise_if_any()
    return tuple(heads)


def _check(order: Order, reader: Reader) -> None:
    problems = Problems()
    for name in order.options:
        if name == "idc":
            problems.add("option idc", "is stated where a plan is made, not stored", f"In the request: {STATED_IDC}")
        elif name not in reader.options:
            close = difflib.get_close_matches(name, reader.options, n=1)
            known = f"{reader.name} logs know: {', '.join(reader.options) or 'no options'}"
            problems.add(f"option {name}", "is not known", f"Did you mean '{close[0]}'?" if close else known)
    if order.mapping and reader.name != "plain":
        problems.add("--map", f"cannot be used with --format {reader.name}", "Use --format plain")
    try:
        zoneinfo.ZoneInfo(order.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        problems.add("--tz", f"'{order.time_zone}' is not a time zone", "Use a name such as UTC or Europe/Berlin")
    problems.raise_if_any()


def stage(connection: duckdb.DuckDBPyConnection, opened: Opened) -> int:
    """Put every judged row into ``staged``; returns the number of lines that never became a row.

    Raises
    ------
    InputError
        If a file breaks off.
    """
    malformed = 0
    for place, select in enumerate(opened.selects):
        table = opened.tables[place] if opened.tables else None
        if table is not None:
            check_gzip(table.head)
        try:
            connection.execute("DROP TABLE IF EXISTS reject_errors")
            connection.execute("DROP TABLE IF EXISTS reject_scans")
            connection.execute(f"INSERT INTO staged {select}")
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            where = str(table.head.path) if table else "the drawn requests"
            raise InputError(Problem(where, reason(error), "Export or copy the file again")) from None
        if table is not None and table.head.is_csv:
            malformed += rejected_lines(connection)
    return malformed


def _counts(connection: duckdb.DuckDBPyConnection, opened: Opened, wanted: Wanted, malformed: int) -> Counts:
    found = aggregate.count_verdicts(connection)
    kept = found.pop(None, 0)
    dropped = {rule: found.get(rule, 0) for rule in Rule}
    dropped[Rule.MALFORMED] += malformed
    offered = kept + sum(n for rule, n in dropped.items() if TREATMENTS[rule].offered)
    return Counts(
        rows_read=kept + sum(dropped.values()),
        kept=kept,
        offered=offered,
        dropped_by_reason={rule.value: n for rule, n in dropped.items() if n},
        dropped_rows=first_dropped(connection, opened.tables, wanted, dropped) if any(dropped.values()) else {},
    )


def _nothing_left(order: Order, reader: Reader, counts: Counts) -> list[Problem]:
    where = ", ".join(str(path) for path in order.files[:5])
    if not counts.rows_read:
        return [Problem(where, f"no row was found (read as {reader.name})", "Give a log with at least one request")]
    return [
        Problem(
            where,
            f"no row remains: {n:,} of {counts.rows_read:,} dropped as '{reason}'{_first(counts, reason)}",
            _advice(reason),
        )
        for reason, n in counts.dropped_by_reason.items()
    ]


def _first(counts: Counts, reason: str) -> str:
    shown = [describe(row) for row in counts.dropped_rows.get(reason, ())]
    return f" ({'; '.join(shown)})" if shown else ""


def _advice(reason: str) -> str:
    return f"Rule: {TREATMENTS[Rule(reason)].why}"


def _aggregate(
    connection: duckdb.DuckDBPyConnection, order: Order, reader: Reader, opened: Opened, counts: Counts
) -> Canonical:
    start_us, last_us = opened.window_us or aggregate.span_us(connection)
    if last_us - start_us > LONGEST_WINDOW_US:
        days = (last_us - start_us) / 86_400e6
        raise InputError(
            Problem(str(order.files[0]), f"the time stamps span {days:,.0f} days", "Remove rows with a wrong date")
        )
    aggregate.count_seconds(connection, start_us)
    resolution_us, exact = aggregate.resolution(connection, start_us)
    end_us = last_us if opened.window_us else max(last_us + resolution_us, start_us + SHORTEST_WINDOW_US)
    window = aggregate.Window(start_us, end_us, resolution_us, exact)
    rates = aggregate.rates(connection)
    return Canonical(
        manifest=_manifest(connection, order, reader, opened, counts, window),
        lengths=aggregate.lengths(connection),
        tail=aggregate.tail(connection),
        rates=rates,
        burst=aggregate.bursts(connection, window),
    )


def _manifest(
    connection: duckdb.DuckDBPyConnection,
    order: Order,
    reader: Reader,
    opened: Opened,
    counts: Counts,
    window: aggregate.Window,
) -> Manifest:
    """Everything a reader of the tables must know; no clock and no folder name, so the bytes repeat."""
    companions = [lengths_path(path) for path in order.files if reader.name == "servegen"]
    digested = {*order.files, *(path for path in companions if path is not None)}
    return Manifest(
        source=reader.source,
        files=sorted(path.name for path in digested),
        files_sha256=digest(sorted(digested)),
        models=aggregate.kept_models(connection),
        window_start_us=window.start_us,
        window_end_us=window.end_us,
        time_base="start of the log" if opened.relative_time else "UTC",
        tz_of_source="none" if opened.relative_time else order.time_zone,
        filters_applied=[*([f"model = {order.model}"] if order.model else []), *opened.filters],
        ts_resolution_ms=window.resolution_us / 1000,
        counts=counts,
        caps=aggregate.caps(connection),
        alias_map=dict(sorted(order.aliases.items())),
        bucket_scheme={"base": 2, "per_octave": PER_OCTAVE},
    )
