"""OpenTelemetry spans of GenAI clients and servers, as JSON lines in three shapes.

1. OTLP JSON, as the Collector's file exporter writes it: a line holds ``resourceSpans`` with many spans.
2. One OTLP span a line (``jq -c '.resourceSpans[].scopeSpans[].spans[]'``).
3. One span a line as the Python SDK's ``to_json(indent=None)`` writes it: ``start_time``, ``attributes`` as an object.

Names: opentelemetry-semantic-conventions 0.66b2 (``gen_ai_attributes.py``), and for older instrumentation
opentelemetry-semantic-conventions-ai 0.5.1; shapes: opentelemetry-proto 1.45.2, opentelemetry-sdk 1.45.2 and the OTLP
file exporter's specification. In OTLP JSON, 64-bit integers and times (Unix nanoseconds) are strings.

* The convention has ``input_tokens`` include cached and ``output_tokens`` include reasoning tokens; older names are
  ``prompt_tokens`` and ``completion_tokens``. Instrumentation that leaves cached tokens out cannot be told from one
  that includes them: where more tokens are cached than the prompt has, the row is marked.
* The start of the span is the arrival. An error status or ``error.type`` marks failure.
* Spans that are no generation (HTTP, tools, retrieval, embeddings) are dropped, and agent spans too, which repeat the
  sums of the calls inside them. A client's and a server's span of one call (vLLM writes server spans) both carry
  counts: where a file has both, ``--option span_kind=client`` or ``server`` keeps one.
* A span that was exported twice (same trace and span id) counts once. Sampling is not read; tail sampling keeps slow,
  long requests, so a sampled file shows longer requests than there were.

What passes through memory: in shape 3 only the named attributes are built. In shapes 1 and 2 attributes are a list of
pairs, so the values of all attributes of a span (with them messages, where instrumentation records these as
attributes) are built for one batch of rows, and all but the keys named here are dropped at once. Events, links, names,
resources and status messages are never built. A line may have up to 128 MiB; lines that long need memory to match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import duckdb

from planner.errors import InputError, Problem
from planner.traffic.engine import sql_name, sql_text
from planner.traffic.readers.base import Opened, TableReader
from planner.traffic.readers.columns import Columns, TimeKind, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import TEXT, selected

COLUMNS = Columns(
    timestamp="start_ns",
    prompt="prompt",
    output="output",
    model="model",
    fallback_model="asked_model",
    cached="cached",
    request_id="span",
    error="error",
    operation="operation",
    choices="choices",
)
ATTRIBUTES = {
    "prompt": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "cached": ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
    "model": ("gen_ai.response.model",),
    "asked_model": ("gen_ai.request.model",),
    "choices": ("gen_ai.request.choice.count", "gen_ai.request.n"),
    "error_type": ("error.type",),
    "named_operation": ("gen_ai.operation.name", "llm.request.type"),
}
"""What is read, by the attributes that may hold it; the first that is there counts."""
GENERATIONS = ("chat", "generate_content", "text_completion", "completion", "generate", "generation")
KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
"""Numbers of ``SpanKind`` in opentelemetry-proto."""
OPTIONS = {"span_kind": f"keep spans of this kind only: {', '.join(KINDS)} (default: all)"}
PAIRS = 'STRUCT("key" VARCHAR, "value" STRUCT(intValue VARCHAR, doubleValue VARCHAR, stringValue VARCHAR))[]'
OTLP_SPAN = {
    "traceId": TEXT,
    "spanId": TEXT,
    "kind": TEXT,
    "startTimeUnixNano": TEXT,
    "status": "STRUCT(code VARCHAR)",
    "attributes": PAIRS,
}
SDK_SPAN = {
    "context": "STRUCT(trace_id VARCHAR, span_id VARCHAR)",
    "kind": TEXT,
    "start_time": TEXT,
    "status": "STRUCT(status_code VARCHAR)",
}


def _is_batch(head: Head) -> bool:
    return "resourceSpans" in head.columns


def _is_otlp_span(head: Head) -> bool:
    return {"startTimeUnixNano", "attributes"} <= set(head.columns)


def _is_sdk_span(head: Head) -> bool:
    return {"start_time", "attributes", "context"} <= set(head.columns)


def _claimed(head: Head) -> bool:
    """Spans in one of the three shapes."""
    return head.is_json and (_is_batch(head) or _is_otlp_span(head) or _is_sdk_span(head))


def _rows(head: Head, span_kind: str) -> str:
    """One row per span; a line that is no span gives a row of nulls, which is counted as malformed."""
    if _is_sdk_span(head):
        found, read = _sdk_spans(head), lambda key: f'attributes."{key}"'
    else:
        found, read = _otlp_spans(head), _pair
    values = ", ".join(f"{_first(names, read)} AS {role}" for role, names in ATTRIBUTES.items())
    about_a_model = "coalesce(model, asked_model, prompt, output) IS NOT NULL"
    operation = (
        f"CASE WHEN span IS NULL THEN NULL WHEN {_other_kind(span_kind)} THEN 'span of another kind' "
        "ELSE coalesce(nullif(lower(named_operation), 'unknown'), "
        f"CASE WHEN {about_a_model} THEN 'generation' ELSE 'span' END) END"
    )
    failed = "CASE WHEN upper(status) IN ('2', 'STATUS_CODE_ERROR', 'ERROR') THEN 'error' END"
    return f"""(
        SELECT start_ns, prompt, output, model, asked_model, cached, choices, span,
               coalesce(error_type, {failed}) AS error, {operation} AS operation
        FROM (SELECT span, kind, start_ns, status, {values} FROM {found})
    )"""


def _first(names: tuple[str, ...], read: Callable[[str], str]) -> str:
    return f"coalesce({', '.join(read(name) for name in names)})"


def _pair(key: str) -> str:
    value = "coalesce(a.value.intValue, a.value.doubleValue, a.value.stringValue)"
    return f"[{value} for a in attributes if a.key = {sql_text(key)}][1]"


def _other_kind(wanted: str) -> str:
    """Kinds are numbers, or words such as ``SPAN_KIND_CLIENT`` and ``SpanKind.CLIENT``."""
    if not wanted:
        return "false"
    word = "lower(regexp_replace(kind, '.*[._]', ''))"
    return f"coalesce({word}, '0') NOT IN ({sql_text(wanted)}, '{KINDS[wanted]}')"


def _otlp_spans(head: Head) -> str:
    if _is_batch(head):
        fields = ", ".join(f"{sql_name(name)} {kind}" for name, kind in OTLP_SPAN.items())
        rows = _columns_of(head, {"resourceSpans": f"STRUCT(scopeSpans STRUCT(spans STRUCT({fields})[])[])[]"})
        spans = "flatten([flatten([s.spans for s in r.scopeSpans]) for r in resourceSpans])"
        lines = f"SELECT unnest(CASE WHEN resourceSpans IS NULL THEN [NULL] ELSE {spans} END) AS one FROM {rows}"
        columns = ", ".join(f"one.{sql_name(name)} AS {sql_name(name)}" for name in OTLP_SPAN)
        rows = f"(SELECT {columns} FROM ({lines}))"
    else:
        rows = _columns_of(head, OTLP_SPAN)
    keys = ", ".join(sql_text(name) for names in ATTRIBUTES.values() for name in names)
    return f"""(
        SELECT traceId || '/' || spanId AS span, kind, startTimeUnixNano AS start_ns, status.code AS status,
               [a for a in attributes if a.key IN ({keys})] AS attributes
        FROM {rows}
    )"""


def _sdk_spans(head: Head) -> str:
    fields = ", ".join(f"{sql_name(name)} VARCHAR" for names in ATTRIBUTES.values() for name in names)
    rows = _columns_of(head, SDK_SPAN | {"attributes": f"STRUCT({fields})"})
    moment = "CAST(epoch_ns(TRY_CAST(start_time AS TIMESTAMPTZ)) AS VARCHAR)"
    return f"""(
        SELECT context.trace_id || '/' || context.span_id AS span, kind, coalesce({moment}, start_time) AS start_ns,
               status.status_code AS status, attributes
        FROM {rows}
    )"""


def _columns_of(head: Head, types: Mapping[str, str]) -> str:
    return selected(head, (), types, {name: sql_name(name) for name in types})


@dataclass(frozen=True)
class Spans(TableReader):
    """Spans of all kinds, or of the one that the option names."""

    def open(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Opened:
        """One query per file.

        Raises
        ------
        InputError
            If the kind of span is unknown.
        """
        kind = str(wanted.options.get("span_kind", "")).lower()
        if kind and kind not in KINDS:
            raise InputError(Problem("option span_kind", f"'{kind}' is no kind", f"Use one of: {', '.join(KINDS)}"))
        reader = replace(self, relation=lambda head: _rows(head, kind))
        opened = TableReader.open(reader, connection, heads, wanted)
        return replace(opened, filters=(*opened.filters, *([f"span kind = {kind}"] if kind else [])))


OTEL = Spans(
    "otel",
    "opentelemetry-spans",
    _claimed,
    lambda _: COLUMNS,
    TimeKind.EPOCH_NS,
    generations=GENERATIONS,
    options=OPTIONS,
)
