"""Azure API Management, table ``ApiManagementGatewayLlmLog``, as CSV or JSON lines.

Names and meanings: the table's page in the Azure Monitor reference, read 2026-11. ``TimeGenerated`` is when the
gateway began to process the request, in UTC. Tokens are those of the model's usage record; cached ones are included.

One request is several rows of one ``CorrelationId``: ``SequenceNumber`` 0 carries the counts, further ones carry
pieces of the messages and no counts. The row with the most ``TotalTokens`` counts, the others are duplicates.
``DeploymentName`` is the name that clients use; ``ModelName`` counts only where it is empty.

The table has no status: rows of failed requests have no counts and are dropped as such, still as arrivals. For codes,
join ``ApiManagementGatewayLogs`` on ``CorrelationId`` in the query. The portal's CSV calls the time ``TimeGenerated
[UTC]`` and writes it in the browser's manner; only ISO 8601 is read, so write it with ``format_datetime`` in the query.
Not read: ``RequestMessages``, ``ResponseMessages``, ``RequestId``, ``Region``.
"""

from __future__ import annotations

from dataclasses import replace

from planner.traffic.readers.base import TableReader, without_absent
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head

PORTAL_TIME = "TimeGenerated [UTC]"
COLUMNS = Columns(
    timestamp="TimeGenerated",
    prompt="PromptTokens",
    output="CompletionTokens",
    model="DeploymentName",
    fallback_model="ModelName",
    request_id="CorrelationId",
    version="TotalTokens",
)
NEEDED = {"PromptTokens", "CompletionTokens", "CorrelationId"}


def _claimed(head: Head) -> bool:
    """The counts beside the correlation id, with their capitals."""
    names = set(head.columns)
    return names >= NEEDED and not names.isdisjoint((COLUMNS.timestamp, PORTAL_TIME))


def _columns(head: Head) -> Columns:
    columns = replace(COLUMNS, timestamp=PORTAL_TIME) if PORTAL_TIME in head.columns else COLUMNS
    # The first object of JSON lines may be a piece of a message, without the other keys.
    return columns if head.is_json else without_absent(columns, head)


APIM = TableReader("apim", "azure-apim-llm-log", _claimed, _columns)
