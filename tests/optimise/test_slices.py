from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.optimise.pools.routes import routes_of
from planner.optimise.pools.slices import slices_of, strictest
from planner.optimise.types import Slice
from planner.request import ModelRequest, Routing, Targets, TenantRequest, TenantTraffic, TrafficSource
from planner.traffic.law import length_at_tail, refused_shares
from planner.traffic.prompt_bands import cuts_of, restrict_prompts
from planner.traffic.source import load_traffic
from planner.traffic.types import Tail, Traffic
from tests.queueing.laws import burst_of, law_of_requests

EXAMPLES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
PLANNING, MEAN = np.array([4.0, 10.0]), np.array([2.0, 5.0])


def traffic_of(prompt: Sequence[int], output: Sequence[int], idc: float = 1.0, name: str = "m") -> Traffic:
    """As a log is summed up, with every request in the tail table."""
    p, o = np.array(prompt, dtype=np.int64), np.array(output, dtype=np.int64)
    rows, n = np.unique(np.stack([-(p + o), p, o]), axis=1, return_counts=True)
    tail = Tail(rows[1], rows[2], n)
    minutes = np.full(60, 100, dtype=np.int64)
    return Traffic(name, law_of_requests(p, o), tail, burst_of(idc), minutes, 3600.0, "test", "0" * 64)


def tenant(name: str, share: float | None = None, **changes: object) -> TenantRequest:
    return TenantRequest(name=name, traffic=TenantTraffic(path="none", share=share), **changes)


def model(*tenants: TenantRequest, **changes: object) -> ModelRequest:
    return ModelRequest(
        name="m", weights="none", traffic=TrafficSource(path="none"), weight_dtypes=("bf16",), kv_dtypes=("bf16",),
        tenant=tenants, **changes,
    )  # fmt: skip


def made(
    request: ModelRequest, routing: Routing, traffic: Traffic, tenants: dict[str, Traffic] | None = None
) -> tuple[tuple[Slice, ...], int]:
    return slices_of(request, routing, traffic, tenants or {}, PLANNING, MEAN)


def paths(slices: Sequence[Slice], end: int, node: int = 0) -> Iterator[tuple[Slice, ...]]:
    """Every way through the routing graph."""
    if node == end:
        yield ()
    for arc in slices:
        if arc.start == node:
            yield from ((arc, *rest) for rest in paths(slices, end, arc.end))


# Prompts of 1, 16, 64 and 256 tokens: 8, 4, 2 and 2 requests with outputs of 8.
FOUR = traffic_of([1] * 8 + [16] * 4 + [64] * 2 + [256] * 2, [8] * 16)


def test_one_pool_is_all_of_the_traffic() -> None:
    for request, routing in ((model(), Routing(bands=4)), (model(max_pools=1), Routing(max_pools=4))):
        slices, end = made(request, routing, FOUR)
        assert end == 1
        (only,) = slices
        assert (only.key, only.start, only.end) == ("m[0-)", 0, 1)
        assert (only.prompt_lo_tokens, only.prompt_hi_tokens, only.tenants) == (0, None, ())
        assert only.traffic is FOUR
        assert only.planning_rate_per_s.tolist() == PLANNING.tolist()
        assert only.mean_rate_per_s.tolist() == MEAN.tolist()


def test_arcs_are_all_stretches_with_their_shares_of_the_rates() -> None:
    """Cuts 16, 64, 256: bands of 8, 4, 2, 2 of 16 requests; rates 4 and 10 per s become 2, 1, 0.5, 0.5 and so on."""
    slices, end = made(model(max_pools=2), Routing(bands=4), FOUR)
    assert end == 4
    assert {(s.start, s.end) for s in slices} == set(itertools.combinations(range(5), 2))
    assert len({s.key for s in slices}) == len(slices) == 10
    by_key = {s.key: s for s in slices}
    first, middle, last = by_key["m[0-16)"], by_key["m[16-256)"], by_key["m[256-)"]
    assert (first.start, first.end, middle.start, middle.end, last.start, last.end) == (0, 1, 1, 3, 3, 4)
    assert first.planning_rate_per_s.tolist() == [2.0, 5.0]
    assert middle.planning_rate_per_s.tolist() == [1.5, 3.75]
    assert last.mean_rate_per_s.tolist() == [0.25, 0.625]
    assert last.traffic.law.mean_prompt == 256
    assert last.traffic.tail.total.tolist() == [264]


def test_stated_cuts_are_taken_in_any_order_and_empty_bands_are_joined() -> None:
    slices, end = made(model(), Routing(max_pools=3, cuts=(1024, 64, 32)), FOUR)
    assert end == 2
    assert [s.key for s in slices] == ["m[0-32)", "m[0-)", "m[32-)"]
    again, _ = made(model(), Routing(max_pools=3, cuts=(32, 64, 1024)), FOUR)
    assert [s.key for s in again] == [s.key for s in slices]


def test_stated_cuts_inside_a_cell_are_refused_together() -> None:
    """Prompts of 256 and 270 share the cell [256, 280)."""
    traffic = traffic_of([1, 16, 256, 270], [1] * 4)
    with pytest.raises(InputError) as caught:
        made(model(), Routing(max_pools=2, cuts=(260, 0)), traffic)
    text = str(caught.value)
    assert "0 is no prompt length to cut at" in text
    assert "Cut at 256 or 271" in text
    assert len(caught.value.problems) == 2


TARGETS = Targets(tpot_ms=50, ttft_ms=2000, ttft_percentile=0.9)
TWO = (
    tenant("b", targets=Targets(tpot_ms=30), tail_budget=0.01),
    tenant("a", targets=Targets(ttft_ms=500, ttft_percentile=0.5)),
)
LOGS = {
    "a": traffic_of([1] * 8 + [16] * 4, [8] * 12, idc=2.0, name="a"),
    "b": traffic_of([64] * 2 + [256] * 2, [8] * 4, idc=5.0, name="b"),
}


def test_tenants_have_an_axis_each_one_after_the_other() -> None:
    """12 and 4 of 16 requests; with three pools, the other tenant keeps one: two bands at most a tenant."""
    slices, end = made(model(*TWO, targets=TARGETS), Routing(max_pools=3, bands=4), FOUR, LOGS)
    own = [s for s in slices if s.tenants]
    assert [s.key for s in own] == [
        "m[a][0-16)", "m[a][0-)", "m[a][16-)", "m[b][0-256)", "m[b][0-)", "m[b][256-)",
    ]  # fmt: skip
    a, b = ([s for s in own if s.tenants == (name,)] for name in "ab")
    assert a[0].start == 0
    assert {s.end for s in b if s.prompt_hi_tokens is None} == {end}
    hand_over = {s.end for s in a if s.prompt_hi_tokens is None}
    assert hand_over == {s.start for s in b if s.prompt_lo_tokens == 0}
    inner = {node for s in own for node in (s.start, s.end)} - {0, end}
    assert not inner & set(range(end + 1))
    whole = next(s for s in a if s.key == "m[a][0-)")
    assert whole.planning_rate_per_s.tolist() == [3.0, 7.5]
    assert whole.traffic.burst.idc[0] == 2.0
    assert (whole.targets, whole.tail_budget) == (TWO[1].targets, 0.001)
    whole = next(s for s in b if s.key == "m[b][0-)")
    assert whole.mean_rate_per_s.tolist() == [0.5, 1.25]
    assert (whole.targets, whole.tail_budget) == (TWO[0].targets, 0.01)


def test_shared_slices_hold_the_strictest_targets() -> None:
    slices, _ = made(model(*TWO, targets=TARGETS), Routing(max_pools=2), FOUR, LOGS)
    shared = [s for s in slices if not s.tenants]
    assert {s.targets for s in shared} == {Targets(tpot_ms=30, ttft_ms=500, ttft_percentile=0.5)}
    assert strictest([TARGETS, Targets(ttft_ms=900, ttft_percentile=0.99), Targets()]) == Targets(
        tpot_ms=50, ttft_ms=900, ttft_percentile=0.99
    )
    assert strictest([Targets()]) == Targets()


def test_no_tenant_loses_more_of_its_own_requests_than_its_budget_where_a_pool_is_shared() -> None:
    """900 short requests of a, 100 of b with totals 101 .. 200. b may lose 2 %: up to 198 must fit.

    Its budget of 2 % of all 1,000 requests would let 20 be refused, all of them b's: 20 %. Refused at 198: 2 of 1,000.
    """
    a, b = [10] * 900, list(range(1, 101))
    logs = {"a": traffic_of(a, [10] * 900), "b": traffic_of(b, [100] * 100)}
    whole = traffic_of(a + b, [10] * 900 + [100] * 100)
    tenants = (tenant("a", tail_budget=0.02), tenant("b", tail_budget=0.02))
    (shared,), _ = made(model(*tenants), Routing(), whole, logs)
    assert shared.tail_budget == pytest.approx(0.002)
    limit = length_at_tail(shared.traffic, shared.tail_budget)
    assert limit == 198
    assert refused_shares(logs["b"], limit).requests == pytest.approx(0.02)
    # The smallest budget holds in any case.
    (shared,), _ = made(model(tenant("a", tail_budget=0.0), tenants[1]), Routing(), whole, logs)
    assert shared.tail_budget == 0.0


def test_pools_by_tenant_need_as_many_pools_as_tenants() -> None:
    for pools, expected in ((1, False), (2, True)):
        slices, _ = made(model(*TWO), Routing(max_pools=pools), FOUR, LOGS)
        assert [s.key for s in slices if s.tenants] == (["m[a][0-)", "m[b][0-)"] if expected else [])
    alone = model(tenant("a", targets=Targets(tpot_ms=9)))
    slices, _ = made(alone, Routing(max_pools=3), FOUR, {"a": FOUR})
    assert {(s.tenants, s.targets.tpot_ms) for s in slices} == {((), 9)}


def test_stated_shares_scale_the_tenants_rates() -> None:
    """Stated: 0.75 and 0.25, which are those of the logs here, whatever the logs' sizes."""
    few = {"a": LOGS["a"], "b": replace(LOGS["b"], sampling_fraction=0.5)}
    stated = model(tenant("a", 0.75), tenant("b", 0.25))
    slices, _ = made(stated, Routing(max_pools=2), FOUR, few)
    rates = {s.key: s.planning_rate_per_s[0] for s in slices}
    assert (rates["m[a][0-)"], rates["m[b][0-)"]) == (3.0, 1.0)


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ((tenant("a", 0.7), tenant("b", 0.2)), "shares add to 0.9, not 1: a 0.7, b 0.2"),
        ((tenant("a", 0.9), tenant("b")), "shares add to 1.15"),
        ((tenant("a"), tenant("a")), "repeated: a"),
        ((tenant("a", 0.25), tenant("b", 0.75)), "mean prompt"),
    ],
)
def test_tenants_that_are_not_the_models_traffic(tenants: tuple[TenantRequest, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(model(*tenants), Routing(max_pools=2), FOUR, LOGS)


def test_order_of_tenants_does_not_matter() -> None:
    forward = made(model(*TWO), Routing(max_pools=3), FOUR, LOGS)
    backward = made(model(*reversed(TWO)), Routing(max_pools=3), FOUR, dict(reversed(LOGS.items())))
    assert [(s.key, s.start, s.end) for s in forward[0]] == [(s.key, s.start, s.end) for s in backward[0]]
    assert forward[1] == backward[1]


def serving(slices: Sequence[Slice], name: str, prompt: int) -> list[Slice]:
    return [
        s
        for s in slices
        if (not s.tenants or name in s.tenants)
        and s.prompt_lo_tokens <= prompt
        and (s.prompt_hi_tokens is None or prompt < s.prompt_hi_tokens)
    ]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_path_serves_every_request_once(data: st.DataObject) -> None:
    """Any tenants, bands, cuts: rates add up along a path, and its routing table has one pool for each request."""
    pairs = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 60)), min_size=1, max_size=12)
    drawn = {name: data.draw(pairs) for name in "abc"[: data.draw(st.sampled_from((0, 2, 3)))]}
    everybody = [pair for own in drawn.values() for pair in own] or data.draw(pairs)
    logs = {name: traffic_of(*zip(*own, strict=True)) for name, own in drawn.items()}
    whole = traffic_of(*zip(*everybody, strict=True))
    cuts = tuple(data.draw(st.lists(st.sampled_from([16, 64, 128, 512]), max_size=3)))
    routing = Routing(max_pools=data.draw(st.integers(1, 4)), bands=data.draw(st.integers(1, 4)), cuts=cuts)
    slices, end = made(model(*(tenant(name) for name in drawn)), routing, whole, logs)
    assert len({s.key for s in slices}) == len(slices)
    assert len({(s.start, s.end) for s in slices}) == len(slices)
    assert all(s.traffic.law.requests > 0 for s in slices)
    ways = list(paths(slices, end))
    assert ways
    ends = {s.prompt_lo_tokens for s in slices} | {s.prompt_hi_tokens or 10**7 for s in slices}
    for way in ways[:60]:
        np.testing.assert_allclose(sum(s.planning_rate_per_s for s in way), PLANNING)
        np.testing.assert_allclose(sum(s.mean_rate_per_s for s in way), MEAN)
        rows = routes_of(way, [f"pool {s.key}" for s in way])
        for name, edge, step in itertools.product(drawn or ("",), ends, (-1, 0, 1)):
            prompt = max(edge + step, 0)
            (one,) = serving(way, name, prompt)
            hits = [
                row.pool
                for row in rows
                if row.tenant in ("", name)
                and row.prompt_lo_tokens <= prompt
                and (row.prompt_hi_tokens is None or prompt < row.prompt_hi_tokens)
            ]
            assert hits == [f"pool {one.key}"]


def test_slices_of_a_real_log_with_measured_bursts() -> None:
    """Cuts are edges of measured bands, so that every slice's bursts are measured: the last band's are its own."""
    traffic = load_traffic(EXAMPLES / "AzureLLMInferenceTrace_conv.csv", name="m", prompt_bursts=True)
    assert traffic.prompt_bursts is not None
    slices, end = made(model(), Routing(max_pools=3, bands=6), traffic)
    assert (end, len(slices)) == (6, 21)
    lows = {s.prompt_lo_tokens for s in slices}
    assert lows <= set(traffic.prompt_bursts.edges.tolist())
    last = next(s for s in slices if s.start == 5)
    assert last.traffic.burst.idc[3] == pytest.approx(32.1, abs=0.1)
    # Without the measurement, the bound: 1 + (16.41 - 1) x 19,366 / 1,650.
    plain = load_traffic(EXAMPLES / "AzureLLMInferenceTrace_conv.csv", name="m")
    assert restrict_prompts(plain, 3757, None).burst.idc[3] == pytest.approx(1 + 15.411 * 19366 / 1650, rel=1e-3)
    assert 3757 in cuts_of(plain.law, 6)


def test_a_routing_table_that_leaves_out_or_repeats_prompts_is_an_error() -> None:
    slices, _ = made(model(max_pools=2), Routing(bands=4), FOUR)
    by_key = {s.key: s for s in slices}
    first, last = by_key["m[0-16)"], by_key["m[16-)"]
    good = routes_of([last, first, first], ["c", "a", "b"], [1.0, 0.25, 0.75])
    assert [(r.prompt_lo_tokens, r.prompt_hi_tokens, r.pool, r.share) for r in good] == [
        (0, 16, "a", 0.25), (0, 16, "b", 0.75), (16, None, "c", 1.0),
    ]  # fmt: skip
    for chosen in ([first], [last], [first, last, last], [first, by_key["m[64-)"]], [first, last, by_key["m[0-)"]]):
        with pytest.raises(ValueError, match="served"):
            routes_of(chosen, [str(place) for place in range(len(chosen))])
    with pytest.raises(ValueError, match="a tenant's"):
        routes_of([by_key["m[0-)"], replace(by_key["m[0-)"], tenants=("x",))], ["a", "b"])
