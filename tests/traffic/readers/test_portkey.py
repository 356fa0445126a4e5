from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["logs.jsonl", "logs.csv"])
def test_every_rule_and_every_sum(name: str, exports: Path, found: Callable) -> None:
    log = found(exports / "portkey" / name)
    assert (log.source, log.start) == ("portkey-logs", "2026-09-03T14:22:00Z")
    assert (log.rows_read, log.offered) == (12, 8)
    assert log.dropped == {
        "not a text generation": 1,
        "response-cache hit": 2,
        "rejected before prefill": 1,
        "failed request": 2,  # one of them answered 200
        "missing token count": 1,
        "zero prompt tokens": 1,
        "duplicate request id": 1,
    }
    assert log.adjusted == {}
    assert log.sums == {"chat-large": (2, 1834 + 900, 212 + 100, 0), "chat-small": (1, 70, 80, 0)}
    assert log.arrivals == {"chat-large": 7, "chat-small": 1}


def test_bodies_are_not_taken(exports: Path, columns_read: Callable) -> None:
    for name in ("logs.jsonl", "logs.csv"):
        assert columns_read(exports / "portkey" / name) == {
            "id", "created_at", "req_units", "res_units", "ai_model", "response_status_code", "is_success",
            "cache_status", "request_url", "response_time",
        }  # fmt: skip
