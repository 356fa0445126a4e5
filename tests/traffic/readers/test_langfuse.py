from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

FILES = (
    "observations.jsonl",
    "observations_usage_as_text.jsonl",
    "observations.csv",
    "clickhouse_observations.csv",
    "observations_text.parquet",
    "observations_map.parquet",
)


@pytest.mark.parametrize("name", FILES)
def test_buckets_of_every_client_in_every_file_type(name: str, exports: Path, found: Callable) -> None:
    log = found(exports / "langfuse" / name)
    assert (log.source, log.start) == ("langfuse-observations", "2026-09-03T14:22:00Z")
    assert (log.rows_read, log.offered) == (17, 13)
    assert log.dropped == {
        "not a text generation": 3,  # a span, an embedding, an event
        "failed request": 1,
        "missing token count": 1,
        "zero prompt tokens": 1,
        "duplicate request id": 1,
    }
    assert log.adjusted == {"cached tokens added to the prompt": 4, "reasoning tokens added to the output": 2}
    prompt = 1834 + (810 + 1024) + (300 + 700) + (10 + 4000 + 500) + 2000 + 60 + 100 + (500 + 250) + 40
    output = 212 + (100 + 112) + (50 + 25) + 40 + 80 + 7 + 9 + 90 + 61
    assert log.sums == {
        "chat-large": (9, prompt, output, 1024 + 700 + 4000 + 1500 + 250),
        "default": (1, 20, 30, 0),
    }
    assert log.arrivals == {"chat-large": 11, "default": 2}


def _one(usage: object, tmp_path: Path, found: Callable, **further: object) -> dict[str, tuple[int, int, int, int]]:
    path = tmp_path / "log.jsonl"
    row = {"id": "a", "type": "GENERATION", "start_time": "2026-09-03 14:22:07", "usage_details": usage, **further}
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "id": "b", "usage_details": {"input": 1, "output": 1}}))
    (n, prompt, output, cached) = found(path, model="m").sums["m"]
    return (n - 1, prompt - 1, output - 1, cached)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input": 10, "output": 5}, (1, 10, 5, 0)),
        ({"input": 10, "input_cached_tokens": 20, "output": 5, "total": 35}, (1, 30, 5, 20)),
        ({"input": 30, "input_cached_tokens": 20, "output": 5, "total": 35}, (1, 30, 5, 20)),
        ({"input": 30, "input_cached_tokens": 20, "output": 5, "output_reasoning": 3, "total": 38}, (1, 30, 8, 20)),
        ({"input": 30, "output": 5, "output_reasoning_tokens": 3, "total": 35}, (1, 30, 5, 0)),
        ({"input_tokens": 30, "output_tokens": 5, "cache_read_input_tokens": 7}, (1, 37, 5, 7)),
        ({"input": 30, "input_modality_IMAGE": 12, "cached_modality_TEXT": 4, "output": 5}, (1, 46, 5, 4)),
        ({"input": 30, "output": 5, "video_seconds": 9}, (1, 30, 5, 0)),
        ({"input": 30, "output": "5", "note": {"a": 1}}, (1, 30, 5, 0)),
        ("[1, 2]", (0, 0, 0, 0)),
        ({"input": "many", "output": 5}, (0, 0, 0, 0)),
    ],
)
def test_buckets(usage: object, expected: tuple[int, ...], tmp_path: Path, found: Callable) -> None:
    assert _one(usage, tmp_path, found) == expected


def test_rows_that_clickhouse_deleted_are_no_requests(tmp_path: Path, found: Callable) -> None:
    usage = {"input": 10, "output": 5}
    assert _one(usage, tmp_path, found, is_deleted=0)[0] == 1
    path = tmp_path / "deleted.csv"
    path.write_text(
        "id,type,start_time,usage_details,is_deleted\n"
        "a,GENERATION,2026-09-03 14:22:07,\"{'input':10,'output':5}\",0\n"
        "b,GENERATION,2026-09-03 14:22:08,\"{'input':10,'output':5}\",1\n"
    )
    assert found(path).dropped == {"not a text generation": 1}
