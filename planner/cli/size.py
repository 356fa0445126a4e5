"""`planner size`: does a model fit on a GPU, and how many tokens are left for its KV cache."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from planner import units
from planner.catalog.engine import EngineFacts, substitution
from planner.catalog.load import load_catalog
from planner.catalog.model_shape import ModelShape
from planner.errors import InfeasibleError, InputError, Problems
from planner.memory.fixes import Fix, fixes
from planner.memory.size import MODELLED_DTYPES, check_terms, size, stored_dtype
from planner.memory.types import Deployment, GivenTerms, KvDtype, Sizing, Term, WeightDtype
from planner.report.launch import launch_command

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("size")(size_command)


def size_command(
    model: Annotated[str, typer.Argument(help="Catalogue id, or path of a Hugging Face config.json.")],
    gpu: Annotated[str, typer.Option(metavar="ID", help="GPU id, such as H100-SXM.")],
    tp: Annotated[int, typer.Option(metavar="N", help="Tensor-parallel degree.")] = 1,
    weights: Annotated[
        WeightDtype | None,
        typer.Option(metavar="TYPE", help=f"Weight format: {', '.join(WeightDtype)}. Default as stored."),
    ] = None,
    kv: Annotated[
        KvDtype | None,
        typer.Option(metavar="TYPE", help=f"KV-cache format: {', '.join(KvDtype)}. Default as the engine's auto."),
    ] = None,
    engine: Annotated[Literal["vllm", "sglang"], typer.Option(metavar="NAME", help="vllm or sglang.")] = "vllm",
    engine_version: Annotated[str, typer.Option(metavar="VERSION", help="Default the newest in the catalogue.")] = "",
    utilization: Annotated[
        float | None, typer.Option(metavar="X", help="gpu_memory_utilization (SGLang: mem_fraction_static).")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(metavar="N", help="Longest request, tokens.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(metavar="N", help="Tokens per step.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(metavar="N", help="Concurrent sequences.")] = None,
    weights_gib: Annotated[
        float | None, typer.Option(metavar="X", help="Weights per GPU, instead of the prediction.")
    ] = None,
    overhead_gib: Annotated[
        float | None,
        typer.Option(metavar="X", help="All that is neither weights nor pool, per GPU, instead of the prediction."),
    ] = None,
    gpu_memory_gib: Annotated[
        float | None, typer.Option(metavar="X", help="GPU memory, instead of the catalogue's.")
    ] = None,
    gpu_memory_mib: Annotated[
        float | None,
        typer.Option(metavar="X", help="As --gpu-memory-gib, in MiB, as nvidia-smi prints it (81559 on an H100)."),
    ] = None,
    weights_gb: Annotated[
        float | None, typer.Option(metavar="X", help="As --weights-gib, in GB (10**9 bytes).")
    ] = None,
    overhead_gb: Annotated[float | None, typer.Option(metavar="X", help="As --overhead-gib, in GB.")] = None,
    gpu_memory_gb: Annotated[float | None, typer.Option(metavar="X", help="As --gpu-memory-gib, in GB.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the subtraction of one replica term by term, its pool, whether it starts, and the launch command."""
    problems, options = Problems(), dict(OPTIONS)
    memory = {"gib": gpu_memory_gib, "gb": gpu_memory_gb, "mib": gpu_memory_mib}
    given = GivenTerms(
        gpu_memory_gib=_gib("gpu_memory_gib", memory, options, problems),
        weights_gib=_gib("weights_gib", {"gib": weights_gib, "gb": weights_gb}, options, problems),
        overhead_gib=_gib("overhead_gib", {"gib": overhead_gib, "gb": overhead_gb}, options, problems),
    )
    asked = Deployment(
        tp=tp,
        weight_dtype=weights or WeightDtype.BF16,
        kv_dtype=kv or KvDtype.BF16,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        gpu_memory_utilization=utilization,
    )
    problems.attempt(lambda: _at_options(lambda: check_terms(asked, given), options))
    catalog = load_catalog()
    card = problems.attempt(lambda: _at_options(lambda: catalog.gpu(gpu), {"": f"--gpu {gpu}"}))
    facts = problems.attempt(
        lambda: _at_options(lambda: catalog.engine(engine, engine_version), {"version": "--engine-version"})
    )
    shape = problems.attempt(lambda: catalog.model_shape(model))
    stored = problems.attempt(lambda: _as_stored(shape, given)) if shape is not None and weights is None else weights
    problems.raise_if_any()
    assert card is not None
    assert facts is not None
    assert shape is not None
    assert stored is not None
    deployment = replace(asked, weight_dtype=stored, kv_dtype=kv or _auto_kv(shape, facts))
    sizing = size(shape, card, facts, deployment, given)
    tried = () if sizing.starts else fixes(shape, card, facts, deployment, given, sizing)
    note = substitution(catalog.engines, facts, engine_version)
    notes = ((note,) if note else ()) + shape.notes
    if as_json:
        typer.echo(json.dumps(_as_data(shape, sizing, tried, notes, engine_version), indent=2, ensure_ascii=False))
    else:
        _print(shape, sizing, tried, notes)
    if not sizing.starts:
        raise typer.Exit(InfeasibleError.exit_code)


OPTIONS = {
    "tp": "--tp",
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "utilization": "--utilization",
}
"""Option that a field of the deployment is typed with."""


def _at_options(step: Callable[[], T], options: Mapping[str, str]) -> T:
    """The step's result; its problems name the option that was typed instead of the field."""
    try:
        return step()
    except InputError as error:
        raise InputError(
            [replace(p, where=options[p.field], field="") if p.field in options else p for p in error.problems]
        ) from error


TO_GIB: Mapping[str, Callable[[float], float]] = {
    "gib": lambda gib: gib,
    "gb": units.gb_to_gib,
    "mib": units.mib_to_gib,
}


def _gib(field: str, typed: Mapping[str, float | None], options: dict[str, str], problems: Problems) -> float | None:
    """The term in GiB, typed in one of several units; ``options`` learns which option it was."""
    stem = field.removesuffix("_gib").replace("_", "-")
    values = {unit: value for unit, value in typed.items() if value is not None}
    names = [f"--{stem}-{unit}" for unit in values]
    if len(names) > 1:
        problems.add(names[-1], f"cannot be given together with {' and '.join(names[:-1])}", "Keep one of them")
    if not values:
        return None
    options[field] = names[0]
    unit, value = next(iter(values.items()))
    gib = TO_GIB[unit](value)
    return gib if math.isfinite(gib) else value  # out of range either way, and shown as typed


def _as_stored(shape: ModelShape, given: GivenTerms) -> WeightDtype:
    """The checkpoint's format; bytes typed by the user stand in for one that is not modelled."""
    if given.weights_gib is not None and shape.native_weight_dtype not in MODELLED_DTYPES:
        return WeightDtype.BF16
    return stored_dtype(shape)


def _auto_kv(shape: ModelShape, facts: EngineFacts) -> KvDtype:
    """The engine's ``auto``: 16 bits, or fp8 where the checkpoint declares it and the version follows."""
    honoured = facts.name == "sglang" or facts.vllm.declared_fp8_kv_honoured
    return KvDtype.FP8 if shape.declares_fp8_kv and honoured else KvDtype.BF16


def _as_data(
    shape: ModelShape, sizing: Sizing, tried: tuple[Fix, ...], notes: tuple[str, ...], asked: str
) -> dict[str, Any]:
    return {
        "model": sizing.model_id,
        "gpu": sizing.gpu_id,
        "engine": sizing.engine,
        "engine_version": sizing.engine_version,
        "engine_version_asked": asked or sizing.engine_version,
        "tp": sizing.deployment.tp,
        "weights": str(sizing.deployment.weight_dtype),
        "kv": str(sizing.deployment.kv_dtype),
        "family": str(shape.family),
        "parameters": shape.parameters.total,
        "utilization": sizing.utilization,
        "gpu_memory": _term(sizing.gpu_memory),
        "budget": _term(sizing.budget),
        "terms": [_term(term) for term in sizing.terms],
        "available_kv_gib": sizing.available_kv_gib,
        "bytes_per_token": sizing.bytes_per_token,
        "sliding_bytes_per_token": sizing.sliding_bytes_per_token,
        "window_tokens": sizing.window_tokens,
        "block_size_tokens": sizing.block_size_tokens,
        "bytes_per_block": sizing.bytes_per_block,
        "num_blocks": sizing.num_blocks,
        "available_tokens": sizing.available_tokens,
        "pool_tokens": sizing.pool_tokens,
        "logged_tokens": sizing.logged_tokens,
        "max_concurrency": sizing.max_concurrency,
        "max_model_len": sizing.max_model_len,
        "max_num_seqs": sizing.max_num_seqs,
        "max_num_batched_tokens": sizing.max_num_batched_tokens,
        "starts": sizing.starts,
        "refusals": [{"rule": r.rule, "message": r.message, "fix": r.fix} for r in sizing.refusals],
        "fixes": [
            {
                "change": fix.change,
                "pool_tokens": fix.sizing.pool_tokens,
                "max_model_len": fix.sizing.max_model_len,
                "max_concurrency": fix.sizing.max_concurrency,
                "launch_command": launch_command(fix.sizing),
            }
            for fix in tried
        ],
        "notes": list(notes),
        "launch_command": launch_command(sizing) if sizing.starts else None,
    }


def _term(term: Term) -> dict[str, Any]:
    return {"name": term.name, "gib": term.gib, "origin": str(term.origin), "source": term.source}


def _print(shape: ModelShape, sizing: Sizing, tried: tuple[Fix, ...], notes: tuple[str, ...]) -> None:
    console = Console(highlight=False)
    deployment = sizing.deployment
    console.print(
        f"[bold]{sizing.model_id}[/bold] on {deployment.tp} x {sizing.gpu_id}, {sizing.engine} "
        f"{sizing.engine_version}, weights {deployment.weight_dtype}, KV {deployment.kv_dtype}"
    )
    console.print(_subtraction(sizing))
    console.print(_pool(shape, sizing))
    for note in notes:
        console.print(f"Note: {note}", markup=False)
    if sizing.starts:
        console.print("[green]Starts.[/green]")
        console.print(launch_command(sizing), markup=False, soft_wrap=True)
        return
    console.print("[red]Does not start as asked:[/red]")
    for refusal in sizing.refusals:
        console.print(f"  {refusal.rule}: {refusal.message}. {refusal.fix}.", markup=False)
    _print_fixes(console, tried)


def _print_fixes(console: Console, tried: tuple[Fix, ...]) -> None:
    """What starts instead, and the command of the cheapest change; no command where nothing that was tried does."""
    if not tried:
        console.print("None of the single changes tried makes it start: take a larger GPU or a smaller model.")
        return
    table = Table("Fix, cheapest first", "Pool tokens", "Concurrency", "at max_model_len")
    for fix in tried:
        sizing = fix.sizing
        concurrency = f"{sizing.max_concurrency:.2f}x"
        table.add_row(fix.change, f"{sizing.pool_tokens:,}", concurrency, f"{sizing.max_model_len:,}")
    console.print(table)
    console.print(f"Starts with {tried[0].change}:")
    console.print(launch_command(tried[0].sizing), markup=False, soft_wrap=True)


def _subtraction(sizing: Sizing) -> Table:
    table = Table("GiB per GPU", "", "Origin", "Source")
    table.columns[1].justify = "right"
    lines = [("GPU memory", sizing.gpu_memory, ""), ("budget", sizing.budget, "")]
    lines += [(term.name, term, "−") for term in sizing.terms]
    for name, term, sign in lines:
        table.add_row(f"{sign} {name}".strip(), f"{term.gib:,.2f}", str(term.origin), term.source)
    table.add_section()
    table.add_row("= available for KV", f"{sizing.available_kv_gib:,.2f}", "computed", "budget less the terms above")
    return table


def _pool(shape: ModelShape, sizing: Sizing) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("attention family", str(shape.family))
    table.add_row("bytes per token per GPU", f"{sizing.bytes_per_token:,.0f}")
    if sizing.sliding_bytes_per_token:
        text = f"{sizing.sliding_bytes_per_token:,.0f} (window {sizing.window_tokens:,})"
        table.add_row("bytes per token per GPU, sliding", text)
    table.add_row("tokens of the available memory", f"{sizing.available_tokens:,}")
    table.add_row(f"pool, blocks of {sizing.block_size_tokens}", f"{sizing.num_blocks:,}")
    table.add_row("pool, tokens in whole blocks", f"{sizing.pool_tokens:,}")
    table.add_row("GPU KV cache size as logged", f"{sizing.logged_tokens:,} tokens")
    table.add_row(f"maximum concurrency at {sizing.max_model_len:,}", f"{sizing.max_concurrency:.2f}x")
    return table
