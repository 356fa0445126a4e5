"""Portkey: the log export, JSON lines (and the same columns as CSV or Parquet).

Source: the list of exported columns in the vendor's page on log exports (read 2026-11).

- Tokens: ``req_units`` and ``res_units``. The page does not say whether they include cached and reasoning tokens; they
  are taken to (a guess).
- Time: ``created_at``, ISO 8601 with a zone, taken to be the arrival (the page calls it the request's).
- Failure: ``is_success`` is 0, or the HTTP status is an error; 429 and 503 were refused before prefill.
- Response cache: ``cache_status`` is ``HIT`` or ``SEMANTIC HIT``.
- Retries: ``retry_success_count`` attempts stand in one row; only the last one is counted, so a gateway that retries
  much loads its GPUs more than this says. ``trace_id`` is the caller's and may span many requests: not used.
- Embeddings and other calls without generated tokens are told from ``request_url``.

Not read: ``request.body``, ``response.body``, ``metadata``, keys, configs, prompts, costs.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import GENERATION, TEXT, endpoint, selected

NEEDED = ("created_at", "req_units", "res_units")
COLUMNS = Columns(
    timestamp="created_at",
    prompt="req_units",
    output="res_units",
    model="ai_model",
    request_id="id",
    status="response_status_code",
    error="is_success",
    cache_hit="cache_status",
    operation="request_url",
    duration="response_time",
)
TYPES = dict.fromkeys(COLUMNS.used().values(), TEXT)
ROLES = {name: f'"{name}"' for name in COLUMNS.used().values()} | {
    "is_success": "CASE WHEN lower(is_success) IN ('0', 'false') THEN 'failed' END",
    "request_url": endpoint("request_url"),
}


def _claimed(head: Head) -> bool:
    """The two counts of units."""
    return set(NEEDED) <= set(head.columns)


PORTKEY = TableReader(
    "portkey",
    "portkey-logs",
    _claimed,
    lambda _: COLUMNS,
    relation=lambda head: selected(head, NEEDED, TYPES, ROLES),
    generations=GENERATION,
    duration_unit_s=1e-3,
)
