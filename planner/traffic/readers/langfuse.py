"""Langfuse: observations of the blob-storage export or of the ClickHouse table, as JSON lines, CSV or Parquet.

Sources: the fields of the blob-storage export in the vendor's documentation; the table in the server's
``packages/shared/clickhouse/migrations``; the keys of ``usage_details`` in ``openai.py``, ``langchain/
CallbackHandler.py`` and ``_client/client.py`` of the Python SDK 5.0.4 and in the vendor's page on token usage.

- Tokens: ``usage_details`` is an object, a JSON string or a map. Its keys are buckets that do not overlap: ``input``
  leaves out what another ``input_*`` or ``cache*`` key counts, ``output`` what another ``output_*`` or reasoning key
  counts; keys of a priority tier repeat others. The keys of OpenAI (``prompt_tokens`` ...) are known too. Some clients
  break the rule, and their ``total`` tells it: where it is ``input + output``, the others are inside. Where such a
  client sends no total, the server adds up everything, and the double count cannot be seen.
- Time: ``start_time`` is the arrival, naive UTC.
- Rows: only ``type`` ``GENERATION``; spans, tools and embeddings are dropped and counted, and so are rows that
  ClickHouse marks ``is_deleted``. Of the versions of one id the newest ``event_ts`` (or ``updated_at``) counts.
- Failure: ``level`` is ``ERROR``.
- Retries and response-cache hits are not marked: the client sees each attempt as an observation.

Not read: ``input``, ``output``, ``metadata``, ``status_message``, ``model_parameters``, names, users, sessions, costs.
Exports of the web page (camel case) and JSON arrays are not known here: use ``--map``.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import JSON, TEXT, selected

NEEDED = ("start_time", "type", "usage_details")
COLUMNS = Columns(
    timestamp="start_time",
    prompt="usage_details.input",
    output="usage_details.output",
    model="provided_model_name",
    cached="usage_details.cached_in_it",
    cached_beside="usage_details.cached_beside",
    reasoning_beside="usage_details.reasoning",
    request_id="id",
    version="event_ts",
    status="level",
    operation="type",
    duration="latency",
)
TYPES = {
    "start_time": TEXT,
    "provided_model_name": TEXT,
    "id": TEXT,
    "event_ts": TEXT,
    "updated_at": TEXT,
    "level": TEXT,
    "type": TEXT,
    "latency": TEXT,
    "is_deleted": TEXT,
    "usage_details": JSON,
}


BASES = (
    "'input', 'prompt_tokens', 'input_tokens', 'output', 'completion_tokens', 'output_tokens', 'total', 'total_tokens'"
)
FURTHER = f"e.key NOT IN ({BASES}) AND NOT contains(e.key, 'priority')"
OF_PROMPT = "regexp_matches(e.key, '^(input|prompt|cache)')"
READ = "(contains(e.key, 'cache') AND NOT regexp_matches(e.key, 'creat|write|ephemeral'))"
"""Of the prompt: read from the prefix cache."""
OF_OUTPUT = f"NOT {OF_PROMPT} AND regexp_matches(e.key, 'output|reason|thought')"


def _sum(test: str) -> str:
    """The sum of the further buckets that pass a test of their key."""
    return f"coalesce(list_sum([e.value FOR e IN map_entries(usage) IF {FURTHER} AND {test}]), 0)"


COUNTED = f"""
(SELECT *, {_sum(f"{OF_PROMPT} AND {READ}")} AS cache_read, {_sum(f"{OF_PROMPT} AND NOT {READ}")} AS further_in,
        {_sum(OF_OUTPUT)} AS further_out,
        coalesce(usage['input'], usage['prompt_tokens'], usage['input_tokens']) AS base_in,
        coalesce(usage['output'], usage['completion_tokens'], usage['output_tokens']) AS base_out,
        coalesce(usage['total'], usage['total_tokens']) AS total
 FROM {{rows}})
"""
SORTED = """
(SELECT *, coalesce(total IN (base_in + base_out, base_in + base_out + further_out), false)
           AND cache_read + further_in > 0 AS in_is_whole,
        coalesce(total IN (base_in + base_out, base_in + cache_read + further_in + base_out), false)
           AND further_out > 0 AS out_is_whole
 FROM {rows})
"""


def _text(count: str) -> str:
    """A count as text, without the point that a double has."""
    return f"regexp_replace(CAST({count} AS VARCHAR), '[.]0$', '')"


ROLES = {
    "start_time": "start_time",
    "usage_details.input": _text("CASE WHEN in_is_whole THEN base_in ELSE base_in + further_in END"),
    "usage_details.cached_in_it": _text("CASE WHEN in_is_whole THEN cache_read END"),
    "usage_details.cached_beside": _text("CASE WHEN NOT in_is_whole THEN cache_read END"),
    "usage_details.output": _text("base_out"),
    "usage_details.reasoning": _text("CASE WHEN NOT out_is_whole THEN further_out END"),
    "provided_model_name": "provided_model_name",
    "id": "id",
    "event_ts": "coalesce(event_ts, updated_at)",
    "level": "level",
    "latency": "latency",
    "type": "CASE WHEN lower(is_deleted) IN ('1', 'true') THEN 'deleted' ELSE \"type\" END",
}


def _claimed(head: Head) -> bool:
    """The type of observation beside its usage."""
    return set(NEEDED) <= set(head.columns)


def _relation(head: Head) -> str:
    plain = {name: f'"{name}"' for name in TYPES if name != "usage_details"}
    usage = {"usage": "TRY_CAST(usage_details AS MAP(VARCHAR, DOUBLE))"}
    counted = COUNTED.format(rows=selected(head, NEEDED, TYPES, plain | usage))
    roles = ", ".join(f'{expression} AS "{name}"' for name, expression in ROLES.items())
    return f"(SELECT {roles} FROM {SORTED.format(rows=counted)})"


LANGFUSE = TableReader(
    "langfuse",
    "langfuse-observations",
    _claimed,
    lambda _: COLUMNS,
    relation=_relation,
    generations=("generation",),
)
