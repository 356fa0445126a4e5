"""`planner check-log`: what an engine printed at start-up against what was predicted."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.cli.files import replacing
from planner.deploy.loop import FoundPool, found_pool, started_as
from planner.errors import InputError, Problem
from planner.memory.calibration import Calibration, calibration_text, measured_start, read_calibration
from planner.memory.size import size
from planner.memory.starts.case_start import Start, start_of
from planner.memory.starts.cases import BOUNDLESS_GIB, FALLBACK_GPU
from planner.memory.starts.log_check import (
    Comparison,
    Predicted,
    compare,
    culprits,
    planned_pool,
    predicted_by,
    predicted_in,
    started_otherwise,
)
from planner.memory.starts.log_start import Overrides, case_of, completed
from planner.memory.starts.startup_log import StartupLog, read_log
from planner.memory.types import Sizing
from planner.plan import FleetPlan, Pool, read_plan
from planner.plan_file import plan_file

OFF = 3
"""Exit code where a term is off, or the engine started and was predicted not to, or the reverse."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("check-log")(check_log)


def check_log(
    log_file: Annotated[Path, typer.Argument(metavar="LOGFILE", help="Start-up log of vLLM or SGLang, also .gz.")],
    plan: Annotated[
        Path | None, typer.Option(metavar="PLAN.json", help="Compare with the plan's pool instead of a new prediction.")
    ] = None,
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="Pool of the plan that the log is of: does it hold what was planned?")
    ] = "",
    model: Annotated[str, typer.Option(metavar="ID", help="Model, where the log's name is not its id.")] = "",
    gpu: Annotated[str, typer.Option(metavar="ID", help="GPU, where the log does not tell it.")] = "",
    engine_version: Annotated[str, typer.Option(metavar="VERSION", help="Where the log does not tell it.")] = "",
    tp: Annotated[int | None, typer.Option(metavar="N", min=1, help="Where the log does not tell it.")] = None,
    models: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of further configs (org--name.json).")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the measured terms to this calibration file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show predicted against logged memory term by term, and name the term that is off by more than a tenth.

    Exit code 0 where everything is within a tenth, 3 where a term is off or the start itself was predicted wrong. With
    --pool it is 3 where the KV pool that the engine found does not hold the planned load, or is a tenth too small.
    """
    log, catalog = read_log(log_file), load_catalog()
    planned = _planned(plan, pool)
    typed = Overrides(model, gpu, engine_version, tp)
    pools = planned.pools if planned else ()
    case, inferred = case_of(log, catalog, started_as(typed, log, pools[0]) if pool else completed(typed, log, pools))
    lookup = Lookup(catalog, models)
    start = start_of(case, lookup)
    if gpu and start.unknown_gpu is not None:
        raise start.unknown_gpu
    sizing = _sizing(start) if start.gpu is not None else _without_gpu(log, start, lookup, calibrate is not None)
    report = _report(log, sizing, planned, (*log.notes, *inferred, *start.notes), start.gpu is not None)
    report = replace(report, pool=pools[0], found=found_pool(log, pools[0])) if pool else report
    if as_json:
        typer.echo(json.dumps(_as_data(report), indent=2, ensure_ascii=False))
    else:
        _print(report)
    if calibrate is not None:
        _add(calibrate, log, sizing, log_file)
        typer.echo(f"{calibrate}: measured terms of {log_file.name} added", err=as_json)
    if report.is_off:
        raise typer.Exit(OFF)


def _sizing(start: Start) -> Sizing:
    assert start.gpu is not None
    return size(start.shape, start.gpu, start.facts, start.deployment, start.given)


def _without_gpu(log: StartupLog, start: Start, lookup: Lookup, measured: bool) -> Sizing:
    """The pool in the memory that was logged, laid out as on a Hopper card.

    Raises
    ------
    InputError
        If the GPU is needed: the log states neither its weights nor the memory left, was refused, or is to be kept.
    """
    available = log.figure("available")
    if measured or log.refusal or (available is None and log.figure("weights") is None):
        assert start.unknown_gpu is not None
        fix = "Give the id of the GPU, such as H100-SXM"
        raise InputError(Problem("--gpu", "is missing: the log does not tell the GPU", fix)) from start.unknown_gpu
    given = replace(start.given, available_gib=available if available is not None else BOUNDLESS_GIB)
    return _sizing(replace(start, gpu=lookup.gpu(FALLBACK_GPU).found, given=given))


@dataclass(frozen=True)
class Report:
    """The comparison, ready to print."""

    log: StartupLog
    sizing: Sizing
    lines: tuple[Comparison, ...]
    off: tuple[Comparison, ...]
    reasons: tuple[str, ...]
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    gpu_known: bool = True
    pool: Pool | None = None
    """The pool that the user says the log is of."""
    found: FoundPool | None = None

    @property
    def start_wrong(self) -> bool:
        """Whether the engine started although a refusal was predicted, or the reverse."""
        started = bool(self.log.figures) and not self.log.refusal
        return bool(self.log.refusal) != bool(self.reasons) and (started or bool(self.log.refusal))

    @property
    def is_off(self) -> bool:
        """Whether anything is wrong with the prediction; of a pool, whether it does not hold what was planned."""
        if self.pool is not None:
            return self.start_wrong or self.found is None or not self.found.holds
        return bool(self.off) or self.start_wrong


def _planned(path: Path | None, pool: str) -> FleetPlan | None:
    """The plan, with the one pool that is meant where the user names it.

    Raises
    ------
    InputError
        If the plan has no such pool, or a pool is named without a plan.
    """
    if path is None:
        if pool:
            raise InputError(Problem("--pool", "needs a plan", "Give it with --plan"))
        return None
    plan = read(plan_file(path))
    if not pool:
        return plan
    named = tuple(own for own in plan.pools if own.name == pool)
    if not named:
        known = ", ".join(own.name for own in plan.pools)
        raise InputError(Problem("--pool", f"the plan has no pool '{pool}'", f"It has {known}"))
    return plan.model_copy(update={"pools": named})


def _report(log: StartupLog, sizing: Sizing, plan: FleetPlan | None, notes: tuple[str, ...], gpu_known: bool) -> Report:
    predicted, differences = _predicted(sizing, plan) if gpu_known else (predicted_by(sizing), ())
    lines = compare(log, predicted, gpu_known)
    reasons = predicted.reasons if gpu_known else ()
    unknown = () if gpu_known else ("the GPU is not known: only weights and what the logged memory holds are compared",)
    return Report(log, sizing, lines, culprits(lines), reasons, differences, (*notes, *unknown), gpu_known)


def _predicted(sizing: Sizing, plan: FleetPlan | None) -> tuple[Predicted, tuple[str, ...]]:
    if plan is None:
        return predicted_by(sizing), ()
    pool = planned_pool(plan.pools, sizing)
    return predicted_in(pool), started_otherwise(pool, sizing)


def read(path: Path) -> FleetPlan:
    """The plan.

    Raises
    ------
    InputError
        If the file is no plan.
    """
    try:
        return read_plan(path)
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "does not have the form of plan.json"
        raise InputError(Problem(str(path), f"is no plan: {reason}", "Give the plan.json of `planner plan`")) from error


def _add(path: Path, log: StartupLog, sizing: Sizing, log_file: Path) -> None:
    """Add what the log measured to the calibration file, which is replaced as a whole.

    Raises
    ------
    InputError
        If the file cannot be read or written, or the log measured nothing, or what cannot be.
    """
    known = read_calibration(path) if path.exists() else Calibration()
    try:
        measured = measured_start(log, sizing, log_file.name, dt.date.today())
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise InputError(
            [Problem(str(log_file), f"measures what cannot be: {e['msg']}", field=str(e["loc"][0])) for e in found]
        ) from error
    if not any(name.endswith("_gib") for name in measured.model_dump(exclude_none=True)):
        raise InputError(Problem(str(log_file), "states no figure of memory: there is nothing to calibrate with"))
    added = known.with_start(measured)
    with replacing(path) as file:
        file.write(calibration_text(added))


def _pool_data(report: Report) -> dict[str, Any] | None:
    if report.found is None:
        return None
    found = report.found
    return {**asdict(found), "gap": found.gap, "holds": found.holds}


def _as_data(report: Report) -> dict[str, Any]:
    sizing, log = report.sizing, report.log
    return {
        "engine": log.engine,
        "engine_version": log.version,
        "facts_version": sizing.engine_version,
        "model": sizing.model_id,
        "gpu": sizing.gpu_id if report.gpu_known else None,
        "tp": sizing.deployment.tp,
        "weights": str(sizing.deployment.weight_dtype),
        "kv": str(sizing.deployment.kv_dtype),
        "max_model_len": sizing.max_model_len,
        "max_num_seqs": sizing.max_num_seqs,
        "max_num_batched_tokens": sizing.max_num_batched_tokens,
        "utilization": sizing.utilization,
        "comparisons": [
            {
                "name": line.name,
                "unit": line.unit,
                "predicted": line.predicted,
                "logged": line.logged,
                "gap": line.gap,
                "off": line.is_off,
            }
            for line in report.lines
        ],
        "off": [line.name for line in report.off],
        "workers": {rank.rank or "only": dict(rank.figures) for rank in log.ranks},
        "refused": log.refusal or None,
        "predicted_refusals": list(report.reasons),
        "start_predicted_wrong": report.start_wrong,
        "differs_from_plan": list(report.differences),
        "pool": _pool_data(report),
        "notes": list(report.notes),
    }


def _print(report: Report) -> None:
    console = Console(highlight=False)
    sizing, log = report.sizing, report.log
    gpu = sizing.gpu_id if report.gpu_known else "unknown GPU"
    console.print(
        f"[bold]{sizing.model_id}[/bold] on {sizing.deployment.tp} x {gpu}, {log.engine} "
        f"{log.version or sizing.engine_version}"
    )
    table = Table("", "Predicted", "Logged", "Gap", "")
    for column in table.columns[1:4]:
        column.justify = "right"
    for line in report.lines:
        digits = 2 if line.unit in ("GiB", "KiB", "x") else 0
        figures = (f"{line.predicted:,.{digits}f}", f"{line.logged:,.{digits}f} {line.unit}", f"{line.gap:+.1%}")
        table.add_row(line.name, *figures, "[red]off[/red]" if line.is_off else "")
    console.print(table)
    if len(log.ranks) > 1:
        console.print(f"{len(log.ranks)} workers; the tightest is {log.tightest.rank or 'the first'}.", markup=False)
    for text in (*(f"Started otherwise than planned: {text}" for text in report.differences), *report.notes):
        console.print(f"Note: {text}", markup=False)
    for text in _verdict(report):
        console.print(text, markup=False)
    if report.pool is not None:
        console.print(str(report.found or "The log states no figure of the KV pool."), markup=False, soft_wrap=True)


def _verdict(report: Report) -> list[str]:
    """What is wrong, in sentences."""
    if not report.lines and not report.log.refusal:
        return ["The log states no figure of memory: it ends too early, or its level is above INFO."]
    lines = [
        f"Off: {line.name}, predicted {line.predicted:,.2f}, logged {line.logged:,.2f} {line.unit} ({line.gap:+.0%})."
        for line in report.off
    ]
    if report.start_wrong and report.log.refusal:
        lines.append(f"The engine refused to start, which was not predicted: {report.log.refusal}")
    elif report.start_wrong:
        lines.append(f"The engine started, although a refusal was predicted: {'; '.join(report.reasons)}")
    elif report.log.refusal:
        lines.append(f"The engine refused to start, as predicted: {report.log.refusal}")
    return lines or ["Everything is within a tenth."]
