"""Makes the synthetic exports of gateways and observability tools in the folders beside it: run it after a change.

Every value is invented; names and shapes of fields follow the sources named in the readers. Texts hold the word
``SECRET``, so that a test can see that it goes nowhere.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
Rows = list[dict[str, Any]]
TEXT = 'SECRET "quoted", with a comma,\na line break and {"a": "brace"}'


def write_json(name: str, rows: Rows) -> None:
    """One object a line; empty values stay out where the row does not have them."""
    path = HERE / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(name: str, rows: Rows) -> None:
    """A header and quoted fields; objects become JSON text, truths as Postgres and ClickHouse write them."""
    path = HERE / name
    path.parent.mkdir(exist_ok=True)
    names = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_field(row.get(key)) for key in names] for row in rows)


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def write_parquet(name: str, rows: Rows, schema: pa.Schema) -> None:
    """The columns of the schema, in its types."""
    path = HERE / name
    path.parent.mkdir(exist_ok=True)
    table = pa.table({f.name: pa.array([_value(r.get(f.name), f.type) for r in rows], f.type) for f in schema}, schema)
    pq.write_table(table, path)


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return pa.scalar(str(value).replace("Z", "")).cast(pa.timestamp("us")).as_py()
    if pa.types.is_map(kind):
        return list(value.items())
    return json.dumps(value) if pa.types.is_string(kind) and isinstance(value, dict | list) else value


def stamp(second: float, *, naive: bool = False) -> str:
    """``second`` seconds after 14:22:00 UTC on 3 September 2026."""
    text = f"2026-09-03 14:{22 + int(second) // 60:02}:{second % 60:06.3f}"
    return text if naive else text.replace(" ", "T") + "Z"


def litellm() -> None:
    """Spend logs: with each call type, failure, response-cache hit, retry and duplicate."""

    def row(place: int, prompt: int, output: int, **further: Any) -> dict[str, Any]:
        usage = {"prompt_tokens_details": {"cached_tokens": further.pop("cached", None)}} if prompt else None
        return {
            "request_id": f"chatcmpl-{place}",
            "call_type": "acompletion",
            "api_key": "SECRET-hash",
            "spend": 0.001,
            "total_tokens": prompt + output,
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "startTime": stamp(place, naive=True),
            "endTime": stamp(place + 4.5, naive=True),
            "model": "hosted_vllm/llama-70b",
            "model_group": "chat",
            "metadata": {"usage_object": usage, "user_api_key_user_email": TEXT, "attempted_retries": 0},
            "cache_hit": "False",
            "messages": [{"role": "user", "content": TEXT}],
            "response": {"choices": [{"message": {"content": TEXT}}]},
            "session_id": "SECRET-session",
            "status": "success",
            "litellm_call_id": f"call-{place}",
            **further,
        }

    rows = [
        row(0, 1834, 212, cached=1024),
        row(1, 900, 100, cached=0, cache_hit="None"),
        row(2, 0, 0, status="failure"),
        row(3, 50, 60, cache_hit="True", request_id="chatcmpl-0_cache_hit1756909331.1"),
        row(4, 50, 60, cache_hit="False", request_id="chatcmpl-0_cache_hit1756909332.2"),
        row(5, 400, 0, call_type="aembedding", model_group="embed"),
        row(6, 10, 20, model_group=""),
        row(7, 11, 21, model_group="chat-large", call_type="anthropic_messages", status=None),
        row(8, 700, 30, request_id="chatcmpl-9-attempt-1", litellm_call_id="call-9-attempt-1"),
        row(9, 700, 300),
        row(10, 5_000_000, 2_000_000, call_type="aretrieve_batch"),
        row(11, 0, 40),
        row(12, 120, 80, call_type="aresponses", litellm_call_id=None),
        row(12, 120, 80, call_type="aresponses", litellm_call_id=None),
        row(13, 60, 70, metadata={"additional_usage_values": {"cache_read_input_tokens": 32}, "tags": [TEXT]}),
        row(14, 33, 44, metadata={}, model_group=None, model="openai/gpt-x"),
        row(15, 0, 0, status="failure", metadata={"error_information": {"error_code": "429", "error_message": TEXT}}),
        row(16, 90, 10, status="failure", metadata={"error_information": {"error_code": "499"}}),
        row(17, 0, 0, status="failure", metadata={"error_information": {"error_code": "None"}}),
    ]
    write_json("litellm/spend_logs.jsonl", rows)
    flat = [{**r, "cached_tokens": _cached_of(r)} for r in rows]
    write_csv("litellm/spend_logs.csv", flat)
    strings = ("request_id", "call_type", "model", "model_group", "metadata", "cache_hit", "messages", "status")
    schema = [(name, pa.string()) for name in (*strings, "litellm_call_id")]
    counts = [(name, pa.int32()) for name in ("prompt_tokens", "completion_tokens")]
    write_parquet("litellm/spend_logs.parquet", rows, pa.schema([*schema, *counts, ("startTime", pa.timestamp("us"))]))


def _cached_of(row: dict[str, Any]) -> Any:
    usage = row["metadata"].get("usage_object") or {}
    return usage.get("prompt_tokens_details", {}).get("cached_tokens")


def langfuse() -> None:
    """Observations: buckets of several clients, spans, errors, versions."""

    def row(place: int, usage: Any, **further: Any) -> dict[str, Any]:
        return {
            "id": f"obs-{place}",
            "trace_id": "SECRET-trace",
            "type": "GENERATION",
            "start_time": f"{stamp(place, naive=True)}000",
            "end_time": f"{stamp(place + 5, naive=True)}000",
            "level": "DEFAULT",
            "input": TEXT,
            "output": TEXT,
            "metadata": {"user": TEXT},
            "provided_model_name": "chat-large",
            "usage_details": usage,
            "latency": 5.0,
            "updated_at": f"{stamp(place + 30, naive=True)}000",
            "session_id": "SECRET-session",
            **further,
        }

    rows = [
        row(0, {"input": 1834, "output": 212, "total": 2046}),
        # buckets that do not overlap: OpenAI through the server, LangChain, Anthropic
        row(
            1, {"input": 810, "input_cached_tokens": 1024, "output": 100, "output_reasoning_tokens": 112, "total": 2046}
        ),
        row(2, {"input": 300, "input_cache_read": 700, "output": 50, "output_reasoning": 25}),
        row(3, {"input": 10, "cache_read_input_tokens": 4000, "cache_creation_input_tokens": 500, "output": 40}),
        # clients whose input contains the cached tokens, told by their total
        row(
            4, {"input": 2000, "input_cached_tokens": 1500, "output": 80, "output_reasoning_tokens": 30, "total": 2080}
        ),
        row(5, {"prompt_tokens": 60, "completion_tokens": 7, "total_tokens": 67}),
        row(6, {"input": 100, "input_priority": 100, "input_priority_cache_read": 20, "output": 9, "total": 109}),
        # a client with cached tokens beside and reasoning inside
        row(7, {"input": 500, "input_cached_tokens": 250, "output": 90, "output_reasoning_tokens": 60, "total": 840}),
        row(8, {"input": 5, "output": 5, "total": 10}, type="SPAN"),
        row(9, {"input": 77, "total": 77}, type="EMBEDDING"),
        row(10, {"input": 600, "output": 0}, level="ERROR", status_message=TEXT),
        row(11, {}, level="WARNING"),
        row(12, None, type="EVENT", end_time=None, latency=None),
        row(13, {"input": 40, "output": 1}),
        row(13, {"input": 40, "output": 61}, updated_at=f"{stamp(59, naive=True)}000"),
        row(14, {"input": 0, "output": 33}, provided_model_name=None),
        row(15, {"input": 20, "output": 30}, provided_model_name=None),
    ]
    write_json("langfuse/observations.jsonl", rows)
    write_json(
        "langfuse/observations_usage_as_text.jsonl", [{**r, "usage_details": _text(r["usage_details"])} for r in rows]
    )
    write_csv("langfuse/observations.csv", rows)
    clickhouse = [{**r, "usage_details": _clickhouse_map(r["usage_details"]), "is_deleted": 0} for r in rows]
    write_csv("langfuse/clickhouse_observations.csv", clickhouse)
    strings = ("id", "type", "level", "input", "output", "metadata", "provided_model_name")
    stamps = ("start_time", "end_time", "updated_at")
    for name, kind in (("text", pa.string()), ("map", pa.map_(pa.string(), pa.uint64()))):
        schema = [*((s, pa.string()) for s in strings), *((s, pa.timestamp("us")) for s in stamps)]
        fields = pa.schema([*schema, ("latency", pa.float64()), ("usage_details", kind)])
        write_parquet(f"langfuse/observations_{name}.parquet", rows, fields)


def _text(value: Any) -> Any:
    return None if value is None else json.dumps(value)


def _clickhouse_map(value: Any) -> str:
    return "{" + ",".join(f"'{key}':{count}" for key, count in (value or {}).items()) + "}"


def helicone() -> None:
    """The ClickHouse table with versions, and what the API gives."""
    no_id = "00000000-0000-0000-0000-000000000000"

    def row(place: int, prompt: int | None, output: int | None, **further: Any) -> dict[str, Any]:
        return {
            "request_id": f"8d1f0000-0000-0000-0000-{place:012}",
            "request_created_at": stamp(place, naive=True),
            "model": "chat-large",
            "status": 200,
            "prompt_tokens": prompt,
            "prompt_cache_write_tokens": 0,
            "prompt_cache_read_tokens": 0,
            "completion_tokens": output,
            "latency": 5758,
            "time_to_first_token": 577,
            "target_url": "https://llm.example/v1/chat/completions",
            "cache_enabled": True,
            "cache_reference_id": no_id,
            "properties": {"customer": TEXT},
            "request_body": TEXT,
            "updated_at": stamp(place + 10, naive=True),
            **further,
        }

    rows = [
        row(0, 1834, 212),
        row(1, 10, 100, prompt_cache_read_tokens=4000, prompt_cache_write_tokens=500),
        row(2, 900, 20, prompt_cache_read_tokens=100),
        row(3, None, None, status=429),
        row(4, 0, 0, status=-3),
        row(5, 50, 60, cache_reference_id="8d1f0000-0000-0000-0000-000000000000"),
        row(6, 400, 0, target_url="https://llm.example/v1/embeddings", model="embed"),
        row(7, 70, 1, latency=None),
        row(7, 70, 80, updated_at=stamp(50, naive=True)),
        row(8, 33, 44, model="", prompt_cache_read_tokens=None),
        row(9, 0, 12),
        row(10, None, 5),
        row(11, 5, 6, status=500),
    ]
    write_csv("helicone/request_response_rmt.csv", rows)
    write_json("helicone/requests.jsonl", [_helicone_api(r) for r in rows])
    counts = (
        "prompt_tokens",
        "prompt_cache_write_tokens",
        "prompt_cache_read_tokens",
        "completion_tokens",
        "status",
        "latency",
    )
    strings = ("request_id", "model", "target_url", "cache_reference_id", "request_body")
    schema = [*((s, pa.string()) for s in strings), *((c, pa.int64()) for c in counts)]
    times = [(name, pa.timestamp("ms")) for name in ("request_created_at", "updated_at")]
    write_parquet("helicone/request_response_rmt.parquet", rows, pa.schema([*schema, *times]))


def _helicone_api(row: dict[str, Any]) -> dict[str, Any]:
    names = {"status": "response_status", "latency": "delay_ms", "target_url": "request_path"}
    found = {names.get(key, key): value for key, value in row.items()}
    return {**found, "request_created_at": row["request_created_at"].replace(" ", "T") + "Z", "request_model": "asked"}


def portkey() -> None:
    """The log export."""

    def row(place: int, prompt: int | None, output: int | None, **further: Any) -> dict[str, Any]:
        return {
            "id": f"log-{place}",
            "created_at": stamp(place),
            "request.body": {"messages": [{"content": TEXT}]},
            "response.body": {"choices": [TEXT]},
            "is_success": 1,
            "ai_org": "openai",
            "ai_model": "chat-large",
            "req_units": prompt,
            "res_units": output,
            "cost": 0.2,
            "request_url": "https://api.example/v1/chat/completions",
            "response_status_code": 200,
            "response_time": 5758,
            "cache_status": "MISS",
            "stream_mode": "TRUE",
            "retry_success_count": 0,
            "trace_id": "SECRET-trace",
            "metadata.value": TEXT,
            **further,
        }

    rows = [
        row(0, 1834, 212),
        row(1, 900, 100, cache_status="DISABLED", retry_success_count=2),
        row(2, 50, 60, cache_status="HIT"),
        row(3, 51, 61, cache_status="SEMANTIC HIT"),
        row(4, 0, 0, is_success=0, response_status_code=429),
        row(5, 0, 0, is_success=0, response_status_code=500),
        row(6, 40, 2, is_success=0),
        row(7, 400, 0, request_url="https://api.example/v1/embeddings"),
        row(8, 0, 33),
        row(9, None, None),
        row(10, 70, 80, ai_model="chat-small"),
        row(10, 70, 80, ai_model="chat-small"),
    ]
    write_json("portkey/logs.jsonl", rows)
    write_csv("portkey/logs.csv", rows)


def cloudflare() -> None:
    """Log entries of the API, whole seconds."""

    def row(place: int, prompt: int | None, output: int | None, **further: Any) -> dict[str, Any]:
        return {
            "id": f"01J{place}",
            "created_at": stamp(place).replace(".000", ""),
            "provider": "openai",
            "model": "chat-large",
            "path": "chat/completions",
            "duration": 5758,
            "status_code": 200,
            "success": True,
            "cached": False,
            "tokens_in": prompt,
            "tokens_out": output,
            "cost": 0.01,
            "metadata": json.dumps({"user": TEXT}),
            "step": 0,
            **further,
        }

    rows = [
        row(0, 1834, 212),
        row(0, 900, 100, id="01J00"),
        row(2, 50, 60, cached=True),
        row(3, None, None, success=False, status_code=429),
        row(4, 0, 0, success=False, status_code=500),
        row(5, 7, 8, success=False, status_code=200),
        row(6, 300, 30, step=1),
        row(7, 400, None, path="embeddings", model="embed"),
        row(8, 0, 0),
        row(9, None, None),
        row(10, 70, 80, model="chat-small"),
        row(10, 70, 80, model="chat-small"),
    ]
    write_json("cloudflare/logs.jsonl", rows)
    write_csv("cloudflare/logs.csv", rows)


def kong() -> None:
    """Rows of a file-log plugin: both spellings, several plugins, routes without AI."""

    def row(place: int, ai: Any, status: int = 200, uri: str = "/chat") -> dict[str, Any]:
        found = {
            "started_at": 1_788_445_320_000 + 1_000 * place + 113,
            "latencies": {"request": 5758, "proxy": 5700, "kong": 58},
            "request": {"id": f"id-{place}", "uri": uri, "headers": {"authorization": "SECRET"}, "body": TEXT},
            "response": {"status": status, "headers": {"x": TEXT}},
            "client_ip": "192.0.2.1",
            "tries": [{"ip": "192.0.2.2"}, {"ip": "192.0.2.3"}],
        }
        return found if ai is None else {**found, "ai": ai}

    def old(prompt: int, output: int, **further: Any) -> dict[str, Any]:
        usage = {"prompt_token": prompt, "completion_token": output, "total_tokens": prompt + output, "cost": 0.1}
        meta = {"request_model": "chat-large", "response_model": "llama-70b", "llm_latency": 5600}
        return {"payload": {"response": TEXT}, "usage": usage, "meta": meta, **further}

    def new(prompt: int, output: int) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        usage["prompt_tokens_details"] = {"cached_tokens": 512, "audio_tokens": 0}
        return {"usage": usage, "meta": {"request_model": "chat-large"}}

    rows = [
        row(0, {"payload": {"request": TEXT}, "ai-proxy": old(1834, 212)}),
        row(1, {"proxy": new(900, 100)}),
        row(2, {"ai-request-transformer": old(5, 6), "ai-proxy-advanced": old(300, 30)}),
        row(3, {"my-own-plugin": old(40, 4)}),
        row(4, None),
        row(5, None, 503),
        row(6, None, 500),
        row(7, {"ai-semantic-cache": {"cache": {"cache_status": "Hit"}}, "ai-proxy": old(50, 60)}),
        row(8, {"ai-semantic-cache": {"cache": {"cache_status": "Miss"}}, "ai-proxy": old(70, 80)}),
        row(9, {"ai-proxy": old(0, 0)}),
        row(10, {"ai-proxy": old(9, 0)}, 499),
        row(11, {"ai-proxy": old(90, 10)}, 499),
        row(12, {"ai-proxy": {"meta": {"request_model": "chat-large"}}}),
        row(13, {"flag": True, "ai-proxy": old(20, 2)}),
        row(14, {"proxy": {"usage": {"prompt_tokens": 400}, "meta": {}}}, uri="/v1/embeddings"),
        row(15, {"mcp": {"mcp_session_id": "SECRET", "rpc": [{"id": "1", "payload": {"request": TEXT}}]}}),
        row(1, {"proxy": new(900, 100)}),
    ]
    write_json("kong/file_log.jsonl", rows)
    write_json("kong/file_log_first_route_without_ai.jsonl", [rows[4], rows[0]])


def envoy() -> None:
    """The access log with the documented keys, and an operator's lines between them."""

    def row(place: int, prompt: Any, output: Any, **further: Any) -> dict[str, Any]:
        return {
            "start_time": stamp(place),
            "method": "POST",
            "x-envoy-origin-path": "/v1/chat/completions",
            "duration": 5758,
            "response_code": 200,
            "response_flags": "-",
            "genai_model_name": "chat-large",
            "genai_model_name_override": None,
            "genai_backend_name": "default/vllm",
            "genai_tokens_input": prompt,
            "genai_tokens_output": output,
            "x-request-id": f"83b6-{place}",
            "user-agent": TEXT,
            **further,
        }

    rows = [
        row(0, 1834, 212),
        row(1, 900, 100, genai_model_name_override="llama-70b"),
        row(2, 400, None, **{"x-envoy-origin-path": "/v1/embeddings"}),
        row(3, None, None, response_code=429, response_flags="RL"),
        row(4, None, None, response_code=503, response_flags="UF,URX"),
        row(5, "-", "-", response_code=500),
        row(6, 60, 6, response_code=0, response_flags="DC"),
        row(7, None, None, response_code=0, response_flags="DC"),
        row(8, 0, 0),
        row(9, None, None),
        row(10, 70, 80, genai_model_name="-"),
        row(10, 70, 80, genai_model_name="-"),
    ]
    write_json("envoy/access_log.jsonl", rows)
    lines = (HERE / "envoy/access_log.jsonl").read_text().splitlines()
    lines.insert(3, "[2026-09-03 14:22:09.000][1][info][main] SECRET line of another log")
    (HERE / "envoy/access_log.jsonl").write_text("\n".join(lines) + "\n")
    write_csv("envoy/access_log.csv", rows)


def openrouter() -> None:
    """Generations with both tokenizers' counts."""

    def row(place: int, prompt: int | None, output: int | None, **further: Any) -> dict[str, Any]:
        return {
            "id": f"gen-{place}",
            "request_id": f"req-{place}",
            "created_at": stamp(place).replace("Z", "000+00:00"),
            "model": "qwen/qwen3-32b",
            "api_type": "completions",
            "streamed": True,
            "cancelled": False,
            "provider_name": "Infermatic",
            "latency": 1250,
            "generation_time": 1200,
            "finish_reason": "stop",
            "tokens_prompt": 1,
            "tokens_completion": 1,
            "native_tokens_prompt": prompt,
            "native_tokens_completion": output,
            "native_tokens_reasoning": 5,
            "native_tokens_cached": 0,
            "external_user": TEXT,
            **further,
        }

    rows = [
        row(0, 1834, 212, native_tokens_cached=1024),
        row(1, 900, 100, native_tokens_cached=1000),
        row(2, 60, 6, cancelled=True, finish_reason=None),
        row(3, 61, 0, cancelled=True),
        row(4, 50, 3, finish_reason="error", request_id="req-5"),
        row(5, 50, 60, finish_reason="length"),
        row(6, 400, 0, api_type="embeddings"),
        row(7, 30, 20, api_type=None, finish_reason="tool_calls"),
        row(8, None, None),
        row(9, 0, 9),
        row(10, 70, 80, model="other/model"),
        row(10, 70, 80, model="other/model"),
    ]
    write_json("openrouter/generations.jsonl", rows)
    write_csv("openrouter/generations.csv", rows)


def databricks() -> None:
    """The usage table alone, and joined with names and an inference table."""

    def row(place: int, prompt: int | None, output: int | None, **further: Any) -> dict[str, Any]:
        return {
            "databricks_request_id": f"a{place}",
            "client_request_id": "SECRET-same-for-all",
            "request_time": stamp(place),
            "served_entity_id": "e77",
            "status_code": 200,
            "input_token_count": prompt,
            "output_token_count": output,
            "request_streaming": True,
            "usage_context": {"user": TEXT},
            **further,
        }

    rows = [
        row(0, 1834, 212),
        row(1, 900, 100),
        row(2, None, None, status_code=429),
        row(3, None, None, status_code=500),
        row(4, 40, 4, served_entity_id="e78"),
        row(4, 40, 4, served_entity_id="e78"),
        row(5, 400, None),
        row(6, 0, 3),
        row(7, 30, 20),
    ]
    write_csv("databricks/endpoint_usage.csv", rows)
    write_json("databricks/endpoint_usage.jsonl", rows)
    strings = ("databricks_request_id", "client_request_id", "served_entity_id", "usage_context")
    counts = ("status_code", "input_token_count", "output_token_count")
    schema = [*((s, pa.string()) for s in strings), *((c, pa.int64()) for c in counts)]
    write_parquet("databricks/endpoint_usage.parquet", rows, pa.schema([*schema, ("request_time", pa.timestamp("us"))]))
    names = {"endpoint_name": "chat", "entity_name": "main.models.llama"}
    joined = [{**r, **names, "sampling_fraction": 0.25, "execution_duration_ms": 1250} for r in rows]
    write_csv("databricks/usage_and_payload.csv", joined)


if __name__ == "__main__":
    for make in (litellm, langfuse, helicone, portkey, cloudflare, kong, envoy, openrouter, databricks):
        make()
