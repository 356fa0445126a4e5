"""Metrics of a fleet as Prometheus would have them, made from figures of each pool: names as vLLM 0.33.0 writes them.

The arithmetic is its own: nothing here comes from `planner.observe`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.plan import FleetPlan, Pool

START_S = 1_800_000_000.0
"""2027-01-15 08:00 UTC."""
SECONDS = 900.0
STEP_S = 180.0
TTFT_EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)


@dataclass(frozen=True)
class State:
    """What one pool does."""

    pool: Pool
    replicas: int
    rate_per_s: float
    prompt: float
    output: float
    tpot_s: float
    ttft_s: float
    live: float
    """Requests of one replica."""
    usage: float
    blocks: float
    hits: float = 0.0
    waiting: float = 0.0
    preemptions_per_s: float = 0.0


def planned(pool: Pool, period: int) -> State:
    """The plan's own figures at its planning rate; those of its busiest period where it is that."""
    run = pool.periods[period]
    accepted = pool.offered_requests * (1 - pool.refused_request_share)
    limit = next(m.limit for m in pool.margins if m.constraint == "token pool")
    return loaded(
        State(
            pool=pool,
            replicas=run.replicas,
            rate_per_s=run.planning_rate_per_s,
            prompt=pool.served_input_mtok * 1e6 / accepted,
            output=pool.served_output_mtok * 1e6 / accepted,
            tpot_s=pool.speed.tpot_ms.used / 1000,
            ttft_s=pool.speed.ttft_ms.used / 1000,
            live=pool.load.mean_live_requests,
            usage=pool.load.mean_live_tokens / limit,
            blocks=float(pool.memory.num_blocks),
        ),
        1.0,
    )


def loaded(state: State, slow: float) -> State:
    """The state with what follows from its load: time per token, live requests, tokens in the cache."""
    pool, load = state.pool, state.pool.load
    accepted = pool.offered_requests * (1 - pool.refused_request_share)
    prompt0, output0 = pool.served_input_mtok * 1e6 / accepted, pool.served_output_mtok * 1e6 / accepted
    tpot0 = pool.speed.tpot_ms.used / 1000
    rate = state.rate_per_s / state.replicas
    more = rate / load.rate_per_replica_per_s
    decode_work = load.work_share - load.prefill_work_share
    work = more * (load.prefill_work_share * state.prompt / prompt0 + decode_work * state.output / output0)
    tpot = slow * tpot0 * (1 - load.work_share) / (1 - min(work, 0.98))
    stay0 = load.mean_live_requests / load.rate_per_replica_per_s
    before = max(stay0 - output0 * tpot0, 0.0)
    live = rate * (before + state.output * tpot)
    each0 = load.mean_live_tokens / load.mean_live_requests
    each = each0 * (state.prompt + state.output / 2) / (prompt0 + output0 / 2)
    limit = next(m.limit for m in pool.margins if m.constraint == "token pool")
    usage = live * each / (limit * state.blocks / pool.memory.num_blocks)
    return replace(state, tpot_s=tpot, live=live, usage=usage)


def lines_of(state: State, elapsed_s: float) -> Iterable[tuple[str, Mapping[str, str], float]]:
    """Name, labels and value of every sample at a time."""
    n = state.replicas
    done = 10_000.0 + state.rate_per_s / n * elapsed_s
    for replica in range(n):
        own = {"pool": state.pool.name, "instance": f"{state.pool.name}-{replica}:8000"}
        labels = {**own, "engine": "0", "model_name": state.pool.weights}
        yield "up", own, 1.0
        blocks = {"num_gpu_blocks": f"{state.blocks:.0f}", "block_size": f"{state.pool.memory.block_size_tokens}"}
        yield "vllm:cache_config_info", {**own, "engine": "0", **blocks}, 1.0
        yield "vllm:num_requests_running", labels, state.live
        yield "vllm:num_requests_waiting", labels, state.waiting
        yield "vllm:kv_cache_usage_perc", labels, state.usage
        yield "vllm:num_preemptions_total", labels, state.preemptions_per_s / n * elapsed_s
        for reason, share in (("stop", 0.8), ("length", 0.2)):
            yield "vllm:request_success_total", {**labels, "finished_reason": reason}, done * share
        yield "vllm:prompt_tokens_total", labels, done * state.prompt
        yield "vllm:generation_tokens_total", labels, done * state.output
        yield "vllm:prefix_cache_queries_total", labels, done * state.prompt
        yield "vllm:prefix_cache_hits_total", labels, done * state.prompt * state.hits
        for name, mean in (
            ("vllm:request_prompt_tokens", state.prompt),
            ("vllm:request_generation_tokens", state.output),
            ("vllm:request_time_per_output_token_seconds", state.tpot_s),
        ):
            yield f"{name}_sum", labels, done * mean
            yield f"{name}_count", labels, done
        yield from _ttft(state, labels, done)


def _ttft(state: State, labels: Mapping[str, str], done: float) -> Iterable[tuple[str, Mapping[str, str], float]]:
    """Buckets whose percentile is exactly the state's TTFT: the requests lie evenly up to it over the percentile."""
    name, longest = "vllm:time_to_first_token_seconds", state.ttft_s / state.pool.speed.ttft_percentile
    edges = sorted({*TTFT_EDGES, longest})
    for edge in edges:
        yield f"{name}_bucket", {**labels, "le": repr(edge)}, done * min(edge / longest, 1.0)
    yield f"{name}_bucket", {**labels, "le": "+Inf"}, done
    yield f"{name}_sum", labels, done * longest / 2
    yield f"{name}_count", labels, done


def text_of(states: Sequence[State], elapsed_s: float = SECONDS) -> str:
    """One scrape of everything, as ``/metrics`` has it."""
    rows = [row for state in states for row in lines_of(state, elapsed_s)]
    return "".join(f"{name}{{{_labels(labels)}}} {value!r}\n" for name, labels, value in rows)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={json.dumps(text)}" for name, text in labels.items())


def answer_of(states: Sequence[State], start_s: float = START_S, seconds: float = SECONDS) -> str:
    """An answer of ``query_range``."""
    series: dict[str, dict[str, object]] = {}
    for k in range(int(seconds / STEP_S) + 1):
        for state in states:
            for name, labels, value in lines_of(state, k * STEP_S):
                metric = {"__name__": name, **labels}
                one = series.setdefault(json.dumps(metric), {"metric": metric, "values": []})
                one["values"].append([start_s + k * STEP_S, repr(value)])  # type: ignore[attr-defined]
    data = {"resultType": "matrix", "result": list(series.values())}
    return json.dumps({"status": "success", "data": data})


def fleet(plan: FleetPlan, period: int) -> list[State]:
    """The plan's own figures for every pool."""
    return [planned(pool, period) for pool in plan.pools]
