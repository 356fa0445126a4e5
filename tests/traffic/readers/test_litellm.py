from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.traffic.ingest import Order, ingest


@pytest.mark.parametrize("name", ["spend_logs.csv", "spend_logs.jsonl", "spend_logs.parquet"])
def test_every_rule_and_every_sum(name: str, exports: Path, found: Callable) -> None:
    log = found(exports / "litellm" / name)
    nested = name.endswith("jsonl")
    assert (log.source, log.start, log.rows_read, log.offered) == ("litellm-spendlogs", "2026-09-03T14:22:00Z", 19, 14)
    assert log.dropped == {
        "not a text generation": 2,  # an embedding, and a batch billed as a whole
        "response-cache hit": 2,  # one by its flag, one by its id
        # only JSON lines hold the codes 429 and 499 apart from texts
        **({"rejected before prefill": 1, "failed request": 2} if nested else {"failed request": 4}),
        "zero prompt tokens": 1,
        "duplicate request id": 1,
    }
    retry = {"further attempt at one logical request": 1}
    assert log.adjusted == (retry | {"aborted stream": 1} if nested else retry)
    cached = {"csv": 1024, "jsonl": 1024 + 32, "parquet": 0}[name.rpartition(".")[2]]
    prompt, output = 1834 + 900 + 700 + 700 + 120 + 60, 212 + 100 + 30 + 300 + 80 + 70
    assert log.sums == {
        "chat": (7, prompt + 90, output + 10, cached) if nested else (6, prompt, output, cached),
        "hosted_vllm/llama-70b": (1, 10, 20, 0),
        "chat-large": (1, 11, 21, 0),
        "openai/gpt-x": (1, 33, 44, 0),
    }
    assert log.arrivals == {"chat": 11, "hosted_vllm/llama-70b": 1, "chat-large": 1, "openai/gpt-x": 1}


def test_codes_and_cached_tokens_may_be_columns(tmp_path: Path, found: Callable) -> None:
    log = tmp_path / "spend.csv"
    log.write_text(
        "startTime,prompt_tokens,completion_tokens,model_group,status,error_code,cached_tokens\n"
        "2026-01-01 00:00:00,10,20,m,success,,4\n"
        "2026-01-01 00:00:01,0,0,m,failure,429,\n"
        "2026-01-01 00:00:02,30,5,m,failure,499,\n"
    )
    read = found(log)
    assert read.sums == {"m": (2, 40, 25, 4)}
    assert (read.dropped, read.adjusted) == ({"rejected before prefill": 1}, {"aborted stream": 1})


def test_the_first_dropped_rows_are_named(exports: Path, found: Callable) -> None:
    rows = found(exports / "litellm" / "spend_logs.jsonl").rows
    assert rows["response-cache hit"] == [4, 5]
    assert rows["not a text generation"] == [6, 11]
    assert found(exports / "litellm" / "spend_logs.csv").rows["response-cache hit"] == [5, 6]


def test_of_the_metadata_only_counts_and_codes_are_taken(exports: Path, columns_read: Callable) -> None:
    taken = columns_read(exports / "litellm" / "spend_logs.jsonl")
    assert {name for name in taken if name.startswith("metadata")} == {
        "metadata.usage_object.prompt_tokens_details.cached_tokens",
        "metadata.additional_usage_values.cache_read_input_tokens",
        "metadata.error_information.error_code",
    }
    assert "metadata" not in columns_read(exports / "litellm" / "spend_logs.csv")


def test_old_exports_have_fewer_columns(tmp_path: Path, found: Callable) -> None:
    log = tmp_path / "spend.csv"
    log.write_text(
        "request_id,startTime,prompt_tokens,completion_tokens,model\n"
        "a,2024-12-31 23:59:59.5,10,20,gpt-x\n"
        "b,2025-01-01 00:00:01,0,0,gpt-x\n"
    )
    berlin = found(log, time_zone="Europe/Berlin")
    assert berlin.start == "2024-12-31T22:59:59.500000Z", "stamps before 2025 are in the server's zone"
    assert (berlin.sums, berlin.dropped) == ({"gpt-x": (1, 10, 20, 0)}, {"zero prompt tokens": 1})


def test_a_column_that_comes_twice_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "spend.csv"
    log.write_text("startTime,prompt_tokens,completion_tokens,status,status\n2026-01-01,1,2,success,failure\n")
    with pytest.raises(InputError, match="2 columns named 'status'"):
        ingest(Order((log,)))
    log.write_text("start,prompt_tokens,completion_tokens\n2026-01-01,1,2\n")
    with pytest.raises(InputError, match="has no column 'startTime'"):
        ingest(Order((log,), log_format="litellm"))


def test_a_compressed_export_is_the_same(tmp_path: Path, exports: Path, found: Callable) -> None:
    plain = exports / "litellm" / "spend_logs.jsonl"
    packed = tmp_path / "spend_logs.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    assert (found(packed).sums, found(packed).dropped) == (found(plain).sums, found(plain).dropped)


def test_lines_that_are_no_objects_are_counted(tmp_path: Path, found: Callable) -> None:
    row = '{"startTime": "2026-01-01 00:00:00", "prompt_tokens": 10, "completion_tokens": 20, "model_group": "m"}\n'
    log = tmp_path / "spend.jsonl"
    log.write_text(row + "[1, 2]\n" + "\n" + row[:-3] + "\n" + '"text"\n' + row.replace("10", '"ten"'))
    assert found(log).dropped == {"malformed line": 3, "token count is not a whole number": 1}
