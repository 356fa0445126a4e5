"""A vLLM server's metrics on a real trace, as Prometheus would have scraped them.

Names, labels, buckets and the moment of counting (when a request is done) are those of vLLM 0.33.0
(``vllm/v1/metrics/loggers.py``, ``buckets.py``): edges 1, 2, 5, 10, ... up to the longest context.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prometheus_client import CollectorRegistry, Histogram, generate_latest

CONTEXT = 16_384
EDGES = tuple(m * 10**e for e in range(5) for m in (1, 2, 5) if m * 10**e <= CONTEXT)
MODEL = "llama-70b"
TOKENS_PER_S = 40.0
PREFILL_S = 0.2
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Requests:
    """Requests of one target, by the time at which they are done."""

    done_s: np.ndarray
    prompt: np.ndarray
    output: np.ndarray

    def where(self, kept: np.ndarray) -> Requests:
        return Requests(self.done_s[kept], self.prompt[kept], self.output[kept])


def requests_of(path: Path) -> Requests:
    """A trace in which nothing queues."""
    frame = pd.read_csv(path)
    stamps = pd.to_datetime(frame["TIMESTAMP"], utc=True)
    arrival_s = (stamps - pd.Timestamp(EPOCH)).dt.total_seconds().to_numpy()
    output = frame["GeneratedTokens"].to_numpy()
    done = arrival_s + PREFILL_S + output / TOKENS_PER_S
    order = np.argsort(done, kind="stable")
    return Requests(done[order], frame["ContextTokens"].to_numpy()[order], output[order])


@dataclass(frozen=True)
class Target:
    """One engine: its labels, its requests, and the times at which it restarted."""

    labels: Mapping[str, str]
    requests: Requests
    restarts_s: Sequence[float] = ()
    since_s: float = 0.0
    """When it started: it is not scraped before."""
    edges: Sequence[float] = EDGES
    skipped: Sequence[tuple[float, float]] = field(default=())
    """Spans without a scrape."""


def series(target: Target, scrapes_s: np.ndarray) -> Iterable[dict[str, Any]]:
    """The series of a target as ``query_range`` answers them."""
    times = scrapes_s[scrapes_s >= target.since_s]
    for start, end in target.skipped:
        times = times[(times < start) | (times > end)]
    born = np.zeros(times.size)
    for restart in target.restarts_s:
        born[times >= restart] = restart

    def counted(values: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Sum over the requests that are done since the last restart."""
        sums = np.append(0, np.cumsum(np.where(kept, values, 0)))
        return sums[np.searchsorted(target.requests.done_s, times, side="right")] - np.where(
            born > 0, sums[np.searchsorted(target.requests.done_s, born, side="right")], 0
        )

    def one(name: str, values: np.ndarray, **more: str) -> dict[str, Any]:
        labels = {"__name__": name, "model_name": MODEL, **target.labels, **more}
        pairs = [[float(t), repr(float(v))] for t, v in zip(times, values, strict=True)]
        return {"metric": labels, "values": pairs}

    every = np.ones(target.requests.done_s.size, dtype=bool)
    for name, lengths in (
        ("vllm:request_prompt_tokens", target.requests.prompt),
        ("vllm:request_generation_tokens", target.requests.output),
    ):
        for edge in target.edges:
            yield one(f"{name}_bucket", counted(np.ones_like(lengths), lengths <= edge), le=repr(float(edge)))
        yield one(f"{name}_bucket", counted(np.ones_like(lengths), every), le="+Inf")
        yield one(f"{name}_count", counted(np.ones_like(lengths), every))
        yield one(f"{name}_sum", counted(lengths, every))


def answer(every: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """An answer of Prometheus to ``query_range``."""
    return {"status": "success", "data": {"resultType": "matrix", "result": list(every)}}


def write_answer(path: Path, targets: Iterable[Target], scrapes_s: np.ndarray) -> Path:
    """One answer with the series of all targets, over several lines as ``jq`` writes it."""
    found = answer(one for target in targets for one in series(target, scrapes_s))
    path.write_text(json.dumps(found, indent=1))
    return path


def write_grafana(path: Path, answered: Path, zone_offset_s: float = 0.0) -> Path:
    """The same series as Grafana joins them by time: an empty cell where a series has no sample."""
    result = json.loads(answered.read_text())["data"]["result"]
    columns = {}
    for one in result:
        labels = ", ".join(f'{k}="{v}"' for k, v in one["metric"].items() if k != "__name__")
        columns[f"{one['metric']['__name__']}{{{labels}}}"] = dict(one["values"])
    times = sorted({t for of_one in columns.values() for t in of_one})
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Time", *columns])
        for t in times:
            stamp = (EPOCH + timedelta(seconds=t + zone_offset_s)).strftime("%Y-%m-%d %H:%M:%S")
            writer.writerow([stamp, *(of_one.get(t, "") for of_one in columns.values())])
    return path


def write_long(path: Path, answered: Path) -> Path:
    """The same series with one sample a row."""
    result = json.loads(answered.read_text())["data"]["result"]
    names = sorted({label for one in result for label in one["metric"]} - {"__name__"})
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["__name__", *names, "timestamp", "value"])
        for one in result:
            labels = [one["metric"].get(name, "") for name in names]
            writer.writerows([one["metric"]["__name__"], *labels, int(t * 1000), v] for t, v in one["values"])
    return path


def write_snapshots(folder: Path, requests: Requests, times_s: Sequence[float], target: str = "pod-a") -> list[Path]:
    """What a client library really exposes at each time, in files named by target and time."""
    registry = CollectorRegistry()
    labels = {"model_name": MODEL, "engine": "0"}
    made = {
        name: Histogram(name, "of a request", list(labels), buckets=EDGES, registry=registry).labels(**labels)
        for name in ("vllm:request_prompt_tokens", "vllm:request_generation_tokens")
    }
    files, done = [], 0
    for time_s in times_s:
        while done < requests.done_s.size and requests.done_s[done] <= time_s:
            made["vllm:request_prompt_tokens"].observe(float(requests.prompt[done]))
            made["vllm:request_generation_tokens"].observe(float(requests.output[done]))
            done += 1
        stamp = (EPOCH + timedelta(seconds=time_s)).strftime("%Y-%m-%dT%H%M%SZ")
        files.append(folder / f"{target}_{stamp}.prom")
        files[-1].write_bytes(generate_latest(registry))
    return files
