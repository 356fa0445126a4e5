"""Amazon Bedrock model invocation log: JSON lines from S3, or the same records inside CloudWatch Logs exports.

Field names: the Bedrock user guide's page on invocation logging and stored records of schema 1.0; the names of
CloudWatch events: ``FilteredLogEvent`` and ``OutputLogEvent`` in botocore 1.44.8.

* ``inputTokenCount`` leaves out tokens read from and written to the prompt cache (a stored record has 3 beside
  25,037 written), so both are added: the prompt is what the model holds. ``outputTokenCount`` is all output.
* ``timestamp`` is UTC with a resolution of one second, so equal stamps are no batches. Whether it is the start or the
  end of the call is not documented; it is taken for the arrival.
* ``errorCode`` marks a failed call. The SDK's retries are calls of their own.
* ``modelId`` may be an ARN, which names the account: only what follows its first ``/`` is kept.
* Calls of models for embeddings, reranking and images, told by the model's name, are no generations.

CloudWatch: the events of ``filter-log-events`` or ``get-log-events`` as JSON lines (``jq -c '.events[]'``), and the
CSV of Logs Insights with ``@message``. There the record is text inside ``message``: it passes through memory as a
whole and is reduced at once to the fields named here. Batch files of S3 are read without the bodies.
Not read: bodies, ``identity``, ``accountId``, ``requestMetadata``.
"""

from __future__ import annotations

from planner.traffic.engine import sql_name, sql_text
from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import TEXT, added, selected

COLUMNS = Columns(
    timestamp="timestamp",
    prompt="prompt",
    output="output",
    model="model",
    cached_beside="cached",
    request_id="request",
    error="error",
    operation="operation",
)
NO_GENERATION = r"embed|rerank|canvas|image|nova-reel|^stability\."
"""Models, by name, whose calls produce no text."""
NO_CALL = ("startasyncinvoke", "counttokens")
EVENT_KEYS = {"eventId", "ingestionTime", "logStreamName", "logGroup"}
TYPES = {
    "timestamp": TEXT,
    "modelId": TEXT,
    "requestId": TEXT,
    "errorCode": TEXT,
    "operation": TEXT,
    "input": "STRUCT(inputTokenCount VARCHAR, cacheReadInputTokenCount VARCHAR, cacheWriteInputTokenCount VARCHAR)",
    "output": "STRUCT(outputTokenCount VARCHAR)",
}
FIELDS = (
    "timestamp", "modelId", "requestId", "errorCode", "operation", "input.inputTokenCount",
    "input.cacheReadInputTokenCount", "input.cacheWriteInputTokenCount", "output.outputTokenCount",
)  # fmt: skip
"""What is read of a record."""


def _message_column(head: Head) -> str:
    """The column that holds the record as text; empty where the lines are the records themselves."""
    if "@message" in head.columns:
        return "@message"
    return "message" if head.is_json and "message" in head.columns and EVENT_KEYS & set(head.columns) else ""


def _claimed(head: Head) -> bool:
    """The record's own keys, or those of a CloudWatch event around it."""
    return {"schemaType", "modelId"} <= set(head.columns) or bool(_message_column(head))


def _rows(head: Head) -> str:
    column = _message_column(head)
    fields = _fields_in_text(head, column) if column else _fields(head)
    operations = ", ".join(map(sql_text, NO_CALL))
    return f"""(
        SELECT "timestamp", {added("inputTokenCount", "cacheWriteInputTokenCount")} AS prompt,
               outputTokenCount AS output, regexp_replace(modelId, '^arn:[^/]*/', '') AS model,
               cacheReadInputTokenCount AS cached, requestId AS request, errorCode AS error,
               CASE WHEN regexp_matches(lower(modelId), {sql_text(NO_GENERATION)})
                    OR lower(operation) IN ({operations}) THEN 'other' ELSE 'generation' END AS operation
        FROM {fields}
    )"""


def _fields(head: Head) -> str:
    """The fields of records that are lines of their own."""
    roles = {field.rpartition(".")[2]: ".".join(sql_name(part) for part in field.split(".")) for field in FIELDS}
    return selected(head, (), TYPES, roles)


def _fields_in_text(head: Head, column: str) -> str:
    """Those of records inside events; text that is no record of this log gives nulls and is counted as malformed."""
    paths = ", ".join(sql_text(f"$.{field}") for field in FIELDS)
    text = sql_name(column)
    found = f"CASE WHEN json_valid({text}) THEN json_extract_string({text}, [{paths}]) END"
    rows = selected(head, (column,), {column: TEXT}, {"found": found})
    names = (f"found[{place}] AS {sql_name(field.rpartition('.')[2])}" for place, field in enumerate(FIELDS, start=1))
    return f"(SELECT {', '.join(names)} FROM {rows})"


BEDROCK = TableReader(
    "bedrock",
    "bedrock-invocation-log",
    _claimed,
    lambda _: COLUMNS,
    relation=_rows,
    generations=("generation",),
)
