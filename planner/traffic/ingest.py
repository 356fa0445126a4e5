"""Raw logs in, canonical distribution out."""

from __future__ import annotations

import difflib
import os
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from planner.errors import InputError, PlannerError, Problem, Problems
from planner.traffic import inputs
from planner.traffic.aggregated import check_format, find_aggregated, ingest_aggregated
from planner.traffic.buckets import PER_OCTAVE
from planner.traffic.canonical import Canonical, digest
from planner.traffic.disk import usable
from planner.traffic.dropped import describe, first_dropped
from planner.traffic.engine import connect
from planner.traffic.law import STATED_IDC
from planner.traffic.measure import Read, Tally, lengths, read_in_order, read_rows, span_us
from planner.traffic.prefix import measure_reuse, prefix_table
from planner.traffic.privacy import check_allowed, check_models, columns_read, safe_name
from planner.traffic.progress import progress_bar
from planner.traffic.readers import find_reader
from planner.traffic.readers.aliases import alias_map, check_dates
from planner.traffic.readers.base import Opened, Reader
from planner.traffic.readers.columns import Alias, OptionValue, Stamps, Wanted
from planner.traffic.readers.head import Head, read_head
from planner.traffic.readers.servegen import TRACE_NAME, lengths_path
from planner.traffic.remarks import clock_changes, remarks, stamp_meaning
from planner.traffic.rules import TREATMENTS, Rule
from planner.traffic.sampling import stated_fraction
from planner.traffic.scan import Scan
from planner.traffic.schema import Counts, Manifest, iso_utc
from planner.traffic.tables.definitions import Window
from planner.traffic.tables.rates import rates
from planner.traffic.tables.rows import Names
from planner.traffic.tables.spool import Spool

METRIC_ENDINGS = (".prom", ".prom.gz", ".json", ".json.gz")
"""Metrics and usage reports, looked for in a folder without logs: beside logs such files are something else."""
SHORTEST_WINDOW_US = 60 * 1_000_000
"""A log of a few rows is taken to observe at least a minute."""
LONGEST_WINDOW_US = 3 * 366 * 86_400 * 1_000_000


@dataclass(frozen=True)
class Order:
    """What to ingest and how."""

    files: tuple[Path, ...]
    log_format: str = "auto"
    model: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[Alias, ...] = ()
    alias_version: str | None = None
    """Of the file that the aliases come from."""
    time_zone: str = "UTC"
    """Zone of naive time stamps."""
    stamps: Stamps | None = None
    """What time stamps say, where the user knows better than the format."""
    since_us: int | None = None
    """Keep arrivals from here on: microseconds since 1970."""
    until_us: int | None = None
    """Keep arrivals before this."""
    sampling_fraction: float | None = None
    """Share of the requests that the log holds, where no column says so."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)


def log_files(path: Path) -> tuple[Path, ...]:
    """See `planner.traffic.inputs.log_files`; a folder without logs may hold exports of metrics."""
    return inputs.log_files(path, METRIC_ENDINGS)


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
    check_format(order.log_format)
    source = find_aggregated(order)
    if source is not None:
        return ingest_aggregated(source, order)
    heads = _heads(order.files)
    reader = find_reader(order.log_format, heads, mapped=bool(order.mapping))
    _check(order, reader)
    wanted = _wanted(order)
    with connect(order.time_zone) as connection:
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
            check_models(read.tally.models(read.names))
            taken = columns_read(connection, opened.tables)
            return _canonical(order, reader, opened, counts, fraction, read, spool, taken)


def _wanted(order: Order) -> Wanted:
    return Wanted(
        model=order.model,
        mapping=order.mapping,
        aliases=order.aliases,
        options=order.options,
        time_zone=order.time_zone,
        stamps=order.stamps,
        since_us=order.since_us,
        until_us=order.until_us,
    )


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
            _advice(reason),
        )
        for reason, n in counts.dropped_by_reason.items()
    ]


def _first(counts: Counts, reason: str) -> str:
    shown = [describe(row) for row in counts.dropped_rows.get(reason, ())]
    return f" ({'; '.join(shown)})" if shown else ""


def _advice(reason: str) -> str:
    return f"Rule: {TREATMENTS[Rule(reason)].why}"


def _canonical(
    order: Order,
    reader: Reader,
    opened: Opened,
    counts: Counts,
    fraction: float,
    read: Read,
    spool: Spool,
    taken: list[str],
) -> Canonical:
    span = opened.window_us or span_us(spool, order.since_us, order.until_us)
    if span[1] - span[0] > LONGEST_WINDOW_US:
        days = (span[1] - span[0]) / 86_400e6
        raise InputError(
            Problem(str(order.files[0]), f"the time stamps span {days:,.0f} days", "Remove rows with a wrong date")
        )
    minutes = read.laws.minutes.minutes(read.names)
    clock = read_in_order(spool, read.names, span)
    end_us = span[1] if opened.window_us else max(span[1] + clock.resolution_us, span[0] + SHORTEST_WINDOW_US)
    window = Window(span[0], end_us, clock.resolution_us, clock.exact_ticks)
    reuse = measure_reuse(opened, _wanted(order))
    manifest = _manifest(order, reader, opened, counts, window, fraction, read, sorted({*taken, *reuse.columns}))
    return Canonical(
        manifest=manifest.model_copy(update={"remarks": [*manifest.remarks, *reuse.remarks]}),
        lengths=lengths(read, minutes, spool),
        tail=read.laws.tail.table(read.names),
        rates=rates(minutes, read.names),
        burst=clock.bursts.table(window),
        prefix=prefix_table(read.laws.cached, read.names, reuse),
    )


def _filters(order: Order) -> list[str]:
    return [
        *([f"model = {order.model}"] if order.model else []),
        *([f"from {iso_utc(order.since_us)} on"] if order.since_us is not None else []),
        *([f"before {iso_utc(order.until_us)}"] if order.until_us is not None else []),
    ]


def _manifest(
    order: Order,
    reader: Reader,
    opened: Opened,
    counts: Counts,
    window: Window,
    fraction: float,
    read: Read,
    taken: list[str],
) -> Manifest:
    """Everything a reader of the tables must know; no clock and no folder name, so the bytes repeat."""
    meaning = stamp_meaning(opened.tables, _wanted(order))
    companions = [lengths_path(path) for path in order.files if reader.name == "servegen"]
    digested = {*order.files, *(path for path in companions if path is not None)}
    return Manifest(
        source=reader.source,
        files=sorted(safe_name(path.name) for path in digested),
        files_sha256=digest(sorted(digested)),
        models=read.tally.models(read.names),
        window_start_us=window.start_us,
        window_end_us=window.end_us,
        time_base="start of the log" if opened.relative_time else "UTC",
        tz_of_source="none" if opened.relative_time else order.time_zone,
        filters_applied=[*_filters(order), *opened.filters],
        ts_resolution_ms=window.resolution_us / 1000,
        ts_meaning=meaning,
        sampling_fraction=fraction,
        counts=counts,
        caps=read.laws.caps(read.names, read.tally.models(read.names)),
        alias_map=alias_map(order.aliases),
        alias_map_version=order.alias_version,
        columns_read=taken,
        remarks=[
            *remarks(counts, meaning, window.resolution_us, fraction),
            *([] if opened.relative_time else clock_changes(order.time_zone, window.start_us, window.end_us)),
        ],
        bucket_scheme={"base": 2, "per_octave": PER_OCTAVE},
    )
