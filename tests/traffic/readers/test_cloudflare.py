from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["logs.jsonl", "logs.csv"])
def test_every_rule_and_every_sum(name: str, exports: Path, found: Callable) -> None:
    log = found(exports / "cloudflare" / name)
    assert (log.source, log.start) == ("cloudflare-ai-gateway", "2026-09-03T14:22:00Z")
    assert (log.rows_read, log.offered) == (12, 9)
    assert log.dropped == {
        "not a text generation": 1,
        "response-cache hit": 1,
        "rejected before prefill": 1,
        "failed request": 2,  # one of them answered 200
        "missing token count": 1,
        "zero prompt tokens": 1,
        "duplicate request id": 1,
    }
    assert log.sums == {"chat-large": (3, 1834 + 900 + 300, 212 + 100 + 30, 0), "chat-small": (1, 70, 80, 0)}
    assert log.arrivals == {"chat-large": 8, "chat-small": 1}
