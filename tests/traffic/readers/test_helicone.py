from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["request_response_rmt.csv", "requests.jsonl", "request_response_rmt.parquet"])
def test_every_rule_and_every_sum(name: str, exports: Path, found: Callable) -> None:
    log = found(exports / "helicone" / name)
    assert (log.source, log.start) == ("helicone-requests", "2026-09-03T14:22:00Z")
    assert (log.rows_read, log.offered) == (13, 10)
    assert log.dropped == {
        "not a text generation": 1,
        "response-cache hit": 1,  # the reference, not the switch that all rows have on
        "rejected before prefill": 1,
        "failed request": 2,  # one of them with a code of the vendor's own, below zero
        "missing token count": 1,
        "zero prompt tokens": 1,
        "duplicate request id": 1,
    }
    assert log.adjusted == {"cached tokens added to the prompt": 2}
    prompt = 1834 + (10 + 4000 + 500) + (900 + 100) + 70
    other = "asked" if name == "requests.jsonl" else "default"
    assert log.sums == {
        "chat-large": (4, prompt, 212 + 100 + 20 + 80, 4000 + 100),
        other: (1, 33, 44, 0),
    }
    assert log.arrivals == {"chat-large": 9, other: 1}


def test_tables_from_before_cache_tokens(tmp_path: Path, found: Callable) -> None:
    log = tmp_path / "old.csv"
    log.write_text(
        "request_id,request_created_at,model,status,prompt_tokens,completion_tokens\n"
        "a,2024-01-01 00:00:00.123,m,200,10,20\n"
        "b,2024-01-01 00:00:01.123,m,200,x,20\n"
    )
    assert (found(log).sums, found(log).dropped) == (
        {"m": (1, 10, 20, 0)},
        {"token count is not a whole number": 1},
    )
