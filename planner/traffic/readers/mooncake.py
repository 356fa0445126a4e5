"""Mooncake traces: JSON lines with ``timestamp`` (ms from the start), ``input_length``, ``output_length``.

Stamps are quantised to 3 s; the burst table says at which scales they count.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns, TimeKind
from planner.traffic.readers.head import Head

COLUMNS = Columns(timestamp="timestamp", prompt="input_length", output="output_length")


def _claimed(head: Head) -> bool:
    """The three keys are in the first object."""
    return head.is_json and set(COLUMNS.used().values()) <= set(head.columns)


MOONCAKE = TableReader("mooncake", "mooncake-trace", _claimed, lambda _: COLUMNS, TimeKind.RELATIVE_MS)
