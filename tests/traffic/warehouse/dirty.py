"""Typed rows as a gateway's table holds them, with everything that goes wrong in one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from planner.traffic.readers.columns import Alias

START_US = 1_767_225_600_000_000
"""2026-01-01 UTC."""
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("p", pa.float64()),
        ("o", pa.int32()),
        ("m", pa.string()),
        ("st", pa.string()),
        ("cached", pa.int64()),
        ("hit", pa.bool_()),
        ("rid", pa.string()),
        ("ver", pa.int64()),
        ("call", pa.string()),
        ("tier", pa.string()),
        ("err", pa.string()),
        ("n", pa.int16()),
        ("messages", pa.string()),
    ]
)
MAPPING = {
    "timestamp": "ts",
    "prompt": "p",
    "output": "o",
    "model": "m",
    "status": "st",
    "cached": "cached",
    "cache_hit": "hit",
    "request_id": "rid",
    "version": "ver",
    "logical_id": "call",
    "traffic_class": "tier",
    "error": "err",
    "choices": "n",
}
ALIASES = (Alias("chat-old", "chat"), Alias("chat-old", "chat-2", START_US + 86_400_000_000))


def rows(n: int, seed: int, *, days: float = 2.0) -> pa.Table:
    """Rows of which about a tenth is wrong in some way, none of it the same way twice."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "ts": START_US + np.sort(rng.integers(0, int(days * 86_400_000), n)) * 1000,
        "p": np.ceil(np.minimum(np.exp(rng.normal(6.5, 1.3, n)), 32_000)),
        "o": np.minimum(np.exp(rng.normal(5, 1, n)), 4096).astype(int),
        "m": rng.choice(["chat", "code", "embedé", "chat-old"], n, p=[0.5, 0.3, 0.1, 0.1]),
        "st": np.full(n, "success"),
        "cached": rng.integers(0, 2000, n),
        "hit": np.full(n, False),
        "rid": np.array([f"r{i}" for i in range(n)]),
        "ver": rng.integers(0, 3, n),
        "call": np.array([f"c{i // 2 if i % 11 == 0 else i}" for i in range(n)]),
        "tier": rng.choice(
            ["default", "batch", "Priority", "somebody's own words!", "false"], n, p=[0.8, 0.1, 0.06, 0.02, 0.02]
        ),
        "err": np.full(n, ""),
        "n": np.ones(n, dtype=int),
        "messages": np.full(n, "never read"),
    }
    values: dict[str, list[Any]] = {name: column.tolist() for name, column in columns.items()}

    def spoil(name: str, share: float, found: Sequence[Any]) -> None:
        for place in np.flatnonzero(rng.random(n) < share):
            values[name][place] = found[int(rng.integers(len(found)))]

    spoil("p", 0.03, [None, -3.0, 0.0, float("nan"), float("inf"), float("-inf"), 1.5, 2e7, 1e18])
    spoil("o", 0.03, [None, -1, 20_000_000, 0])
    spoil("ts", 0.01, [None, 0, 1_000_000, 4_200_000_000_000_000])
    spoil("m", 0.02, [None, "", " chat ", "CHAT"])
    spoil("st", 0.06, ["failure", "500", "429", "503", "200", "200.0", "OK", "", None, "499", "client_disconnected"])
    spoil("cached", 0.03, [None, -5, 10**12])
    spoil("hit", 0.02, [True, None])
    spoil("rid", 0.05, [None, "", *(f"r{i}" for i in range(0, n, max(1, n // 50)))])
    spoil("ver", 0.02, [None, -1])
    spoil("call", 0.05, [None, "", *(f"c{i}" for i in range(0, n, max(1, n // 30)))])
    spoil("err", 0.02, ["RateLimitError: slow down", "boom", "None", "-", "upstream overloaded"])
    spoil("n", 0.02, [None, 4])
    for place in np.flatnonzero(rng.random(n) < 0.003):
        values["ts"][place] = values["p"][place] = values["o"][place] = None
    for place in np.flatnonzero(rng.random(n) < 0.01)[1:]:
        for column in values.values():  # the same row twice, stamp and all
            column[place] = column[place - 1]
    arrays = [pa.array(values[f.name], pa.int64() if f.name == "ts" else f.type) for f in SCHEMA]
    return pa.table([a.cast(f.type) for a, f in zip(arrays, SCHEMA, strict=True)], schema=SCHEMA)


def saved(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path, row_group_size=7_000)
    return path
