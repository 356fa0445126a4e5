"""`planner catalog check`: whether the files are sound, and what in them is older than a limit."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from planner.catalog.check import STALE_AFTER_DAYS, CatalogCheck, check_catalog
from planner.catalog.load import load_catalog
from planner.catalog.staleness import Dated, Kind, older_than
from planner.errors import InputError, Problem
from planner.report.text import one_line

NAMED = 20
"""Old entries of a kind that are printed; JSON has all."""
LONGEST = 160
MOST_DAYS = 36_500
_AGE = re.compile(r"(\d{1,5})d?", re.ASCII)


def register(group: typer.Typer) -> None:
    """Add the command to the group ``catalog``."""
    group.command("check")(check_files)


def check_files(
    as_of: Annotated[
        dt.datetime | None,
        typer.Option("--as-of", "--now", formats=["%Y-%m-%d"], help="Day of the check; today if not given."),
    ] = None,
    max_age: Annotated[
        str, typer.Option(help="List what is older, such as 120d, and end with exit code 2.", metavar="DAYS")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Validate every file of the catalogue; ends with exit code 2 and every problem if one is unsound.

    With --max-age also list prices, facts of engines and GPUs, models and speed data that were read longer ago.
    """
    now = as_of.date() if as_of else dt.date.today()
    days = age_in_days(max_age) if max_age else None
    report = check_catalog(now)
    old = older_than(load_catalog(on=now), now, days) if days is not None else ()
    if as_json:
        typer.echo(json.dumps(_data(report, old, days, now), indent=2, ensure_ascii=False))
    else:
        for line in (*report_lines(report), *(old_lines(old, days, now) if days is not None else ())):
            typer.echo(line)
    if old:
        raise typer.Exit(InputError.exit_code)


def age_in_days(text: str) -> int:
    """``120d`` or ``120`` as 120.

    Raises
    ------
    InputError
        If it is no number of days.
    """
    match = _AGE.fullmatch(text.strip())
    if not match or int(match.group(1)) > MOST_DAYS:
        raise InputError(Problem("--max-age", f"{text!r:.40} is no number of days", "Write it like 120d"))
    return int(match.group(1))


def report_lines(report: CatalogCheck) -> list[str]:
    """What a sound catalogue holds."""
    providers = ", ".join(f"{name} {count}" for name, count in sorted(report.offers_per_provider.items()))
    kinds = ", ".join(f"{kind.value} {count}" for kind, count in sorted(report.offers_per_kind.items()))
    lines = [
        f"catalogue is sound as of {report.as_of}",
        f"GPUs: {report.gpus}, of which {len(report.unverified)} have figures that are recalled, not read",
        f"offers: {report.offers} on {len(report.offered_gpus)} GPU types, {len(report.offers_per_provider)} providers",
        f"  by provider: {providers}",
        f"  by kind of price: {kinds}",
        f"  older than {STALE_AFTER_DAYS} days: {len(report.stale_offers)}",
        f"engine versions: {report.engines}",
        f"models: {len(report.models_read)} read, {len(report.models_refused)} refused for a stated reason",
    ]
    return [*lines, *(f"  {model_id}: {reason}" for model_id, reason in report.models_refused.items())]


def old_lines(old: Sequence[Dated], days: int, now: dt.date) -> Iterator[str]:
    """Entries that are too old, by kind, the oldest first."""
    if not old:
        yield f"nothing is older than {days} days on {now}"
        return
    yield f"older than {days} days on {now}: {len(old):,}"
    for kind in Kind:
        found = [entry for entry in old if entry.kind is kind]
        if not found:
            continue
        yield f"  {kind.value}: {len(found):,}, the oldest is of {found[0].as_of}"
        yield from (f"    {_entry(entry, now)}" for entry in found[:NAMED])
        if len(found) > NAMED:
            yield f"    and {len(found) - NAMED:,} more (--json lists all)"


def _entry(entry: Dated, now: dt.date) -> str:
    row = f", row {entry.row}" if entry.row.isdigit() else ""
    return one_line(f"{entry.as_of} ({entry.age_days(now):,} days) {entry.file}{row}: {entry.what}", LONGEST)


def _data(report: CatalogCheck, old: Sequence[Dated], days: int | None, now: dt.date) -> dict[str, Any]:
    """The check as JSON data."""
    checked = {field.name: _plain(getattr(report, field.name)) for field in dataclasses.fields(report)}
    entries = [{**dataclasses.asdict(e), "as_of": str(e.as_of), "age_days": e.age_days(now)} for e in old]
    return {**checked, "max_age_days": days, "older": entries}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return str(value) if isinstance(value, dt.date) else value
