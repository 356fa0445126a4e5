"""`planner speed plot --plan`: each pool of a plan, with its planned operating point."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import typer
from pydantic import ValidationError

from planner.catalog.load import Catalog, load_catalog
from planner.cli.speed_plot import (
    Replica,
    curve_of,
    drawn,
    label_of,
    points_of,
    sources_of,
    write_bytes,
)
from planner.cli.speed_plot_options import TYPED_AS, WITHOUT_PLAN, PlotOptions, check_out
from planner.deployed import deployment_of
from planner.errors import InputError, Problem, Problems
from planner.memory.size import size
from planner.plan import FleetPlan, Pool, read_plan
from planner.report.chart_file import FileKind
from planner.report.speed_chart import speed_chart
from planner.report.speed_curve import DEFAULT_WIDTH_PX, SpeedCurve, planned_point
from planner.report.speed_page import chart_file
from planner.speed.chain import SpeedSources
from planner.speed.points import Point

LEAST_SPAN = 8.0
PLAN_KINDS = (FileKind.PNG, FileKind.HTML)


def plot_plan(asked: PlotOptions) -> None:
    """Write a PNG and a page for each pool into the folder ``-o``; nothing is written unless all can be drawn.

    Raises
    ------
    InputError
        Listing every option without effect, and everything in the plan or the points that cannot be used.
    """
    assert asked.plan is not None
    problems = Problems()
    _check_useless(asked, problems)
    check_out(asked, problems)
    plan = problems.attempt(lambda: plan_of(asked.plan))  # type: ignore[arg-type]
    catalog = load_catalog()
    points = problems.attempt(lambda: points_of(asked.measured, catalog))
    sources = problems.attempt(lambda: sources_of(catalog, asked))
    problems.raise_if_any()
    assert plan is not None
    assert points is not None
    assert sources is not None
    assert asked.out is not None
    curves = _pool_curves(plan, catalog, sources, str(asked.plan))
    names = file_names(plan)
    files = {
        asked.out / f"{name}{kind}": content
        for pool, curve, name in zip(plan.pools, curves, names, strict=True)
        for kind, content in _files(pool, curve, points, asked.width or DEFAULT_WIDTH_PX)
    }
    _prepare(asked.out)
    for path, content in files.items():
        write_bytes(path, content)
    for name, curve in zip(names, curves, strict=True):
        typer.echo(f"{asked.out / name}{', '.join(PLAN_KINDS)}: {drawn([curve], points)}")


def _files(pool: Pool, curve: SpeedCurve, points: Sequence[Point], width_px: int) -> Iterable[tuple[FileKind, bytes]]:
    """The picture and the page of a pool."""
    spec = speed_chart([curve], points, title=f"{pool.name}: speed of {curve.served.model}", width_px=width_px)
    for kind in PLAN_KINDS:
        yield kind, chart_file(kind, spec, [curve], points)


def _pool_curves(plan: FleetPlan, catalog: Catalog, sources: SpeedSources, where: str) -> list[SpeedCurve]:
    """The curves of all pools; what cannot be drawn of any is said at once."""
    problems = Problems()
    curves = [
        problems.attempt(lambda pool=pool: pool_curve(pool, catalog, sources), f"{where}, pool {pool.name}")  # type: ignore[misc]
        for pool in plan.pools
    ]
    problems.raise_if_any()
    return [curve for curve in curves if curve is not None]


def _check_useless(asked: PlotOptions, problems: Problems) -> None:
    """Options that the plan answers itself."""
    for field in fields(asked):
        if field.name in WITHOUT_PLAN and getattr(asked, field.name) != field.default:
            option = TYPED_AS.get(field.name, f"--{field.name.replace('_', '-')}")
            problems.add(option, "has no effect with --plan: the plan says it", "Leave it out")


def plan_of(path: Path) -> FleetPlan:
    """A plan file.

    Raises
    ------
    InputError
        If it cannot be read or is no plan of this version; lists every field that is wrong.
    """
    try:
        return read_plan(path)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from None
    except UnicodeDecodeError:
        raise InputError(Problem(str(path), "is no UTF-8 text", "Give the plan.json of `planner plan`")) from None
    except ValidationError as error:
        fix = "Give the plan.json that this version's `planner plan` writes"
        raise InputError(
            [
                Problem(str(path), str(item["msg"]), fix, field=".".join(str(part) for part in item["loc"]))
                for item in error.errors()
            ]
        ) from None


def pool_curve(pool: Pool, catalog: Catalog, sources: SpeedSources) -> SpeedCurve:
    """The curve of a pool's replica at its mean lengths, with the planned point.

    The replica is sized again from the catalogue: terms that the plan took from a calibration file are not in it. Where
    the speed's source is no longer the plan's, the curve says so.

    Raises
    ------
    InputError
        If the catalogue lacks the pool's model, GPU or engine, or the replica no longer starts.
    """
    problems = Problems()
    shape = problems.attempt(lambda: catalog.model_shape(pool.weights))
    gpu = problems.attempt(lambda: catalog.gpu(pool.gpu))
    facts = problems.attempt(lambda: catalog.engine(pool.engine, pool.engine_version))
    deployment = problems.attempt(lambda: deployment_of(pool))
    problems.raise_if_any()
    assert shape is not None
    assert gpu is not None
    assert facts is not None
    assert deployment is not None
    sizing = size(shape, gpu, facts, deployment)
    if not sizing.starts:
        fix = "Plan again: the catalogue has changed"
        raise InputError(
            [Problem(label_of(sizing), f"does not start ({r.rule}): {r.message}", fix) for r in sizing.refusals]
        )
    planned = planned_point(pool)
    span = (1.0, max(LEAST_SPAN, 2.0 ** math.ceil(math.log2(2 * pool.load.quantile_live_requests + 1))))
    lengths = (pool.mean_prompt_tokens, max(2.0, pool.mean_output_tokens))
    sources = replace(sources, version=pool.engine_version)
    curve = curve_of(Replica(shape, gpu, sizing, label_of(sizing)), sources, span, lengths, planned)
    # A curve names its provider before a colon, a plan's source as its first word.
    if not curve.source.endswith(pool.speed.tpot_ms.source.removeprefix(f"{pool.speed.provider} ")):
        note = f"the plan's speeds come from another source: {pool.speed.tpot_ms.source}"
        curve = replace(curve, planned=replace(planned, note=f"{planned.note}; {note}"))
    return curve


def file_names(plan: FleetPlan) -> list[str]:
    """A file name for each pool, made of letters, digits, dots and dashes; equal ones are numbered."""
    names: list[str] = []
    for pool in plan.pools:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", pool.name).strip(".-")[:80] or "pool"
        taken = {name.casefold() for name in names}
        numbered = (f"{stem}-{number}" for number in range(2, len(names) + 3))
        names.append(stem if stem.casefold() not in taken else next(n for n in numbered if n.casefold() not in taken))
    return names


def _prepare(folder: Path) -> None:
    """Make the folder, and see that it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = Problem(str(folder), f"cannot be written: {error.strerror}", "Choose another folder with -o")
        raise InputError(problem) from None
