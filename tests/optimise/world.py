"""A small world for whole-planner tests: real GPUs and shapes, traffic and offers made by hand."""

from __future__ import annotations

import datetime as dt
from functools import cache

import numpy as np

from planner.catalog.load import Catalog, load_catalog
from planner.catalog.offer import Offer, Term
from planner.optimise.exact import Fleet
from planner.optimise.types import Decision, SolverSettings, Workload
from planner.pipeline import fleet_of
from planner.request import ModelRequest, PlanRequest, Targets, TrafficSource
from planner.traffic.demand import DemandRates
from planner.traffic.types import Tail, Traffic
from tests.queueing.laws import burst_of, law_of

SETTINGS = SolverSettings(name="highs", gap=1e-4, time_limit_s=60.0, threads=1, seed=0)


@cache
def catalog() -> Catalog:
    return load_catalog()


def offer(gpu: str, size: int, usd_per_h: float, provider: str = "p", region: str = "r") -> Offer:
    return Offer(
        id=f"{provider}/{size}x-{gpu}/{region}/on_demand", provider=provider, instance_type=f"{size}x-{gpu}",
        region=region, gpu=gpu, gpus_per_instance=size, usd_per_h=usd_per_h, term=Term.ON_DEMAND,
        as_of=dt.date(2026, 11, 1), source_url="https://example.org/prices",
    )  # fmt: skip


def traffic(name: str, prompt: np.ndarray, output: np.ndarray, idc: float = 1.0) -> Traffic:
    law = law_of(prompt, output)
    total = -np.sort(-(prompt + output))[:1000]
    order = np.argsort(-(prompt + output), kind="stable")[:1000]
    assert (total == (prompt + output)[order]).all()
    tail = Tail(prompt[order], output[order], np.ones(order.size, dtype=np.int64))
    return Traffic(name, law, tail, burst_of(idc), np.full(60, 100, dtype=np.int64), 3600.0, "test", "0" * 64)


def lengths(seed: int, n: int = 900, prompt: float = 6.5, output: float = 5.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = np.round(rng.lognormal(prompt, 0.8, n)).astype(np.int64) + 1
    o = np.round(rng.lognormal(output, 0.7, n)).astype(np.int64) + 1
    return np.minimum(p, 7000), np.minimum(o, 1000)


def workload(
    name: str,
    weights: str = "meta-llama/Llama-3.1-8B-Instruct",
    *,
    rate: float = 5.0,
    seed: int = 0,
    idc: float = 1.0,
    tail_budget: float = 0.0,
    targets: Targets | None = None,
    tp_degrees: tuple[int, ...] = (1, 2),
    weight_dtypes: tuple[str, ...] = ("bf16",),
    sample: tuple[np.ndarray, np.ndarray] | None = None,
) -> Workload:
    prompt, output = sample if sample is not None else lengths(seed)
    request = ModelRequest(
        name=name, weights=weights, traffic=TrafficSource(path="none", rate_per_s=rate),
        weight_dtypes=weight_dtypes, kv_dtypes=("bf16",), tail_budget=tail_budget,
        targets=targets or Targets(), tp_degrees=tp_degrees, max_num_seqs=(256,),
    )  # fmt: skip
    shape = catalog().model_shape(weights)
    return Workload(request, shape, traffic(name, prompt, output, idc), DemandRates(rate), 2160.0)


def request_of(workloads: list[Workload], **changes) -> PlanRequest:
    values = {
        "quarter": {"title": "t", "start": "2027-01-01", "end": "2027-04-01", "owner": "o"},
        "engine": {"name": "vllm", "version": "0.19.0"},
        "model": [w.request.model_dump() for w in workloads],
    } | changes
    return PlanRequest.model_validate(values)


def fleet(workloads: list[Workload], offers: list[Offer], **changes) -> Fleet:
    return fleet_of(request_of(workloads, **changes), workloads, offers, catalog())


def decide(
    workloads: list[Workload], offers: list[Offer], settings: SolverSettings = SETTINGS, **changes
) -> Decision | None:
    return fleet(workloads, offers, **changes).solve(settings)
