"""`planner traffic season`: the week of each model, its peak, and representative periods with their error."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any

import holidays as calendars
import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.cli.traffic_folders import console, printable, read_folder
from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import digest, table_files
from planner.traffic.periods import Periods, periods_of
from planner.traffic.season import SLOTS, WEEK_SLOTS, Clock, Season, season_of, slot_name
from planner.traffic.source import to_traffic
from planner.traffic.times import moment_us
from planner.traffic.types import FloatArray, Traffic
from planner.traffic.week_table import write_week


def register(group: typer.Typer) -> None:
    """Add the command to ``planner traffic``."""
    group.command("season")(run)


def run(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Canonical folder.")],
    zone: Annotated[str, typer.Option("--zone", help="Whose hours make the week, such as Europe/Berlin.")] = "UTC",
    quantile: Annotated[float, typer.Option("--quantile", help="Over the weeks of the log, for each hour.")] = 0.95,
    holiday: Annotated[
        list[str] | None,
        typer.Option("--holiday", metavar="DATE", help="A day that is a class of its own; repeatable."),
    ] = None,
    holidays_of: Annotated[
        str, typer.Option("--holidays-of", metavar="COUNTRY", help="Public holidays of a country, such as DE or US.")
    ] = "",
    starts: Annotated[
        str, typer.Option("--starts", metavar="TIME", help="UTC time at which a log without dates starts.")
    ] = "",
    periods: Annotated[int, typer.Option("--periods", min=1, max=SLOTS, help="Representative periods.")] = 6,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write the hours of the week, as a request's week may name them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show the week of each model and cluster it into representative periods for planning."""
    found = _traffic(folder, starts)
    clock = Clock(zone, frozenset(_days(holiday or []) | _public_holidays(holidays_of, found)))
    seasons = _seasons(found, clock, quantile)
    clustered = cluster(seasons, periods)
    if csv is not None:
        write_week(csv, seasons)
    report = _report(folder, seasons, clustered)
    if as_json:
        typer.echo(json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False))
    else:
        _print(report, seasons)


def _traffic(folder: Path, starts: str) -> list[Traffic]:
    canonical = read_folder(folder)
    sha256 = digest(table_files(folder))
    found = [to_traffic(canonical, model=m, name=m, where=folder, sha256=sha256) for m in canonical.models()]
    shift = moment_us("--starts", starts)
    if shift is None:
        return found
    if any(traffic.calendar_time for traffic in found):
        raise InputError(Problem("--starts", f"{folder} has dates of its own", "Leave it out"))
    return [replace(t, window_start_us=t.window_start_us + shift, calendar_time=True) for t in found]


def _days(texts: list[str]) -> set[date]:
    problems, found = Problems(), set()
    for text in texts:
        try:
            found.add(date.fromisoformat(text))
        except ValueError:
            problems.add("--holiday", f"'{text}' is no date", "Write it as 2026-12-25")
    problems.raise_if_any()
    return found


def _public_holidays(country: str, found: list[Traffic]) -> set[date]:
    if not country:
        return set()
    epoch = datetime(1970, 1, 1, tzinfo=UTC).year
    ends = [t.window_start_us / 1e6 + at for t in found for at in (0.0, t.window_s)]
    years = {datetime.fromtimestamp(s, tz=UTC).year for s in ends}
    try:
        return set(calendars.country_holidays(country, years=sorted(range(max(min(years), epoch), max(years) + 1))))
    except NotImplementedError:
        what = f"no holidays are known for '{country}'"
        fix = "Use a code of ISO 3166 such as DE or US, or name the days with --holiday"
        raise InputError(Problem("--holidays-of", what, fix)) from None


def _seasons(found: list[Traffic], clock: Clock, quantile: float) -> list[Season]:
    problems = Problems()
    seasons = [problems.attempt(lambda t=t: season_of(t, clock, quantile)) for t in found]  # type: ignore[misc]
    problems.raise_if_any()
    return [season for season in seasons if season is not None]


def cluster(seasons: list[Season], count: int) -> Periods:
    """Periods of the models together, over the slots that every model's log saw.

    A slot that a log never saw whole cannot be planned from it and is left out.
    """
    seen = np.all([season.seen > 0 for season in seasons], axis=0)
    slots = np.flatnonzero(seen)
    rates = np.stack([season.peak_per_s[slots] for season in seasons], axis=1)
    found = periods_of(rates, _hours_a_week(seasons)[slots], count, cyclic=int((slots < WEEK_SLOTS).sum()))
    label = np.full(SLOTS, -1, dtype=np.int64)
    label[slots] = found.label
    return replace(found, label=label)


def _hours_a_week(seasons: list[Season]) -> FloatArray:
    """Hours a week of each slot: how often the logs saw it, 168 in all."""
    seen = np.min([season.seen for season in seasons], axis=0).astype(np.float64)
    return np.asarray(seen * WEEK_SLOTS / seen.sum())


def _report(folder: Path, seasons: list[Season], clustered: Periods) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "zone": seasons[0].clock.zone,
        "quantile": seasons[0].quantile,
        "holidays": [day.isoformat() for day in sorted(seasons[0].clock.holidays)],
        "models": {season.model: _model(season) for season in seasons},
        "periods": [
            {
                "hours_a_week": float(clustered.hours[k]),
                "planning_rate_per_s": _by_model(seasons, clustered.rate_per_s[k]),
                "mean_of_hours_per_s": _by_model(seasons, clustered.mean_per_s[k]),
                "slots": [slot_name(int(slot)) for slot in np.flatnonzero(clustered.label == k)],
            }
            for k in range(len(clustered.hours))
        ],
        "changes_a_week": clustered.changes_a_week,
        "overstatement": _by_model(seasons, clustered.overstatement),
        "flat_overstatement": _by_model(seasons, clustered.flat_overstatement),
    }


def _by_model(seasons: list[Season], values: FloatArray) -> dict[str, float]:
    return {season.model: float(value) for season, value in zip(seasons, values, strict=True)}


def _model(season: Season) -> dict[str, Any]:
    def listed(values: FloatArray) -> list[float | None]:
        return [float(value) if np.isfinite(value) else None for value in values]

    return {
        "weeks": season.weeks,
        "slots_unseen": int((season.seen[:WEEK_SLOTS] == 0).sum()),
        "busiest": slot_name(season.busiest_slot),
        "planning_rate_per_s": season.planning_rate_per_s,
        "mean_rate_per_s": float(np.nansum(season.mean_per_s * season.seen) / season.seen.sum()),
        "caution": season.caution,
        "seen_hours": season.seen.tolist(),
        "mean_per_s": listed(season.mean_per_s),
        "quantile_per_s": listed(season.quantile_per_s),
        "peak_per_s": listed(season.peak_per_s),
    }


def _print(report: dict[str, Any], seasons: list[Season]) -> None:
    screen = console()
    table = Table("model", title=f"The week ({report['zone']}, quantile {report['quantile']:g})", title_justify="left")
    for head in ("weeks", "mean, requests/s", "planning rate, requests/s", "peak over mean", "busiest"):
        table.add_column(head, justify="right")
    for name, model in report["models"].items():
        mean, peak = model["mean_rate_per_s"], model["planning_rate_per_s"]
        ratio = f"{peak / mean:.3g}" if mean else "-"
        table.add_row(Text(printable(name)), str(model["weeks"]), f"{mean:.4g}", f"{peak:.4g}", ratio, model["busiest"])
    screen.print(table)
    screen.print(
        "Planning rate: of each hour of the week the busiest ten minutes, at the quantile over its weeks; of these the "
        "largest.",
        highlight=False,
    )
    for season in seasons:
        if season.caution:
            screen.print(f"{printable(season.model)}: {season.caution}", style="yellow", highlight=False, markup=False)
    _print_periods(report, screen)


def _print_periods(report: dict[str, Any], screen: Console) -> None:
    table = Table("period", title="Representative periods", title_justify="left")
    table.add_column("hours a week", justify="right")
    for name in report["models"]:
        table.add_column(Text(f"{printable(name)}, requests/s"), justify="right")
    for k, period in enumerate(report["periods"], start=1):
        rates = (f"{rate:.4g}" for rate in period["planning_rate_per_s"].values())
        table.add_row(str(k), f"{period['hours_a_week']:.4g}", *rates)
    screen.print(table)
    screen.print(f"The period changes {report['changes_a_week']} times a week.", highlight=False)
    for name, error in report["overstatement"].items():
        flat = report["flat_overstatement"][name]
        text = f"{printable(name)}: the periods overstate the hours by {error:.1%}; one period all week by {flat:.1%}"
        screen.print(text, highlight=False, markup=False)
