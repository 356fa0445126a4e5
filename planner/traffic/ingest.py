"""Raw logs in, canonical distribution out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from planner.errors import InputError, PlannerError, Problem, Problems
from planner.traffic import inputs
from planner.traffic.aggregated import check_format, find_aggregated, ingest_aggregated
from planner.traffic.buckets import PER_OCTAVE
from planner.traffic.canonical import Canonical, digest
from planner.traffic.disk import unchanged, usable
from planner.traffic.dropped import describe, first_dropped
from planner.traffic.engine import connect
from planner.traffic.measure import Read, Tally, lengths, read_in_order, read_rows, span_us
from planner.traffic.order import Order, order_problems, refuse_twice
from planner.traffic.prefix import measure_reuse, prefix_table
from planner.traffic.privacy import check_allowed, check_models, columns_read, safe_name
from planner.traffic.progress import progress_bar
from planner.traffic.readers import find_reader
from planner.traffic.readers.aliases import alias_map, check_dates
from planner.traffic.readers.base import Opened, Reader
from planner.traffic.readers.head import Head, read_head
from planner.traffic.readers.servegen import TRACE_NAME, lengths_path
from planner.traffic.remarks import clock_changes, remarks, stamp_meaning, unmapped_model
from planner.traffic.rules import TREATMENTS, Rule
from planner.traffic.sampling import stated_fraction
from planner.traffic.scan import Scan
from planner.traffic.schema import Counts, Manifest
from planner.traffic.storage.files import LogFile
from planner.traffic.tables.definitions import Window
from planner.traffic.tables.prompt_counts import prompt_burst_table
from planner.traffic.tables.rates import rates
from planner.traffic.tables.rows import Names
from planner.traffic.tables.spool import Spool

__all__ = ["Look", "Order", "ingest", "log_files"]

METRIC_ENDINGS = (".prom", ".prom.gz", ".json", ".json.gz")
"""Metrics and usage reports, looked for in a folder without logs: beside logs such files are something else."""
SHORTEST_WINDOW_US = 60 * 1_000_000
"""A log of a few rows is taken to observe at least a minute."""
LONGEST_WINDOW_US = 3 * 366 * 86_400 * 1_000_000
Look = Callable[[Canonical, Names, Spool], None]
"""A further look at the judged rows of a log of requests."""


def log_files(given: str | Path) -> tuple[LogFile, ...]:
    """See `planner.traffic.inputs.log_files`; a folder without logs may hold exports of metrics."""
    return inputs.log_files(given, METRIC_ENDINGS)


def ingest(order: Order, *, show_progress: bool = False, look: Look | None = None) -> Canonical:
    """Read the logs into a canonical distribution.

    Parameters
    ----------
    look
        Called once at the end, while the judged rows are still there; never for a source without single requests.

    Raises
    ------
    InputError
        If a file cannot be read or changes meanwhile, the format is unknown, or no row remains; says how many rows
        each rule dropped.
    """
    try:
        with usable(order.files[0] if order.files else Path()), unchanged(order.files):
            return _ingest(order, show_progress, look)
    except duckdb.Error as error:
        message = f"the aggregation broke off: {str(error).splitlines()[0][:200]}"
        raise PlannerError(f"{message}. Check the free disk space of the temporary folder (TMPDIR)") from None


def _ingest(order: Order, show_progress: bool, look: Look | None) -> Canonical:
    check_format(order.log_format)
    source = find_aggregated(order)
    if source is not None:
        return ingest_aggregated(source, order)
    with _reading(order, show_progress) as log:
        canonical = _canonical(order, log)
        if look is not None:
            look(canonical, log.read.names, log.spool)
        return canonical


@dataclass(frozen=True)
class _ReadLog:
    """A log of requests whose rows have been read, judged and spooled; usable while `_reading` is open."""

    reader: Reader
    opened: Opened
    counts: Counts
    fraction: float
    """Share of the requests that it holds."""
    read: Read
    spool: Spool
    taken: list[str]
    """Columns that were read."""


@contextmanager
def _reading(order: Order, show_progress: bool) -> Iterator[_ReadLog]:
    heads = _heads(order.files)
    reader = find_reader(order.log_format, heads, mapped=bool(order.mapping))
    problems = order_problems(order, reader.name, reader.options)
    problems.raise_if_any()
    wanted = order.wanted()
    with connect(order.time_zone, order.files) as connection:
        opened = reader.open(connection, heads, wanted)
        check_dates(str(order.files[0]), wanted, relative=opened.relative_time)
        check_allowed(connection, opened.tables)
        fraction = stated_fraction(connection, opened.tables, order.sampling_fraction)
        with_ids = any(table.columns.request_id or table.columns.logical_id for table in opened.tables)
        progress = progress_bar(opened.tables, "reading logs", wanted=show_progress)
        with Spool(with_ids=with_ids) as spool, progress as watch:
            scan = Scan(connection, opened, wanted, Names(), watch)
            read = read_rows(connection, scan, spool, with_ids=with_ids)
            counts = _counts(connection, scan, read.tally)
            if not counts.kept:
                raise InputError(_nothing_left(order, reader, counts))
            yield _ReadLog(reader, opened, counts, fraction, read, spool, columns_read(connection, opened.tables))


def _heads(files: Sequence[LogFile]) -> tuple[Head, ...]:
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
    refuse_twice(problems, files)
    problems.raise_if_any()
    return tuple(heads)


def _counts(connection: duckdb.DuckDBPyConnection, scan: Scan, tally: Tally) -> Counts:
    kept, dropped = tally.kept, tally.dropped()
    dropped[Rule.MALFORMED] += scan.malformed
    offered = kept + sum(n for rule, n in dropped.items() if TREATMENTS[rule].offered)
    return Counts(
        rows_read=kept + sum(dropped.values()),
        kept=kept,
        offered=offered,
        dropped_by_reason={rule.value: n for rule, n in dropped.items() if n},
        dropped_rows=(
            first_dropped(connection, scan.opened.tables, scan.wanted, dropped) if any(dropped.values()) else {}
        ),
        adjusted_by_reason=tally.adjusted(),
    )


def _nothing_left(order: Order, reader: Reader, counts: Counts) -> list[Problem]:
    where = ", ".join(str(path) for path in order.files[:5])
    if not counts.rows_read:
        return [Problem(where, f"no row was found (read as {reader.name})", "Give a log with at least one request")]
    return [
        Problem(
            where,
            f"no row remains: {n:,} of {counts.rows_read:,} dropped as '{reason}'{_first(counts, reason)}",
            _advice(Rule(reason), reader),
        )
        for reason, n in counts.dropped_by_reason.items()
    ]


def _first(counts: Counts, reason: str) -> str:
    shown = [describe(row) for row in counts.dropped_rows.get(reason, ())]
    return f" ({'; '.join(shown)})" if shown else ""


def _advice(rule: Rule, reader: Reader) -> str:
    """The rule, and what to do where the log rather than its requests is to blame."""
    why = f"Rule: {TREATMENTS[rule].why}"
    if rule is Rule.BAD_TIMESTAMP and "time" in reader.options:
        return f"{why}. Say how it is written, as in --option 'time=%d/%m/%Y %H:%M:%S', or write ISO 8601"
    if rule is Rule.NOT_WHOLE_TOKENS:
        return f"{why}. Write counts in digits alone, without thousands separators, units or decimals"
    return why


def _canonical(order: Order, log: _ReadLog) -> Canonical:
    opened, read, spool = log.opened, log.read, log.spool
    span = opened.window_us or span_us(spool, order.since_us, order.until_us)
    if span[1] - span[0] > LONGEST_WINDOW_US:
        days = (span[1] - span[0]) / 86_400e6
        raise InputError(
            Problem(str(order.files[0]), f"the time stamps span {days:,.0f} days", "Remove rows with a wrong date")
        )
    minutes = read.laws.minutes.minutes(read.names)
    # Those of failed requests too: their arrivals are written under the name that was asked for.
    check_models(read.names.models[place] for place in sorted(set(minutes.group.tolist())))
    clock = read_in_order(spool, read.names, span)
    end_us = span[1] if opened.window_us else max(span[1] + clock.resolution_us, span[0] + SHORTEST_WINDOW_US)
    window = Window(span[0], end_us, clock.resolution_us, clock.exact_ticks)
    reuse = measure_reuse(opened, order.wanted())
    cells = lengths(read, minutes, spool)
    manifest = _manifest(order, log, window, sorted({*log.taken, *reuse.columns}))
    return Canonical(
        manifest=manifest.model_copy(update={"remarks": [*manifest.remarks, *reuse.remarks]}),
        lengths=cells,
        tail=read.laws.tail.table(read.names),
        rates=rates(minutes, read.names),
        burst=clock.bursts.table(window),
        prefix=prefix_table(read.laws.cached, read.names, reuse),
        prompt_burst=prompt_burst_table(spool, read.names, window, cells) if order.prompt_bursts else None,
    )


def _manifest(order: Order, log: _ReadLog, window: Window, taken: list[str]) -> Manifest:
    """Everything a reader of the tables must know; no clock and no folder name, so the bytes repeat."""
    reader, opened, counts, fraction, read = log.reader, log.opened, log.counts, log.fraction, log.read
    meaning = stamp_meaning(opened.tables, order.wanted())
    companions = [lengths_path(path) for path in order.files if reader.name == "servegen"]
    digested = {*order.files, *(path for path in companions if path is not None)}
    return Manifest(
        source=reader.source,
        files=sorted(safe_name(path.name) for path in digested),
        files_sha256=digest(sorted(digested, key=str)),
        models=read.tally.models(read.names),
        window_start_us=window.start_us,
        window_end_us=window.end_us,
        time_base="start of the log" if opened.relative_time else "UTC",
        tz_of_source="none" if opened.relative_time else order.time_zone,
        filters_applied=[*order.filters(), *opened.filters],
        ts_resolution_ms=window.resolution_us / 1000,
        ts_meaning=meaning,
        sampling_fraction=fraction,
        counts=counts,
        caps=read.laws.caps(read.names, read.tally.models(read.names)),
        alias_map=alias_map(order.aliases),
        alias_map_version=order.alias_version,
        columns_read=taken,
        remarks=[
            *unmapped_model(opened.tables, order.wanted()),
            *remarks(counts, meaning, window.resolution_us, fraction),
            *([] if opened.relative_time else clock_changes(order.time_zone, window.start_us, window.end_us)),
        ],
        bucket_scheme={"base": 2, "per_octave": PER_OCTAVE},
    )
