"""`planner speed import`: load tests in, one file of measured points out, and what became of every run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.cli.fields import options_from
from planner.cli.files import replacing
from planner.errors import InputError, Problem, Problems
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.load_tests.checks import Steady
from planner.speed.load_tests.formats import NAMES, named
from planner.speed.load_tests.identity import GIVEN_FIELDS, Given
from planner.speed.load_tests.importing import Imported, import_points
from planner.speed.load_tests.points_file import write_points
from planner.speed.load_tests.types import Record

PIPE_WIDTH = 160


def _option(help_text: str, *names: str, metavar: str | None = "N") -> typer.models.OptionInfo:
    return typer.Option(*names, metavar=metavar, help=help_text)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ImportOptions:
    """What was typed."""

    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results of load tests, or folders of them.")]
    output: Annotated[Path, _option("Points file to write (CSV).", "-o", "--output", metavar="FILE")]
    model: Annotated[str, _option("Model that was served: catalogue id or alias.", metavar="ID")] = ""
    gpu: Annotated[str, _option("GPU it ran on, such as H100-SXM.", metavar="ID")] = ""
    engine: Annotated[str, _option("vllm, sglang, trtllm.", metavar="NAME")] = ""
    version: Annotated[str, _option("Version of the engine.", metavar="VERSION")] = ""
    tp: Annotated[int | None, _option("Tensor-parallel degree: all GPUs of a replica (of a pipeline stage).")] = None
    pp: Annotated[int | None, _option("Pipeline-parallel degree.")] = None
    ep: Annotated[int | None, _option("Expert-parallel degree.")] = None
    attention_dp: Annotated[int | None, _option("Data-parallel degree of attention; divides --tp.")] = None
    replicas: Annotated[int | None, _option("Equal replicas behind the endpoint.")] = None
    weights: Annotated[WeightDtype | None, _option(f"Weight format: {', '.join(WeightDtype)}.", metavar="TYPE")] = None
    kv: Annotated[KvDtype | None, _option(f"KV-cache format: {', '.join(KvDtype)}.", metavar="TYPE")] = None
    cached_share: Annotated[
        float | None, _option("Share of prompt tokens found in the prefix cache, 0 to 1.", metavar="X")
    ] = None
    acceptance: Annotated[
        float | None, _option("Tokens that a step yields per sequence with speculative decoding.", metavar="X")
    ] = None
    no_speculative: Annotated[
        bool, _option("Leave out runs with speculative decoding.", "--no-speculative", metavar=None)
    ] = False
    tool: Annotated[str, _option(f"Tool that wrote the files: {', '.join(NAMES)}.", "--format", metavar="NAME")] = (
        "auto"
    )


def register(group: typer.Typer) -> None:
    """Add the command to its group."""
    group.command("import")(import_command)


@options_from(ImportOptions)
def import_command(asked: ImportOptions) -> None:
    """Turn load tests into measured points, which predictions and plans then prefer to any model.

    Files of several tools may be mixed. What no tool records (GPU, parallelism, formats) is given by options. Runs that
    are no steady point are left out, each with its reason.
    """
    problems = Problems()
    tool = problems.attempt(lambda: named(asked.tool))
    _check_output(asked, problems)
    problems.raise_if_any()
    given = Given(**{name: getattr(asked, name) for name in GIVEN_FIELDS})
    lookup = Lookup(load_catalog())
    lookup.ready()
    imported = import_points(asked.files, given, lookup, tool, keep_speculative=not asked.no_speculative)
    if not imported.records:
        raise InputError(_nothing(imported, asked))
    with replacing(asked.output) as file:
        write_points(file, imported.records)
    _print(imported, asked.output)


def _check_output(asked: ImportOptions, problems: Problems) -> None:
    """The output must not be one of the inputs, and options must not cancel each other."""
    same = [path for path in asked.files if path.exists() and asked.output.exists() and path.samefile(asked.output)]
    if same:
        problems.add("-o", f"{asked.output} is one of the files to import", "Write to another file")
    if asked.no_speculative and asked.acceptance is not None:
        problems.add("--acceptance", "has no effect with --no-speculative", "Leave one of them out")


def _nothing(imported: Imported, asked: ImportOptions) -> list[Problem]:
    """Why there is no point at all: every reason is then what is wrong with the input."""
    if imported.rejected:
        return [Problem(one.place, f"gives no point: {one.reason}") for one in imported.rejected]
    places = ", ".join(str(path) for path in asked.files)
    skipped = ", ".join(f"{what} ({count})" for what, count in imported.skipped.items())
    return [Problem(places, f"holds no run of a load test{f': only {skipped}' if skipped else ''}", "Check the path")]


def _print(imported: Imported, output: Path) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, PIPE_WIDTH))
    console.print(_table(imported))
    for record, one in zip(imported.records, imported.steady, strict=True):
        for note in one.run.notes:
            console.print(escape(f"{record.id}: {note}"), soft_wrap=True)
    for note in imported.notes:
        console.print(escape(note), soft_wrap=True)
    if imported.rejected:
        console.print(f"\n{len(imported.rejected)} rejected:")
        for rejected in imported.rejected:
            console.print(escape(f"  {rejected.place}: {rejected.reason}"), soft_wrap=True)
    if imported.skipped:
        words = ", ".join(f"{what} ({count})" for what, count in imported.skipped.items())
        console.print(f"\nSkipped: {words}", soft_wrap=True)
    count = len(imported.records)
    console.print(escape(f"\n{output}: {count} point{'s' if count != 1 else ''} written"), soft_wrap=True)


def _table(imported: Imported) -> Table:
    table = Table(
        "point", "deployment", "load", "in/out", "TTFT", "TPOT", "out tok/s", "accepted", box=None, pad_edge=False
    )
    for record, one in zip(imported.records, imported.steady, strict=True):
        served, load = record.served, record.load
        deployment = f"{served.model} {served.gpu} tp{served.tp} {served.weight_dtype} {served.engine} {served.version}"
        table.add_row(
            record.id,
            escape(deployment.strip()),
            escape(_load_words(one)),
            f"{load.input_tokens:.0f}/{load.output_tokens:.0f}",
            _time(record, "ttft"),
            _time(record, "tpot"),
            "" if record.output_tok_s is None else f"{record.output_tok_s:.4g}",
            "" if record.acceptance is None else f"{record.acceptance:.2f}",
        )
    return table


def _load_words(one: Steady) -> str:
    concurrency = "" if one.concurrency is None else f" {one.concurrency:.4g} ({one.concurrency_from})"
    rate = "" if one.rate_per_s is None else f", {one.rate_per_s:.3g}/s"
    return f"{one.kind}{concurrency}{rate}"


def _time(record: Record, name: str) -> str:
    """The figure that is used, and which it is."""
    spread = record.ttft if name == "ttft" else record.tpot
    if spread.p50_ms is not None:
        return f"{spread.p50_ms:.4g} ms p50"
    return "" if spread.mean_ms is None else f"{spread.mean_ms:.4g} ms mean"
