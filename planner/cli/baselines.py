"""`planner baselines`: what simpler ways of planning would cost, and how often their pools would overflow."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from planner.catalog.load import load_catalog
from planner.cli.days import day
from planner.cli.live import plainly
from planner.inputs import read_inputs
from planner.optimise.explain.baselines import Baseline, PoolRisk, baselines_of
from planner.pipeline import decide, prepare, settings_of
from planner.request import PlanRequest


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("baselines")(baselines)


def baselines(
    request: Annotated[Path, typer.Argument(help="Request file (TOML).")],
    today: Annotated[str | None, typer.Option(help="Day that prices are judged by, ISO 8601. Default: today.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the plan with one GPU type, one pool a model, and replicas by means x 1.5, as Markdown tables."""
    with Console(stderr=True).status("planning") as status:
        progress = plainly(status.update)
        asked_on = day(today)
        inputs = read_inputs(request, load_catalog(on=asked_on), asked_on)
        quarter = prepare(inputs, progress)
        decision = decide(quarter, inputs.request)
        found = baselines_of(
            quarter.fleet, decision, spares_of(inputs.request), settings_of(inputs.request), progress,
        )  # fmt: skip
    typer.echo(json.dumps([as_data(b, found[0]) for b in found], indent=2) if as_json else markdown(found))


def spares_of(request: PlanRequest) -> dict[str, int]:
    """By model, replicas beyond the need."""
    usual = request.policy.spare_replicas
    return {m.name: usual if m.spare_replicas is None else m.spare_replicas for m in request.model}


def as_data(baseline: Baseline, plan: Baseline) -> dict[str, object]:
    """A baseline as plain values, with its cost over the plan's."""
    pools = [asdict(pool) | {"holds": pool.holds} for pool in baseline.pools]
    return asdict(baseline) | {"cost_over_plan": _over(baseline, plan), "holds": baseline.holds, "pools": pools}


def markdown(found: tuple[Baseline, ...]) -> str:
    """Two tables: the ways of planning, and their pools."""
    plan = found[0]
    lines = [
        "| way of planning | USD | USD per Mtok | over this plan | GPUs at most | worst overflow | every limit held |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for baseline in found:
        if baseline.usd is None or baseline.usd_per_mtok is None:
            lines.append(f"| {baseline.name} | none: {baseline.why} | | | | | |")
            continue
        over, worst = _over(baseline, plan), max((pool.overflow for pool in baseline.pools), default=0.0)
        cells = (
            baseline.name, f"{baseline.usd:,.0f}", f"{baseline.usd_per_mtok:.4f}",
            "" if over is None else f"{100 * over:+.1f} %", f"{baseline.gpus:,}", _percent(worst),
            "yes" if baseline.holds else "no",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "| way of planning | model | requests | configuration | replicas at most | overflow (limit) | also broken |",
        "|---|---|---|---|---:|---:|---|",
    ]
    lines += [_pool_line(baseline.name, pool) for baseline in found for pool in baseline.pools]
    return "\n".join(lines)


def _pool_line(name: str, pool: PoolRisk) -> str:
    overflow = f"{_percent(pool.overflow)} ({_percent(pool.overflow_limit)})"
    cells = (name, pool.model, pool.slice, pool.config, f"{pool.replicas:,}", overflow, ", ".join(pool.broken))
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def _over(baseline: Baseline, plan: Baseline) -> float | None:
    """Cost per served token over the plan's, less 1."""
    if baseline.usd_per_mtok is None or not plan.usd_per_mtok:
        return None
    return baseline.usd_per_mtok / plan.usd_per_mtok - 1


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
