"""What `planner catalog add-model` prints: tables for a reader, JSON for a program."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner import units
from planner.catalog.add_model import Addition, State
from planner.catalog.checkpoint import Checkpoint
from planner.memory.model_card import Degree, ModelCard, Support
from planner.report.text import one_line

MOST_DIFF = 200
"""Lines of a diff that are printed; JSON has all."""
LONGEST = 400
PIPE_COLUMNS = 110
"""Width of the output where it is no terminal."""


def as_data(addition: Addition, card: ModelCard, found: Checkpoint, *, written: bool) -> dict[str, Any]:
    """The addition and the card as JSON data."""
    shape = card.shape
    return {
        "model": addition.model_id,
        "state": addition.state.value,
        "written": written,
        "needs_replace": addition.state is State.DIFFERENT,
        "needs_source": addition.source_missing,
        "rows": [row.model_dump(mode="json") for row in addition.rows],
        "files": [str(change.path) for change in addition.changes],
        "diff": list(addition.diff),
        "read_from": found.where,
        "architecture": shape.architecture,
        "model_type": shape.model_type,
        "family": shape.family.value,
        "parameters": shape.parameters.total,
        "active_parameters": shape.active_parameters,
        "max_position": None if shape.context_unstated else shape.max_position_embeddings,
        "weights_stored_as": shape.native_weight_dtype,
        "declares_fp8_kv": shape.declares_fp8_kv,
        "bytes_per_token": {line.kv_dtype.value: line.full for line in card.cache},
        "sliding_bytes_per_token": {line.kv_dtype.value: line.sliding for line in card.cache},
        "window_tokens": card.window_tokens,
        "state_bytes_per_sequence": dict(card.state_bytes),
        "weights": [
            {"dtype": str(w.dtype), "bytes": w.n_bytes, "own": w.own, "origin": w.origin.value, "basis": w.basis}
            for w in card.weights
        ],
        "stored_bytes_by_dtype": dict(found.weights.by_dtype) if found.weights else {},
        "tensor_parallel": [_degree_data(degree) for degree in card.degrees],
        "engines": [
            {"engine": e.engine, "version": e.version, "supported": not e.refusal, "text": e.refusal or e.text}
            for e in card.engines
        ],
        "notes": [*shape.notes, *found.remarks, *card.remarks],
    }


def _degree_data(degree: Degree) -> dict[str, Any]:
    return {
        "tp": degree.tp,
        "divides": not degree.refusals,
        "kv_heads_per_rank": degree.kv_heads or None,
        "replicated": degree.replicated,
        "bytes_per_token": degree.bytes_per_token,
        "experts_per_rank": degree.experts or None,
        "experts_even": degree.experts_even,
        "refusals": list(degree.refusals),
    }


def print_addition(addition: Addition, card: ModelCard, found: Checkpoint, *, written: bool) -> None:
    """The model's page, then what was or would be written."""
    screen = Console(width=None if Console().is_terminal else PIPE_COLUMNS, highlight=False)
    shape = card.shape
    length = "not stated" if shape.context_unstated else f"{shape.max_position_embeddings:,} tokens"
    size = f"{shape.parameters.total:,} parameters, {shape.active_parameters:,} active per token"
    lines = (
        f"{addition.model_id}: {shape.architecture}, model type {shape.model_type}, {shape.family.value}",
        f"{size}; longest context {length}",
    )
    for line in lines:
        screen.print(Text(one_line(line, LONGEST)))
    for table in (_cache(card), _weights(card, found), _degrees(card), _engines(card.engines)):
        screen.print(Text.assemble("\n", (str(table.title), "bold")))
        table.title = None
        screen.print(table)
    for note in (*shape.notes, *found.remarks, *card.remarks):
        screen.print(Text(f"Note: {one_line(note, LONGEST)}"))
    screen.print()
    for line in _outcome(addition, written=written):
        screen.print(Text(_printable(line)), soft_wrap=True)


def _printable(line: str) -> str:
    """A line with its blanks, of which nothing acts on the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in line[:LONGEST])


def _table(title: str, *columns: str, left: int = 1) -> Table:
    table = Table(title=Text(title), box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < left or column in LEFT else "right")
    return table


LEFT = frozenset({"basis", "refused because", "what it says"})
"""Columns of words."""


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(one_line(cell, LONGEST)) for cell in cells))


def _cache(card: ModelCard) -> Table:
    """Bytes of a token; states beside it."""
    table = _table("Cache of one token on one GPU at TP 1, before blocks are padded", "KV format", "bytes", "windows")
    for line in card.cache:
        window = f"{line.sliding:,.0f} in {card.window_tokens:,} tokens" if line.sliding else ""
        _add(table, line.kv_dtype.value, f"{line.full:,.0f}", window)
    for engine, n_bytes in card.state_bytes.items():
        _add(table, f"states of a sequence, {engine}", f"{n_bytes:,}", "")
    return table


def _weights(card: ModelCard, found: Checkpoint) -> Table:
    table = _table("Weights of the whole model", "format", "GiB", "bytes", "exact", "basis")
    for line in card.weights:
        name = f"{line.dtype} (as stored)" if line.own else str(line.dtype)
        exact = {"measured": "yes", "computed": "computed"}.get(line.origin.value, "estimate")
        _add(table, name, f"{units.bytes_to_gib(line.n_bytes):,.2f}", f"{line.n_bytes:,.0f}", exact, line.basis)
    for dtype, n_bytes in found.weights.by_dtype.items() if found.weights else ():
        _add(table, f"  of which {dtype}", f"{units.bytes_to_gib(n_bytes):,.2f}", f"{n_bytes:,}", "yes", "")
    return table


def _degrees(card: ModelCard) -> Table:
    columns = ("tp", "KV heads", "cache bytes", "experts", "refused because")
    table = _table("Tensor parallelism: what a rank holds (16-bit cache; experts with expert parallelism)", *columns)
    for degree in card.degrees:
        heads = f"{degree.kv_heads}" if degree.kv_heads else "-"
        shared = f"{heads} replicated" if degree.replicated else heads
        experts = f"{degree.experts}{'' if degree.experts_even else ' uneven'}" if degree.experts else "-"
        why = "; ".join(degree.refusals)
        _add(table, str(degree.tp), shared, f"{degree.bytes_per_token:,.0f}", experts, why)
    return table


def _engines(engines: tuple[Support, ...]) -> Table:
    table = _table("Engines", "engine", "supported", "what it says", left=2)
    for engine in engines:
        unknown = "not checked" if engine.unchecked else "yes"
        _add(
            table,
            f"{engine.engine} {engine.version}",
            "no" if engine.refusal else unknown,
            engine.refusal or engine.text,
        )
    return table


def _outcome(addition: Addition, *, written: bool) -> list[str]:
    """What was or would be written."""
    if addition.state is State.UNCHANGED:
        row = addition.rows[0]
        return [f"In the catalogue already, read {row.as_of} from {row.source}: nothing changes."]
    shown = list(addition.diff[:MOST_DIFF]) if addition.state is State.DIFFERENT else []
    if len(addition.diff) > MOST_DIFF:
        shown.append(f"and {len(addition.diff) - MOST_DIFF:,} more lines (--json has all)")
    files = [str(change.path) for change in addition.changes]
    if written:
        return [*shown, *(f"Written: {file}" for file in files)]
    fix = " --replace" if addition.state is State.DIFFERENT else ""
    lines = [*shown, *(f"Would be written with --apply{fix}: {file}" for file in files)]
    if addition.source_missing:
        lines.append("Needs --source: nothing says where the config was read.")
    return lines
