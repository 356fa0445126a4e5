"""Vidur request traces with arrivals: ``arrived_at, num_prefill_tokens, num_decode_tokens``.

Names: the simulator's ``Request`` (vidur 0.0.26, ``entities/request.py``) and its processed traces. ``arrived_at`` is
seconds from the start; prompt and output are all tokens of the request. There are no failures, models or request ids.
Traces of lengths only (without ``arrived_at``) and the older replay files with ``Date`` and ``Time`` are not read.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns, TimeKind
from planner.traffic.readers.head import Head

COLUMNS = Columns(timestamp="arrived_at", prompt="num_prefill_tokens", output="num_decode_tokens")


def _claimed(head: Head) -> bool:
    """The three columns are there; ``num_total_tokens`` and ``pd_ratio`` do not matter."""
    return set(COLUMNS.used().values()) <= set(head.columns)


VIDUR = TableReader("vidur", "vidur-trace", _claimed, lambda _: COLUMNS, TimeKind.RELATIVE_S)
