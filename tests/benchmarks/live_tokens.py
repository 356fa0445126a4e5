"""Live-token quantiles out of sample, and their cost: figures for README.md, nothing fails.

    python -m tests.benchmarks.live_tokens study [FOLDER_WITH_SERVEGEN_CLIENTS ...] [--write]
    python -m tests.benchmarks.live_tokens speed

The study sizes every case on the first half of its log by the product's own code (a log file is written and read) and
replays the second half exactly, whole and split at random over replicas. ServeGen publishes rates for every 600 s and
fitted renewal laws, not requests; what is drawn from them has no bursts between 10 s and 10 minutes that cross clients.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from planner.errors import InputError
from planner.queueing.footprint import marks_held, moments_of
from planner.queueing.holding import Holding
from planner.queueing.live_tokens import LiveLoad, live_tokens_batch
from planner.queueing.planned_load import PLAIN, Ask, planned_load
from planner.queueing.residence import Residence
from planner.traffic.readers.servegen import Window, _read_client, draw_client
from planner.traffic.source import load_traffic
from tests.queueing.replay import Trace, azure, mooncake, overflow_shares, write_plain

HERE = Path(__file__).parent
TRACES = HERE.parents[1] / "catalogs" / "example" / "traffic"
README = HERE / "README.md"
MARKS = "<!-- live tokens: begin -->", "<!-- live tokens: end -->"
SINGLE = Holding(full=1.0, sliding=0.0, block_tokens=1, window_tokens=0, reserve_tokens=0, state=0.0)
TARGETS = (0.01, 0.001)
HOURS_A_MODEL = 6
MOST_REQUESTS = 60_000


@dataclass(frozen=True)
class Case:
    """A log that is cut in two."""

    group: str
    name: str
    trace: Trace
    end_s: float


def real_cases() -> Iterator[Case]:
    traces = {name: azure(TRACES / f"AzureLLMInferenceTrace_{name}.csv") for name in ("code", "conv")}
    traces["mooncake"] = mooncake(TRACES / "mooncake_conversation_head2500.jsonl")
    for name, trace in traces.items():
        end = float(trace.arrival_s[-1])
        yield Case("real, halves", name, trace, end)
        back = Trace(end - trace.arrival_s[::-1], trace.prompt[::-1], trace.output[::-1])
        yield Case("real, time reversed", name, back, end)
    for name in ("code", "conv"):
        trace = traces[name]
        for start in (0.0, 1100.0):
            rows = (trace.arrival_s >= start) & (trace.arrival_s < start + 2400)
            cut = trace.part(rows)
            yield Case(
                "real, 20 + 20 min",
                f"{name} from {start:g} s",
                Trace(cut.arrival_s - start, cut.prompt, cut.output),
                2400.0,
            )


def control_cases() -> Iterator[Case]:
    """Lengths of the conversation trace in random order; batches of geometric size at one instant."""
    lengths = azure(TRACES / "AzureLLMInferenceTrace_conv.csv")
    for batch, logs in ((1, 12), (2, 6), (5, 6), (20, 6)):
        for seed in range(logs):
            rng = np.random.default_rng([batch, seed])
            starts = np.sort(rng.uniform(0, 3600, rng.poisson(5.5 / batch * 3600)))
            arrival = np.repeat(starts, rng.geometric(1 / batch, starts.size))
            pick = rng.integers(0, lengths.prompt.size, arrival.size)
            yield Case(
                f"control, batches of {batch}",
                f"seed {seed}",
                Trace(arrival, lengths.prompt[pick], lengths.output[pick]),
                3600.0,
            )


def servegen_cases(folders: list[Path]) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    files = sorted({p.name: p for f in folders for p in [*f.rglob("*_trace.csv.gz")]}.items())
    models: dict[str, list[Path]] = {}
    for name, path in files:
        models.setdefault(name.split("_client")[0], []).append(path)
    for model, paths in models.items():
        clients = [_read_client(path) for path in paths]
        last = max(p.start_s for c in clients for p in c.periods) // 600 - 5
        for seed in range(HOURS_A_MODEL):
            start = int(rng.integers(0, last)) * 600
            drawn = [draw_client(c, Window(start, start + 3600, seed)) for c in clients]
            for client, one in zip([*(c.name for c in clients), "all"], [*drawn, None], strict=True):
                parts = drawn if one is None else [one]
                case = _drawn_case(client if one is not None else f"{model} all", parts, start, merged=one is None)
                if case is not None:
                    yield case


def _drawn_case(name: str, parts: list, start: int, *, merged: bool) -> Case | None:
    time_s = np.concatenate([p.ts_us for p in parts]) / 1e6 - start
    prompt, output = (np.concatenate([getattr(p, side) for p in parts]) for side in ("prompt", "output"))
    order = np.argsort(time_s, kind="stable")
    order = order[(prompt[order] > 0) & (output[order] >= 0)]
    if not np.sum(time_s[order] < 1800) >= 300 or order.size > MOST_REQUESTS or np.sum(time_s[order] >= 1800) == 0:
        return None
    group = "ServeGen, merged clients" if merged else "ServeGen, one client"
    return Case(group, f"{name} at {start} s", Trace(time_s[order], prompt[order], output[order]), 3600.0)


def results(cases: Iterator[Case], scratch: Path) -> pd.DataFrame:
    rows = []
    for case in cases:
        half = case.end_s / 2
        log = write_plain(case.trace.part(case.trace.arrival_s < half), scratch / "log.csv")
        traffic = load_traffic(log, log_format="plain", name="m")
        drift = np.sum(case.trace.arrival_s >= half) / np.sum(case.trace.arrival_s < half) - 1
        for decode_rate in (20.0, 40.0, 100.0) if case.group.startswith("real") else (40.0,):
            for replicas in (1, 2, 4, 8) if case.group.startswith("real") else (1, 4):
                rows += _of_case(case, traffic, half, drift, decode_rate, replicas)
    return pd.DataFrame(rows)


def _of_case(case: Case, traffic, half: float, drift: float, decode_rate: float, replicas: int) -> list[dict]:
    try:
        asks = [Ask(decode_rate, 0.2, target, replicas, holding=SINGLE) for target in TARGETS]
        loads = [planned_load(traffic, ask) for ask in asks]
    except InputError:
        return []
    sizes = [load.replica.quantile_tokens for load in loads]
    seeds = range(4) if replicas > 1 and case.group.startswith("real") else range(1)
    shares = np.mean(
        [
            overflow_shares(
                case.trace, (half, case.end_s), sizes, replicas=replicas, seed=s, decode_rate=decode_rate, step_s=0.2
            )
            for s in seeds
        ],
        axis=0,
    )
    return [
        {"group": case.group, "case": case.name, "target": target, "replicas": replicas, "decode": decode_rate,
         "ratio": share / target, "head room": size / load.replica.mean_tokens, "drift": drift}
        for target, share, size, load in zip(TARGETS, shares, sizes, loads, strict=True)
    ]  # fmt: skip


def table(found: pd.DataFrame) -> str:
    lines = [
        "| cases | replicas | target | logs | held | overflow / target: median | mean | worst | quantile / mean |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    found = found.assign(split=np.where(found.replicas == 1, "1", "2-8"))
    for (group, split, target), part in found.groupby(["group", "split", "target"], sort=True):
        ratio = part["ratio"]
        lines.append(
            f"| {group} | {split} | {target:.1%} | {len(part)} | {np.mean(ratio <= 1):.0%} | {ratio.median():.2f} | "
            f"{ratio.mean():.2f} | {ratio.max():.2f} | {part['head room'].median():.2f} |"
        )
    return "\n".join(lines)


def steady(found: pd.DataFrame) -> pd.DataFrame:
    """ServeGen logs whose rate hardly rose: what is left when drift is taken out."""
    part = found[found.group.str.startswith("ServeGen") & (found.drift < 0.05)]
    return part.assign(group=part.group + ", rate rose less than 5 %")


def study(folders: list[Path], *, write: bool) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        cases = [*real_cases(), *control_cases(), *servegen_cases(folders)]
        found = results(iter(cases), Path(scratch))
    text = table(pd.concat([found, steady(found)]))
    print(text)
    real = found[found.group.str.startswith("real") & (found.ratio > 1)]
    print(real.sort_values("ratio").round(3).to_string())
    if write:
        before, rest = README.read_text().split(MARKS[0])
        README.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{rest.split(MARKS[1])[1]}")


def speed() -> None:
    """CPU seconds of one quantile, and of 1,000 combinations of model, rate and decode rate."""
    laws = [
        load_traffic(TRACES / name, options=options, name="m").law
        for name, options in (
            ("AzureLLMInferenceTrace_code.csv", {}), ("AzureLLMInferenceTrace_conv.csv", {}),
            ("mooncake_conversation_head2500.jsonl", {}), ("servegen-m-mid", {"window_s": 7200}),
        )
    ]  # fmt: skip
    marks = [marks_held(law, PLAIN) for law in laws]
    models = [(points, moments_of(points, law)) for points, law in zip(marks, laws, strict=True)]

    def stay(decode_rate: float) -> Residence:
        return Residence(*(np.asarray(v) for v in (0.2, 0.0, 0.0, 1 / decode_rate)))

    def cpu_s(loads: list[LiveLoad]) -> float:
        start = time.process_time()
        live_tokens_batch(loads)
        return time.process_time() - start

    one = [cpu_s([LiveLoad(5.5, 3.0, *model, stay(40), 0.01)]) for model in models for _ in range(3)]
    grid = [
        LiveLoad(rate, 3.0, *model, stay(v), 0.01)
        for model in models
        for v in np.linspace(20, 100, 10)
        for rate in np.geomspace(0.5, 50, 25)
    ]
    alone = [
        LiveLoad(rate, 3.0, *model, stay(v), 0.01)
        for model in models
        for v, rate in zip(np.linspace(20, 100, 250), np.geomspace(0.5, 50, 250), strict=True)
    ]
    print(f"one quantile: {np.median(one):.3f} CPU s")
    print(f"1,000 combinations (4 models x 10 decode rates x 25 rates): {cpu_s(grid):.1f} CPU s")
    print(f"1,000 combinations that share nothing (250 decode rates a model): {cpu_s(alone):.1f} CPU s")


if __name__ == "__main__":
    wanted = [Path(a) for a in sys.argv[2:] if not a.startswith("--")]
    if sys.argv[1:2] == ["speed"]:
        speed()
    else:
        study(wanted or [TRACES], write="--write" in sys.argv)
