"""`planner size`: does a model fit on a GPU, and how many tokens are left for its KV cache."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.load import load_catalog
from planner.catalog.model_shape import ModelShape
from planner.errors import InfeasibleError, InputError, Problem
from planner.memory.fixes import Fix, fixes
from planner.memory.size import MODELLED_DTYPES, size, stored_dtype
from planner.memory.types import Deployment, GivenTerms, KvDtype, Sizing, Term, WeightDtype
from planner.report.launch import launch_command


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("size")(size_command)


def size_command(
    model: Annotated[str, typer.Argument(help="Catalogue id, or path of a Hugging Face config.json.")],
    gpu: Annotated[str, typer.Option(help="GPU id, such as H100-SXM.")],
    tp: Annotated[int, typer.Option(min=1, help="Tensor-parallel degree.")] = 1,
    weights: Annotated[WeightDtype | None, typer.Option(help="Weight format; default as stored.")] = None,
    kv: Annotated[KvDtype | None, typer.Option(help="KV-cache format; default as the engine's auto.")] = None,
    engine: Annotated[Literal["vllm", "sglang"], typer.Option(help="Engine.")] = "vllm",
    engine_version: Annotated[str, typer.Option(help="Version; default the newest in the catalogue.")] = "",
    utilization: Annotated[
        float | None, typer.Option(help="gpu_memory_utilization (SGLang: mem_fraction_static).")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Longest request, tokens.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens per step.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Concurrent sequences.")] = None,
    weights_gib: Annotated[float | None, typer.Option(help="Weights per GPU, instead of the prediction.")] = None,
    overhead_gib: Annotated[
        float | None, typer.Option(help="All that is neither weights nor pool, per GPU, instead of the prediction.")
    ] = None,
    gpu_memory_gib: Annotated[float | None, typer.Option(help="GPU memory, instead of the catalogue's.")] = None,
    weights_gb: Annotated[float | None, typer.Option(help="As --weights-gib, in GB (10**9 bytes).")] = None,
    overhead_gb: Annotated[float | None, typer.Option(help="As --overhead-gib, in GB.")] = None,
    gpu_memory_gb: Annotated[float | None, typer.Option(help="As --gpu-memory-gib, in GB.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the subtraction of one replica term by term, its pool, whether it starts, and the launch command."""
    given = GivenTerms(
        gpu_memory_gib=_gib("gpu-memory", gpu_memory_gib, gpu_memory_gb),
        weights_gib=_gib("weights", weights_gib, weights_gb),
        overhead_gib=_gib("overhead", overhead_gib, overhead_gb),
    )
    catalog = load_catalog()
    card = catalog.gpu(gpu)
    facts = catalog.engine(engine, engine_version)
    shape = catalog.model_shape(model)
    deployment = Deployment(
        tp=tp,
        weight_dtype=weights or _as_stored(shape, given),
        kv_dtype=kv or _auto_kv(shape, facts),
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        gpu_memory_utilization=utilization,
    )
    sizing = size(shape, card, facts, deployment, given)
    tried = () if sizing.starts else fixes(shape, card, facts, deployment, given, sizing)
    if as_json:
        typer.echo(json.dumps(_as_data(shape, sizing, tried, engine_version), indent=2, ensure_ascii=False))
    else:
        _print(shape, sizing, tried, engine_version)
    if not sizing.starts:
        raise typer.Exit(InfeasibleError.exit_code)


def _gib(name: str, gib: float | None, gb: float | None) -> float | None:
    if gib is not None and gb is not None:
        raise InputError(Problem(f"--{name}-gb", f"cannot be given together with --{name}-gib", "Keep one of them"))
    return gib if gb is None else units.gb_to_gib(gb)


def _as_stored(shape: ModelShape, given: GivenTerms) -> WeightDtype:
    """The checkpoint's format; bytes typed by the user stand in for one that is not modelled."""
    if given.weights_gib is not None and shape.native_weight_dtype not in MODELLED_DTYPES:
        return WeightDtype.BF16
    return stored_dtype(shape)


def _auto_kv(shape: ModelShape, facts: EngineFacts) -> KvDtype:
    """The engine's ``auto``: 16 bits, or fp8 where the checkpoint declares it and the version follows."""
    honoured = facts.name == "sglang" or facts.vllm.declared_fp8_kv_honoured
    return KvDtype.FP8 if shape.declares_fp8_kv and honoured else KvDtype.BF16


def _as_data(shape: ModelShape, sizing: Sizing, tried: tuple[Fix, ...], asked: str) -> dict[str, Any]:
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
        "notes": list(shape.notes),
        "launch_command": launch_command(sizing),
    }


def _term(term: Term) -> dict[str, Any]:
    return {"name": term.name, "gib": term.gib, "origin": str(term.origin), "source": term.source}


def _print(shape: ModelShape, sizing: Sizing, tried: tuple[Fix, ...], asked: str) -> None:
    console = Console(highlight=False)
    deployment = sizing.deployment
    console.print(
        f"[bold]{sizing.model_id}[/bold] on {deployment.tp} x {sizing.gpu_id}, {sizing.engine} "
        f"{sizing.engine_version}, weights {deployment.weight_dtype}, KV {deployment.kv_dtype}"
    )
    console.print(_subtraction(sizing))
    console.print(_pool(shape, sizing))
    if asked and asked != sizing.engine_version:
        console.print(f"Note: rules of {sizing.engine} {sizing.engine_version}, the nearest listed up to {asked}")
    for note in shape.notes:
        console.print(f"Note: {note}")
    if sizing.starts:
        console.print("[green]Starts.[/green]")
    else:
        console.print("[red]Does not start:[/red]")
        for refusal in sizing.refusals:
            console.print(f"  {refusal.rule}: {refusal.message}. {refusal.fix}.", markup=False)
        _print_fixes(console, tried)
    console.print(launch_command(sizing), markup=False, soft_wrap=True)


def _print_fixes(console: Console, tried: tuple[Fix, ...]) -> None:
    if not tried:
        console.print("No single change makes it start: use a larger GPU or a smaller model.")
        return
    table = Table("Fix, cheapest first", "Pool tokens", "Concurrency", "at max_model_len")
    for fix in tried:
        sizing = fix.sizing
        concurrency = f"{sizing.max_concurrency:.2f}x"
        table.add_row(fix.change, f"{sizing.pool_tokens:,}", concurrency, f"{sizing.max_model_len:,}")
    console.print(table)


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
    table.add_row("pool, tokens", f"{sizing.pool_tokens:,}")
    table.add_row(f"pool, blocks of {sizing.block_size_tokens}", f"{sizing.num_blocks:,}")
    table.add_row("GPU KV cache size as logged", f"{sizing.logged_tokens:,} tokens")
    table.add_row(f"maximum concurrency at {sizing.max_model_len:,}", f"{sizing.max_concurrency:.2f}x")
    return table
