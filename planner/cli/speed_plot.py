"""`planner speed plot`: decode rate, TPOT, TTFT and output against concurrency, as a picture or a page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog, load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.catalog.model_shape import ModelShape
from planner.cli.fields import options_from
from planner.cli.files import replacing
from planner.cli.speed_cases import read_points_table
from planner.cli.speed_plot_options import PlotOptions, check_typed, span_of
from planner.errors import InputError, Problem, Problems
from planner.memory.kv import auto_kv
from planner.memory.size import size, stored_dtype
from planner.memory.starts.case_texts import AUTO_KV
from planner.memory.types import Deployment, KvDtype, Sizing, WeightDtype
from planner.report.speed_curve import (
    DEFAULT_WIDTH_PX,
    Planned,
    SpeedCurve,
    concurrency_grid,
    room_of,
    speed_curve,
)
from planner.speed.cases.layouts import Layout
from planner.speed.cases.rows import Reader, read_measured
from planner.speed.chain import SpeedSources, load_sources, speed_of
from planner.speed.load_tests.points_file import read_points
from planner.speed.measured import MeasuredSet
from planner.speed.points import Point, Served


@dataclass(frozen=True)
class Replica:
    """One deployment to draw."""

    shape: ModelShape
    gpu: Gpu
    sizing: Sizing
    label: str


def register(group: typer.Typer) -> None:
    """Add the command to ``planner speed``."""
    group.command("plot")(plot_command)


@options_from(PlotOptions)
def plot_command(asked: PlotOptions) -> None:
    """Plot decode rate, TPOT, TTFT and output of a replica against concurrency, with 80 % bands and measured points.

    Several --gpu, --tp or --weights are compared in one picture. With --plan, each pool of a plan has its picture and
    page, with the planned operating point marked.
    """
    if asked.plan is not None:
        from planner.cli.speed_plot_plan import plot_plan  # noqa: PLC0415  charts load only when needed

        plot_plan(asked)
        return
    problems = Problems()
    span = problems.attempt(lambda: span_of(asked.concurrency or "1:256"))
    check_typed(asked, problems)
    catalog = load_catalog()
    points = problems.attempt(lambda: points_of(asked.measured, catalog))
    sources = problems.attempt(lambda: sources_of(catalog, asked))
    replicas = _replicas(asked, catalog, problems)
    problems.raise_if_any()
    assert span is not None
    assert points is not None
    assert sources is not None
    curves = _curves(replicas, sources, span, asked)
    _write(curves, points, asked)


def _write(curves: Sequence[SpeedCurve], points: Sequence[Point], asked: PlotOptions) -> None:
    """The chart as the file that was asked for."""
    from planner.report.chart_file import FileKind  # noqa: PLC0415  charts load only when needed
    from planner.report.speed_chart import speed_chart  # noqa: PLC0415
    from planner.report.speed_page import chart_file  # noqa: PLC0415

    assert asked.out is not None
    spec = speed_chart(curves, points, width_px=asked.width or DEFAULT_WIDTH_PX)
    write_bytes(asked.out, chart_file(FileKind(asked.out.suffix.lower()), spec, curves, points))
    typer.echo(f"{asked.out}: {drawn(curves, points)}")


def drawn(curves: Sequence[SpeedCurve], points: Sequence[Point]) -> str:
    """How many curves and points a chart shows, and how many points it leaves out."""
    shown = sum(any(curve.covers(point) for curve in curves) for point in points)
    text = f"{len(curves)} deployment{'s' if len(curves) != 1 else ''}"
    if points:
        text += f", {shown} of {len(points)} measured points"
    if shown < len(points):
        text += " (the others: another deployment, lengths or kind of load)"
    return text


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as file:  # which passes bytes that are no text through unchanged
        file.write(content.decode("utf-8", "surrogateescape"))


def points_of(path: Path | None, catalog: Catalog) -> tuple[Point, ...]:
    """Measured points of a table that ``planner speed --cases`` knows; none without one.

    Raises
    ------
    InputError
        If it is no such table, or holds no point that can be read; of a points file, every problem.
    """
    if path is None:
        return ()
    table = read_points_table(path)
    if table.layout is Layout.POINTS:
        return read_points(path)
    points = read_measured(Reader(Lookup(catalog)), table.layout, table.rows)
    if not points:
        fix = "It needs rows whose model and GPU are known, with tpot_ms, ttft_ms or a throughput"
        raise InputError(Problem(str(path), "holds no measured point that can be read", fix))
    return tuple(replace(point, source=path.name) for point in points)


def sources_of(catalog: Catalog, asked: PlotOptions) -> SpeedSources:
    """The provider chain, with the user's measurements where a file is given."""
    sources = load_sources(catalog.root)
    measured = MeasuredSet(points_of(asked.calibrate_with, catalog))
    return replace(sources, measured=measured, version=asked.engine_version)


def _replicas(asked: PlotOptions, catalog: Catalog, problems: Problems) -> list[Replica]:
    """Every deployment that was asked for; those that do not start are problems."""
    shape = problems.attempt(lambda: catalog.model_shape(asked.model)) if asked.model else None
    facts = problems.attempt(lambda: catalog.engine(asked.engine, asked.engine_version))
    gpus = [problems.attempt(lambda name=name: catalog.gpu(name)) for name in dict.fromkeys(asked.gpu or ())]  # type: ignore[misc]
    stored = None
    if shape is not None and not asked.weights:
        stored = problems.attempt(lambda: (stored_dtype(shape),))
    if shape is None or facts is None or problems.found:
        return []
    formats = asked.weights or stored or ()
    return [
        replica
        for gpu, tp, weights in itertools.product(gpus, asked.tp or [1], formats)
        if gpu is not None and (replica := problems.attempt(lambda: _replica(asked, shape, facts, gpu, tp, weights)))  # noqa: B023
    ]


def _replica(
    asked: PlotOptions, shape: ModelShape, facts: EngineFacts, gpu: Gpu, tp: int, weights: WeightDtype
) -> Replica:
    """One deployment, started for requests of the mean lengths.

    Raises
    ------
    InputError
        If it does not start, or not even one request fits.
    """
    p, o = asked.input_tokens or 0, asked.output_tokens or 0
    kv = auto_kv(shape, facts) if asked.kv == AUTO_KV else KvDtype(asked.kv)
    deployment = Deployment(tp=tp, weight_dtype=weights, kv_dtype=kv, max_model_len=p + o)
    sizing = size(shape, gpu, facts, deployment)
    label = label_of(sizing)
    if not sizing.starts:
        raise InputError([Problem(label, f"does not start ({r.rule}): {r.message}", r.fix) for r in sizing.refusals])
    return Replica(shape, gpu, sizing, label)


def label_of(sizing: Sizing) -> str:
    """A deployment in few words."""
    deployment = sizing.deployment
    cache = f", KV {deployment.kv_dtype}" if deployment.kv_dtype is not KvDtype.BF16 else ""
    return f"{deployment.tp} x {sizing.gpu_id}, {deployment.weight_dtype}{cache}"


def served_of(sizing: Sizing) -> Served:
    """The deployment as measured points name it."""
    deployment = sizing.deployment
    return Served(
        engine=sizing.engine,
        version=sizing.engine_version,
        model=sizing.model_id,
        gpu=sizing.gpu_id,
        tp=deployment.tp,
        weight_dtype=deployment.weight_dtype,
        kv_dtype=deployment.kv_dtype,
    )


def _curves(
    replicas: Sequence[Replica], sources: SpeedSources, span: tuple[float, float], asked: PlotOptions
) -> list[SpeedCurve]:
    """The curves of all deployments; what cannot be drawn of any is said at once."""
    assert asked.input_tokens is not None
    assert asked.output_tokens is not None
    lengths = (float(asked.input_tokens), float(asked.output_tokens))
    problems = Problems()
    curves = [problems.attempt(lambda r=r: curve_of(r, sources, span, lengths)) for r in replicas]  # type: ignore[misc]
    problems.raise_if_any()
    return [curve for curve in curves if curve is not None]


def curve_of(
    replica: Replica,
    sources: SpeedSources,
    span: tuple[float, float],
    lengths: tuple[float, float],
    planned: Planned | None = None,
) -> SpeedCurve:
    """The curve of a deployment.

    Parameters
    ----------
    replica
        The deployment.
    sources
        The provider chain.
    span
        Least and most concurrency.
    lengths
        Mean prompt and output, tokens.
    planned
        Operating point of a plan.

    Raises
    ------
    InputError
        If no provider answers, or not one request fits.
    """
    sizing = replica.sizing
    room = room_of(sizing, *lengths)
    if room.requests < 1:
        message = f"not even one request of these lengths fits (room for {room.requests:.2f}: {room.why})"
        raise InputError(Problem(replica.label, message, "Use more or larger GPUs, or shorter requests"))
    return speed_curve(
        speed_of(replica.shape, replica.gpu, sizing, sources),
        served_of(sizing),
        concurrency_grid(*span),
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        label=replica.label,
        room=room,
        planned=planned,
    )
