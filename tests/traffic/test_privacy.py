from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import InputError
from planner.traffic.canonical import write
from planner.traffic.engine import connect
from planner.traffic.ingest import Order, ingest
from planner.traffic.privacy import HARMLESS, PEOPLE, TEXTS, check_allowed, check_models, is_private, safe_name
from planner.traffic.readers.columns import Columns, TableFile, TimeKind
from planner.traffic.readers.head import read_head

SECRETS = {
    "person": "Alice Wonderland", "mail": "alice@secret-corp.example", "key": "sk-proj-4242SECRETKEY4242",
    "text": "my bank password is hunter2", "ip": "203.0.113.77", "answer": "dear Alice, I will keep hunter2 safe",
    "session": "session-of-alice-7", "url": "https://secret-corp.example/v1?user=alice",
}  # fmt: skip
NEEDLES = (
    "Alice", "alice", "Wonderland", "secret-corp", "sk-proj", "SECRETKEY", "hunter2", "bank", "203.0.113.77",
    "session-of", "/v1?",
)  # fmt: skip
T = "2026-09-03 14:22:07.113"
TZ = "2026-09-03T14:22:07.113Z"

PEOPLE_OF_LITELLM = {
    "api_key": SECRETS["key"], "user": SECRETS["mail"], "end_user": SECRETS["person"], "team_id": SECRETS["person"],
    "requester_ip_address": SECRETS["ip"], "session_id": SECRETS["session"], "api_base": SECRETS["url"],
    "messages": json.dumps([{"role": "user", "content": SECRETS["text"]}]),
    "response": json.dumps({"content": SECRETS["answer"]}),
    "proxy_server_request": json.dumps({"headers": {"authorization": SECRETS["key"]}}),
    "metadata": json.dumps({"user_api_key_alias": SECRETS["person"], "requester_metadata": SECRETS["text"]}),
    "request_tags": json.dumps([SECRETS["person"]]), "cache_key": SECRETS["key"],
}  # fmt: skip
LOGS: dict[str, dict[str, Any]] = {
    "litellm.csv": {
        "request_id": "r1", "call_type": "acompletion", "prompt_tokens": 1834, "completion_tokens": 212,
        "startTime": T, "endTime": T, "model": "hosted_vllm/llama-70b", "model_group": "chat", "status": "success",
        "cache_hit": "None",
    } | PEOPLE_OF_LITELLM,
    "langfuse.jsonl": {
        "id": "o1", "trace_id": "t1", "type": "GENERATION", "start_time": T, "end_time": T, "level": "DEFAULT",
        "provided_model_name": "chat", "usage_details": {"input": 1834, "output": 212, "total": 2046},
        "input": SECRETS["text"], "output": {"content": SECRETS["answer"]}, "metadata": {"who": SECRETS["person"]},
        "user_id": SECRETS["mail"], "session_id": SECRETS["session"], "name": SECRETS["person"],
        "status_message": SECRETS["text"], "trace_name": SECRETS["person"], "latency": 5.7,
        "model_parameters": json.dumps({"stop": SECRETS["text"]}),
    },
    "helicone.csv": {
        "request_id": "r1", "request_created_at": T, "model": "chat", "status": 200, "prompt_tokens": 1834,
        "completion_tokens": 212, "latency": 5758, "time_to_first_token": 577, "user_id": SECRETS["mail"],
        "proxy_key_id": SECRETS["key"], "request_body": SECRETS["text"], "response_body": SECRETS["answer"],
        "target_url": SECRETS["url"], "properties": json.dumps({"who": SECRETS["person"]}), "country_code": "DE",
    },
    "portkey.jsonl": {
        "created_at": TZ, "ai_org": "openai", "ai_model": "chat", "req_units": 1834, "res_units": 212,
        "total_units": 2046, "response_status_code": 200, "response_time": 5758, "cache_status": "MISS",
        "is_success": 1, "request": {"body": {"messages": SECRETS["text"]}}, "response": {"body": SECRETS["answer"]},
        "metadata": {"key": [SECRETS["mail"]], "value": [SECRETS["person"]]}, "virtual_key": SECRETS["key"],
        "request_url": SECRETS["url"], "trace_id": "t1", "retry_success_count": 0, "mode": "SINGLE",
    },
    "bedrock.jsonl": {
        "schemaType": "ModelInvocationLog", "schemaVersion": "1.0", "timestamp": "2026-09-03T14:22:07Z",
        "accountId": "000000000000", "region": "us-east-1", "requestId": "ff4b", "operation": "ConverseStream",
        "modelId": "amazon.nova-lite-v1:0", "identity": {"arn": f"arn:aws:iam::0:user/{SECRETS['person']}"},
        "input": {"inputContentType": "application/json", "inputTokenCount": 1834, "cacheReadInputTokenCount": 0,
                  "cacheWriteInputTokenCount": 0, "inputBodyJson": {"messages": [SECRETS["text"]]}},
        "output": {"outputContentType": "application/json", "outputTokenCount": 212,
                   "outputBodyJson": {"content": SECRETS["answer"]}},
    },
    "apim.csv": {
        "TimeGenerated": TZ, "CorrelationId": "6f0c", "DeploymentName": "chat-prod", "ModelName": "gpt-x",
        "PromptTokens": 1834, "CompletionTokens": 212, "TotalTokens": 2046, "IsStreamCompletion": "True",
        "SequenceNumber": 0, "RequestMessages": SECRETS["text"], "ResponseMessages": SECRETS["answer"],
        "CallerIPAddress": SECRETS["ip"],
    },
    "kong.jsonl": {
        "started_at": 1788445327113, "response": {"status": 200, "headers": {"x": SECRETS["key"]}},
        "client_ip": SECRETS["ip"], "consumer": {"username": SECRETS["person"]},
        "request": {"uri": SECRETS["url"], "headers": {"authorization": SECRETS["key"]}},
        "ai": {"ai-proxy": {"usage": {"prompt_token": 1834, "completion_token": 212, "total_tokens": 2046},
                            "payload": {"request": SECRETS["text"], "response": SECRETS["answer"]},
                            "meta": {"request_model": "chat", "provider_name": "openai",
                                     "response_model": "llama-70b", "llm_latency": 5758}}},
    },
    "envoy.jsonl": {
        "start_time": TZ, "duration": 5758, "response_code": 200, "response_flags": "-", "genai_model_name": "chat",
        "genai_model_name_override": None, "genai_backend_name": "default/vllm", "genai_tokens_input": 1834,
        "genai_tokens_output": 212, "genai_tokens_total": 2046, "x-request-id": "83b6",
        "downstream_remote_address": SECRETS["ip"], "authorization": SECRETS["key"], "path": SECRETS["url"],
    },
    "cloudflare.jsonl": {
        "id": "01J", "created_at": "2026-09-03T14:22:07Z", "provider": "openai", "model": "gpt-x", "success": True,
        "cached": False, "tokens_in": 1834, "tokens_out": 212, "duration": 5758, "status_code": 200,
        "metadata": json.dumps({"user": SECRETS["mail"]}), "request_head": SECRETS["text"],
        "response_head": SECRETS["answer"],
    },
    "databricks.csv": {
        "databricks_request_id": "a1", "request_time": TZ, "served_entity_id": "e77", "status_code": 200,
        "input_token_count": 1834, "output_token_count": 212, "request_streaming": "true",
        "requester": SECRETS["mail"], "usage_context": json.dumps({"who": SECRETS["person"]}),
        "request": SECRETS["text"], "response": SECRETS["answer"],
    },
    "azure.csv": {
        "TIMESTAMP": "2023-11-16 18:17:03.9799600", "ContextTokens": 1834, "GeneratedTokens": 212,
        "user": SECRETS["mail"], "text": SECRETS["text"],
    },
}  # fmt: skip


def _log(folder: Path, name: str, row: dict[str, Any]) -> Path:
    path = folder / name
    rows = [row, row | {key: value for key, value in row.items() if key in ("request_id", "id")}]
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    else:
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(row))
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(stream.getvalue())
    return path


def _written(folder: Path) -> str:
    """Everything in the canonical folder that could be read by anybody."""
    texts = []
    for path in sorted(folder.iterdir()):
        texts.append(path.name)
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            texts += [json.dumps(table.to_pylist(), default=str), str(pq.read_metadata(path).metadata)]
        texts.append(path.read_bytes().decode("latin-1"))
    return "\n".join(texts)


@pytest.mark.parametrize("name", LOGS)
def test_no_secret_of_a_log_is_written(name: str, tmp_path: Path) -> None:
    found = ingest(Order((_log(tmp_path, name, LOGS[name]),)))
    assert found.manifest.counts.kept >= 1
    assert found.manifest.columns_read
    assert not {name for name in found.manifest.columns_read if is_private(name)} - HARMLESS
    write(found, tmp_path / "out")
    written = _written(tmp_path / "out")
    assert [needle for needle in NEEDLES if needle in written] == []


@pytest.mark.parametrize("name", LOGS)
def test_no_secret_is_written_when_every_row_is_bad_but_one(name: str, tmp_path: Path) -> None:
    """Shifted rows put texts where numbers should stand; what is shown of them is their length."""
    if name.endswith(".jsonl"):
        bad = {key: SECRETS["text"] for key, value in LOGS[name].items() if not isinstance(value, dict)}
        path = _log(tmp_path, name, LOGS[name])
        path.write_text(path.read_text() + json.dumps(LOGS[name] | bad) + "\n" + SECRETS["text"] + "\n")
    else:
        path = _log(tmp_path, name, LOGS[name])
        bad_row = ",".join([SECRETS["text"]] * len(LOGS[name]))
        path.write_text(path.read_text() + f"{bad_row}\n{SECRETS['person']}\n")
    write(ingest(Order((path,))), tmp_path / "out")
    written = _written(tmp_path / "out")
    assert [needle for needle in NEEDLES if needle in written] == []


PLAIN = "timestamp,prompt,output,{column}\n2026-09-03 14:22:07,10,5,{value}\n2026-09-03 14:22:08,10,5,{value}\n"


@pytest.mark.parametrize("role", ["model", "traffic_class", "fallback_model"])
@pytest.mark.parametrize("column", ["messages", "user_id", "apiKey", "Request Body", "session_id", "request.body"])
def test_a_column_of_texts_or_people_is_refused(role: str, column: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(PLAIN.format(column=column, value=SECRETS["text"]))
    mapping = {"timestamp": "timestamp", "prompt": "prompt", "output": "output", role: column}
    if role == "fallback_model":
        with pytest.raises(InputError, match="is not a role"):
            ingest(Order((path,), mapping=mapping))
        return
    with pytest.raises(InputError, match=f"the column '{column}' may hold text or say who asked"):
        ingest(Order((path,), mapping=mapping))


@pytest.mark.parametrize(
    ("name", "content", "allowed"),
    [
        ("numbers.csv", "timestamp,prompt,output\n1788445327,10,5\n", True),
        ("numbers.csv", "timestamp,prompt,output\n1788445327,,\n1788445328,10,5\n", True),
        ("texts.csv", "timestamp,prompt,output\n1788445327,hello there,fine\n", False),
        ("texts.csv", 'timestamp,prompt,output\n1788445327,"tell, me",fine\n1788445327,5,5\n1788445327,a b,c\n', False),
        ("numbers.jsonl", '{"timestamp": 1788445327, "prompt": 10, "output": 5}\n', True),
        ("texts.jsonl", '{"timestamp": 1788445327, "prompt": "hello there", "output": "fine"}\n', False),
        ("nested.jsonl", '{"timestamp": 1788445327, "prompt": [{"content": "hi"}], "output": {"a": "b"}}\n', False),
    ],
)
def test_a_column_called_prompt_may_be_read_if_it_holds_counts(
    name: str, content: str, allowed: bool, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    order = Order((path,), mapping={"timestamp": "timestamp", "prompt": "prompt", "output": "output"})
    if allowed:
        assert ingest(order).manifest.counts.kept == 1
        return
    with pytest.raises(InputError) as caught:
        ingest(order)
    assert [problem.field for problem in caught.value.problems] == ["prompt", "output"]


@pytest.mark.parametrize(("values", "allowed"), [([10, 20], True), (["hello there", "fine"], False)])
def test_a_typed_column_is_judged_by_its_type(values: list[Any], allowed: bool, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"timestamp": [1788445327, 1788445328], "prompt": values, "output": [1, 2]}), path)
    order = Order((path,), mapping={"timestamp": "timestamp", "prompt": "prompt", "output": "output"})
    if allowed:
        assert ingest(order).manifest.counts.kept == 2
        return
    with pytest.raises(InputError, match="the column 'prompt' may hold text"):
        ingest(order)


@pytest.mark.parametrize("secret", [SECRETS["ip"], "+49 170 1234567", "::1", "4111 1111 1111 1111", "1-2-3-4"])
def test_addresses_and_telephone_numbers_are_no_numbers(secret: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    good = "2026-09-03 14:22:07,10,5,200\n"
    path.write_text(f"timestamp,prompt,output,status\n{good}{secret},1,1,200\n{good}2026-09-03 14:22:07,1,1,{secret}\n")
    found = ingest(Order((path,), options={"time": "iso"})).manifest
    assert sum(found.counts.dropped_by_reason.values()) == 2
    assert secret not in found.model_dump_json()


@pytest.mark.parametrize("taken", ["messages", "user"])
def test_a_format_that_would_read_texts_is_refused(taken: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"t": 1788445327, "p": 10, "messages": SECRETS["text"], "user": "u"}) + "\n")
    relation = (
        f"(SELECT t, p, length({taken}) AS o FROM read_json('{path}', columns = {{'t': 'BIGINT', 'p': 'BIGINT', "
        f"'{taken}': 'VARCHAR'}}, format = 'newline_delimited'))"
    )
    table = TableFile(read_head(path), Columns("t", "p", "o"), TimeKind.EPOCH_S, relation=relation)
    with connect() as connection, pytest.raises(InputError, match=f"the column '{taken}' may hold text"):
        check_allowed(connection, [table])


def test_file_names_are_written_without_addresses_and_keys(tmp_path: Path) -> None:
    path = tmp_path / f"log of {SECRETS['mail']} {SECRETS['key']}\n[bold].csv"
    path.write_text("timestamp,prompt,output\n1788445327,10,5\n1788445327,-1,5\n")
    found = ingest(Order((path,))).manifest
    assert found.files == ["log of EMAIL KEY??bold?.csv"]
    assert found.counts.dropped_rows["negative token count"][0]["file"] == found.files[0]
    assert len(safe_name("a" * 300 + ".csv")) < 90
    assert safe_name("AzureLLMInferenceTrace_code.csv") == "AzureLLMInferenceTrace_code.csv"


@pytest.mark.parametrize(
    "name",
    ["Please summarise this long letter to my bank about my account", "alice@corp.example", "a\nb", "x" * 401,
     "sk-proj-4242SECRETKEY4242"],
)  # fmt: skip
def test_what_is_no_model_name_is_not_stored(name: str) -> None:
    with pytest.raises(InputError, match="look like text, a key or an address"):
        check_models(["llama-70b", name])


@pytest.mark.parametrize(
    "name",
    ["Llama 3.1 70B Instruct Turbo", "claude-3@20240229", "publishers/google/models/gemini@1.5", "модель", "m" * 300,
     "arn:aws:bedrock:us-east-1:000000000000:application-inference-profile/abc"],
)  # fmt: skip
def test_model_names_of_all_kinds_are_stored(name: str) -> None:
    check_models([name])


@pytest.mark.parametrize("status", [429, 500])
def test_names_of_failed_requests_alone_are_checked_too(status: int, tmp_path: Path) -> None:
    """Their arrivals are written under the name that was asked for."""
    log = tmp_path / "log.csv"
    rows = [f"{T},5,5,chat,200", f"{T},5,5,my key is {SECRETS['key']},{status}"]
    log.write_text("\n".join(["timestamp,prompt,output,model,status", *rows]) + "\n")
    with pytest.raises(InputError, match="look like text, a key or an address"):
        ingest(Order((log,)))


def test_too_many_models_are_no_models() -> None:
    with pytest.raises(InputError, match="2,001 different model names"):
        check_models(f"m{i}" for i in range(2_001))


def test_names_are_told_however_they_are_written() -> None:
    for name in ("requestBody", "Request-Body", "REQUEST BODY", "a.b.request_body", "proxyServerRequest", "userID"):
        assert is_private(name), name
    for name in ("prompt_tokens", "model", "request_id", "usage.output_tokens", "status_code", "model_name", "latency"):
        assert not is_private(name), name
    assert not TEXTS & PEOPLE
