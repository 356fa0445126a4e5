"""The routing table for a gateway: as CSV, and as JSON that a gateway's own configuration is made from.

No gateway reads either as it is; each has its own way to say "prompts of these lengths, to these replicas" (read on
2026-11-30):

* llm-d's scheduler: plugin ``context-length-aware`` with ``enableFiltering`` and the pod label
  ``llm-d.ai/context-length-range: "min-max"``, both ends included; the JSON holds the label of each pool
  (llm-d-router, pull request 550). Without a tokenizer it takes 0.25 tokens a character.
* vLLM Semantic Router: ``signals.context`` with ``min_tokens`` and ``max_tokens``, one decision for each
  (semantic-router, context routing tutorial).
* SGLang's sgl-router: buckets of engines as length tiers (its README).
* Envoy AI Gateway, vLLM production-stack and other routers that choose by model name or header: a name or header value
  for each pool, set by whatever counts the tokens before them (AIGatewayRoute, ``rules.matches.headers``).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from itertools import groupby

from planner.plan import Route
from planner.traffic.buckets import MAX_TOKENS

COLUMNS = ("model", "tenant", "prompt_from_tokens", "prompt_below_tokens", "pool", "share")
EVERYBODY = "*"
HOW_TO_COUNT = (
    "Prompt tokens are those that the log counts: the model's own tokenizer over the whole prompt, with chat template, "
    "tools and cached tokens."
)
NOTES = (
    HOW_TO_COUNT,
    "A router that estimates them from characters or bytes (0.25 tokens a character is common) misplaces prompts near "
    "a cut, most of all code, tables and languages other than English. Measure its error before cutting by it.",
    "A request that a pool refuses as too long, or whose length is not known, goes to the last row of its tenant: "
    "the pool for the longest prompts.",
    "Where rows of the same lengths name several pools, each request goes to one of them at random, by share.",
)
Json = dict[str, object]


def routing_csv(routes: Sequence[Route]) -> str:
    """The table as CSV: a row for each route, ``*`` for every tenant, an empty end for no upper limit."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in routes:
        end = "" if row.prompt_hi_tokens is None else row.prompt_hi_tokens
        tenant = row.tenant or EVERYBODY
        writer.writerow([row.model, tenant, row.prompt_lo_tokens, end, row.pool, f"{row.share:.12g}"])
    return stream.getvalue()


def routing_json(routes: Sequence[Route]) -> str:
    """The table as JSON text: models, in each the tenants, in each the stretches of prompt lengths with their pools.

    ``from`` is included, ``below`` is not; ``null`` is no upper limit. ``labels`` are those of each pool's replicas for
    a scheduler that goes by labels.
    """
    models = [_model(name, list(rows)) for name, rows in groupby(routes, key=lambda row: row.model)]
    labels = {pool: _label([row for row in routes if row.pool == pool]) for pool in sorted({r.pool for r in routes})}
    document = {"notes": list(NOTES), "models": models, "labels": labels}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _model(name: str, rows: Sequence[Route]) -> Json:
    tenants = [
        {"tenant": tenant or EVERYBODY, "rules": _rules(list(own))} for tenant, own in groupby(rows, lambda r: r.tenant)
    ]
    return {"model": name, "tenants": tenants}


def _rules(rows: Sequence[Route]) -> list[Json]:
    stretches = groupby(rows, lambda row: (row.prompt_lo_tokens, row.prompt_hi_tokens))
    return [
        {
            "prompt_tokens": {"from": lo, "below": hi},
            "pools": [{"pool": row.pool, "share": row.share} for row in same],
        }
        for (lo, hi), same in stretches
    ]


def _label(rows: Sequence[Route]) -> Json:
    """Prompt lengths of a pool, both ends included; without an upper end, up to the longest that a log may hold."""
    low = min(row.prompt_lo_tokens for row in rows)
    high = max(MAX_TOKENS if row.prompt_hi_tokens is None else row.prompt_hi_tokens - 1 for row in rows)
    return {"llm-d.ai/context-length-range": f"{low}-{high}"}
