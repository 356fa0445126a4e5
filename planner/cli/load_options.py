"""Options of `planner load`, and the question that they make."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from planner.errors import Problems
from planner.queueing.holding import Holding, window_in_blocks
from planner.queueing.planned_load import Ask, Routing
from planner.traffic.schema import Coupling


def _option(help_text: str, *names: str, metavar: str | None = "N", default: bool = True) -> typer.models.OptionInfo:
    return typer.Option(*names, metavar=metavar, help=help_text, show_default=default)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class LoadOptions:
    """What was typed."""

    source: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Canonical folder, log file, or folder of logs.")
    ] = None
    traffic: Annotated[Path | None, _option("The same as DIR.", "--traffic", metavar="DIR")] = None
    model: Annotated[str, _option("Model inside the log; not needed where it holds one.", metavar="NAME")] = ""
    log_format: Annotated[str, _option("Format of a raw log.", "--format", metavar="NAME")] = "auto"
    decode_rate: Annotated[
        float, _option("Tokens per second of one stream.", "--decode-rate", metavar="X", default=False)
    ] = math.nan
    prefill: Annotated[float, _option("Seconds from admission to the first token.", metavar="S", default=False)] = (
        math.nan
    )
    overflow: Annotated[float, _option("Share of time that may exceed the quantile.", metavar="P")] = 0.01
    replicas: Annotated[int, _option("Equal replicas that share the traffic.")] = 1
    routing: Annotated[Routing, _option("random, or affinity: sessions keep their replica.", metavar="HOW")] = (
        Routing.RANDOM
    )
    rate: Annotated[
        float | None, _option("Requests per second of all replicas, instead of the log's.", metavar="X")
    ] = None
    rate_cv: Annotated[float | None, _option("Uncertainty of that rate (coefficient of variation).", metavar="X")] = (
        None
    )
    idc: Annotated[float | None, _option("Index of dispersion of the arrivals, stated.", metavar="X")] = None
    coupling: Annotated[Coupling | None, _option("Of histograms: comonotone or countermonotone.", metavar="HOW")] = None
    max_model_len: Annotated[int | None, _option("Longer requests are refused, tokens.")] = None
    block_tokens: Annotated[int, _option("Tokens of a cache block.")] = 16
    sliding_window: Annotated[int, _option("Window of sliding layers, tokens.")] = 0
    sliding_share: Annotated[float, _option("Share of a token's cache in sliding layers.", metavar="X")] = 0.0
    shared_prefix_tokens: Annotated[int, _option("System prompt that all requests share, tokens.")] = 0
    chunk_tokens: Annotated[int, _option("Chunk of a chunked prefill; 0 takes whole prompts.")] = 0
    as_json: Annotated[bool, _option("Print JSON.", "--json", metavar=None)] = False


def place_of(asked: LoadOptions, problems: Problems) -> Path | None:
    """The one place that was named."""
    named = [path for path in (asked.source, asked.traffic) if path is not None]
    if len(named) == 1:
        return named[0]
    what = "is named twice" if named else "is missing"
    problems.add("DIR", f"the traffic {what}", "Give a canonical folder or a log, once: planner load DIR ...")
    return None


def ask_of(asked: LoadOptions, problems: Problems) -> Ask:
    """The question, with everything that is wrong with it noted."""
    _positive(problems, "--decode-rate", asked.decode_rate, "tokens per second of one stream, such as 40")
    if not 0 <= asked.prefill < math.inf:
        problems.add("--prefill", "must be a number of seconds, at least 0", "Give --prefill S, such as 0.2")
    if not 0 < asked.overflow < 1:
        problems.add("--overflow", f"must lie between 0 and 1 (got {asked.overflow})")
    _least(problems, "--replicas", asked.replicas, 1)
    _least(problems, "--block-tokens", asked.block_tokens, 1)
    for name in ("sliding_window", "shared_prefix_tokens", "chunk_tokens"):
        _least(problems, f"--{name.replace('_', '-')}", getattr(asked, name), 0)
    if asked.max_model_len is not None:
        _least(problems, "--max-model-len", asked.max_model_len, 1)
    if asked.rate is not None:
        _positive(problems, "--rate", asked.rate, "requests per second")
    if asked.rate_cv is not None and not 0 <= asked.rate_cv <= 2:
        problems.add("--rate-cv", f"must lie between 0 and 2 (got {asked.rate_cv})")
    if not 0 <= asked.sliding_share <= 1:
        problems.add("--sliding-share", f"must lie between 0 and 1 (got {asked.sliding_share})")
    elif (asked.sliding_share > 0) != (asked.sliding_window > 0):
        problems.add("--sliding-window", "goes together with --sliding-share", "Give both or neither")
    problems.raise_if_any()
    return Ask(
        decode_tokens_per_s=asked.decode_rate,
        prefill_s=asked.prefill,
        overflow=asked.overflow,
        replicas=asked.replicas,
        rate_per_s=asked.rate,
        rate_cv=asked.rate_cv,
        routing=asked.routing,
        holding=_holding(asked),
        max_model_len=asked.max_model_len,
    )


def _holding(asked: LoadOptions) -> Holding:
    """A request's blocks; during prefill, sliding layers hold the window and the chunk, or the whole prompt."""
    block = asked.block_tokens
    kept = window_in_blocks(asked.sliding_window, block)
    chunk = -(-asked.chunk_tokens // block) * block
    return Holding(
        full=1.0 - asked.sliding_share,
        sliding=asked.sliding_share,
        block_tokens=block,
        window_tokens=kept,
        reserve_tokens=kept + chunk if chunk else 1 << 40,
        state=0.0,
        shared_tokens=asked.shared_prefix_tokens // block * block,
        chunk_tokens=asked.chunk_tokens,
    )


def _positive(problems: Problems, name: str, value: float, what: str) -> None:
    if not 0 < value < math.inf:
        problems.add(name, f"must be a number above 0: {what}", f"Give {name} X")


def _least(problems: Problems, name: str, value: int, least: int) -> None:
    if value < least:
        problems.add(name, f"must be at least {least} (got {value})")
