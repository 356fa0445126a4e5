"""Routing rules of the Gateway API: model, tenant and stretch of prompt lengths to the Service of a pool.

An HTTPRoute (gateway.networking.k8s.io/v1) matches paths and headers, never a body or a number of tokens. So three
headers must be set before it matches:

* ``X-Gateway-Model-Name``, the model of the request's body: body-based routing of the Gateway API Inference Extension
  (https://gateway-api-inference-extension.sigs.k8s.io) sets it;
* ``X-Planner-Tenant``: whatever authenticates the client, which must drop the header from outside;
* ``X-Planner-Prompt-Band``: whatever counts the prompt's tokens (an external processor, llm-d's scheduler, vLLM
  Semantic Router), by ``bands.json``. There is no standard name for it: this one is the planner's.

A request without a header that its model's rules ask for matches nothing and is answered with 404. Of two rules that
match, the one with more headers is taken (Gateway API, HTTPRouteMatch).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from planner.deploy.commands import PORT
from planner.deploy.names import names_of
from planner.deploy.pods import Json
from planner.deploy.replicas import Replica
from planner.errors import InputError, Problem
from planner.plan import FleetPlan, Route

MODEL_HEADER, TENANT_HEADER, BAND_HEADER = "X-Gateway-Model-Name", "X-Planner-Tenant", "X-Planner-Prompt-Band"
GATEWAY = "inference-gateway"
"""Name of the Gateway: to be confirmed."""
MOST_RULES, MOST_MATCHES, MOST_OF_RULE = 16, 128, 64
"""Rules and matches of one HTTPRoute, matches of one rule (Gateway API v1, HTTPRouteSpec.Rules, HTTPRouteRule)."""
SEPARATOR = "\x00"
"""Between a model and the number of its route: no header carries it, so no model has it in its name."""
WEIGHTS = 10_000
"""Shares as whole weights; the largest that a reference may have is a million."""
TIMEOUT = "3600s"


def routes_of(plan: FleetPlan) -> tuple[Route, ...]:
    """The routing table; a plan without one sends each request where a pool's own lengths say."""
    if plan.routes:
        return plan.routes
    return tuple(
        Route(
            model=pool.model, tenant=tenant, prompt_lo_tokens=pool.prompt_lo_tokens,
            prompt_hi_tokens=pool.prompt_hi_tokens, pool=pool.name, share=pool.load_share,
        )
        for pool in plan.pools
        for tenant in pool.tenants or ("",)
    )  # fmt: skip


@dataclass(frozen=True)
class Band:
    """A stretch of prompt lengths that no row of a model's table cuts; ``high`` is not part of it, ``None`` no end."""

    low: int
    high: int | None

    @property
    def value(self) -> str:
        """Value of the header: ``0-331``, both ends included, or ``332-``."""
        return f"{self.low}-{'' if self.high is None else self.high - 1}"


def bands_of(rows: Sequence[Route]) -> tuple[Band, ...]:
    """The stretches of one model, whoever asks: cut wherever a row of any tenant begins or ends."""
    ends = [row.prompt_hi_tokens for row in open_ended(rows)]
    cuts = sorted({row.prompt_lo_tokens for row in rows} | {end for end in ends if end is not None})
    return tuple(Band(low, high) for low, high in zip(cuts, [*cuts[1:], None], strict=True))


def open_ended(rows: Sequence[Route]) -> list[Route]:
    """Rows of one model, those of a tenant's longest prompts without an end: what is longer goes there too."""
    longest = {row.tenant: _end(row) for row in sorted(rows, key=_end)}
    return [
        row.model_copy(update={"prompt_hi_tokens": None}) if _end(row) == longest[row.tenant] else row for row in rows
    ]


def _end(row: Route) -> float:
    return math.inf if row.prompt_hi_tokens is None else row.prompt_hi_tokens


def http_routes(
    plan: FleetPlan, replicas: Sequence[Replica], service: Callable[[Replica], str] = lambda replica: replica.name
) -> list[Json]:
    """The objects of a plan: one a model, more where it has more rules than one may hold.

    Parameters
    ----------
    service
        Name of the Service of a pool.

    Raises
    ------
    InputError
        If a route leads to no pool, or a name of a model or tenant cannot stand in a header.
    """
    services = {replica.pool.name: service(replica) for replica in replicas}
    _check_pools(routes_of(plan), services)
    _check_headers(routes_of(plan))
    table = sorted(routes_of(plan), key=lambda row: row.model)
    parts = {
        f"{model}{SEPARATOR}{number}" if number else model: (model, rules)
        for model, rows in groupby(table, key=lambda row: row.model)
        for number, rules in enumerate(_parts(_rules(model, list(rows), services)))
    }
    names = names_of(parts)
    return [_route(names[text], model, rules, plan.run_id) for text, (model, rules) in parts.items()]


def _parts(rules: list[Json]) -> list[list[Json]]:
    """Rules as one route or several may hold them."""
    parts: list[list[Json]] = [[]]
    for rule in rules:
        matches = sum(len(own["matches"]) for own in parts[-1])
        if len(parts[-1]) == MOST_RULES or matches + len(rule["matches"]) > MOST_MATCHES:
            parts.append([])
        parts[-1].append(rule)
    return parts


def _check_pools(rows: Sequence[Route], services: Mapping[str, str]) -> None:
    """Routes of a plan that was edited may lead nowhere."""
    strange = sorted({row.pool for row in rows} - set(services))
    if strange:
        what = f"one leads to '{strange[0]}', which is none of the plan's pools"
        raise InputError(Problem("routes", what, "Take plan.json as `planner plan` wrote it"))


def _check_headers(rows: Sequence[Route]) -> None:
    """Raise where a name cannot stand in a header (RFC 9110, field values: no control characters, no space around)."""
    names = {(kind, name) for row in rows for kind, name in (("model", row.model), ("tenant", row.tenant))}
    bad = sorted(
        (kind, name)
        for kind, name in names
        if name != name.strip() or not name.isprintable() or (kind, name) == ("model", "")
    )
    if bad:
        fix = "Rename it in the request, and plan again: the gateway tells it by a header"
        raise InputError(
            [Problem(f"{kind} {name!r:.60}", "cannot be the value of a header", fix) for kind, name in bad]
        )


def _route(name: str, model: str, rules: list[Json], run_id: str) -> Json:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "annotations": {"planner/run-id": run_id, "planner/model": model}},
        "spec": {"parentRefs": [{"name": GATEWAY}], "rules": rules},
    }


def _rules(model: str, rows: list[Route], services: Mapping[str, str]) -> list[Json]:
    """A rule for each tenant and stretch of the table; headers that tell nothing apart are not asked for."""
    bands, cells = bands_of(rows), dict[tuple[str, int, int | None], list[Route]]()
    for row in open_ended(rows):
        cells.setdefault((row.tenant, row.prompt_lo_tokens, row.prompt_hi_tokens), []).append(row)
    rules = []
    for (tenant, _, _), same in cells.items():
        own = [{"name": MODEL_HEADER, "value": model}]
        own += [{"name": TENANT_HEADER, "value": tenant}] if tenant else []
        values = [band.value for band in bands if _holds(same[0], band)]
        asked = [[{"name": BAND_HEADER, "value": value}] for value in values] if len(bands) > 1 else [[]]
        references = [_reference(services[row.pool], weight) for row, weight in zip(same, _weights(same), strict=True)]
        matches = [_match([*own, *headers]) for headers in asked]
        for start in range(0, len(matches), MOST_OF_RULE):
            some = matches[start : start + MOST_OF_RULE]
            rules.append({"matches": some, "backendRefs": references, "timeouts": {"request": TIMEOUT}})
    return rules


def _holds(row: Route, band: Band) -> bool:
    return row.prompt_lo_tokens <= band.low and _end(row) > band.low


def _match(headers: Sequence[Mapping[str, str]]) -> Json:
    exact = [{"type": "Exact", **header} for header in headers]
    return {"path": {"type": "PathPrefix", "value": "/v1"}, "headers": exact}


def _reference(service: str, weight: int) -> Json:
    return {"name": service, "port": PORT, "weight": weight}


def _weights(rows: Sequence[Route]) -> list[int]:
    """Shares as whole weights, none of them 0 where a share is not."""
    if len(rows) == 1:
        return [1]
    return [max(1, round(row.share * WEIGHTS)) if row.share > 0 else 0 for row in rows]


def bands_json(plan: FleetPlan) -> str:
    """What sets the header: for each model the stretches of prompt lengths, with the value of each."""
    table = sorted(routes_of(plan), key=lambda row: row.model)
    models = {model: bands_of(list(rows)) for model, rows in groupby(table, key=lambda row: row.model)}
    document = {
        "header": BAND_HEADER,
        "models": {
            model: [{"value": band.value, "prompt_tokens": {"from": band.low, "below": band.high}} for band in bands]
            for model, bands in models.items()
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
