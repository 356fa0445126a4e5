"""A trace that load generators replay, drawn from a canonical distribution: JSON lines in Mooncake's form.

AIPerf 0.13.0 (``mooncake_trace``) and GuideLLM 0.8.1 (``mooncake``, which counts in seconds: give it a time scale of
0.001) read it. Arrivals follow the counts per minute of the busiest stretch that holds them, evenly spread inside
each minute; bursts shorter than a minute and the reuse of prefixes are not drawn: every block has a hash of its own.
Lengths come from the joint law; inside a cell, a power of a uniform draw meets the cell's exact mean, and prompt and
output are independent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import of_model
from planner.traffic.readers.mooncake import BLOCK_TOKENS
from planner.traffic.schema import ALL, Coupling, iso_utc
from planner.traffic.tables.definitions import MINUTE_US
from planner.traffic.types import FloatArray, IntArray


@dataclass(frozen=True)
class Draw:
    """What is drawn."""

    requests: int
    seed: int = 0
    model: str = ""
    """May be left out where the distribution has one model."""


@dataclass(frozen=True)
class Drawn:
    """Requests in order of time."""

    start_us: int
    """Start of the stretch of the log whose minute rates were taken, microseconds since 1970."""
    minutes: int
    time_ms: IntArray
    """From the start of the stretch."""
    prompt: IntArray
    output: IntArray

    @property
    def start(self) -> str:
        """ISO 8601."""
        return iso_utc(self.start_us)


def draw(canonical: Canonical, wanted: Draw) -> Drawn:
    """Draw requests from the busiest stretch of minutes that holds as many arrivals.

    Raises
    ------
    InputError
        If the model is unknown or not given, the distribution has no lengths, or too few arrivals.
    """
    model = _model(canonical, wanted)
    rng = np.random.default_rng(wanted.seed)
    minute, n = _busiest(of_model(canonical.rates, model), wanted.requests)
    slot = np.repeat(minute - minute[0], n)
    offset_ms = np.sort(slot * 60_000 + rng.integers(0, 60_000, size=len(slot)))[: wanted.requests]
    prompt, output = _lengths(rng, _law(canonical, model), wanted.requests)
    start_us = int(minute[0]) * MINUTE_US
    return Drawn(start_us, int(minute[-1] - minute[0]) + 1, offset_ms, prompt, output)


def mooncake_lines(drawn: Drawn) -> Iterator[str]:
    """One JSON object per request, with a hash for every block of its prompt."""
    last = 0
    for time_ms, prompt, output in zip(
        drawn.time_ms.tolist(), drawn.prompt.tolist(), drawn.output.tolist(), strict=True
    ):
        first, last = last, last - (-prompt // BLOCK_TOKENS)
        row = {"timestamp": time_ms, "input_length": prompt, "output_length": output}
        yield json.dumps({**row, "hash_ids": list(range(first, last))}) + "\n"


def _model(canonical: Canonical, wanted: Draw) -> str:
    models = canonical.models()
    named = f"It has: {', '.join(models[:20])}"
    if wanted.requests < 1:
        raise InputError(Problem("requests", f"must be at least 1 (got {wanted.requests})"))
    if wanted.model and wanted.model not in models:
        raise InputError(Problem("model", f"'{wanted.model}' is not in the distribution", named))
    if not wanted.model and len(models) != 1:
        raise InputError(Problem("model", f"the distribution has {len(models)} models", f"Name one. {named}"))
    return wanted.model or models[0]


def _busiest(rates: pa.Table, requests: int) -> tuple[IntArray, IntArray]:
    """Minutes and their arrivals: of the stretches that hold enough, the shortest, then the fullest, then the first."""
    rates = rates.sort_by("minute_utc")
    minute = rates["minute_utc"].cast(pa.int64()).to_numpy() // MINUTE_US
    total = np.concatenate([[0], np.cumsum(rates["n"].to_numpy())])
    if total[-1] < requests:
        what = f"the distribution has {int(total[-1]):,} arrivals of the model, fewer than {requests:,}"
        raise InputError(Problem("requests", what, "Ask for fewer, or scale the distribution first"))
    end = np.searchsorted(total, total[:-1] + requests)
    first = np.flatnonzero(end < len(total))
    last = end[first] - 1
    best = np.lexsort((first, -(total[last + 1] - total[first]), minute[last] - minute[first]))[0]
    stretch = slice(int(first[best]), int(last[best]) + 1)
    return minute[stretch], rates["n"].to_numpy()[stretch]


def _law(canonical: Canonical, model: str) -> pa.Table:
    law = of_model(canonical.lengths, model)
    law = law.filter(pc.equal(law["period"], ALL))
    couplings = set(law["coupling"].to_pylist())
    chosen = Coupling.JOINT if Coupling.JOINT in couplings else Coupling.COMONOTONE
    law = law.filter(pc.equal(law["coupling"], chosen.value))
    if not law.num_rows:
        raise InputError(Problem("model", f"the distribution holds no lengths of '{model}'", "Ingest request logs"))
    return law


def _lengths(rng: np.random.Generator, law: pa.Table, size: int) -> tuple[IntArray, IntArray]:
    columns = {name: law[name].to_numpy() for name in law.column_names if name not in ("model", "period")}
    n = columns["n"]
    cell = rng.choice(len(n), size=size, p=n / n.sum())
    sides = []
    for side in ("prompt", "output"):
        low = columns[f"{side}_lo"].astype(np.float64)
        top = np.minimum(columns[f"{side}_hi"] - 1, columns[f"max_{side}"]).astype(np.float64)
        sides.append(np.maximum(_within(rng, cell, low, top, columns[f"sum_{side}"] / n), 1))
    return sides[0], sides[1]


def _within(rng: np.random.Generator, cell: IntArray, low: FloatArray, top: FloatArray, mean: FloatArray) -> IntArray:
    """Whole numbers between ``low`` and ``top`` of their cell, with the cell's mean: ``E[U^a] = 1 / (1 + a)``."""
    width = np.maximum(top - low, 0)
    place = np.divide(mean - low, width, out=np.zeros_like(mean), where=width > 0).clip(1e-9, 1)
    drawn = low[cell] + width[cell] * rng.random(len(cell)) ** ((1 - place) / place)[cell]
    # Rounded up as often as the fraction says, so that the mean stays.
    return np.asarray(np.minimum(np.floor(drawn + rng.random(len(cell))), top[cell]).astype(np.int64))
