"""`planner catalog import`: prices of others, private lists and bills; shown first, written with --apply."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.days import day
from planner.errors import InputError, Problem

if TYPE_CHECKING:
    from planner.catalog.imports.diff import Diff
    from planner.catalog.imports.focus import Rates
    from planner.catalog.imports.private_csv import Rate
    from planner.catalog.imports.shared import Imported
    from planner.catalog.load import Catalog

Where = Annotated[str, typer.Argument(metavar="PATH|URL", help="A CSV file, a folder, a zip, or an https address.")]
Apply = Annotated[bool, typer.Option("--apply", help="Write the changes; without it they are only shown.")]
Accept = Annotated[bool, typer.Option("--accept-suspicious", help="Take suspicious prices too.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--catalog", metavar="DIR", help="Catalogue folder to change; a new one is laid over the shipped catalogue. "
        "Default: $PLANNER_CATALOGS.",
    ),
]  # fmt: skip
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="DAY", help="Day of the prices. Default: today.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RateOption = Annotated[
    list[str] | None, typer.Option("--rate", metavar="CUR=USD@DAY", help="EUR=1.08@2026-11-28: USD of one EUR.")
]
SHOWN = 40
"""Changes of one provider that the table shows; JSON has all."""


def register(group: typer.Typer) -> None:
    """Add the commands to `planner catalog`."""
    commands = typer.Typer(no_args_is_help=True, help="Import prices: shown as a difference, written with --apply.")
    commands.command("gpuhunt")(import_gpuhunt)
    commands.command("skypilot")(import_skypilot)
    commands.command("csv")(import_csv)
    commands.command("focus")(import_focus)
    group.add_typer(commands, name="import")


def import_gpuhunt(
    where: Where,
    provider: Annotated[str, typer.Option(help="Only this provider; whose file it is, for a single file.")] = "",
    folder: Folder = None, as_of: AsOf = None, apply: Apply = False, accept: Accept = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Import gpuhunt's catalogue, version 3: files named <provider>.csv, alone, in a folder or in catalog.zip."""
    from planner.catalog.imports.fetch import source_files  # noqa: PLC0415  loaded only when needed
    from planner.catalog.imports.gpuhunt import read_gpuhunt  # noqa: PLC0415  loaded only when needed

    given = day(as_of, "--as-of") if as_of else None
    _run(
        lambda catalog: read_gpuhunt(source_files(where), catalog, day(None), provider, given),
        folder, apply, accept, as_json,
    )  # fmt: skip


def import_skypilot(
    where: Where,
    cloud: Annotated[str, typer.Option(help="The cloud, as SkyPilot names its folder.")],
    folder: Folder = None, as_of: AsOf = None, apply: Apply = False, accept: Accept = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Import SkyPilot's catalogue, version 8: <cloud>/vms.csv."""
    from planner.catalog.imports.fetch import source_files  # noqa: PLC0415  loaded only when needed
    from planner.catalog.imports.skypilot import read_skypilot  # noqa: PLC0415  loaded only when needed

    on, inner = day(as_of, "--as-of"), Path(where) / cloud
    lies = str(inner) if inner.is_dir() else where
    _run(lambda catalog: read_skypilot(source_files(lies), catalog, on, cloud), folder, apply, accept, as_json)


def import_csv(
    file: Annotated[Path, typer.Argument(help="A private price list; its columns are in catalogs/README.md.")],
    rate: RateOption = None,
    source: Annotated[str, typer.Option(help="Where the prices are from, for rows that do not say it.")] = "",
    folder: Folder = None, as_of: AsOf = None, apply: Apply = False, accept: Accept = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Import contracted prices, or discounts on listed ones; plans use them where price_kinds names contracted."""
    from planner.catalog.imports.fetch import source_files  # noqa: PLC0415  loaded only when needed
    from planner.catalog.imports.private_csv import read_private  # noqa: PLC0415  loaded only when needed

    rates, on = _rates(rate), day(as_of, "--as-of")
    _run(
        lambda catalog: read_private(source_files(str(file))[0], catalog, on, rates, source),
        folder, apply, accept, as_json,
    )  # fmt: skip


def import_focus(
    file: Annotated[Path, typer.Argument(help="A bill in FOCUS 1.x columns (CSV).")],
    rate: RateOption = None,
    folder: Folder = None, apply: Apply = False, accept: Accept = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Import what an hour of each instance type cost by a bill: list, contracted and effective."""
    from planner.catalog.imports.fetch import source_files  # noqa: PLC0415  loaded only when needed
    from planner.catalog.imports.focus import read_focus  # noqa: PLC0415  loaded only when needed

    rates = _rates(rate)
    told: list[Rates] = []

    def read(catalog: Catalog) -> Sequence[Imported]:
        bill = read_focus(source_files(str(file))[0], catalog, rates)
        told.extend(bill.rates)
        return bill.imported

    _run(read, folder, apply, accept, as_json, told)


def _rates(texts: Sequence[str] | None) -> tuple[Rate, ...]:
    from planner.catalog.imports.private_csv import Rate  # noqa: PLC0415  loaded only when needed
    from planner.catalog.imports.shared import usable_price  # noqa: PLC0415  loaded only when needed

    found = []
    for text in texts or ():
        currency, _, rest = text.partition("=")
        worth, _, stated = rest.partition("@")
        try:
            usd, on = usable_price(worth), dt.date.fromisoformat(stated)
        except ValueError:
            usd = None
        if usd is None or len(currency) != len("EUR"):
            raise InputError(Problem("--rate", f"{text!r:.40} is no rate", "Write EUR=1.08@2026-11-28"))
        found.append(Rate(currency.upper(), usd, on))
    return tuple(found)


def _run(
    read: Callable[[Catalog], Sequence[Imported]], folder: Path | None, apply: bool, accept: bool, as_json: bool,
    told: Sequence[Rates] = (),
) -> None:  # fmt: skip
    from planner.catalog.imports.apply import changes, target_catalog, write_changes  # noqa: PLC0415
    from planner.catalog.load import ROOT_VARIABLE  # noqa: PLC0415  loaded only when needed

    chosen = folder or (Path(os.environ[ROOT_VARIABLE]) if os.environ.get(ROOT_VARIABLE) else None)
    if apply and chosen is None:
        fix = f"Give --catalog DIR, and set {ROOT_VARIABLE}=DIR to plan with it"
        raise InputError(Problem("--apply", "no catalogue folder of your own to write to", fix))
    catalog = target_catalog(chosen)
    found = changes(read(catalog), catalog, accept=accept)
    written = write_changes(found, chosen) if apply and chosen is not None else ()
    diffs = [one.diff for one in found]
    if as_json:
        data = {
            "applied": apply,
            "written": [path.name for path in written],
            "providers": [_as_data(diff) for diff in diffs],
            "rates": [_rate_data(rate) for rate in told],
        }
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    for rate in told:
        data = _rate_data(rate)
        typer.echo("  ".join(f"{name} {value}" for name, value in data.items() if value not in ("", None)))
    for diff in diffs:
        _print(diff)
    typer.echo(_end(apply, [path.name for path in written]))


def _end(apply: bool, written: Sequence[str]) -> str:
    if not apply:
        return "nothing written: add --apply to write"
    return f"written: {', '.join(written)}" if written else "nothing to write: the catalogue has it all"


def _as_data(diff: Diff) -> dict[str, object]:
    return {
        "provider": diff.provider,
        "as_of": diff.as_of.isoformat(),
        "counts": dict(diff.counts),
        "changes": [
            {
                "offer": line.offer_id,
                "change": line.change.value,
                "old_usd_per_h": line.old_usd_per_h,
                "new_usd_per_h": line.new_usd_per_h,
                "percent": None if line.percent is None else round(line.percent, 2),
                "suspicious": line.suspicious,
            }
            for line in diff.lines
        ],
        "skipped": [{"what": one.what, "why": one.why, "rows": one.rows} for one in diff.skipped],
        "notes": list(diff.notes),
    }


def _rate_data(rate: Rates) -> dict[str, object]:
    return {
        "provider": rate.provider,
        "instance_type": rate.instance_type,
        "region": rate.region,
        "commitment": rate.commitment,
        "term": rate.term.value if rate.term else None,
        "hours": round(rate.hours, 4),
        "list_usd_per_h": round(rate.rate("ListCost"), 6),
        "contracted_usd_per_h": round(rate.rate("ContractedCost"), 6),
        "effective_usd_per_h": round(rate.rate("EffectiveCost"), 6),
    }


def _print(diff: Diff) -> None:
    counts = ", ".join(f"{name} {count}" for name, count in diff.counts.items() if count)
    typer.echo(f"{diff.provider}, prices of {diff.as_of}: {counts or 'no price'}")
    lines = sorted(diff.lines, key=lambda line: (line.change.value == "gone", not line.suspicious, line.offer_id))
    for line in lines[:SHOWN]:
        old = "-" if line.old_usd_per_h is None else f"{line.old_usd_per_h:.4g}"
        new = "-" if line.new_usd_per_h is None else f"{line.new_usd_per_h:.4g}"
        percent = "" if line.percent is None else f"{line.percent:+.1f} %"
        doubt = f"  not applied: {line.suspicious}" if line.suspicious else ""
        typer.echo(f"  {line.change.value:8}{line.offer_id:64}{old:>10}{new:>10}{percent:>10}{doubt}")
    if len(lines) > SHOWN:
        typer.echo(f"  and {len(lines) - SHOWN} more changes (--json shows all)")
    for one in diff.skipped[:SHOWN]:
        typer.echo(f"  left out: {one.what}: {one.why} ({one.rows} row{'s' if one.rows > 1 else ''})")
    for note in diff.notes:
        typer.echo(f"  note: {note}")
