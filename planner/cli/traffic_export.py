"""`planner traffic export`: a trace that load generators replay."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.files import replacing
from planner.cli.traffic_folders import console, read_folder
from planner.traffic.export import Draw, Drawn, draw, mooncake_lines


class TraceFormat(StrEnum):
    """How the trace is written."""

    MOONCAKE = "mooncake"


def register(group: typer.Typer) -> None:
    """Add the command to ``planner traffic``."""
    group.command("export")(export_command)


def export_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Canonical folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.jsonl", help="Trace to write.")],
    requests: Annotated[int, typer.Option(metavar="N", help="Requests to draw.")] = 1000,
    model: Annotated[str, typer.Option(help="Model to draw; may be left out where there is one.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    trace_format: Annotated[TraceFormat, typer.Option("--format", help="Format of the trace.")] = TraceFormat.MOONCAKE,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Draw a trace for AIPerf, GuideLLM and other load generators from a distribution.

    Arrivals keep the counts per minute of the busiest stretch; lengths follow the joint law. Bursts shorter than a
    minute and the reuse of prefixes are not drawn.
    """
    drawn = draw(read_folder(folder), Draw(requests, seed, model))
    with replacing(output) as stream:
        stream.writelines(mooncake_lines(drawn))
    report = _report(drawn, output, trace_format)
    if as_json:
        typer.echo(json.dumps(report, indent=2, sort_keys=True))
        return
    text = (
        f"{requests:,} requests of {drawn.minutes:,} minutes from {drawn.start} on, mean prompt "
        f"{report['mean_prompt_tokens']:,.1f}, mean output {report['mean_output_tokens']:,.1f} tokens. Times are "
        f"milliseconds. Written to {output}"
    )
    console().print(text, highlight=False, markup=False)


def _report(drawn: Drawn, output: Path, trace_format: TraceFormat) -> dict[str, Any]:
    return {
        "output": str(output),
        "format": trace_format.value,
        "requests": len(drawn.time_ms),
        "stretch_start": drawn.start,
        "stretch_minutes": drawn.minutes,
        "mean_prompt_tokens": float(drawn.prompt.mean()),
        "mean_output_tokens": float(drawn.output.mean()),
    }
