"""Logs of a plan's horizon, read once: minutes by model, the length law, and single requests where there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc

from planner.actuals.assign import models_in
from planner.actuals.minutes import Minutes, minutes_of
from planner.actuals.spans import within
from planner.actuals.store import Store
from planner.errors import InputError, Problem, Problems
from planner.plan import FleetPlan
from planner.traffic.canonical import Canonical, digest, is_canonical, read, table_files
from planner.traffic.canonical_tables import of_model
from planner.traffic.disk import usable
from planner.traffic.grid import Span
from planner.traffic.ingest import Look, ingest, log_files
from planner.traffic.order import Order
from planner.traffic.readers.columns import Alias, OptionValue, Stamps
from planner.traffic.schema import Kind, iso_utc
from planner.traffic.storage.files import identity
from planner.traffic.tables.definitions import MINUTE_US
from planner.traffic.tables.rows import Names
from planner.traffic.tables.spool import Spool


@dataclass(frozen=True, kw_only=True)
class HowToRead:
    """What is asked of all logs alike; canonical folders take none of it but ``starts_us``."""

    log_format: str = "auto"
    mapping: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[Alias, ...] = ()
    time_zone: str = "UTC"
    stamps: Stamps | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    starts_us: int | None = None
    """When a log began that counts time from its own start."""

    def of_raw_logs(self) -> list[str]:
        """Options that are given and that only raw logs take."""
        given = {
            "--format": self.log_format != "auto",
            "--map": self.mapping,
            "--alias": self.aliases,
            "--tz": self.time_zone != "UTC",
            "--stamps": self.stamps,
            "--option": self.options,
        }
        return [name for name, value in given.items() if value]


@dataclass(frozen=True)
class LogRead:
    """One log."""

    where: str
    """As it was named."""
    canonical: Canonical
    sha256: str
    span: Span
    """Of the log, on the calendar."""
    models: Mapping[str, str]
    """Model of the plan by name inside the log."""
    minutes: Mapping[str, Minutes]
    """By model of the plan, within the bounds."""
    single: bool
    """Whether it shows single requests."""


def read_logs(
    asked: Sequence[tuple[Path, str]], how: HowToRead, plan: FleetPlan, bounds: Span, store: Store
) -> tuple[LogRead, ...]:
    """Read all logs; single requests go to the store.

    Parameters
    ----------
    asked
        Path of each log, and the model that the user says it shows (empty: nothing is said).
    bounds
        The part of the horizon that counts, in whole minutes.

    Raises
    ------
    InputError
        If any cannot be read, placed in time, or assigned; with the problems of all of them.
    """
    problems = Problems()
    _refuse_twice(problems, [path for path, _ in asked])
    if all(_is_folder(path) for path, _ in asked):
        for name in how.of_raw_logs():
            problems.add(name, "does nothing for canonical folders", "Leave it out, or give the raw logs")
    found = [
        problems.attempt(lambda path=path, model=model: _read_log(path, model, how, plan, bounds, store))  # type: ignore[misc]
        for path, model in asked
    ]
    logs = tuple(log for log in found if log is not None)
    if len(logs) == len(asked) and how.starts_us is not None and all(_dated(log.canonical) for log in logs):
        problems.add("--starts", "every log has dates of its own", "Leave it out")
    problems.raise_if_any()
    return logs


def _refuse_twice(problems: Problems, paths: Sequence[Path]) -> None:
    seen: set[object] = set()
    for path in paths:
        same = identity(path) if path.exists() else str(path)
        if same in seen:
            problems.add(str(path), "the same log is given twice", "Its requests would count twice")
        seen.add(same)


def _read_log(path: Path, model: str, how: HowToRead, plan: FleetPlan, bounds: Span, store: Store) -> LogRead:
    where, single, models = str(path), False, dict[str, str]()

    def look(canonical: Canonical, names: Names, spool: Spool) -> None:
        nonlocal single, models
        single, models = True, _models(where, canonical, model, plan)
        store.add(names, spool, models, _placed(where, canonical, how, bounds))

    with usable(path):
        if _is_folder(path):
            canonical, sha256 = read(path), digest(table_files(path))
        else:
            canonical = _ingested(path, how, look)
            sha256 = canonical.manifest.files_sha256
    models = models or _models(where, canonical, model, plan)
    shift = _placed(where, canonical, how, bounds)
    window, share = canonical.manifest.window, canonical.manifest.sampling_fraction
    minutes: dict[str, Minutes] = {}
    for name, own in models.items():
        more = minutes_of(of_model(canonical.rates, name), bounds, shift, share)
        minutes[own] = minutes[own] + more if own in minutes else more
    span = Span(window.start_us + shift, window.end_us + shift)
    return LogRead(where, canonical, sha256, span, models, minutes, single)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and is_canonical(path)


def _ingested(path: Path, how: HowToRead, look: Look) -> Canonical:
    order = Order(
        files=log_files(path),
        log_format=how.log_format,
        mapping=how.mapping,
        aliases=how.aliases,
        time_zone=how.time_zone,
        stamps=how.stamps,
        options=how.options,
    )
    return ingest(order, show_progress=True, look=look)


def _models(where: str, canonical: Canonical, asked: str, plan: FleetPlan) -> dict[str, str]:
    """Names in the log, those of failed requests included, and their models of the plan."""
    names = {*canonical.manifest.models, *pc.unique(canonical.rates["model"]).to_pylist()}
    return models_in(where, names, asked, plan)


def _dated(canonical: Canonical) -> bool:
    return canonical.manifest.time_base == "UTC"


def _placed(where: str, canonical: Canonical, how: HowToRead, bounds: Span) -> int:
    """What is added to the log's times to place it on the calendar.

    Raises
    ------
    InputError
        If it has no dates and none is given, or lies wholly outside the bounds.
    """
    window, shift = canonical.manifest.window, 0
    if not _dated(canonical):
        if how.starts_us is None:
            what = "counts time from its own start: it has no dates"
            raise InputError(Problem(where, what, "Say when it began with --starts TIME (UTC)"))
        shift = how.starts_us
    span = Span(window.start_us + shift, window.end_us + shift)
    if not within(span, bounds).seconds:
        what = f"lies outside the plan's horizon: {iso_utc(span.start_us)} to {iso_utc(span.end_us)}"
        fix = f"Give logs from {iso_utc(bounds.start_us)} to {iso_utc(bounds.end_us)}, or the plan of that time"
        raise InputError(Problem(where, what, fix))
    return shift


def remarks_of(log: LogRead) -> list[str]:
    """What must be known of the log itself: names that the plan does not have, filters, and its own remarks."""
    manifest = log.canonical.manifest
    strange = sorted({*manifest.models} - {*log.models})
    said = [f"requests of '{name}' ({manifest.models[name]:,}) are of no model of the plan" for name in strange]
    found = [*said, *manifest.filters_applied, *manifest.remarks]
    if manifest.kind is not Kind.REQUESTS:
        found.append(f"it shows {'histograms' if manifest.kind is Kind.MARGINALS else 'totals'}, no single requests")
    return [f"{log.where}: {remark}" for remark in found]


def whole_minute(where: str, moment_us: int | None) -> int | None:
    """A moment that must be a whole minute, since traffic is counted by the minute.

    Raises
    ------
    InputError
        If it is none.
    """
    if moment_us is not None and moment_us % MINUTE_US:
        raise InputError(Problem(where, "is no whole minute", "Leave the seconds out"))
    return moment_us
