"""What the commands of `planner traffic` share: reading folders, and what they say about the folder they wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import typer
from rich.console import Console
from rich.text import Text

from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import Canonical, is_canonical, read
from planner.traffic.canonical_tables import of_model
from planner.traffic.disk import usable

OUTPUT = typer.Option("-o", "--output", metavar="DIR", help="Canonical folder to write.")
PIPE_WIDTH = 160


def read_folder(folder: Path) -> Canonical:
    """A canonical folder.

    Raises
    ------
    InputError
        If it is none, or cannot be read.
    """
    with usable(folder):
        if not is_canonical(folder):
            what = "is no canonical folder (no manifest.json in it)" if folder.exists() else "no such folder"
            raise InputError(Problem(str(folder), what, "Make one with planner ingest"))
    return read(folder)


def read_folders(folders: Sequence[Path]) -> list[Canonical]:
    """Several canonical folders, each named once.

    Raises
    ------
    InputError
        If any cannot be read, or is given twice.
    """
    problems = Problems()
    if len({os.path.realpath(folder) for folder in folders}) < len(folders):
        problems.add("DIR", "the same folder is given twice", "Its requests would count twice")
    found = [problems.attempt(lambda folder=folder: read_folder(folder)) for folder in folders]  # type: ignore[misc]
    problems.raise_if_any()
    return [canonical for canonical in found if canonical is not None]


def report(canonical: Canonical) -> dict[str, Any]:
    """What a command says about the distribution it wrote."""
    manifest = canonical.manifest
    return {
        "window_start": manifest.window_start,
        "window_end": manifest.window_end,
        "models": {
            model: {
                "requests": n,
                "arrivals_per_s": (pc.sum(of_model(canonical.rates, model)["n"]).as_py() or 0)
                / manifest.window.seconds
                / manifest.sampling_fraction,
            }
            for model, n in sorted(manifest.models.items())
        },
        "history": manifest.history,
        "remarks": manifest.remarks,
    }


def plain(found: dict[str, Any]) -> list[Text]:
    """The report in lines."""
    lines = [f"{found['window_start']} to {found['window_end']}"]
    lines += [
        f"{printable(model)}: {figures['requests']:,} requests observed, {figures['arrivals_per_s']:.4g} arrivals per s"
        for model, figures in found["models"].items()
    ]
    lines += [f"Remark: {printable(remark)}" for remark in found["remarks"]]
    return [Text(line) for line in lines]


def printable(name: str) -> str:
    """A name comes from a log: no control character in it may act on the terminal."""
    return "".join(c if c.isprintable() else "?" for c in name)


def console() -> Console:
    """Standard output; a pipe has no width, so it gets enough for every column."""
    screen = Console()
    return screen if screen.is_terminal else Console(width=PIPE_WIDTH)
