"""Requests to replay: single requests of a log, brought to a rate by laying copies of it over each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from planner import units
from planner.errors import InputError, Problem
from planner.replay.types import FloatArray, IntArray, Requests
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import ingest, log_files
from planner.traffic.order import Order
from planner.traffic.readers.columns import OptionValue
from planner.traffic.tables.rows import Names
from planner.traffic.tables.spool import Spool

US_PER_S = 1e6
LEAST_REQUESTS = 2
PEAK_MINUTES = 10
"""As peaks of logs are measured (`planner.traffic.demand`)."""
PEAK_CORRECTIONS = 6
PEAK_TOLERANCE = 0.01


@dataclass(frozen=True)
class Trace:
    """Single requests of one model in order of arrival; ``arrival_s`` lies in [0, span_s)."""

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    span_s: float

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals."""
        return len(self) / self.span_s

    def part(self, low: float, high: float) -> Trace:
        """The stretch from a share of the span to another, with times from its start."""
        start, end = low * self.span_s, high * self.span_s
        inside = (self.arrival_s >= start) & (self.arrival_s < end)
        return Trace(
            self.arrival_s[inside] - start, self.prompt_tokens[inside], self.output_tokens[inside], end - start
        )


@dataclass(frozen=True)
class Source:
    """Where a trace is read."""

    path: Path
    log_format: str = "auto"
    model: str = ""
    """Name inside the log; empty: all of its requests."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)


def read_trace(source: Source) -> Trace:
    """The single requests of a log.

    Raises
    ------
    InputError
        If it cannot be read, holds no single requests, or too few.
    """
    parts: list[tuple[FloatArray, IntArray, IntArray]] = []

    def look(canonical: Canonical, names: Names, spool: Spool) -> None:
        wanted = np.array([not source.model or model == source.model for model, _ in names.pairs])
        for chunk in spool.chunks:
            verdict = () if chunk.all_kept else ("verdict",)
            columns = spool.read(chunk, ("pair", "ts_us", "prompt", "output", *verdict))
            kept = wanted[columns["pair"]]
            if "verdict" in columns:
                kept &= columns["verdict"] == -1
            parts.append(
                (
                    columns["ts_us"][kept].astype(np.float64),
                    columns["prompt"][kept].astype(np.int64),
                    columns["output"][kept].astype(np.int64),
                )
            )

    order = Order(files=log_files(source.path), log_format=source.log_format, options=source.options)
    ingest(order, look=look)
    rows = sum(len(time) for time, _, _ in parts)
    if rows < LEAST_REQUESTS:
        what = f"holds {rows} single requests{f' of {source.model}' if source.model else ''}"
        raise InputError(Problem(str(source.path), what, "A replay needs a log of requests, two at least"))
    time, prompt, output = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    at = np.argsort(time, kind="stable")
    seconds = (time[at] - time[at[0]]) / US_PER_S
    # The last gap is not seen: it is taken to be the mean one.
    span = max(float(seconds[-1]) * len(seconds) / (len(seconds) - 1), 1.0)
    return Trace(seconds, np.maximum(prompt[at], 1), np.maximum(output[at], 1), span)


def at_rate(trace: Trace, rate_per_s: float, horizon_s: float, seed: int) -> Requests:
    """A trace at another rate: copies laid over each other, each from a random moment on, round and round.

    The index of dispersion of a sum of independent copies is that of one, so bursts keep their strength relative to the
    rate, as the planner scales a log. The whole number of copies nearest to the wanted rate is taken and time stretched
    by the rest, a factor of at most 1.5 (below the rate of the log: by as much as it takes).

    Raises
    ------
    ValueError
        If the rate or the horizon is not above 0.
    """
    if rate_per_s <= 0 or horizon_s <= 0:
        raise ValueError("rate and horizon must be above 0")
    copies = max(1, round(rate_per_s / trace.rate_per_s))
    stretch = copies * trace.rate_per_s / rate_per_s
    span, rng = trace.span_s * stretch, np.random.default_rng(seed)
    rounds = int(np.ceil(horizon_s / span)) + 1
    pieces: list[tuple[FloatArray, IntArray]] = []
    rows = np.arange(len(trace), dtype=np.int64)
    for offset in rng.uniform(0.0, span, copies):
        first = trace.arrival_s * stretch - offset
        for turn in range(rounds):
            time = first + turn * span
            inside = (time >= 0.0) & (time < horizon_s)
            pieces.append((time[inside], rows[inside]))
    time = np.concatenate([piece[0] for piece in pieces])
    row = np.concatenate([piece[1] for piece in pieces])
    at = np.argsort(time, kind="stable")
    row = row[at]
    none = np.zeros(len(row), dtype=np.int64)
    return Requests(time[at], trace.prompt_tokens[row], trace.output_tokens[row], none)


def at_peak(trace: Trace, peak_per_s: float, horizon_s: float, seed: int) -> Requests:
    """`at_rate` such that the busiest ten minutes come at a rate: what a planning rate means.

    The mean rate follows from it: it is found by a few corrections, after which the busiest ten minutes lie within
    `PEAK_TOLERANCE` of the rate. Horizons below ten minutes have it as their mean.

    Raises
    ------
    ValueError
        If the rate or the horizon is not above 0.
    """
    rate = peak_per_s
    for _ in range(PEAK_CORRECTIONS):
        found = at_rate(trace, rate, horizon_s, seed)
        ratio = busiest_per_s(found.arrival_s, horizon_s) / peak_per_s
        if abs(ratio - 1.0) <= PEAK_TOLERANCE:
            break
        rate /= ratio
    return found


def busiest_per_s(arrival_s: FloatArray, horizon_s: float) -> float:
    """Arrivals a second in the busiest ten minutes, which begin at whole minutes; of a shorter horizon, its mean."""
    minute_s = units.minutes_to_s(1.0)
    minutes = int(horizon_s // minute_s)
    if minutes <= PEAK_MINUTES:
        return len(arrival_s) / horizon_s
    counts = np.bincount((arrival_s // minute_s).astype(np.int64), minlength=minutes)[:minutes]
    window = np.convolve(counts, np.ones(PEAK_MINUTES), mode="valid")
    return float(window.max() / units.minutes_to_s(PEAK_MINUTES))
