"""`planner deploy`: a plan as commands, manifests or chart values."""

from __future__ import annotations

import json as json_text
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from planner.catalog.load import load_catalog
from planner.deploy.commands import Checkpoint
from planner.deploy.readme import TITLE
from planner.deploy.targets import Target
from planner.deploy.write import README, deployment_files
from planner.errors import InputError, Problem
from planner.plan_file import plan_at


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("deploy")(deploy)


def deploy(
    plan: Annotated[Path, typer.Argument(help="A plan.json, or the folder that holds it.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write; replaced as a whole.")
    ],
    target: Annotated[Target, typer.Option(help="What runs the fleet.")] = Target.KUBERNETES,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="POOL=ID[@REVISION]", help="Weights of a pool, or their revision; may be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the files as JSON.")] = False,
) -> None:
    """Turn a plan into a running fleet: launch commands, Kubernetes manifests or chart values, and a README.

    No argument is written that the engine's version does not have. `planner check-log LOG --plan PLAN --pool POOL`
    then compares what the engine found with what was planned.
    """
    files = deployment_files(plan_at(plan), load_catalog(), target, _checkpoints(checkpoint or []))
    write_folder(output, files)
    if json:
        typer.echo(json_text.dumps({"target": target.value, "folder": str(output), "files": sorted(files)}, indent=2))
    else:
        typer.echo(f"{output}: {len(files)} files for {target.value}; begin with {README}")


def _checkpoints(texts: list[str]) -> dict[str, Checkpoint]:
    """``POOL=ID@REVISION`` by pool.

    Raises
    ------
    InputError
        Listing what is not of that form.
    """
    found, problems = {}, []
    for text in texts:
        pool, equals, named = text.partition("=")
        model, at, revision = named.partition("@")
        if not (pool and equals and model) or (at and not revision) or named.startswith("-"):
            problems.append(Problem("--checkpoint", f"{text!r:.80} is not POOL=ID or POOL=ID@REVISION"))
        found[pool] = Checkpoint(model, revision)
    if problems:
        raise InputError(problems)
    return found


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write a folder that appears when it is complete; an earlier deployment is replaced, anything else is refused.

    Raises
    ------
    InputError
        If it holds something else, or cannot be written.
    """
    try:
        folder = folder.resolve()
        _check_replaceable(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".deploy-") as temporary:
            new = Path(temporary) / "new"
            for name, text in files.items():
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="")
                if name.endswith(".sh"):
                    path.chmod(0o755)
            if folder.exists():
                os.replace(folder, Path(temporary) / "old")
            os.replace(new, folder)
    except (OSError, RuntimeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InputError(Problem(str(folder), f"cannot be written: {reason}")) from error


def _check_replaceable(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(Problem(str(folder), "is no folder", "Name a folder", field="-o"))
    marker = folder / README
    earlier = marker.is_file() and marker.read_text(encoding="utf-8", errors="replace").startswith(TITLE)
    if any(folder.iterdir()) and not earlier:
        raise InputError(Problem(str(folder), "holds something else than a deployment", "Name another folder"))
