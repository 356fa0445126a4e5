"""`planner traffic split`: one folder by prompt length or random share, or one folder for each day or week."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.traffic_folders import console, plain, read_folder, report
from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import Canonical, check_place, is_canonical, write
from planner.traffic.disk import usable
from planner.traffic.operations.split import Period, between, by_length, by_period, by_share
from planner.traffic.source import parse_pairs
from planner.traffic.times import moment_us

WAYS = ("--by-length", "--share", "--by-week", "--by-day", "--since/--until")


def register(group: typer.Typer) -> None:
    """Add the command to ``planner traffic``."""
    group.command("split")(split_command)


def split_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Canonical folder.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write; one folder a day or week inside it.")
    ],
    by_length_at: Annotated[
        str,
        typer.Option("--by-length", metavar="TOKENS", help="Prompt lengths to split at: 4096, or 4096,32768."),
    ] = "",
    share: Annotated[
        str, typer.Option(metavar="NAME=SHARE", help="Random shares of one model that add up to 1: a=0.7,b=0.3.")
    ] = "",
    model: Annotated[
        list[str] | None, typer.Option(help="Model to split by length or share; repeatable. By length: all by default.")
    ] = None,
    by_week: Annotated[bool, typer.Option("--by-week", help="One folder for each week from Monday, UTC.")] = False,
    by_day: Annotated[bool, typer.Option("--by-day", help="One folder for each day, UTC.")] = False,
    since: Annotated[str, typer.Option(metavar="TIME", help="Start, UTC: 2026-03-02 or 2026-03-02T08:00.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="End, exclusive, UTC.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Split by prompt length, as a router that sees it; by random shares; or by time.

    By length, cells and largest totals are split with exact totals, and rates and bursts by shares of requests. By
    time, rates and bursts are split; the lengths of the whole log stand for every part.
    """
    asked = (bool(by_length_at), bool(share), by_week, by_day, bool(since or until))
    if sum(asked) != 1:
        what = "is given in two ways" if any(asked) else "needs a way to split"
        raise InputError(Problem("planner traffic split", what, f"Give one of {', '.join(WAYS)}"))
    names = model or []
    if names and not (by_length_at or share):
        raise InputError(Problem("--model", "has no effect on a split in time", "Leave it out"))
    if len(names) > 1 and share:
        raise InputError(Problem("--model", "shares are of one model", "Give it once"))
    if by_week or by_day:
        parts = by_period(read_folder(folder), Period.WEEK if by_week else Period.DAY)
        _write_all(parts, output)
    else:
        check_place(output)
        canonical = read_folder(folder)
        if by_length_at:
            part = by_length(canonical, _limits(by_length_at), names)
        elif share:
            part = by_share(canonical, _shares(share), names[0] if names else "")
        else:
            part = _cut(canonical, since, until)
        write(part, output)
        parts = {"": part}
    _print(parts, output, as_json=as_json)


def _limits(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        fix = "Give prompt tokens with commas between: 4096,32768"
        raise InputError(Problem("--by-length", f"'{text}' are no token counts", fix)) from None


def _shares(text: str) -> dict[str, float]:
    problems = Problems()
    shares = {}
    for name, value in parse_pairs("--share", text).items():
        try:
            shares[name] = float(value)
        except ValueError:
            problems.add("--share", f"'{value}' is no number", "Give shares such as a=0.7,b=0.3", field=name)
    problems.raise_if_any()
    return shares


def _cut(canonical: Canonical, since: str, until: str) -> Canonical:
    problems = Problems()
    if canonical.manifest.time_base != "UTC":
        problems.add("--since/--until", "the log counts time from its own start: it knows no calendar")
    limits = {}
    for option, text in (("--since", since), ("--until", until)):
        limits[option] = problems.attempt(lambda o=option, t=text: moment_us(o, t))  # type: ignore[misc]
    problems.raise_if_any()
    return between(canonical, limits["--since"], limits["--until"])


def _write_all(parts: dict[str, Canonical], output: Path) -> None:
    """A folder of canonical folders, whole or not at all.

    Raises
    ------
    InputError
        If the place is taken by anything.
    """
    with usable(output, "written"):
        if output.exists() and (not output.is_dir() or is_canonical(output) or any(output.iterdir())):
            raise InputError(Problem(str(output), "is not empty", "Give a new folder: the parts are written inside it"))
        output = Path(os.path.realpath(output))
        output.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
        try:
            scratch.chmod(0o755)
            for name, part in parts.items():
                write(part, scratch / name)
            os.replace(scratch, output)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _print(parts: dict[str, Canonical], output: Path, *, as_json: bool) -> None:
    found: dict[str, Any] = {name: report(part) for name, part in parts.items()}
    if as_json:
        shown = {"output": str(output), **found.get("", {"parts": found})}
        typer.echo(json.dumps(shown, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False))
        return
    screen = console()
    for name, part in found.items():
        if name:
            screen.print(name, highlight=False, markup=False)
        for line in plain(part):
            screen.print(line)
    screen.print(f"Written to {output}", highlight=False, markup=False)
