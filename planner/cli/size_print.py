"""A sizing as `planner size` prints it: tables for a reader, JSON for a program."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from planner import units
from planner.catalog.model_shape import ModelShape
from planner.memory.fixes import Fix
from planner.memory.types import Sizing, Term
from planner.report.launch import launch_command


def as_data(
    shape: ModelShape, sizing: Sizing, tried: tuple[Fix, ...], notes: tuple[str, ...], asked: str
) -> dict[str, Any]:
    """The sizing as JSON data; ``asked`` is the engine version that was typed."""
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
        "state_bytes_per_request": sizing.state_bytes_per_request,
        "state_slots": sizing.state_slots,
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


def print_sizing(shape: ModelShape, sizing: Sizing, tried: tuple[Fix, ...], notes: tuple[str, ...]) -> None:
    """Subtraction, pool, notes, and the launch command or the reasons and fixes."""
    console = Console(highlight=False)
    deployment = sizing.deployment
    console.print(
        f"[bold]{sizing.model_id}[/bold] on {deployment.tp} x {sizing.gpu_id}, {sizing.engine} "
        f"{sizing.engine_version}, weights {deployment.weight_dtype}, "
        f"KV {_cache_format(sizing)}"
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


def _cache_format(sizing: Sizing) -> str:
    """The cache's format; as typed where SGLang chooses by GPU."""
    deployment = sizing.deployment
    named = deployment.kv_cache_dtype_name if sizing.engine == "sglang" else ""
    return named or str(deployment.kv_dtype)


def _mib(n_bytes: float) -> float:
    return units.gib_to_mib(units.bytes_to_gib(n_bytes))


def _pool(shape: ModelShape, sizing: Sizing) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("attention family", str(shape.family))
    table.add_row("bytes per token per GPU", f"{sizing.bytes_per_token:,.0f}")
    if sizing.sliding_bytes_per_token:
        text = f"{sizing.sliding_bytes_per_token:,.0f} (window {sizing.window_tokens:,})"
        table.add_row("bytes per token per GPU, sliding", text)
    if sizing.state_bytes_per_request:
        table.add_row("recurrent states of a request, MiB per GPU", f"{_mib(sizing.state_bytes_per_request):,.1f}")
    if sizing.state_slots is not None:
        table.add_row("state slots", f"{sizing.state_slots:,}")
    table.add_row("tokens of the available memory", f"{sizing.available_tokens:,}")
    table.add_row(f"pool, blocks of {sizing.block_size_tokens}", f"{sizing.num_blocks:,}")
    table.add_row("pool, tokens in whole blocks", f"{sizing.pool_tokens:,}")
    table.add_row("GPU KV cache size as logged", f"{sizing.logged_tokens:,} tokens")
    table.add_row(f"maximum concurrency at {sizing.max_model_len:,}", f"{sizing.max_concurrency:.2f}x")
    return table
