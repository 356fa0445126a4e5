"""The table of log formats in ``catalogs/traffic-formats.md``: ``python -m planner.traffic.readers.table_of_formats``.

It is made from the readers themselves and from what is said about each of them here; a test compares the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from planner.traffic.readers import READERS
from planner.traffic.readers.columns import Columns
from planner.traffic.storage.refusals import AZURE, GCS, HTTP, S3, Driver, install

PLACE = Path(__file__).parents[3] / "catalogs" / "traffic-formats.md"
HEADER = """\
# Log formats

`planner ingest FILE... -o DIR` tells the format of a file from its header or first object; `--format NAME` overrides
that. Every format is read by an allow-list of columns: what is not named there never leaves the file. CSV and JSON
lines may be packed with gzip or Zstandard, and wherever JSON lines are read one JSON array of objects is, too. An
answer of an API that wraps such an array is first unwrapped (`jq -c '.data[]' answer.json > log.jsonl`).

| `--format` | what it is | file types | told by | not read |
| --- | --- | --- | --- | --- |
"""
FOOTER = """
Histograms of engines and sums of usage reports, which show no single request: [traffic-metrics.md](traffic-metrics.md).

Files, folders and globs may be given, and several at once; compressed files may lie beside plain ones. A zip archive
and an Excel workbook are unpacked or saved as UTF-8 CSV first; commas, semicolons and tabs are told apart.

All of them may stand in object storage, as in `'s3://bucket/logs/*.parquet'`; canonical folders are written to and
read from a disk. Each kind of storage needs its driver, and is told who asks by the variables of its own tools;
neither passwords nor what follows a `?` is shown or written.

{storage}

Time is read as ISO 8601, or as seconds to nanoseconds since 1970. Anything else is stated, as
`--option 'time=%d/%m/%Y %H:%M:%S'` or `--option time=relative_ms`; `--tz` names the zone of stamps without one. Counts
are digits alone: `2.338` is no number of tokens.

Any other file with one row per request: `--map timestamp=COLUMN,prompt=COLUMN,output=COLUMN,model=COLUMN` (without a
model all rows are one), and any of these roles:
"""

STORAGE: dict[str, Driver] = {"s3://": S3, "gs://": GCS, "az://, abfs://": AZURE, "https:// (one file)": HTTP}


@dataclass(frozen=True)
class About:
    """What a user needs to know about a format."""

    title: str
    files: tuple[str, ...]
    told_by: str
    not_read: str


CSV, JSON, PARQUET = "CSV", "JSON lines", "Parquet"
TEXT = "bodies, users, keys, costs"
NO_TEXT = "other columns"

ABOUT: dict[str, About] = {
    "azure": About(
        "Azure LLM inference traces 2023-2025", (CSV,), "`TIMESTAMP`, `ContextTokens`, `GeneratedTokens`", NO_TEXT
    ),
    "litellm": About(
        "LiteLLM proxy, table `LiteLLM_SpendLogs`",
        (CSV, JSON, PARQUET),
        "`startTime`, `prompt_tokens`, `completion_tokens`",
        f"{TEXT}, tags; of `metadata` only cached tokens and error code, in JSON lines only",
    ),
    "langfuse": About(
        "Langfuse observations: blob-storage export, ClickHouse table",
        (JSON, CSV, PARQUET),
        "`type`, `start_time`, `usage_details`",
        f"input, output, metadata, names, sessions, {TEXT}",
    ),
    "helicone": About(
        "Helicone requests: export tool, API, ClickHouse table",
        (CSV, JSON, PARQUET),
        "`request_created_at`, `prompt_tokens`, `completion_tokens`",
        f"properties, scores, {TEXT}",
    ),
    "portkey": About("Portkey log export", (JSON, CSV), "`created_at`, `req_units`, `res_units`", f"metadata, {TEXT}"),
    "cloudflare": About(
        "Cloudflare AI Gateway logs", (JSON, CSV), "`created_at`, `tokens_in`, `tokens_out`", f"metadata, {TEXT}"
    ),
    "kong": About(
        "Kong AI gateway, log plugins",
        (JSON,),
        "`started_at` with `ai` or `latencies`",
        "payloads, headers, addresses, consumers, costs, further model calls of other plugins",
    ),
    "envoy": About(
        "Envoy AI Gateway access log with the documented keys",
        (JSON, CSV),
        "`start_time`, `genai_tokens_input`, `genai_tokens_output`",
        "headers, addresses",
    ),
    "openrouter": About(
        "OpenRouter generations",
        (JSON, CSV),
        "`created_at`, `native_tokens_prompt`, `native_tokens_completion`",
        f"`tokens_*` (another tokenizer's), {TEXT}",
    ),
    "databricks": About(
        "Databricks `system.serving.endpoint_usage`, alone or joined with names and an inference table",
        (CSV, JSON, PARQUET),
        "`request_time`, `input_token_count`, `output_token_count`",
        f"request, response, {TEXT}",
    ),
    "bedrock": About(
        "Amazon Bedrock invocation log: S3, CloudWatch events, Logs Insights",
        (JSON, CSV),
        "`schemaType` with `modelId`; a CloudWatch event with `message`; `@message`",
        "bodies, identity, account, request metadata",
    ),
    "apim": About(
        "Azure API Management, table `ApiManagementGatewayLlmLog`",
        (CSV, JSON),
        "`PromptTokens`, `CompletionTokens`, `CorrelationId`",
        "messages, region",
    ),
    "otel": About(
        "OpenTelemetry GenAI spans: Collector files, spans, Python SDK",
        (JSON,),
        "`resourceSpans`; `startTimeUnixNano`; `start_time` with `attributes`",
        "events, links, names, all attributes but tokens, models, operation and error",
    ),
    "burstgpt": About(
        "BurstGPT traces 1 and 2", (CSV,), "`Timestamp`, `Model`, `Request tokens`, `Response tokens`", "session"
    ),
    "vidur": About("Vidur request traces", (CSV,), "`arrived_at`, `num_prefill_tokens`, `num_decode_tokens`", NO_TEXT),
    "bailian": About(
        "Qwen-Bailian traces", (JSON,), "`input_length` with `chat_id` or `turn`", "type, links between turns"
    ),
    "aiperf-records": About(
        "AIPerf, records of a run (`profile_export.jsonl`)", (JSON,), "`metadata` with `metrics`", "other metrics"
    ),
    "aiperf": About(
        "AIPerf traces", (JSON,), "`input_length` with `session_id` or `delay`", "texts, messages, payloads"
    ),
    "mooncake": About("Mooncake traces", (JSON,), "`timestamp`, `input_length`, `output_length`, `hash_ids`", "texts"),
    "replay": About(
        "replay traces without hashes (AIPerf, GuideLLM): state `--option time=`",
        (JSON,),
        "`timestamp`, `input_length`, `output_length` alone",
        "texts",
    ),
    "servegen": About(
        "ServeGen client samples, from which requests are drawn", (CSV,), "a `*_trace.csv` beside its lengths", "-"
    ),
    "plain": About(
        "any log with these columns, or with `--map`",
        (CSV, JSON, PARQUET),
        "`timestamp`, `prompt`, `output`",
        "columns that no role names",
    ),
}


def table() -> str:
    """The file as Markdown, in the order in which readers are asked."""
    rows = [
        f"| `{reader.name}` | {about.title} | {', '.join(about.files)} | {about.told_by} | {about.not_read} |\n"
        for reader in READERS
        for about in (ABOUT[reader.name],)
    ]
    roles = ", ".join(f"`{role}`" for role in Columns.__dataclass_fields__ if role != "fallback_model")
    return HEADER + "".join(rows) + FOOTER.replace("{storage}", _storage()) + f"{roles}.\n"


def _storage() -> str:
    rows = [f"| `{address}` | `{install(d)}` | {d.rights}. {d.place} |" for address, d in STORAGE.items()]
    return "\n".join(["| address | driver | rights and place |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    PLACE.write_text(table(), encoding="utf-8")
