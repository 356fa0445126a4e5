"""`planner size`: does a model fit on a GPU, and how many tokens are left for its KV cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

import typer

from planner.catalog.engine import substitution
from planner.catalog.load import load_catalog
from planner.catalog.model_shape import ModelShape
from planner.cli.fields import options_from
from planner.cli.size_cases import CaseOptions, size_cases
from planner.cli.size_options import TYPED_WITH, SizeOptions, check_together, deployment_of, given_of
from planner.cli.size_print import as_data, print_sizing
from planner.errors import InfeasibleError, InputError, Problems
from planner.memory.calibration import Calibration, calibrated_size, read_calibration
from planner.memory.fixes import fixes
from planner.memory.kv import auto_kv
from planner.memory.options import beside_the_pool
from planner.memory.size import MODELLED_DTYPES, check_terms, stored_dtype
from planner.memory.starts.case_texts import AUTO_KV
from planner.memory.types import GivenTerms, KvDtype, WeightDtype

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("size")(size_command)


@options_from(SizeOptions)
def size_command(asked: SizeOptions) -> None:
    """Show the subtraction of one replica term by term, its pool, whether it starts, and the launch command.

    With --cases, answer a table of starts instead: the same rows come out with what is predicted for each.
    """
    check_together(asked)
    if asked.cases is not None:
        size_cases(
            CaseOptions(
                source=asked.cases,
                output=asked.output,
                given=asked.given,
                engine=asked.engine,
                models=asked.models,
                score=asked.score,
                score_by=asked.score_by,
                score_into=asked.score_into,
            )
        )
    else:
        _size_one(asked)


def _size_one(asked: SizeOptions) -> None:
    """Size one replica and print it; exits with 3 where it does not start."""
    problems, typed_with = Problems(), dict(TYPED_WITH)
    _named(asked, problems)
    deployment = deployment_of(asked, problems)
    given = given_of(asked, typed_with, problems)
    problems.attempt(lambda: _at_options(lambda: check_terms(deployment, given), typed_with))
    measured = problems.attempt(lambda: _measured(asked.calibration))
    catalog = load_catalog()
    card = problems.attempt(lambda: _at_options(lambda: catalog.gpu(asked.gpu), {"": f"--gpu {asked.gpu}"}))
    facts = problems.attempt(
        lambda: _at_options(lambda: catalog.engine(asked.engine, asked.engine_version), {"version": "--engine-version"})
    )
    shape = problems.attempt(lambda: catalog.model_shape(asked.model))
    draft = problems.attempt(lambda: catalog.model_shape(asked.draft_model)) if asked.draft_model else None
    stored = asked.weights
    if shape is not None and stored is None:
        stored = problems.attempt(lambda: _as_stored(shape, given))
    problems.raise_if_any()
    assert card is not None
    assert facts is not None
    assert shape is not None
    assert stored is not None
    deployment = replace(
        deployment,
        weight_dtype=stored,
        kv_dtype=auto_kv(shape, facts) if asked.kv == AUTO_KV else KvDtype(asked.kv),
        kv_cache_dtype_name=AUTO_KV if asked.kv == AUTO_KV else "",
        speculative=replace(deployment.speculative, draft=draft) if deployment.speculative else None,
    )
    sizing = calibrated_size(shape, card, facts, deployment, given, measured)
    tried = () if sizing.starts else fixes(shape, card, facts, deployment, given, sizing)
    note = substitution(catalog.engines, facts, asked.engine_version)
    beside = beside_the_pool(shape, sizing, asked.prefix_hit_share)
    notes = ((note,) if note else ()) + shape.notes + tuple(f"{b.name}: {b.tokens:,} {b.meaning}" for b in beside)
    if asked.as_json:
        data = as_data(shape, sizing, tried, notes, asked.engine_version)
        data["beside_the_pool"] = [asdict(figure) for figure in beside]
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        print_sizing(shape, sizing, tried, notes)
    if not sizing.starts:
        raise typer.Exit(InfeasibleError.exit_code)


def _measured(path: Path | None) -> Calibration:
    return read_calibration(path) if path is not None else Calibration()


def _named(asked: SizeOptions, problems: Problems) -> None:
    """The two things that one sizing needs."""
    if not asked.model:
        problems.add("MODEL", "is missing", "Give a model, or --cases FILE for a table of them")
    if not asked.gpu:
        problems.add("--gpu", "is missing", "Give a GPU such as H100-SXM")
    problems.raise_if_any()


def _at_options(step: Callable[[], T], options: Mapping[str, str]) -> T:
    """The step's result; its problems name the option that was typed instead of the field."""
    try:
        return step()
    except InputError as error:
        raise InputError(
            [replace(p, where=options[p.field], field="") if p.field in options else p for p in error.problems]
        ) from error


def _as_stored(shape: ModelShape, given: GivenTerms) -> WeightDtype:
    """The checkpoint's format; bytes typed by the user stand in for one that is not modelled."""
    if given.weights_gib is not None and shape.native_weight_dtype not in MODELLED_DTYPES:
        return WeightDtype.BF16
    return stored_dtype(shape)
