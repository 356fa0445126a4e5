"""`planner traffic`: look at canonical distributions, merge, scale and split them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli import traffic_export, traffic_season, traffic_show, traffic_split
from planner.cli.traffic_folders import OUTPUT, console, plain, read_folder, read_folders, report
from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import Canonical, check_place, write
from planner.traffic.operations import scale as scaling
from planner.traffic.operations.merge import merge
from planner.traffic.operations.scale import BurstRule, Factors
from planner.traffic.source import parse_pairs

HELP = "Look at the canonical distributions that planner ingest writes, merge, scale and split them."


def register(app: typer.Typer) -> None:
    """Add the command group to the application."""
    group = typer.Typer(help=HELP, no_args_is_help=True)
    traffic_show.register(group)
    group.command("merge")(merge_command)
    group.command("scale")(scale_command)
    traffic_split.register(group)
    traffic_export.register(group)
    traffic_season.register(group)
    app.add_typer(group, name="traffic")


def merge_command(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Canonical folders.")],
    output: Annotated[Path, OUTPUT],
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="OLD=NEW", help="Rename a model; models of one name become one. Repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Merge the distributions of several logs: regions, weeks or gateways.

    Cells, largest totals and minute rates are added exactly. Bursts of a minute and more are counted again in the
    summed rates; below a minute the logs are taken as independent. Requests that two logs both hold count twice.
    """
    check_place(output)
    parts = read_folders(folders)
    merged = merge(parts, parse_pairs("--rename", ",".join(rename or [])))
    write(merged, output)
    _print(merged, output, as_json=as_json)


def scale_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Canonical folder.")],
    output: Annotated[Path, OUTPUT],
    rate_factor: Annotated[float, typer.Option(metavar="F", help="Multiply the arrivals.")] = 1.0,
    rate_per_s: Annotated[
        float | None,
        typer.Option(metavar="R", help="Multiply the arrivals to this rate of all models together."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=F", help="Factor on one model's arrivals, or its rate: chat=1.4, chat=12/s."),
    ] = None,
    prompt_factor: Annotated[float, typer.Option(metavar="F", help="Multiply the prompt lengths.")] = 1.0,
    output_factor: Annotated[float, typer.Option(metavar="F", help="Multiply the output lengths.")] = 1.0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Scale only this model; repeatable. Others stay.")
    ] = None,
    burst: Annotated[
        BurstRule,
        typer.Option(
            help="keep: more clients like the observed ones, the index of dispersion (IDC) stays. "
            "amplify: the same clients send more at the same moments, IDC - 1 is multiplied too."
        ),
    ] = BurstRule.KEEP,
    unsample: Annotated[
        bool, typer.Option("--unsample", help="Undo the random sampling of the log: divide by its sampling fraction.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Canonical folder of sums (such as daily usage) to scale to.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Multiply rates or lengths.

    Bursts: with --burst keep (the default, as in requests) the index of dispersion stays, as if independent copies of
    the observed clients were added; with --burst amplify the observed arrivals themselves grow, which is burstier.
    """
    check_place(output)
    canonical = read_folder(folder)
    typed = model or []
    changes = rate_factor != 1 or rate_per_s is not None or bool(typed) or prompt_factor != 1 or output_factor != 1
    _check_ways(changes=changes, unsample=unsample, to=to)
    if to is not None:
        scaled = _to_sums(canonical, to)
    elif unsample:
        scaled = scaling.unsampled(canonical)
    else:
        factors = _factors(canonical, rate_factor, rate_per_s, typed, only or [])
        lengths = {m: replace(f, prompt=prompt_factor, output=output_factor) for m, f in factors.items()}
        scaled = scaling.scale(canonical, lengths, burst)
    write(scaled, output)
    _print(scaled, output, as_json=as_json)


def _check_ways(*, changes: bool, unsample: bool, to: Path | None) -> None:
    """One way to scale at a time."""
    ways = sum((changes, unsample, to is not None))
    if ways == 0:
        fix = "Give --rate-factor, --rate-per-s, --model, --prompt-factor, --output-factor, --unsample or --to"
        raise InputError(Problem("planner traffic scale", "nothing to scale", fix))
    if ways > 1:
        fix = "Scale in two steps: the second from the folder that the first wrote"
        raise InputError(Problem("planner traffic scale", "--unsample and --to go with no other factor", fix))


def _to_sums(canonical: Canonical, folder: Path) -> Canonical:
    from planner.traffic.sums.apply import scale_to_sums  # noqa: PLC0415

    return scale_to_sums(canonical, read_folder(folder))


def _factors(
    canonical: Canonical, rate_factor: float, rate_per_s: float | None, typed: Sequence[str], only: Sequence[str]
) -> dict[str, Factors]:
    """Rate factors by model."""
    problems = Problems()
    known = canonical.models()
    pairs = problems.attempt(lambda: parse_pairs("--model", ",".join(typed))) or {}
    for option, names in (("--only", only), ("--model", pairs)):
        for name in names:
            if name not in known:
                problems.add(option, f"the distribution holds no model '{name}'", f"It holds: {', '.join(known)}")
    if rate_per_s is not None and (rate_factor != 1 or typed):
        problems.add("--rate-per-s", "cannot be used with --rate-factor or --model", "Give one of them")
    problems.raise_if_any()
    chosen = list(dict.fromkeys(only)) or list(known)
    if rate_per_s is not None:
        rate_factor = scaling.to_rate(canonical, rate_per_s, chosen)
    factors = {name: Factors(rate=rate_factor) for name in chosen}
    for name, text in pairs.items():
        value = problems.attempt(lambda name=name, text=text: _rate(canonical, name, text))  # type: ignore[misc]
        if value is not None:
            factors[name] = Factors(rate=value)
    problems.raise_if_any()
    return factors


def _rate(canonical: Canonical, model: str, text: str) -> float:
    """A factor, from ``1.4`` or ``12/s``."""
    number = text.removesuffix("/s")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        fix = "Give a factor such as 1.4, or a rate such as 12/s"
        raise InputError(Problem("--model", f"'{text}' is no factor and no rate", fix, field=model))
    return scaling.to_rate(canonical, value, [model]) if text.endswith("/s") else value


def _print(canonical: Canonical, output: Path, *, as_json: bool) -> None:
    found: dict[str, Any] = report(canonical)
    if as_json:
        shown = {"output": str(output), **found}
        typer.echo(json.dumps(shown, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False))
        return
    screen = console()
    for line in plain(found):
        screen.print(line)
    screen.print(f"Written to {output}", highlight=False, markup=False)
