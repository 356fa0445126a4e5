"""Mooncake traces: JSON lines with ``timestamp`` (ms from the start), ``input_length``, ``output_length``, hashes.

Names and units: the README of kvcache-ai/Mooncake (FAST'25 release) and the readers of AIPerf 0.13.0
(``dataset/loader/models.py``) and GuideLLM 0.8.1 (``schemas/data/deserializers/trace_mooncake.py``: 512-token blocks,
each hash stands for its block and all before it). The prompt is whole, whatever was cached; there are no models,
failures or request ids. Stamps are quantised to 3 s; the burst table says at which scales they count.
"""

from __future__ import annotations

from planner.traffic.readers.columns import TimeKind
from planner.traffic.readers.head import Head
from planner.traffic.readers.traces import AIPERF_KEYS, BAILIAN_KEYS, HASHES, LENGTHS, TraceReader

BLOCK_TOKENS = 512


def _claimed(head: Head) -> bool:
    """The three keys and the hashes, and none of the keys that other traces add."""
    names = frozenset(head.columns)
    return names >= LENGTHS | {HASHES} and not names & (BAILIAN_KEYS | AIPERF_KEYS)


MOONCAKE = TraceReader("mooncake", "mooncake-trace", _claimed, TimeKind.RELATIVE_MS, BLOCK_TOKENS)
