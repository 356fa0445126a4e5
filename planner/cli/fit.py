"""`planner fit`: refit what no source states from the catalogue's measurements."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from planner.catalog.load import load_catalog
from planner.cli.files import replacing
from planner.memory.fit import (
    Coefficient,
    Prediction,
    catalogue_value,
    fit,
    fragment,
    leave_one_source_out,
    predictions,
    read_logs,
    stale,
    starts,
)

WORST = 10
STALE_CODE = 1


def register(app: typer.Typer) -> None:
    """Add the command group to the application."""
    group = typer.Typer(no_args_is_help=True, help="Refit coefficients from the catalogue's measurements.")
    group.callback()(lambda: None)
    group.command("overheads")(fit_overheads)
    app.add_typer(group, name="fit")


def fit_overheads(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the facts as TOML here.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Fail where the catalogue differs from the refit.")] = False,
) -> None:
    """Refit vLLM's overheads from its start-up logs, and show how near the predictions come."""
    catalog = load_catalog()
    started = starts(read_logs(catalog.root), catalog)
    coefficients = fit(started)
    outdated = stale(catalog.engines, coefficients)
    if output is not None:
        _write(output, fragment(coefficients, max(start.log.as_of for start in started)))
        typer.echo(f"{output}: {len(coefficients)} coefficients")
    console = Console(width=150)
    console.print(_coefficients(coefficients, lambda c: catalogue_value(catalog.engines, c), outdated))
    within, apart = predictions(started), leave_one_source_out(started)
    eras = {start.log.id: start.facts.version for start in started}
    console.print(_errors(within, apart, eras))
    console.print(_worst(apart))
    if check and outdated:
        names = ", ".join(sorted({coefficient.fact for coefficient in outdated}))
        typer.echo(f"the catalogue differs from the refit: {names}", err=True)
        raise typer.Exit(STALE_CODE)


def _coefficients(
    found: Sequence[Coefficient], known: Callable[[Coefficient], float | None], outdated: Sequence[Coefficient]
) -> Table:
    headings = ("coefficient", "since", "tp", "fitted", "catalogue", "logs", "median residual", "worst residual", "")
    table = Table(*headings, title="Coefficients")
    for coefficient in found:
        value = known(coefficient)
        table.add_row(
            coefficient.fact,
            coefficient.since,
            "" if coefficient.tp is None else str(coefficient.tp),
            f"{coefficient.value:g}",
            "none" if value is None else f"{value:g}",
            str(len(coefficient.logs)),
            f"{coefficient.median_residual:.3f}",
            f"{coefficient.worst_residual:.3f}",
            "differs" if coefficient in outdated else "",
        )
    return table


def _errors(within: Sequence[Prediction], apart: Sequence[Prediction], eras: dict[str, str]) -> Table:
    """Errors of available KV memory, all and by version, GPU and degree; each source's logs predicted without it."""
    headings = ("available KV memory", "logs", "median", "p90", "worst", "in sample: median", "p90")
    table = Table(*headings, title="Errors, each source predicted from the others")
    groups: tuple[tuple[str, Callable[[Prediction], str]], ...] = (
        ("facts of", lambda p: eras[p.log.id]),
        ("on", lambda p: p.log.gpu),
        ("tp", lambda p: str(p.log.tp)),
    )
    table.add_row("all", *_spread(apart), *_spread(within)[1:3], end_section=True)
    for label, key in groups:
        names = sorted({key(prediction) for prediction in apart}, key=_natural)
        for name in names:
            outside = [p for p in apart if key(p) == name]
            inside = [p for p in within if key(p) == name]
            table.add_row(f"{label} {name}", *_spread(outside), *_spread(inside)[1:3], end_section=name == names[-1])
    return table


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part) if part.isdecimal() else 0, part) for part in name.split("."))


def _spread(found: Sequence[Prediction]) -> tuple[str, str, str, str]:
    """Count, median, 90th percentile (nearest rank) and largest of the errors' sizes."""
    errors = sorted(abs(prediction.error) for prediction in found)
    ninth = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    return str(len(errors)), _percent(statistics.median(errors)), _percent(ninth), _percent(errors[-1])


def _percent(error: float) -> str:
    return f"{100 * error:.2f} %"


def _worst(apart: Iterable[Prediction]) -> Table:
    table = Table("log", "model", "on", "predicted GiB", "logged GiB", "error", "cause", title=f"The worst {WORST}")
    for prediction in sorted(apart, key=lambda p: -abs(p.error))[:WORST]:
        log = prediction.log
        figures = (f"{prediction.predicted_gib:.2f}", f"{prediction.logged_gib:.2f}", _percent(prediction.error))
        table.add_row(log.id, log.hf_id, f"vLLM {log.version}, {log.tp} x {log.gpu}", *figures, log.notes)
    return table


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text)
