"""Databricks model serving: ``system.serving.endpoint_usage`` as Parquet, CSV or JSON lines, alone or joined.

Source: the queries of the vendor's AI gateway dashboard, which join the usage with ``system.serving.served_entities``
(names) and with an endpoint's inference table (``sampling_fraction``, ``execution_duration_ms``).

- Tokens: ``input_token_count`` and ``output_token_count``. Whether they include cached and reasoning tokens is not
  documented; they are taken to (a guess).
- Time: ``request_time`` is the arrival; a naive one is UTC.
- Model: ``entity_name``, else ``endpoint_name``, ``served_entity_name`` or ``served_entity_id``.
- Failure: ``status_code`` is no 2xx code; 429 and 503 were refused before prefill.
- Sampling: with ``sampling_fraction`` from the inference table, the join keeps only that share of the requests.
- There is no response cache, and retries are not marked: ``client_request_id`` is the caller's own.

Not read: ``request``, ``response``, ``requester``, ``usage_context``. The inference table alone has its token counts
inside the response text, so it is not known here, and neither is ``system.ai_gateway.usage``: use ``--map``.
"""

from __future__ import annotations

from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import TEXT, selected

NEEDED = ("request_time", "input_token_count", "output_token_count")
NAMES = ("entity_name", "endpoint_name", "served_entity_name", "served_entity_id")
COLUMNS = Columns(
    timestamp="request_time",
    prompt="input_token_count",
    output="output_token_count",
    model="entity_name",
    request_id="databricks_request_id",
    status="status_code",
    duration="execution_duration_ms",
    sampling="sampling_fraction",
)
TYPES = dict.fromkeys((*COLUMNS.used().values(), *NAMES), TEXT)
ROLES = {name: f'"{name}"' for name in COLUMNS.used().values()} | {
    "entity_name": f"coalesce({', '.join(f'nullif({name}, {chr(39)}{chr(39)})' for name in NAMES)})",
}


def _claimed(head: Head) -> bool:
    """The token counts of the usage table."""
    return set(NEEDED) <= set(head.columns)


DATABRICKS = TableReader(
    "databricks",
    "databricks-endpoint-usage",
    _claimed,
    lambda _: COLUMNS,
    relation=lambda head: selected(head, NEEDED, TYPES, ROLES),
    duration_unit_s=1e-3,
)
