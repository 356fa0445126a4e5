"""Routes: every request goes where the plan's routing table sends it, and says which headers must be set."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import numpy as np
import pytest

from planner.actuals.route import routing_of
from planner.deploy.gateway import (
    BAND_HEADER,
    MODEL_HEADER,
    MOST_MATCHES,
    MOST_RULES,
    TENANT_HEADER,
    bands_json,
    http_routes,
)
from planner.deploy.replicas import replicas_of
from planner.deploy.targets import Target
from planner.errors import InputError
from planner.plan import FleetPlan, Route
from tests.deploy.plans import CATALOG, example, files_of, plan_of, schema


def routes_for(plan: FleetPlan) -> list[dict[str, Any]]:
    return http_routes(plan, replicas_of(plan, CATALOG, {}))


def sent(routes: list[dict[str, Any]], headers: dict[str, str]) -> dict[str, int]:
    """Services with their weights: of the rules whose headers all match, the one with the most headers."""
    best: tuple[int, dict[str, int]] = (-1, {})
    for route in routes:
        for rule in route["spec"]["rules"]:
            for match in rule["matches"]:
                asked = {header["name"]: header["value"] for header in match["headers"]}
                if asked.items() <= headers.items() and len(asked) > best[0]:
                    best = len(asked), {ref["name"]: ref["weight"] for ref in rule["backendRefs"]}
    return best[1]


def headers_of(plan: FleetPlan, model: str, prompt: int, tenant: str = "") -> dict[str, str]:
    """What the filters before the gateway set, by ``bands.json``."""
    bands = json.loads(bands_json(plan))["models"][model]
    value = next(
        band["value"]
        for band in bands
        if band["prompt_tokens"]["from"] <= prompt
        and (band["prompt_tokens"]["below"] is None or prompt < band["prompt_tokens"]["below"])
    )
    return {MODEL_HEADER: model, BAND_HEADER: value} | ({TENANT_HEADER: tenant} if tenant else {})


def test_every_prompt_of_the_example_goes_to_the_pool_of_its_row() -> None:
    plan = example()
    routes = routes_for(plan)
    names = {replica.pool.name: replica.name for replica in replicas_of(plan, CATALOG, {})}
    for row in plan.routes:
        for prompt in {row.prompt_lo_tokens, (row.prompt_hi_tokens or row.prompt_lo_tokens + 9_999) - 1}:
            assert sent(routes, headers_of(plan, row.model, prompt)) == {names[row.pool]: 1}, row


def test_a_model_with_one_pool_needs_no_header_of_length() -> None:
    assert sent(routes_for(example()), {MODEL_HEADER: "chat-large"}) == {"chat-large": 1}
    assert sent(routes_for(example()), {MODEL_HEADER: "assistant"}) == {}
    assert sent(routes_for(example()), {MODEL_HEADER: "unknown"}) == {}


def shared_plan() -> FleetPlan:
    """Tenants told apart; long prompts of the others are shared 3 : 1."""
    base = example().pools[0].model_copy(update={"model": "chat"})
    pools = tuple(base.model_copy(update={"name": f"chat/{n}", "tenants": ()}) for n in (1, 2, 3))

    def row(tenant: str, low: int, high: int | None, pool: int, share: float = 1.0) -> Route:
        names = {"prompt_lo_tokens": low, "prompt_hi_tokens": high, "pool": f"chat/{pool}", "share": share}
        return Route.model_validate({"model": "chat", "tenant": tenant, **names})

    rows = (
        row("acme", 0, None, 1), row("", 0, 1000, 2), row("", 1000, None, 2, 0.75), row("", 1000, None, 3, 0.25),
    )  # fmt: skip
    return plan_of(*pools, routes=rows)


def test_shares_are_weights_and_a_tenant_goes_before_everybody() -> None:
    plan = shared_plan()
    routes = routes_for(plan)
    assert sent(routes, headers_of(plan, "chat", 5000)) == {"chat-2": 7500, "chat-3": 2500}
    assert sent(routes, headers_of(plan, "chat", 999)) == {"chat-2": 1}
    assert sent(routes, headers_of(plan, "chat", 1000, "acme")) == {"chat-1": 1}
    assert sent(routes, headers_of(plan, "chat", 0, "acme")) == {"chat-1": 1}


@pytest.mark.parametrize("plan", [example(), shared_plan()], ids=["example", "tenants"])
def test_the_gateway_sends_as_the_replay_of_actuals_does(plan: FleetPlan) -> None:
    """`planner.actuals.route` as the second opinion, at every cut and beside it, for every tenant of the table."""
    routes = routes_for(plan)
    names = {replica.pool.name: replica.name for replica in replicas_of(plan, CATALOG, {})}
    for model in {pool.model for pool in plan.pools}:
        table = routing_of(plan, model)
        prompts = {max(0, int(edge) + off) for edge in table.edges for off in (-1, 0, 1)} | {10_000_000}
        for number, tenant in enumerate(table.tenants):
            if not tenant and len(table.tenants) > 1:
                continue  # of an unknown tenant the replay guesses; the gateway sends it by the rows of everybody
            for prompt in prompts:
                band = int(np.searchsorted(table.edges, prompt, side="right")) - 1
                expected = {names[table.pools[pool]] for pool in table.pool[number, band]}
                assert set(sent(routes, headers_of(plan, model, prompt, tenant))) == expected, (model, tenant, prompt)


def test_what_is_longer_than_every_row_goes_to_the_last_one() -> None:
    rows = tuple(row.model_copy(update={"prompt_hi_tokens": row.prompt_hi_tokens or 9000}) for row in example().routes)
    plan = example().model_copy(update={"routes": rows})
    assert sent(routes_for(plan), headers_of(plan, "assistant", 50_000)) == {"assistant-2": 1}


def test_bands_tell_every_length_apart_once() -> None:
    """A filter needs only the number of tokens: the stretches of a model follow each other without gap or overlap."""
    for plan in (example(), shared_plan()):
        for stretches in json.loads(bands_json(plan))["models"].values():
            tokens = [stretch["prompt_tokens"] for stretch in stretches]
            assert tokens[0]["from"] == 0
            assert tokens[-1]["below"] is None
            assert [own["below"] for own in tokens[:-1]] == [own["from"] for own in tokens[1:]]


def test_a_plan_without_routes_sends_by_the_lengths_of_its_pools() -> None:
    plan = example().model_copy(update={"routes": ()})
    assert sorted(map(json.dumps, routes_for(plan))) == sorted(map(json.dumps, routes_for(example())))


def test_more_rules_than_one_route_may_hold_are_split() -> None:
    pool = example().pools[0].model_copy(update={"model": "chat", "name": "chat"})
    rows = tuple(
        Route(model="chat", tenant=f"tenant {n}", prompt_lo_tokens=0, prompt_hi_tokens=None, pool="chat")
        for n in range(MOST_RULES + 1)
    )
    routes = routes_for(plan_of(pool, routes=rows))
    assert [route["metadata"]["name"] for route in routes] == ["chat", "chat-1"]
    assert [len(route["spec"]["rules"]) for route in routes] == [MOST_RULES, 1]
    assert sent(routes, {MODEL_HEADER: "chat", TENANT_HEADER: f"tenant {MOST_RULES}"}) == {"chat": 1}


def test_more_lengths_than_one_rule_may_tell_apart_are_split() -> None:
    """A tenant cut at every 100 tokens, 150 times, beside everybody in one row: 151 matches for that row."""
    pool = example().pools[0].model_copy(update={"model": "chat", "name": "chat"})
    cuts = [100 * n for n in range(151)]
    rows = [Route(model="chat", tenant="", prompt_lo_tokens=0, prompt_hi_tokens=None, pool="chat")]
    for low, high in zip(cuts, [*cuts[1:], None], strict=True):
        lengths = {"tenant": "acme", "prompt_lo_tokens": low, "prompt_hi_tokens": high}
        rows.append(rows[0].model_copy(update=lengths))
    plan = plan_of(pool, routes=tuple(rows))
    routes = routes_for(plan)
    for route in routes:
        jsonschema.validate(route, schema("httproute"))
        assert sum(len(rule["matches"]) for rule in route["spec"]["rules"]) <= MOST_MATCHES
    assert sent(routes, headers_of(plan, "chat", 14_950)) == {"chat": 1}


def test_routes_of_models_with_alike_names_do_not_replace_each_other() -> None:
    """The second route of "chat" and the route of a model "chat/1"."""
    pool = example().pools[0].model_copy(update={"model": "chat", "name": "chat"})
    other = pool.model_copy(update={"model": "chat/1", "name": "routes"})
    rows = [Route(model="chat/1", tenant="", prompt_lo_tokens=0, prompt_hi_tokens=None, pool="routes")]
    for n in range(MOST_RULES + 1):
        rows.append(rows[0].model_copy(update={"model": "chat", "tenant": f"t{n}", "pool": "chat"}))
    plan = plan_of(pool, other, routes=tuple(rows))
    found = routes_for(plan)
    assert len({route["metadata"]["name"] for route in found}) == len(found) == 3
    files = files_of(plan, Target.KUBERNETES)
    assert "kind: Deployment" in files["kubernetes/routes.yaml"]
    assert "kind: HTTPRoute" in files["gateway/routes.yaml"]


@pytest.mark.parametrize("name", ["", " padded", "two\nlines", "bell\x07"])
def test_a_name_that_no_header_can_carry_is_refused(name: str) -> None:
    pool = example().pools[0].model_copy(update={"model": name, "launch_command": "vllm serve m"})
    with pytest.raises(InputError, match="cannot be the value of a header"):
        routes_for(plan_of(pool))


def test_a_route_to_no_pool_of_the_plan_is_refused() -> None:
    row = example().routes[0].model_copy(update={"pool": "gone"})
    with pytest.raises(InputError, match="leads to 'gone'"):
        routes_for(example().model_copy(update={"routes": (row,)}))
