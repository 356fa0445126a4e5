"""Where the routing table sends requests: bands, shares in turn, tenants that are known or not."""

from __future__ import annotations

import datetime as dt

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.actuals.route import Routing, Turns, routing_of
from planner.plan import Route
from tests.actuals.plans import Spec, plan_of

START, END = dt.date(2026, 1, 5), dt.date(2026, 1, 6)


def routed(routing: Routing, prompts: list[int], tenant: str = "") -> list[str]:
    number = Turns(routing).pools(np.array(prompts), np.full(len(prompts), routing.tenants.index(tenant)))
    return [routing.pools[k] for k in number]


def table(specs: list[Spec], rows: list[tuple[str, int, int | None, str, float]] | None = None) -> Routing:
    routes = [
        Route(model="m", tenant=tenant, prompt_lo_tokens=low, prompt_hi_tokens=high, pool=pool, share=share)
        for tenant, low, high, pool, share in rows or []
    ]
    return routing_of(plan_of(specs, START, END, routes=routes), "m")


def spec(name: str, low: int = 0, high: int | None = None, share: float = 1.0, tenants: tuple[str, ...] = ()) -> Spec:
    return Spec(name, "m", (1.0,), (1,), low=low, high=high, share=share, tenants=tenants)


def test_bands() -> None:
    rows = [("", 0, 100, "a", 1.0), ("", 100, 200, "b", 1.0), ("", 200, None, "a", 1.0)]
    found = table([spec("a"), spec("b")], rows)
    assert routed(found, [0, 99, 100, 199, 200, 10**6]) == ["a", "a", "b", "b", "a", "a"]


def test_a_plan_without_routes() -> None:
    found = table([spec("a", 0, 100), spec("b", 100)])
    assert routed(found, [99, 100]) == ["a", "b"]


def test_beyond_the_table() -> None:
    """A table that ends sends longer prompts to the pool of its longest ones."""
    found = table([spec("a", 0, 100), spec("b", 100, 200)])
    assert routed(found, [5000]) == ["b"]


@given(st.floats(0.01, 0.99), st.integers(1, 400), st.integers(1, 400))
def test_shares_in_turn(share: float, first: int, second: int) -> None:
    """After any number of requests each pool has its share of them to within 3; calls may be cut anywhere."""
    rows = [("", 0, 100, "a", share), ("", 0, 100, "b", 1 - share), ("", 100, None, "b", 1.0)]
    routing = table([spec("a"), spec("b")], rows)
    turns = Turns(routing)
    prompts = np.where(np.arange(first + second) % 3 == 0, 500, 50)
    none = np.zeros(prompts.size, dtype=np.int64)
    whole = Turns(routing).pools(prompts, none)
    cut = np.concatenate([turns.pools(prompts[:first], none[:first]), turns.pools(prompts[first:], none[first:])])
    assert (whole == cut).all()
    short = prompts == 50
    assert (whole[~short] == 1).all()
    assert abs((whole[short] == 0).sum() - share * short.sum()) <= 3


def test_tenants() -> None:
    rows = [("batch", 0, None, "slow", 1.0), ("live", 0, 100, "fast", 1.0), ("live", 100, None, "slow", 1.0)]
    specs = [spec("fast", share=0.25), spec("slow", share=0.75)]
    routing = table(specs, rows)
    assert routing.tenants == ("", "batch", "live")
    assert routed(routing, [50, 50, 500], "live") == ["fast", "fast", "slow"]
    assert routed(routing, [50, 50, 500], "batch") == ["slow"] * 3
    unknown = routed(routing, [50] * 400 + [500] * 10)
    assert abs(unknown[:400].count("fast") - 100) <= 3
    assert unknown[400:] == ["slow"] * 10
