"""`planner catalog add-model`: what a checkpoint needs, and its entry in the catalogue."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from planner.catalog.add_model import MODELS, Addition, State, Stated, addition_of
from planner.catalog.checkpoint import Checkpoint, read_checkpoint
from planner.catalog.file_changes import apply_changes
from planner.catalog.hf.config import read_model_shape
from planner.catalog.hub import ENDPOINT, Hub, fetch_checkpoint
from planner.catalog.load import ROOT_VARIABLE, Catalog, load_catalog, shipped_root
from planner.catalog.model_name import model_name
from planner.catalog.model_shape import ModelShape
from planner.catalog.models import read_json_object
from planner.cli.catalog_add_model_print import as_data, print_addition
from planner.cli.fields import options_from
from planner.errors import InputError, Problem, Problems
from planner.memory.model_card import model_card

IN_WHEEL = "_catalogs"
"""Folder of the catalogue in an installed package, which the next version of it replaces."""
OWN_COPY = f"Copy the shipped folder to one of your own, and name that with --catalog or {ROOT_VARIABLE}"


@dataclass(frozen=True)
class AddOptions:
    """What was typed."""

    model: Annotated[
        str,
        typer.Argument(
            help="Folder of a checkpoint, its config.json, or with --online an id of the Hub.", metavar="MODEL"
        ),
    ]
    catalog: Annotated[
        Path | None, typer.Option(help="Catalogue folder; the one in use if not given.", metavar="DIR")
    ] = None
    name: Annotated[
        str, typer.Option(help="The model's name; what the path says if not given.", metavar="ORG/NAME")
    ] = ""
    online: Annotated[bool, typer.Option("--online", help="Read it from the Hugging Face Hub.")] = False
    apply: Annotated[bool, typer.Option("--apply", help="Write it; without this, show what would be written.")] = False
    replace: Annotated[bool, typer.Option("--replace", help="Write over another entry of this name.")] = False
    source: Annotated[
        str, typer.Option(help="Where the config was read, if the path does not say it.", metavar="URL")
    ] = ""
    as_of: Annotated[
        dt.datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Day on which it was read; today if not given.")
    ] = None
    endpoint: Annotated[
        str, typer.Option(help="Address of the Hub or a mirror.", metavar="URL", envvar="HF_ENDPOINT")
    ] = ENDPOINT
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


def register(group: typer.Typer) -> None:
    """Add the command to the group ``catalog``."""
    group.command("add-model")(add_model)


@options_from(AddOptions)
def add_model(asked: AddOptions) -> None:
    """Show what a checkpoint needs (cache, weights, degrees, engines) and add its config to the catalogue.

    No weights are read, only the headers of their files. With --apply the entry is written; the same again changes
    nothing, and another entry of the same name stays unless --replace is given.
    """
    catalog = load_catalog(asked.catalog)
    found = _read(asked)
    stated = Stated(asked.name, asked.source, asked.as_of.date() if asked.as_of else None)
    addition = addition_of(catalog, found, stated, dt.date.today())
    shape = shape_of(catalog, found, addition.model_id)
    card = model_card(shape, catalog.engines, found.weights)
    if asked.apply:
        _check_target(catalog, addition, replace=asked.replace)
        apply_changes(addition.changes, partial(_verify, asked.catalog, shape))
    written = asked.apply and addition.state is not State.UNCHANGED
    if asked.as_json:
        data = as_data(addition, card, found, written=written)
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_addition(addition, card, found, written=written)


def _read(asked: AddOptions) -> Checkpoint:
    if asked.online:
        return fetch_checkpoint(asked.model, Hub(asked.endpoint))
    path = Path(asked.model)
    try:
        there = path.exists()
    except (OSError, ValueError):  # a name too long, a zero byte
        there = False
    if there:
        return read_checkpoint(path)
    try:
        model_name(asked.model, asked.model)
        fix = "To read it from the Hugging Face Hub, add --online"
    except InputError:
        fix = "Give the folder of a checkpoint or its config.json"
    raise InputError(Problem(f"{asked.model!r:.200}", "no such file or folder", fix))


def shape_of(catalog: Catalog, found: Checkpoint, model_id: str) -> ModelShape:
    """The model as the planner reads it.

    Raises
    ------
    InputError
        If the architecture is not supported, or a value of the config cannot be used; lists every problem.
    """
    defaults = read_json_object(catalog.root / MODELS / "class_defaults.json")
    shape = read_model_shape(found.config, model_id, quant_config=found.companion, class_defaults=defaults)
    empty = sorted({matrix.module for matrix in shape.matrices if not matrix.out_features * matrix.in_features})
    if empty:
        message = f"its sizes leave no rows or columns of {', '.join(empty)}"
        raise InputError(Problem(found.where, message, "Check the file against the model's repository"))
    return shape


def _check_target(catalog: Catalog, addition: Addition, *, replace: bool) -> None:
    """Whether the entry may be written."""
    problems = Problems()
    if addition.state is State.UNCHANGED:
        return
    if catalog.own is not None:
        message = f"holds offers only; models are read from {catalog.root}"
        problems.add(str(catalog.own), message, OWN_COPY)
    elif catalog.root == shipped_root() and catalog.root.name == IN_WHEEL:
        problems.add(str(catalog.root), "is part of the installed package, whose next version replaces it", OWN_COPY)
    if addition.state is State.DIFFERENT and not replace:
        shown = "\n".join(addition.diff)
        message = f"is in the catalogue and differs:\n{shown}\n"
        problems.add(addition.model_id, message, "Add --replace to write over it")
    if addition.source_missing:
        problems.add("--source", "nothing says where the config was read", "Give its URL, or other words that find it")
    problems.raise_if_any()


def _verify(root: Path | None, shape: ModelShape) -> None:
    """Whether the catalogue now gives the model as it was shown."""
    if load_catalog(root).model_shape(shape.id) != shape:
        raise InputError(Problem(shape.id, "reads differently once written; nothing is changed"))
