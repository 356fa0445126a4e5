"""Kong AI gateway: JSON lines of a log plugin, with what the AI plugins add under ``ai``.

Source: the vendor's AI audit log reference (gateway 3.6 to 3.13, two states of it) and published log lines. Each AI
plugin writes its own object under its name, which is not always ``ai-proxy`` (newer versions: ``proxy``).

- Tokens: ``ai.<plugin>.usage.prompt_token`` and ``completion_token``, in newer versions ``prompt_tokens`` and
  ``completion_tokens``, as the provider reported them; ``prompt_tokens_details.cached_tokens`` is part of the prompt.
  Several versions logged 0 for streams: those rows are dropped from the lengths and stay arrivals. Of several plugins
  in one request, the proxy's counts; a second model call, as of a request transformer or a judge, is not counted.
- Time: ``started_at`` is the arrival, in milliseconds since 1970.
- Model: ``meta.response_model``, else ``meta.request_model``.
- Failure: ``response.status`` is no 2xx code; 429 and 503 were refused before prefill, 499 is a client that went away.
- Response cache: any plugin's ``cache.cache_status`` is ``Hit``.
- Retries: the balancer's ``tries`` stand in one row; one attempt is counted.
- Rows of routes without an AI plugin are dropped as no text generation, unless they failed; embeddings are told from
  ``request.uri``. Images and audio have other counts and are not read.

Not read: payloads, headers, addresses, consumers, costs, and what guards and sanitizers found.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns, TimeKind
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import GENERATION, TEXT, endpoint, selected

NEEDED = ("started_at",)
COLUMNS = Columns(
    timestamp="started_at",
    prompt="usage.prompt_tokens",
    output="usage.completion_tokens",
    model="meta.response_model",
    fallback_model="meta.request_model",
    cached="usage.prompt_tokens_details.cached_tokens",
    request_id="request.id",
    status="response.status",
    cache_hit="cache.cache_status",
    operation="ai",
    duration="latencies.request",
)
PLUGIN = (
    "STRUCT(usage STRUCT(prompt_token VARCHAR, prompt_tokens VARCHAR, completion_token VARCHAR, "
    "completion_tokens VARCHAR, prompt_tokens_details STRUCT(cached_tokens VARCHAR)), "
    "meta STRUCT(request_model VARCHAR, response_model VARCHAR), cache STRUCT(cache_status VARCHAR))"
)
TYPES = {
    "started_at": TEXT,
    "request": "STRUCT(id VARCHAR, uri VARCHAR)",
    "response": "STRUCT(status VARCHAR)",
    "latencies": "STRUCT(request VARCHAR)",
    "ai": f"MAP(VARCHAR, {PLUGIN})",
}
ENTRIES = "map_entries(ai)"
WITH_USAGE = f"[e FOR e IN {ENTRIES} IF e.value.usage IS NOT NULL OR e.value.meta IS NOT NULL]"
PROXY = f"[e FOR e IN {ENTRIES} IF regexp_matches(e.key, '^(ai-)?proxy')]"
HITS = f"[e.value.cache.cache_status FOR e IN {ENTRIES} IF lower(e.value.cache.cache_status) = 'hit']"
CHOSEN = f"coalesce({PROXY}[1], {WITH_USAGE}[1]).value"
ROLES = {
    "started_at": "started_at",
    "usage.prompt_tokens": f"coalesce({CHOSEN}.usage.prompt_tokens, {CHOSEN}.usage.prompt_token)",
    "usage.completion_tokens": f"coalesce({CHOSEN}.usage.completion_tokens, {CHOSEN}.usage.completion_token)",
    "usage.prompt_tokens_details.cached_tokens": f"{CHOSEN}.usage.prompt_tokens_details.cached_tokens",
    "request.id": "request.id",
    "meta.response_model": f"{CHOSEN}.meta.response_model",
    "meta.request_model": f"{CHOSEN}.meta.request_model",
    "response.status": "response.status",
    "cache.cache_status": f"{HITS}[1]",
    "ai": f"CASE WHEN {CHOSEN} IS NULL AND response.status LIKE '2__' THEN 'other' ELSE {endpoint('request.uri')} END",
    "latencies.request": "latencies.request",
}


def _claimed(head: Head) -> bool:
    """Kong's own fields; the first row may be of a route without an AI plugin."""
    columns = set(head.columns)
    return head.is_json and "started_at" in columns and bool(columns & {"ai", "latencies"})


def _relation(head: Head) -> str:
    return selected(head, NEEDED, TYPES, ROLES)


KONG = TableReader(
    "kong",
    "kong-ai-gateway",
    _claimed,
    lambda _: COLUMNS,
    TimeKind.EPOCH_MS,
    relation=_relation,
    generations=GENERATION,
    duration_unit_s=1e-3,
)
