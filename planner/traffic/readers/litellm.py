"""LiteLLM proxy spend logs (table ``LiteLLM_SpendLogs``) dumped as CSV with a header.

Column names and meanings: the proxy's Prisma schema. One row is one attempt, so router retries are rows of their
own: each loads a GPU. ``startTime`` is a naive UTC stamp since 2025 and server-local before; give ``--tz`` for older.
"""

from __future__ import annotations

from dataclasses import replace

from planner.traffic.readers.base import TableReader, without_absent
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head

COLUMNS = Columns(
    timestamp="startTime",
    prompt="prompt_tokens",
    output="completion_tokens",
    model="model_group",
    fallback_model="model",
    request_id="request_id",
    status="status",
    cache_hit="cache_hit",
)
NEEDED = ("startTime", "prompt_tokens", "completion_tokens")


def _claimed(head: Head) -> bool:
    """The quoted camel-case start time beside the two token columns."""
    return not head.is_json and set(NEEDED) <= set(head.columns)


def _columns(head: Head) -> Columns:
    """``model_group`` is the public alias and counts; ``model``, the upstream string, only where it is empty."""
    columns = without_absent(COLUMNS, head)
    if not columns.model and columns.fallback_model:
        return replace(columns, model=columns.fallback_model, fallback_model="")
    return columns


LITELLM = TableReader("litellm", "litellm-spendlogs", _claimed, _columns)
