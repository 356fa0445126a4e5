from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["access_log.jsonl", "access_log.csv"])
def test_every_rule_and_every_sum(name: str, exports: Path, found: Callable) -> None:
    log = found(exports / "envoy" / name)
    mixed = name.endswith("jsonl")
    assert (log.source, log.start) == ("envoy-ai-gateway", "2026-09-03T14:22:00Z")
    assert (log.rows_read, log.offered) == (13 if mixed else 12, 10)
    assert log.dropped == {
        **({"malformed line": 1} if mixed else {}),  # a line of another log between
        "not a text generation": 1,
        "rejected before prefill": 2,
        "failed request": 1,
        "aborted before any output": 1,
        "missing token count": 1,
        "zero prompt tokens": 1,
        "duplicate request id": 1,
    }
    assert log.adjusted == {"aborted stream": 1}
    assert log.sums == {
        "chat-large": (2, 1834 + 60, 212 + 6, 0),
        "llama-70b": (1, 900, 100, 0),
        "default": (1, 70, 80, 0),
    }
    assert log.arrivals == {"chat-large": 8, "llama-70b": 1, "default": 1}
