"""A prediction as `planner speed predict` prints it: tables for a reader, JSON for a program."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from planner.speed.cases.answers import Answer
from planner.speed.cases.parts import StepParts
from planner.speed.points import Load, LoadKind, Served
from planner.speed.types import Banded

PIPE_WIDTH = 150
PART_NAMES = {
    "weights_read_ms": "reading weights",
    "kv_read_ms": "reading KV cache",
    "compute_ms": "multiplying",
    "busy_ms": "reading and multiplying together",
    "fixed_ms": "+ fixed overhead",
    "sequence_ms": "+ for each sequence",
    "allreduce_ms": "+ all-reduce transfers",
    "prefill_ms": "+ prompts of other requests",
}
OVERLAPPING = frozenset({"weights_read_ms", "kv_read_ms", "compute_ms"})
"""Parts that `busy_ms` combines: not added up."""


@dataclass(frozen=True)
class Prediction:
    """What was predicted for one deployment, load by load."""

    served: Served
    loads: tuple[Load, ...]
    answers: tuple[Answer, ...]
    parts: tuple[StepParts | None, ...]


def decode_rate(tpot: Banded | None) -> Banded | None:
    """Tokens a second that one stream sees: 1000 / TPOT, its band turned over."""
    if tpot is None:
        return None
    return Banded(1000 / tpot.value, 1000 / tpot.high, 1000 / tpot.low, tpot.source)


def throughput(total: float | None, answer: Answer, load: Load) -> Banded | None:
    """A throughput with the band of TPOT turned over; that of arrivals which are all served is what was asked."""
    if total is None:
        return None
    served_as_asked = load.kind is LoadKind.OPEN_LOOP and answer.ttft_ms is not None
    if served_as_asked or answer.tpot_ms is None:
        return Banded(total, total, total, answer.source)
    tpot = answer.tpot_ms
    return Banded(total, total * tpot.value / tpot.high, total * tpot.value / tpot.low, answer.source)


def as_data(prediction: Prediction) -> dict[str, Any]:
    """The prediction as JSON data."""
    served, first = prediction.served, prediction.answers[0]
    return {
        "model": served.model,
        "gpu": served.gpu,
        "engine": served.engine,
        "engine_version": served.version,
        "tp": served.tp,
        "pp": served.pp,
        "ep": served.ep,
        "attention_dp": served.attention_dp,
        "weights": str(served.weight_dtype),
        "kv": str(served.kv_dtype),
        "provider": first.provider,
        "source": first.source,
        "notes": list(_notes(prediction)),
        "points": [
            _point(load, answer, parts)
            for load, answer, parts in zip(prediction.loads, prediction.answers, prediction.parts, strict=True)
        ],
    }


def _notes(prediction: Prediction) -> tuple[str, ...]:
    """Notes of all loads, each once."""
    return tuple(dict.fromkeys(note for answer in prediction.answers for note in answer.notes))


def _point(load: Load, answer: Answer, parts: StepParts | None) -> dict[str, Any]:
    return {
        "load": {
            "kind": str(load.kind),
            "concurrency": load.concurrency,
            "rate_per_s": load.rate_per_s,
            "input_tokens": load.input_tokens,
            "output_tokens": load.output_tokens,
            "cached_share": load.cached_share,
            "acceptance": load.acceptance,
        },
        "tpot_ms": _figure(answer.tpot_ms),
        "ttft_ms": _figure(answer.ttft_ms),
        "decode_tok_s": _figure(decode_rate(answer.tpot_ms)),
        "output_tok_s": _figure(throughput(answer.output_tok_s, answer, load)),
        "total_tok_s": _figure(throughput(answer.total_tok_s, answer, load)),
        "concurrency": answer.concurrency,
        "reason": answer.reason,
        "step": None if parts is None else asdict(parts),
    }


def _figure(figure: Banded | None) -> dict[str, float] | None:
    return None if figure is None else {"value": figure.value, "low": figure.low, "high": figure.high}


def print_prediction(prediction: Prediction) -> None:
    """The figures with their bands, the step part by part, and what they rest on."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, PIPE_WIDTH))
    served = prediction.served
    console.print(
        f"[bold]{escape(served.model)}[/bold] on {served.tp * served.pp} x {escape(served.gpu)}, "
        f"{served.engine} {escape(served.version)}, weights {served.weight_dtype}, KV {served.kv_dtype}"
    )
    console.print(_figures(prediction))
    if any(parts is not None for parts in prediction.parts):
        console.print(_steps(prediction))
    _print_origin(console, prediction)


def _figures(prediction: Prediction) -> Table:
    table = Table("load", "requests", "TPOT ms", "TTFT ms", "tok/s a stream", "output tok/s", "total tok/s")
    for load, answer in zip(prediction.loads, prediction.answers, strict=True):
        table.add_row(
            _load_words(load),
            "" if answer.concurrency is None else f"{answer.concurrency:,.4g}",
            _shown(answer.tpot_ms),
            _shown(answer.ttft_ms),
            _shown(decode_rate(answer.tpot_ms)),
            _shown(throughput(answer.output_tok_s, answer, load)),
            _shown(throughput(answer.total_tok_s, answer, load)),
        )
    return table


def _steps(prediction: Prediction) -> Table:
    """Parts of the step, one column for each load."""
    table = Table("a decode step, ms")
    for load in prediction.loads:
        table.add_column(_load_words(load), justify="right")
    shown = prediction.parts
    table.add_row("sequences decoding", *("" if one is None else f"{one.decoding:,.4g}" for one in shown))
    for name, words in PART_NAMES.items():
        cells = ("" if one is None else f"{getattr(one, name):,.3f}" for one in shown)
        table.add_row(f"  {words}" if name in OVERLAPPING else words, *cells)
    return table


def _print_origin(console: Console, prediction: Prediction) -> None:
    first = prediction.answers[0]
    console.print("Bands hold 80 % of measured points; those of throughput are TPOT's.")
    console.print(f"Source: {first.source}", markup=False, soft_wrap=True)
    for note in _notes(prediction):
        console.print(f"Note: {note}", markup=False, soft_wrap=True)
    for load, answer in zip(prediction.loads, prediction.answers, strict=True):
        if answer.reason:
            console.print(f"{_load_words(load)}: {answer.reason}", markup=False, soft_wrap=True)


def _load_words(load: Load) -> str:
    if load.kind is LoadKind.OPEN_LOOP:
        return f"{load.rate_per_s:g} requests/s"
    if load.kind is LoadKind.MAX_LOAD:
        return "max load"
    return f"batch {load.concurrency:g}"


def _shown(figure: Banded | None) -> str:
    if figure is None:
        return "-"
    if figure.low == figure.high:
        return _digits(figure.value)
    return f"{_digits(figure.value)} ({_digits(figure.low)} to {_digits(figure.high)})"


def _digits(value: float) -> str:
    """Three significant digits, whole numbers from 1,000 on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
