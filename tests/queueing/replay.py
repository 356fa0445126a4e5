"""Exact replay of a trace in which nothing queues: what is live at every moment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival; ``arrival_s`` starts at 0."""

    arrival_s: np.ndarray
    prompt: np.ndarray
    output: np.ndarray

    def part(self, rows: np.ndarray) -> Trace:
        return Trace(self.arrival_s[rows], self.prompt[rows], self.output[rows])


def azure(path: Path) -> Trace:
    raw = pd.read_csv(path)
    time = pd.to_datetime(raw.TIMESTAMP)
    return Trace(
        (time - time.iloc[0]).dt.total_seconds().to_numpy(),
        raw.ContextTokens.to_numpy(),
        raw.GeneratedTokens.to_numpy(),
    )


def mooncake(path: Path) -> Trace:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return Trace(
        np.array([r["timestamp"] for r in rows]) / 1000,
        np.array([r["input_length"] for r in rows]),
        np.array([r["output_length"] for r in rows]),
    )


def write_plain(trace: Trace, path: Path) -> Path:
    """The trace as a log of three columns, stamps to the microsecond."""
    stamps = pd.to_datetime(1_700_000_000_000_000 + np.round(trace.arrival_s * 1e6).astype(np.int64), unit="us")
    frame = {"timestamp": stamps.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "prompt": trace.prompt, "output": trace.output}
    pd.DataFrame(frame).to_csv(path, index=False)
    return path


def live_path(trace: Trace, decode_rate: float, prefill_s: float, at_s: np.ndarray) -> np.ndarray:
    """Live tokens at the moments ``at_s``: the whole prompt from admission, then one token a step."""
    first_s = trace.arrival_s + prefill_s
    end_s = first_s + trace.output / decode_rate
    prompt = trace.prompt.astype(float)
    decoding = _line(first_s, np.zeros(prompt.size), first_s, decode_rate, at_s)
    gone = _line(end_s, prompt, first_s, decode_rate, at_s)
    return _line(trace.arrival_s, prompt, None, 0.0, at_s) + decoding - gone


def _line(since_s, amount, origin_s, rate, at_s) -> np.ndarray:
    """Sum over requests of ``amount + rate (t − origin)`` from ``since_s`` on."""
    order = np.argsort(since_s, kind="stable")
    count = np.searchsorted(since_s[order], at_s, side="right")
    total = np.concatenate([[0.0], np.cumsum(amount[order])])[count]
    if origin_s is None:
        return total
    return total + rate * (count * at_s - np.concatenate([[0.0], np.cumsum(origin_s[order])])[count])


def overflow_shares(
    trace: Trace, span_s: tuple[float, float], sizes: list[float], *, replicas: int, seed: int,
    decode_rate: float = 40.0, prefill_s: float = 0.2, step_s: float = 0.05,
) -> np.ndarray:  # fmt: skip
    """Share of the span in which a replica exceeds each size, mean over the replicas of one random routing."""
    at_s = np.arange(span_s[0] + step_s, span_s[1], step_s)
    routed = np.random.default_rng(seed).integers(0, replicas, trace.arrival_s.size)
    live = [live_path(trace.part(routed == r), decode_rate, prefill_s, at_s) for r in range(replicas)]
    return np.mean([[np.mean(path > size) for size in sizes] for path in live], axis=0)
