"""AIPerf: traces for replay, records of finished runs, and replay traces whose keys do not tell the unit of time.

Names and units: AIPerf 0.13.0. Traces (``dataset/loader/models.py``, ``MooncakeTrace``): a Mooncake trace with
``session_id`` and ``delay``. A turn with a ``delay`` instead of a ``timestamp`` starts that long after the answer
before it: when depends on the server, so its row is dropped as one without a time stamp. ``text_input``, ``messages``
and ``payload`` (prompts as text, without a count) are not read.

Records (``profile_export.jsonl``: ``common/models/record_models.py``, ``MetricRecordInfo``): ``request_start_ns`` is
the UTC clock of the client when the request left. ``input_sequence_length`` is the whole prompt as the client's
tokenizer counts it, ``output_sequence_length`` includes reasoning. ``error`` marks failure, ``was_cancelled`` a stream
that the client gave up. Requests of the warm-up are dropped: they are no traffic. There is no model: give ``--model``.

GuideLLM 0.8.1 (``trace_synthetic``) writes the same three keys as a Mooncake trace without hashes, but seconds. Such a
file is refused until ``--option time=`` says which it is; with ``--format mooncake`` it is milliseconds.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns, TimeKind
from planner.traffic.readers.head import Head
from planner.traffic.readers.mooncake import BLOCK_TOKENS
from planner.traffic.readers.selected import selected
from planner.traffic.readers.traces import AIPERF_KEYS, BAILIAN_KEYS, HASHES, LENGTHS, TraceReader

RECORD_COLUMNS = Columns(
    timestamp="start_ns",
    prompt="prompt",
    output="output",
    cached="cached",
    request_id="request",
    error="error",
    operation="phase",
    aborted="cancelled",
)
VALUE = "STRUCT(value VARCHAR)"
TYPES = {
    "metadata": "STRUCT(request_start_ns VARCHAR, x_request_id VARCHAR, benchmark_phase VARCHAR, "
    "was_cancelled VARCHAR)",
    "metrics": f"STRUCT(input_sequence_length {VALUE}, output_sequence_length {VALUE}, "
    f"usage_prompt_cache_read_tokens {VALUE})",
    "error": "STRUCT(code VARCHAR, type VARCHAR)",
}
ROLES = {
    "start_ns": "metadata.request_start_ns",
    "prompt": "metrics.input_sequence_length.value",
    "output": "metrics.output_sequence_length.value",
    "cached": "metrics.usage_prompt_cache_read_tokens.value",
    "request": "metadata.x_request_id",
    "error": "CASE WHEN error IS NOT NULL THEN coalesce(error.code, error.type, 'error') END",
    "phase": "metadata.benchmark_phase",
    "cancelled": "metadata.was_cancelled",
}


def _is_trace(head: Head) -> bool:
    """The prompt's length beside a session or a delay; a first turn has no delay, a later one no time."""
    names = frozenset(head.columns)
    return "input_length" in names and bool(names & AIPERF_KEYS) and not names & BAILIAN_KEYS


def _is_replay(head: Head) -> bool:
    """The three keys and nothing that tells more."""
    names = frozenset(head.columns)
    return names >= LENGTHS and not names & (BAILIAN_KEYS | AIPERF_KEYS | {HASHES})


def _is_record(head: Head) -> bool:
    """Metadata and metrics of one request."""
    return head.is_json and {"metadata", "metrics"} <= set(head.columns)


AIPERF = TraceReader("aiperf", "aiperf-trace", _is_trace, TimeKind.RELATIVE_MS, BLOCK_TOKENS)
REPLAY = TraceReader("replay", "replay-trace", _is_replay, None, BLOCK_TOKENS)
AIPERF_RECORDS = TableReader(
    "aiperf-records",
    "aiperf-records",
    _is_record,
    lambda _: RECORD_COLUMNS,
    TimeKind.EPOCH_NS,
    relation=lambda head: selected(head, (), TYPES, ROLES),
    generations=("profiling",),
)
