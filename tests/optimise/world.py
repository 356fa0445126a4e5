"""A small world for whole-planner tests: real GPUs and shapes, traffic and offers made by hand."""

from __future__ import annotations

import datetime as dt
from functools import cache

import numpy as np

from planner.catalog.load import Catalog, load_catalog
from planner.catalog.offer import Offer, Term
from planner.optimise.needs.candidates import CandidateSet, candidate_needs
from planner.optimise.pools.slices import slices_of
from planner.optimise.solve.fleet import Fleet
from planner.optimise.supply.supplies import network_gb_s, supplies_of
from planner.optimise.types import Caps, Decision, Period, ProgramData, Serving, SolverSettings, Workload
from planner.request import ModelRequest, PlanRequest, Policy, Routing, Targets, TrafficSource
from planner.speed.chain import load_sources
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
    rates: tuple[float, ...] = (1.0,),
    cuts: tuple[int, ...] = (),
    **more,
) -> Workload:
    """One model: a single slice, unless ``cuts`` are given; ``rates`` are factors on the rate, one for each period."""
    prompt, output = sample if sample is not None else lengths(seed)
    values = {"kv_dtypes": ("bf16",), "max_num_seqs": (256,)} | more
    request = ModelRequest(
        name=name, weights=weights, traffic=TrafficSource(path="none", rate_per_s=rate), weight_dtypes=weight_dtypes,
        tail_budget=tail_budget, targets=targets or Targets(), tp_degrees=tp_degrees, **values,
    )  # fmt: skip
    shape, log = catalog().model_shape(weights), traffic(name, prompt, output, idc)
    by_period = rate * np.array(rates)
    routing = Routing(max_pools=2 if cuts else 1, cuts=cuts)
    slices, end = slices_of(request, routing, log, {}, by_period, by_period)
    return Workload(request, shape, log, DemandRates(rate), slices, end)


def periods_of(work: Workload, hours: float = 2160.0) -> tuple[Period, ...]:
    """As many periods as the workload has rates, equally long."""
    count = len(work.slices[0].planning_rate_per_s)
    return tuple(Period(f"period {number}", hours / count) for number in range(count))


@cache
def serving(engine: str = "vllm", version: str = "0.19.0") -> Serving:
    return Serving(catalog().engine(engine, version), load_sources(catalog().root))


def candidates(work: Workload, gpus: tuple[str, ...], policy: Policy | None = None, **more) -> CandidateSet:
    """Candidates of one model on GPU types of the catalogue."""
    chosen = [catalog().gpu(name) for name in gpus]
    return candidate_needs(work, chosen, serving(), policy or Policy(), periods_of(work), **more)


def request_of(workloads: list[Workload], **changes) -> PlanRequest:
    values = {
        "quarter": {"title": "t", "start": "2027-01-01", "end": "2027-04-01", "owner": "o"},
        "engine": {"name": "vllm", "version": "0.19.0"},
        "model": [w.request.model_dump() for w in workloads],
    } | changes
    return PlanRequest.model_validate(values)


def fleet(workloads: list[Workload], offers: list[Offer], **changes) -> Fleet:
    request = request_of(workloads, **changes)
    periods = periods_of(workloads[0])
    supplied = supplies_of(request, offers, periods, catalog(), "request.toml")
    gpus = tuple(sorted({supply.gpu for supply in supplied.supplies}))
    links = network_gb_s(request, supplied.lots)
    needs = {w.name: candidates(w, gpus, request.policy, multi_node=links).needs for w in workloads}
    data = ProgramData(
        models=tuple(w.name for w in workloads),
        end_node={w.name: w.end_node for w in workloads},
        max_pools={w.name: w.request.max_pools or request.routing.max_pools for w in workloads},
        periods=periods,
        supplies=supplied.supplies,
        lots=supplied.lots,
        columns=(),
        quotas=request.quota,
        caps=Caps(budget_usd=request.budget_usd),
    )
    spares = {w.name: request.policy.spare_replicas for w in workloads}
    return Fleet(workloads, needs, spares, data, lambda text: None)


def decide(
    workloads: list[Workload], offers: list[Offer], settings: SolverSettings = SETTINGS, **changes
) -> Decision | None:
    return fleet(workloads, offers, **changes).solve(settings)
