"""The planner against a reference that tries everything: the same cost per token, by both ways of solving.

The reference counts exact needs up one by one for every configuration that starts, and tries every path, place and
number of instances. Worlds are small, and as unlike as they can be: refusals, contracts, spot, regions, fast domains.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.catalog.offer import Term
from planner.optimise.needs.candidates import candidate_needs
from planner.optimise.recount import recount
from planner.optimise.solve import scale
from planner.optimise.solve.fleet import Fleet
from planner.optimise.supply.supplies import network_gb_s
from planner.optimise.types import Caps
from tests.optimise.reference_planner import best_fleet
from tests.optimise.world import SETTINGS, catalog, fleet, lengths, offer, periods_of, request_of, serving, workload

LARGE = "meta-llama/Llama-3.1-70B-Instruct"
DAY = (1.0, 0.3)
H100, A100, L4 = offer("H100-SXM", 2, 5.0), offer("A100-80GB-SXM", 1, 1.8), offer("L4", 1, 0.8)
TWO_POOLS = {"routing": {"max_pools": 2}}


def term(of, kind: Term, share: float):
    return of.model_copy(
        update={"id": of.id.replace("on_demand", kind.value), "term": kind, "usd_per_h": round(of.usd_per_h * share, 4)}
    )


def regions(usd: dict[str, float]):
    return [offer("A100-80GB-SXM", 1, price, region=name) for name, price in usd.items()]


RACK = {
    "name": "rack", "gpu": "H100-SXM", "gpus_per_instance": 3, "instances": 1, "usd_per_instance_h": 0.5,
    "source": "register",
}  # fmt: skip
FORMATS = {"weight_dtypes": ("bf16", "fp8")}
FEW_LONG = tuple(np.append(short, long) for short, long in zip(lengths(0), ([20_000] * 2, [100] * 2), strict=True))
"""Of 902 requests two are far longer than the rest: 0.2 % of requests and 4 % of all tokens."""

WORLDS = {
    "one pool": ([workload("m", rate=6.0, idc=3.0, rates=DAY)], [H100, L4], {}),
    "two pools": ([workload("m", rate=9.0, idc=3.0, cuts=(512,), rates=DAY)], [H100, L4], TWO_POOLS),
    "refusals": (
        [workload("m", rate=3.0, idc=3.0, tail_budget=0.01, cuts=(512,), rates=DAY, sample=FEW_LONG)],
        [H100, L4],
        TWO_POOLS,
    ),
    "formats": ([workload("m", rate=3.0, idc=3.0, tail_budget=0.01, sample=FEW_LONG, **FORMATS)], [A100], {}),
    "two models": (
        [workload("a", rate=6.0, idc=3.0, rates=DAY), workload("b", rate=2.0, seed=2, idc=5.0, rates=(0.2, 1.0))],
        [H100, L4],
        {},
    ),
    "a quiet period": ([workload("m", rate=6.0, rates=(1.0, 0.0), scaling={"step": 2})], [A100, H100], {}),
    "a commitment": ([workload("m", rate=9.0, rates=DAY)], [A100, term(A100, Term.COMMIT_1Y, 0.6)], {}),
    "liability": (
        [workload("m", rate=12.0, rates=DAY)],
        [A100, term(A100, Term.COMMIT_1Y, 0.6), H100],
        {"caps": Caps(liability_usd=10_000.0)},
    ),
    "spot": (
        [workload("m", rate=9.0, rates=DAY, interruptible=True)],
        [H100, term(H100, Term.SPOT, 0.55), A100],
        {"policy": {"spot_reserve": 0.34}},
    ),
    "regions": (
        [workload("m", rate=2.0, rates=DAY, survives_region_loss=True, tp_degrees=(1,))],
        regions({"a": 1.8, "b": 2.0, "c": 1.7}),
        {},
    ),
    "two of three regions": (
        [workload("m", rate=2.0, survives_region_loss=True, regions=("a", "b"))],
        regions({"a": 1.8, "b": 2.0, "c": 1.0}),
        {},
    ),
    "owned": ([workload("m", rate=9.0, rates=DAY)], [H100, L4], {"owned": [RACK]}),
    "a quota": (
        [workload("m", rate=6.0, rates=DAY)],
        [H100, A100],
        {"quota": [{"name": "few", "gpu": "H100-SXM", "max_gpus": 1}]},
    ),
    "fast domains": (
        [workload("m", LARGE, rate=2.0, tp_degrees=(2, 4), weight_dtypes=("fp8", "bf16"), rates=DAY)],
        [offer("H200-NVL", 8, 24.0), offer("H200-NVL", 4, 12.5)],
        {},
    ),
    "odd instances": ([workload("m", LARGE, rate=2.0, tp_degrees=(2, 4), rates=DAY)], [offer("H200-NVL", 6, 18.0)], {}),
    "several nodes": (
        [workload("m", LARGE, rate=2.0, tp_degrees=(8, 16), rates=DAY)],
        [offer("H100-SXM", 8, 20.0)],
        {"multi_node": [{"gpu": "H100-SXM", "network_gb_s": 50.0, "source": "s"}]},
    ),
    "a budget": ([workload("m", rate=6.0)], [H100, L4], {"budget_usd": 7_775.0}),
    "spares": ([workload("m", rate=3.0, rates=DAY)], [H100, A100], {"policy": {"spare_replicas": 2}}),
}


def world(name: str) -> tuple[Fleet, list, dict]:
    works, offers, rules = WORLDS[name]
    rules = dict(rules)
    caps = rules.pop("caps", None)
    made = fleet(works, offers, **rules)
    data = made._data if caps is None else replace(made._data, caps=caps)
    return Fleet(works, made._needs, made._spares, data, lambda text: None), works, rules


@pytest.mark.parametrize("name", WORLDS)
def test_planner_finds_what_trying_everything_finds(name, monkeypatch):
    made, works, rules = world(name)
    request, data = request_of(works, **rules), made._data
    gpus = [catalog().gpu(gpu) for gpu in sorted({supply.gpu for supply in data.supplies})]
    links = network_gb_s(request, data.lots)
    needs = {
        w.name: candidate_needs(w, gpus, serving(), request.policy, periods_of(w), links, prune=False).needs
        for w in works
    }
    best = best_fleet(works, needs, data, request.policy.spare_replicas)
    found = made.solve(SETTINGS)
    agrees(made, found, best)
    monkeypatch.setattr(scale, "FEW_COLUMNS", 0)
    again, _, _ = world(name)
    agrees(again, again.solve(SETTINGS), best)


def agrees(made: Fleet, found, best) -> None:
    """The same ratio within the gap, the same infeasibility, and a bound below the best there is."""
    assert (found is None) == (best is None)
    if found is not None:
        assert recount(made.data(), found) == []
        assert found.usd_per_token_bound <= best.ratio * (1 + 1e-9)
        assert best.ratio * (1 - 1e-9) <= found.usd_per_token <= best.ratio * (1 + SETTINGS.gap)


def test_the_worlds_are_not_all_alike():
    """Some are infeasible, some refuse requests, some run several pools: else the comparison would say little."""
    assert world("a budget")[0].solve(SETTINGS) is None
    refused = world("refusals")[0].solve(SETTINGS)
    assert max(p.need.config.length.refused_token_share for c in refused.columns for p in c.parts) > 0
    spread = world("regions")[0].solve(SETTINGS)
    assert len({supply for _, supply in spread.placed}) >= 2
    owned = world("owned")[0].solve(SETTINGS)
    assert "owned/rack" in owned.running
    assert np.isfinite(owned.usd)
