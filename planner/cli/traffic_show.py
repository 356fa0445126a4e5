"""`planner traffic show`: the figures of a canonical folder as tables, as JSON, and as pictures and a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from planner.cli.ingest import MODELS_A_TABLE
from planner.cli.numbers import number, percent, window
from planner.cli.speed_plot import write_bytes
from planner.cli.traffic_folders import console, printable, read_folder
from planner.errors import InputError, Problem
from planner.traffic.canonical import Canonical
from planner.traffic.disk import usable
from planner.traffic.dropped import heavy_loss
from planner.traffic.figures import ModelFigures, as_plain, figures_of
from planner.traffic.schema import Manifest

SIDES = ("prompt", "output", "total")
MANIFEST_SHOWN = {
    "kind", "source", "files", "window_start", "window_end", "time_base", "tz_of_source", "ts_resolution_ms",
    "ts_meaning", "sampling_fraction", "filters_applied", "counts", "smallest_cell", "history", "remarks",
}  # fmt: skip


def register(group: typer.Typer) -> None:
    """Add the command to ``planner traffic``."""
    group.command("show")(show_command)


def show_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Canonical folder.")],
    model: Annotated[
        list[str] | None, typer.Option(help="Show this model only; repeatable.", show_default="all")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the charts there (PNG, SVG) and a page that needs no network."),
    ] = None,
) -> None:
    """Show what a distribution holds: counts, rates, lengths, bursts and remarks.

    Percentiles are upper bounds: at most one cell (9 %) too high, exact among the largest 1,000 totals.
    """
    canonical = read_folder(folder)
    found = figures_of(canonical, folder, model or [])
    written = _write_plots(canonical, found, plots) if plots is not None else []
    if as_json:
        typer.echo(json.dumps(_report(canonical, found, written), indent=2, sort_keys=True, ensure_ascii=False))
        return
    screen = console()
    _print_manifest(canonical.manifest, screen)
    for start in range(0, len(found), MODELS_A_TABLE):
        screen.print(_table(found[start : start + MODELS_A_TABLE]))
    for one in found:
        for line in _notes(one):
            screen.print(Text(f"{printable(one.model)}: {line}"))
    for path in written:
        screen.print(f"Written: {path}", highlight=False, markup=False)


def _report(canonical: Canonical, found: Sequence[ModelFigures], written: Sequence[Path]) -> dict[str, Any]:
    manifest = canonical.manifest
    return {
        **manifest.model_dump(mode="json", include=MANIFEST_SHOWN),
        "warnings": [warning for warning in (heavy_loss(manifest.counts),) if warning],
        "models": {one.model: as_plain(one) for one in found},
        **({"plots": [str(path) for path in written]} if written else {}),
    }


def _write_plots(canonical: Canonical, found: Sequence[ModelFigures], folder: Path) -> list[Path]:
    """Every chart as PNG and SVG, and the page.

    Raises
    ------
    InputError
        If the folder cannot be made or written.
    """
    from planner.report.traffic_page import traffic_files  # noqa: PLC0415  charts load only when needed

    if folder.exists() and not folder.is_dir():
        raise InputError(Problem(str(folder), "is a file", "Give a folder"))
    files = traffic_files(canonical, found)
    with usable(folder, "written"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_bytes(folder / name, content)
    return [folder / name for name in files]


def _print_manifest(manifest: Manifest, screen: Console) -> None:
    counts = manifest.counts
    screen.print(
        Text(
            f"{printable(manifest.source)}: {counts.rows_read:,} rows read, {counts.kept:,} kept, "
            f"{counts.offered:,} arrivals, "
            f"{window(manifest.window_start, manifest.window_end, manifest.time_base)}"
        )
    )
    if loss := heavy_loss(counts):
        screen.print(Text(f"WARNING: {loss}", style="bold red"))
    if manifest.sampling_fraction < 1:
        text = f"sampled: the log holds {percent(manifest.sampling_fraction)} % of the requests; rates below are of all"
        screen.print(Text(f"WARNING: {text}", style="bold red"))
    for what, by_reason in (("dropped", counts.dropped_by_reason), ("adjusted", counts.adjusted_by_reason)):
        if by_reason:
            screen.print(Text(f"{what}: " + ", ".join(f"{n:,} {reason}" for reason, n in by_reason.items())))
    if manifest.smallest_cell > 1:
        screen.print(Text(f"every cell of the lengths holds at least {manifest.smallest_cell} requests"))
    for what, lines in (
        ("filter", manifest.filters_applied), ("history", manifest.history), ("remark", manifest.remarks),
    ):  # fmt: skip
        for line in lines:
            screen.print(Text(f"{what}: {printable(line)}"))


def _table(found: Sequence[ModelFigures]) -> Table:
    """One column per model, so that figures keep their digits on a narrow terminal."""
    table = Table(Column("figure", no_wrap=True), title="Traffic", title_justify="left")
    columns = [_figures(one) for one in found]
    for one in found:
        table.add_column(Text(printable(one.model)), justify="right")
    for label in dict.fromkeys(label for column in columns for label in column):
        table.add_row(label, *(column.get(label, "-") for column in columns))
    return table


def _figures(one: ModelFigures) -> dict[str, str]:
    rows = {
        "requests": f"{one.requests:,}",
        "arrivals per s, mean": number(one.arrivals_per_s, 4),
        "arrivals per s, busiest minute": number(one.peak_minute_per_s, 4),
        "arrivals per s, busiest hour": number(one.peak_hour_per_s, 4),
    }
    for side in SIDES:
        if side not in one.lengths:
            continue
        lengths = one.lengths[side]
        rows[f"{side} tokens, mean"] = f"{lengths.mean:,.1f}"
        rows |= {f"{side} tokens, P{100 * q:.12g}": f"{tokens:,}" for q, tokens in lengths.quantiles.items()}
        rows[f"{side} tokens, largest"] = f"{lengths.most:,}"
    if one.cached_share is not None:
        rows["cached share of prompt tokens"] = f"{percent(one.cached_share)} %"
    scales = sorted([*one.idc, *one.idc_unknown])
    rows |= {f"burst (IDC) at {s:.12g} s": number(one.idc[s], 3) if s in one.idc else "-" for s in scales}
    if one.batches:
        sizes = [f"{size:,}" + (f" ({times:,} times)" if times > 1 else "") for size, times in one.batches.items()]
        rows["largest batches of one stamp"] = ", ".join(sizes)
    return rows


def _notes(one: ModelFigures) -> list[str]:
    caps = [
        f"{percent(cap.share)} % of {cap.side} lengths sit at the cap of {cap.tokens:,} tokens: they will grow if that "
        "limit is raised"
        for cap in one.caps
    ]
    by_reason: dict[str, list[str]] = {}
    for scale, reason in sorted(one.idc_unknown.items()):
        by_reason.setdefault(reason, []).append(f"{scale:.12g} s")
    unknown = [f"the burst (IDC) at {', '.join(s)} is not measurable: {why}" for why, s in by_reason.items()]
    return [*caps, *unknown, *one.warnings]
