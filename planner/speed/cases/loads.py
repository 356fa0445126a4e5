"""What a row asks of a replica, by the words of each layout.

Load points name the kind themselves. Silicon points are closed loops of ``concurrency`` clients (``batch_size`` where
that is empty). Measured throughput says it in ``concurrency_or_rate``, and needs ``notes`` for a plain number:

==========================  ======================================================================================
``max-load``                all requests queue at once (TensorRT-LLM's tables), as many as `request_lists` knows
``offline``                 the same (MLPerf Offline)
``declared 16``             the same: an offline engine is handed the whole list and batches as it likes, whatever
                            number of clients the suite declares (AccelMark)
``num-prompts 320``         the same, and never more than 320 at once
``10 req/s``                arrivals at that rate (AccelMark online, MLPerf Server)
``inf req/s``               all at once
``64``                      a static batch where notes or the source say so (``static batch``, ``first-token latency
                            at batch 1``; ids ``anl_``, ``dstack_``, ``trt061_``, ``trtold_``, ``trtttft_``), else
                            a closed loop of 64 clients (AccelMark interactive: 1)
==========================  ======================================================================================
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from planner.errors import InputError, Problem
from planner.memory.starts.case_texts import number
from planner.speed.cases.layouts import Cells, Layout
from planner.speed.cases.request_lists import request_list
from planner.speed.points import Load, LoadKind

STATIC_WORDS = re.compile(r"static batch|at batch \d", re.IGNORECASE)
STATIC_SOURCES = re.compile(r"^(?:anl|dstack|trt061|trtold|trtttft)_", re.IGNORECASE)
_RATE = re.compile(r"^(.*?)\s*(?:req(?:uests?)?\s*/\s*s(?:ec)?|rps|qps)$", re.IGNORECASE)
_ALL_AT_ONCE = re.compile(r"^(?:max[- _]?load|max(?:imum)?|offline|inf(?:inity)?)$", re.IGNORECASE)
_DECLARED = re.compile(r"^declared\b", re.IGNORECASE)
_PROMPTS = re.compile(r"^num[- _]prompts?\s*=?\s*(.+)$", re.IGNORECASE)
MOST_TOKENS = 1e8
"""Longest prompt or answer that is read: three orders above any context."""
MOST_REQUESTS = 1e7
"""Most requests at once, or a second, that are read."""


def load_of(layout: Layout, cells: Cells) -> Load:
    """The load of one replica's deployment before it is divided among replicas.

    Raises
    ------
    InputError
        Listing every cell that is missing or out of range.
    """
    if layout is Layout.POINTS:
        return _points_load(cells)
    if layout is Layout.SILICON:
        lengths = _lengths(cells, "isl", "osl")
        return Load(LoadKind.CLOSED_LOOP, *lengths, concurrency=_clients(cells))
    lengths = _lengths(cells, "input_len", "output_len")
    text = cells.text("concurrency_or_rate")
    static = STATIC_WORDS.search(cells.text("notes")) or STATIC_SOURCES.match(cells.text("id"))
    load = _worded_load(text, lengths, static=bool(static))
    if load.kind is not LoadKind.MAX_LOAD or load.concurrency is not None:
        return load
    known = request_list(cells.text("id"), cells.text("source_url"), cells.text("notes"), lengths)
    return replace(load, concurrency=known.requests, longest_output_tokens=known.longest_output_tokens)


def _worded_load(text: str, lengths: tuple[float, float], *, static: bool) -> Load:
    """``concurrency_or_rate`` by the table of the module."""
    prompts, rate = _PROMPTS.match(text), _RATE.match(text)
    if _ALL_AT_ONCE.match(text) or _DECLARED.match(text):
        return Load(LoadKind.MAX_LOAD, *lengths)
    if prompts:
        return Load(LoadKind.MAX_LOAD, *lengths, concurrency=_in_range(prompts.group(1)))
    if rate:
        if _ALL_AT_ONCE.match(rate.group(1)):
            return Load(LoadKind.MAX_LOAD, *lengths)
        return Load(LoadKind.OPEN_LOOP, *lengths, rate_per_s=_in_range(rate.group(1)))
    if not text:
        raise InputError(Problem("row", "is empty", field="concurrency_or_rate"))
    kind = LoadKind.STATIC_BATCH if static else LoadKind.CLOSED_LOOP
    return Load(kind, *lengths, concurrency=_in_range(text))


def _points_load(cells: Cells) -> Load:
    """A load point: the kind as written; without one, clients are a closed loop and a rate alone is open."""
    lengths = _lengths(cells, "input_tokens", "output_tokens")
    concurrency, rate = _positive(cells, "concurrency"), _positive(cells, "rate_per_s")
    text = cells.text("load").casefold().replace("_", " ").replace("-", " ")
    if not text:
        text = LoadKind.OPEN_LOOP if concurrency is None and rate is not None else LoadKind.CLOSED_LOOP
    if text not in list(LoadKind):
        raise InputError(Problem("row", f"{text!r:.40} is no kind of load ({', '.join(LoadKind)})", field="load"))
    kind = LoadKind(text)
    if kind in (LoadKind.CLOSED_LOOP, LoadKind.STATIC_BATCH) and concurrency is None:
        raise InputError(Problem("row", f"is empty, and a {kind} needs it", field="concurrency"))
    if kind is LoadKind.OPEN_LOOP and rate is None:
        raise InputError(Problem("row", f"is empty, and an {kind} needs it", field="rate_per_s"))
    cached = cells.number("cached_share") or 0.0
    acceptance = cells.number("acceptance")
    if not 0 <= cached <= 1:
        raise InputError(Problem("row", f"must be from 0 to 1 (got {cached:g})", field="cached_share"))
    if acceptance is not None and not 1 <= acceptance <= 100:
        raise InputError(Problem("row", f"must be from 1 to 100 (got {acceptance:g})", field="acceptance"))
    return Load(kind, *lengths, concurrency, rate, cached, acceptance or 1.0)


def _lengths(cells: Cells, prompt: str, output: str) -> tuple[float, float]:
    problems: list[Problem] = []
    values: list[float] = []
    for column in (prompt, output):
        try:
            value = cells.number(column)
        except InputError as error:
            problems.extend(error.problems)
            continue
        if value is None:
            problems.append(Problem("row", "is empty", field=column))
        elif not 1 <= value <= MOST_TOKENS:
            problems.append(
                Problem("row", f"must be from 1 to {MOST_TOKENS:,.0f} tokens (got {value:g})", field=column)
            )
        else:
            values.append(value)
    if problems:
        raise InputError(problems)
    return values[0], values[1]


def _clients(cells: Cells) -> float:
    """Clients of a silicon point; those of its decode workers together where only they are described."""
    for column in ("concurrency", "batch_size"):
        value = _positive(cells, column)
        if value is not None:
            return value
    batch, workers = _positive(cells, "decode_batch"), _positive(cells, "decode_workers")
    if batch is None or workers is None:
        raise InputError(Problem("row", "is empty", field="concurrency"))
    return batch * workers


def _positive(cells: Cells, column: str) -> float | None:
    text = cells.text(column)
    return _in_range(text, column) if text else None


def _in_range(text: str, column: str = "concurrency_or_rate") -> float:
    value = number(text, column)
    if value is None or not 0 < value <= MOST_REQUESTS or not math.isfinite(value):
        raise InputError(
            Problem("row", f"must be above 0 and at most {MOST_REQUESTS:,.0f} (got {text!r:.40})", field=column)
        )
    return value
