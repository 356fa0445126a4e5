"""Cloudflare AI Gateway: log entries of its API, one JSON object a line, or the same columns as CSV or Parquet.

Source: the type ``LogListResponse`` of the vendor's TypeScript client 7.3.0. Its answer wraps the entries: save
``.result[]`` one a line (``jq -c '.result[]'``).

- Tokens: ``tokens_in`` and ``tokens_out``, null where the provider sent none. Whether they include cached and
  reasoning tokens is not documented; they are taken to (a guess).
- Time: ``created_at``, ISO 8601 with a zone, whole seconds in the documentation's examples; taken to be the arrival.
- Failure: ``success`` is false or ``status_code`` is an error; 429 and 503 were refused before prefill.
- Response cache: ``cached``.
- Retries and fallbacks may be entries of their own with a higher ``step``, but no id ties them together.
- Embeddings and other calls without generated tokens are told from ``path``.

Not read: ``metadata``, costs, bodies (which the API keeps apart). The Logpush data set ``ai_gateway_events`` has no
documented token counts, so it is not known here.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import GENERATION, TEXT, endpoint, selected

NEEDED = ("created_at", "tokens_in", "tokens_out")
COLUMNS = Columns(
    timestamp="created_at",
    prompt="tokens_in",
    output="tokens_out",
    model="model",
    request_id="id",
    status="status_code",
    error="success",
    cache_hit="cached",
    operation="path",
    duration="duration",
)
TYPES = dict.fromkeys(COLUMNS.used().values(), TEXT)
ROLES = {name: f'"{name}"' for name in COLUMNS.used().values()} | {
    "success": "CASE WHEN lower(success) IN ('0', 'false') THEN 'failed' END",
    "path": endpoint('"path"'),
}


def _claimed(head: Head) -> bool:
    """The two token counts."""
    return set(NEEDED) <= set(head.columns)


CLOUDFLARE = TableReader(
    "cloudflare",
    "cloudflare-ai-gateway",
    _claimed,
    lambda _: COLUMNS,
    relation=lambda head: selected(head, NEEDED, TYPES, ROLES),
    generations=GENERATION,
    duration_unit_s=1e-3,
)
