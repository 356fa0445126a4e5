"""Azure LLM inference traces (2023, 2024, 2025): ``TIMESTAMP, ContextTokens, GeneratedTokens``, read by name.

Time stamps have seven fractional digits, and in some years an offset; a naive one is UTC unless told.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head

COLUMNS = Columns(timestamp="TIMESTAMP", prompt="ContextTokens", output="GeneratedTokens")


def _claimed(head: Head) -> bool:
    """The three columns are there; further ones do not matter."""
    return not head.is_json and set(COLUMNS.used().values()) <= set(head.columns)


# The files hold plain numbers, so a quote is an error rather than a quoted field.
AZURE = TableReader("azure", "azure-llm-trace", _claimed, lambda _: COLUMNS, quoted=False)
