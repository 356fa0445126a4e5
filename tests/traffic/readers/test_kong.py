from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def test_both_spellings_and_any_plugin(exports: Path, found: Callable) -> None:
    log = found(exports / "kong" / "file_log.jsonl")
    assert (log.source, log.start) == ("kong-ai-gateway", "2026-09-03T14:22:00.113000Z")
    assert (log.rows_read, log.offered) == (17, 12)
    assert log.dropped == {
        "not a text generation": 3,  # a route without an AI plugin, an embedding, a tool call
        "duplicate request id": 1,
        "response-cache hit": 1,  # told by another plugin than the one that counts
        "rejected before prefill": 1,
        "failed request": 1,
        "aborted before any output": 1,
        "missing token count": 1,
        "zero prompt tokens": 1,  # a stream whose tokens were logged as 0
    }
    assert log.adjusted == {"aborted stream": 1}
    prompt, output = 1834 + 300 + 40 + 70 + 90 + 20, 212 + 30 + 4 + 80 + 10 + 2
    assert log.sums == {"llama-70b": (6, prompt, output, 0), "chat-large": (1, 900, 100, 512)}
    assert sum(log.arrivals.values()) == 12


def test_a_log_that_starts_with_a_route_without_ai(exports: Path, found: Callable) -> None:
    log = found(exports / "kong" / "file_log_first_route_without_ai.jsonl")
    assert (log.source, log.dropped) == ("kong-ai-gateway", {"not a text generation": 1})
    assert log.sums == {"llama-70b": (1, 1834, 212, 0)}


def test_payloads_and_headers_are_not_taken(exports: Path, columns_read: Callable) -> None:
    taken = columns_read(exports / "kong" / "file_log.jsonl")
    assert taken == {"started_at", "latencies.request", "request.id", "request.uri", "response.status", "ai"}, (
        "of ai only the paths of its type are built"
    )
