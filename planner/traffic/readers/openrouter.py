"""OpenRouter: generations (``GET /api/v1/generation``), one object a line, or the same columns as CSV or Parquet.

Source: the type ``GenerationResponseData`` of the vendor's TypeScript client 1.3.19 and its API reference. The answer
wraps the object: save ``.data`` (``jq -c .data``).

- Tokens: ``native_tokens_*``, counted with the model's own tokenizer; ``tokens_*`` are counted with a common one and
  not read. The prompt includes cached tokens and the completion reasoning tokens, as in the usage that providers report
  (a guess for providers that report otherwise).
- Time: ``created_at`` is when the generation was created, ISO 8601 with a zone; taken to be the arrival.
- Failure: ``finish_reason`` is ``error``. ``cancelled`` is a client that went away: its output until then counts.
- Retries: the generations of one API request (fallbacks to another provider) share ``request_id``.
- Rows of embeddings, images, speech and rerankings are dropped by ``api_type``.

Not read: users, referers, sessions, costs, provider responses. The activity export is sums per day and not known here.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import TEXT, selected

NEEDED = ("created_at", "native_tokens_prompt", "native_tokens_completion")
COLUMNS = Columns(
    timestamp="created_at",
    prompt="native_tokens_prompt",
    output="native_tokens_completion",
    model="model",
    cached="native_tokens_cached",
    request_id="id",
    error="finish_reason",
    operation="api_type",
    duration="latency",
    aborted="cancelled",
    logical_id="request_id",
)
TYPES = dict.fromkeys(COLUMNS.used().values(), TEXT)
ROLES = {name: f'"{name}"' for name in COLUMNS.used().values()} | {
    "finish_reason": "CASE WHEN lower(finish_reason) = 'error' THEN 'error' END",
    "api_type": "coalesce(api_type, 'completions')",
}


def _claimed(head: Head) -> bool:
    """The counts of the model's own tokenizer."""
    return set(NEEDED) <= set(head.columns)


OPENROUTER = TableReader(
    "openrouter",
    "openrouter-generations",
    _claimed,
    lambda _: COLUMNS,
    relation=lambda head: selected(head, NEEDED, TYPES, ROLES),
    generations=("completions",),
    duration_unit_s=1e-3,
)
