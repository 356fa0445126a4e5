"""Envoy AI Gateway: the JSON access log with the keys of its documentation, one object a line (or CSV, Parquet).

Source: the project's page on access logs. The operator chooses the keys: a log with others is read with ``--map``.

- Tokens: ``genai_tokens_input`` and ``genai_tokens_output``, empty or ``-`` unless ``llmRequestCosts`` asks for them.
  They are the usage that the provider reported: input is taken to include cached, output reasoning tokens (a guess for
  providers that report otherwise). The keys of cached tokens are the operator's and not read.
- Time: ``start_time`` is the arrival, ISO 8601 with a zone.
- Model: ``genai_model_name_override`` (what the backend was asked for), else ``genai_model_name``.
- Failure: ``response_code`` is no 2xx code; 429 and 503 were refused before prefill. ``response_flags`` ``DC``
  (downstream connection termination) is a client that went away: its output until then counts.
- Retries: Envoy writes one row per request of a client, whatever its retries.
- There is no response cache. Embeddings are told from ``path``, where it is logged.

Not read: addresses, headers, user agents, authorities.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import GENERATION, TEXT, endpoint, selected

NEEDED = ("start_time", "genai_tokens_input", "genai_tokens_output")
COLUMNS = Columns(
    timestamp="start_time",
    prompt="genai_tokens_input",
    output="genai_tokens_output",
    model="genai_model_name_override",
    fallback_model="genai_model_name",
    request_id="x-request-id",
    status="response_code",
    operation="path",
    duration="duration",
    aborted="response_flags",
)
FURTHER = ("x-envoy-origin-path",)
TYPES = dict.fromkeys((*COLUMNS.used().values(), *FURTHER), TEXT)
ROLES = {name: f"""nullif("{name}", '-')""" for name in COLUMNS.used().values()} | {
    # An aborted stream may have no code yet, which is written as 0.
    "response_code": "CASE WHEN response_code <> '0' OR NOT contains(coalesce(response_flags, ''), 'DC') "
    "THEN nullif(response_code, '-') END",
    "response_flags": "CASE WHEN list_contains(string_split(response_flags, ','), 'DC') THEN 'true' END",
    "path": endpoint('"x-envoy-origin-path"', '"path"'),
}


def _claimed(head: Head) -> bool:
    """The token keys of the documentation."""
    return set(NEEDED) <= set(head.columns)


ENVOY = TableReader(
    "envoy",
    "envoy-ai-gateway",
    _claimed,
    lambda _: COLUMNS,
    relation=lambda head: selected(head, NEEDED, TYPES, ROLES),
    generations=GENERATION,
    duration_unit_s=1e-3,
)
