"""Qwen-Bailian traces: JSON lines with ``chat_id, parent_chat_id, timestamp, input_length, output_length, turn``.

Names and units: the README of alibaba-edu/qwen-bailian-usagetraces-anon and the reader of AIPerf 0.13.0
(``dataset/loader/bailian_trace.py``). ``timestamp`` is seconds (with a fraction) from the start, unlike Mooncake's
milliseconds under the same key; ``hash_ids`` are blocks of 16 tokens, each standing for all before it too. The prompt
of a turn holds the turns before it. ``type`` (text, search, image, file) and the links between turns are not read.
"""

from __future__ import annotations

from planner.traffic.readers.columns import TimeKind
from planner.traffic.readers.head import Head
from planner.traffic.readers.traces import BAILIAN_KEYS, LENGTHS, TraceReader

BLOCK_TOKENS = 16


def _claimed(head: Head) -> bool:
    """The chat and its turn beside the lengths."""
    return frozenset(head.columns) >= LENGTHS | BAILIAN_KEYS


BAILIAN = TraceReader("bailian", "qwen-bailian-trace", _claimed, TimeKind.RELATIVE_S, BLOCK_TOKENS)
