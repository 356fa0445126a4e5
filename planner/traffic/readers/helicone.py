"""Helicone: requests of the export tool or the API, or the ClickHouse table ``request_response_rmt``.

Sources: ``clickhouse/migrations`` 41, 43 (cache tokens) and 47 (cache reference), ``packages/cost/index.ts``, the
filter ``cached`` and the type ``HeliconeRequest`` in the vendor's repository. CSV, JSON lines and Parquet.

- Tokens: ``prompt_tokens`` are the fresh ones; tokens read from and written to the provider's cache stand beside it in
  ``prompt_cache_read_tokens`` and ``prompt_cache_write_tokens`` and are added. Older rows have neither.
- Time: ``request_created_at`` is the arrival, naive UTC in dumps.
- Rows: ClickHouse keeps several versions of a request until it merges them: the newest ``updated_at`` counts.
- Failure: ``status`` (API: ``response_status``) is no 2xx code; codes below zero are the vendor's own and failures.
- Response cache: ``cache_reference_id`` names another request. ``cache_enabled`` only says that it was switched on.
- Embeddings and other calls without generated tokens are told from ``request_path`` or ``target_url``.
- Retries are not marked.

Not read: bodies, properties, scores, assets, users, keys, countries, costs.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import GENERATION, TEXT, added, endpoint, selected

NEEDED = ("request_created_at", "prompt_tokens", "completion_tokens")
COLUMNS = Columns(
    timestamp="request_created_at",
    prompt="prompt_tokens",
    output="completion_tokens",
    model="model",
    cached_beside="prompt_cache_read_tokens",
    request_id="request_id",
    version="updated_at",
    status="status",
    cache_hit="cache_reference_id",
    operation="target_url",
    duration="latency",
)
NO_ID = "00000000-0000-0000-0000-000000000000"
ROLES = {name: f'"{name}"' for name in COLUMNS.used().values()} | {
    "prompt_tokens": added("prompt_tokens", "prompt_cache_write_tokens"),
    "model": "coalesce(nullif(model, ''), nullif(response_model, ''), request_model)",
    "status": "coalesce(status, response_status)",
    "latency": "coalesce(latency, delay_ms)",
    "cache_reference_id": f"CASE WHEN nullif(cache_reference_id, '') <> '{NO_ID}' THEN 'hit' END",
    "target_url": endpoint("target_url", "request_path"),
}
FURTHER = (
    "prompt_cache_write_tokens", "response_model", "request_model", "response_status", "delay_ms", "request_path",
)  # fmt: skip
TYPES = dict.fromkeys((*COLUMNS.used().values(), *FURTHER), TEXT)


def _claimed(head: Head) -> bool:
    """The time of the request beside the two token columns."""
    return set(NEEDED) <= set(head.columns)


HELICONE = TableReader(
    "helicone",
    "helicone-requests",
    _claimed,
    lambda _: COLUMNS,
    relation=lambda head: selected(head, NEEDED, TYPES, ROLES),
    generations=GENERATION,
    duration_unit_s=1e-3,
)
