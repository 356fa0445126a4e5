"""LiteLLM proxy: the table ``LiteLLM_SpendLogs`` as CSV with a header, JSON lines or Parquet.

Source: ``proxy/schema.prisma``, ``proxy/spend_tracking/spend_tracking_utils.py``, ``proxy/hooks/
proxy_track_cost_callback.py`` and ``types/utils.py`` of litellm 1.110.2.

- Tokens: the proxy turns every provider's usage into the OpenAI form, so ``prompt_tokens`` includes cached and cache
  creation tokens (for Anthropic they are added up) and ``completion_tokens`` includes reasoning.
- Time: ``startTime`` is the arrival, a naive stamp in UTC since 2025 and in the server's zone before: give ``--tz``.
- Model: ``model_group`` is the public alias; ``model``, the upstream string, counts only where it is empty.
- Failure: ``status`` is ``failure`` (rows from before the column existed have none, and all count as served); the error
  code in ``metadata`` tells a refusal (429) and a client that went away (499) from other failures.
- Response cache: ``cache_hit`` is the text ``True``, or the id ends in ``_cache_hit`` and a time.
- Retries: a failed attempt that was billed is a row of its own whose call id ends in ``-attempt-N``; the attempts of
  one ``litellm_call_id`` are one logical request. Older versions have no such column, so retries cannot be told there.
- Calls other than text generations are dropped by ``call_type``. ``aretrieve_batch`` bills a whole batch in one row,
  so batches are no requests here.
- Cached tokens and error codes stand in ``metadata``, which also holds names, addresses and error texts. Of JSON lines
  only ``usage_object.prompt_tokens_details.cached_tokens`` (where it is missing,
  ``additional_usage_values.cache_read_input_tokens``) and ``error_information.error_code`` are taken from it; of CSV
  and Parquet, where ``metadata`` is one string, nothing. There, export columns of their own:
  ``metadata->'usage_object'->'prompt_tokens_details'->>'cached_tokens' AS cached_tokens`` and
  ``metadata->'error_information'->>'error_code' AS error_code``.

Not read: ``messages``, ``response``, ``proxy_server_request``, users, keys, teams, tags, addresses, spend, and the
``LiteLLM_Daily*Spend`` tables, which are sums.
"""

from __future__ import annotations

from dataclasses import replace

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import TEXT, selected

NEEDED = ("startTime", "prompt_tokens", "completion_tokens")
GENERATIONS = (
    "completion", "acompletion", "text_completion", "atext_completion", "anthropic_messages", "aanthropic_messages",
    "responses", "aresponses", "compact_responses", "acompact_responses", "generate_content", "agenerate_content",
    "generate_content_stream", "agenerate_content_stream", "create_interaction", "acreate_interaction",
    "pass_through_endpoint", "_aresponses_websocket", "_arealtime",
)  # fmt: skip
"""Call types that generate tokens; pass-through calls may be others, but those have no token counts."""
COLUMNS = Columns(
    timestamp="startTime",
    prompt="prompt_tokens",
    output="completion_tokens",
    model="model_group",
    fallback_model="model",
    cached="cached_tokens",
    request_id="request_id",
    status="status",
    cache_hit="cache_hit",
    operation="call_type",
    logical_id="litellm_call_id",
)
METADATA = (
    "STRUCT(usage_object STRUCT(prompt_tokens_details STRUCT(cached_tokens VARCHAR)), "
    "additional_usage_values STRUCT(cache_read_input_tokens VARCHAR), "
    "error_information STRUCT(error_code VARCHAR))"
)
TYPES = dict.fromkeys((*COLUMNS.used().values(), "error_code"), TEXT) | {"metadata": METADATA}
ERROR_CODE = "coalesce(error_code, metadata.error_information.error_code)"
ROLES = {name: f'"{name}"' for name in COLUMNS.used().values()} | {
    "cached_tokens": (
        "coalesce(cached_tokens, metadata.usage_object.prompt_tokens_details.cached_tokens, "
        "metadata.additional_usage_values.cache_read_input_tokens)"
    ),
    "status": (
        f"CASE WHEN status = 'failure' AND regexp_full_match({ERROR_CODE}, '[45][0-9][0-9]') THEN {ERROR_CODE} "
        "ELSE status END"
    ),
    "cache_hit": "CASE WHEN contains(request_id, '_cache_hit') THEN 'true' ELSE cache_hit END",
    "litellm_call_id": "regexp_replace(litellm_call_id, '-attempt-[0-9]+$', '')",
}


def _claimed(head: Head) -> bool:
    """The quoted camel-case start time beside the two token columns."""
    return set(NEEDED) <= set(head.columns)


def _columns(head: Head) -> Columns:
    """Roles that no row of the file can fill are left out; later rows of JSON lines may have more keys."""
    if head.is_json:
        return COLUMNS
    absent = {role: "" for role, name in COLUMNS.used().items() if name not in head.columns}
    columns = replace(COLUMNS, **absent)
    if not columns.model and columns.fallback_model:
        return replace(columns, model=columns.fallback_model, fallback_model="")
    return columns


LITELLM = TableReader(
    "litellm",
    "litellm-spendlogs",
    _claimed,
    _columns,
    relation=lambda head: selected(head, NEEDED, TYPES, ROLES),
    generations=GENERATIONS,
)
