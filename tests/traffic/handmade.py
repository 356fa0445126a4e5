"""Canonical distributions made by hand from a few requests, without the aggregation of the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from planner.traffic.buckets import lower_edge, upper_edge
from planner.traffic.canonical import Canonical
from planner.traffic.schema import BURST, LENGTHS, RATES, TAIL, Counts, Manifest

MINUTE_US = 60_000_000
START_US = 1_767_571_200_000_000
"""2026-01-05, a Monday, 00:00 UTC."""
Request = tuple[str, int, int, int]
"""Model, minute of the log, prompt, output."""


def canonical_of(
    requests: Sequence[Request],
    *,
    minutes: int = 60,
    start_us: int = START_US,
    tail_size: int = 1000,
    burst: Sequence[dict[str, Any]] = (),
    **manifest: Any,
) -> Canonical:
    """The distribution of the requests; the tail table holds the ``tail_size`` largest totals of each model."""
    models = sorted({model for model, *_ in requests})
    kept = {model: sum(r[0] == model for r in requests) for model in models}
    entries = {
        "source": "test", "files": ["a.csv"], "files_sha256": "0" * 64, "models": kept,
        "window_start_us": start_us, "window_end_us": start_us + minutes * MINUTE_US, "ts_resolution_ms": 1.0,
        "counts": Counts(rows_read=len(requests), kept=len(requests), offered=len(requests)),
        "bucket_scheme": {"base": 2, "per_octave": 8},
    }  # fmt: skip
    return Canonical(
        manifest=Manifest(**(entries | manifest)),
        lengths=_lengths(requests),
        tail=_tail(requests, models, tail_size),
        rates=_rates(requests, start_us),
        burst=pa.Table.from_pylist(list(burst), schema=BURST),
    )


def _edges(tokens: int) -> tuple[int, int]:
    low = lower_edge(np.array([tokens]))
    return int(low[0]), int(upper_edge(low)[0])


def _lengths(requests: Sequence[Request]) -> pa.Table:
    cells: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for model, _, p, o in requests:
        cells.setdefault((model, *_edges(p), *_edges(o)), []).append((p, o))
    rows = []
    for (model, prompt_lo, prompt_hi, output_lo, output_hi), inside in sorted(cells.items()):
        rows.append(
            {
                "model": model, "traffic_class": "default", "period": "all", "coupling": "joint",
                "prompt_lo": prompt_lo, "prompt_hi": prompt_hi, "output_lo": output_lo, "output_hi": output_hi,
                "n": len(inside), "sum_prompt": sum(p for p, _ in inside), "sum_output": sum(o for _, o in inside),
                "sum_cached": 0, "sum_pp": float(sum(p * p for p, _ in inside)),
                "sum_po": float(sum(p * o for p, o in inside)), "sum_oo": float(sum(o * o for _, o in inside)),
                "max_prompt": max(p for p, _ in inside), "max_output": max(o for _, o in inside),
                "max_total": max(p + o for p, o in inside),
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=LENGTHS)


def _tail(requests: Sequence[Request], models: Sequence[str], size: int) -> pa.Table:
    rows = []
    for model in models:
        mine = [(p, o) for name, _, p, o in requests if name == model]
        least = sorted((p + o for p, o in mine), reverse=True)[:size][-1]
        counted = Counter(pair for pair in mine if sum(pair) >= least)
        ordered = sorted(counted.items(), key=lambda item: (-sum(item[0]), -item[0][0]))
        rows += [{"model": model, "prompt": p, "output": o, "n": n} for (p, o), n in ordered]
    return pa.Table.from_pylist(rows, schema=TAIL)


def _rates(requests: Sequence[Request], start_us: int) -> pa.Table:
    minutes: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for model, minute, p, o in requests:
        minutes.setdefault((model, start_us + minute * MINUTE_US), []).append((p, o))
    columns = {
        "model": [model for model, _ in sorted(minutes)],
        "minute_utc": pa.array([us for _, us in sorted(minutes)], type=pa.timestamp("us")),
        "n": [len(minutes[key]) for key in sorted(minutes)],
        "sum_prompt": [sum(p for p, _ in minutes[key]) for key in sorted(minutes)],
        "sum_output": [sum(o for _, o in minutes[key]) for key in sorted(minutes)],
    }
    return pa.table(columns, schema=RATES)


def window_row(model: str, scale_s: float, windows: int, mean: float, idc: float, most: int) -> dict[str, Any]:
    """A row of the burst table."""
    return {
        "model": model, "kind": "window", "scale_s": scale_s, "windows": windows, "mean_n": mean,
        "var_n": idc * mean, "idc": idc, "max_n": most, "resolution_ok": True,
    }  # fmt: skip
