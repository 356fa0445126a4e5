from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["generations.jsonl", "generations.csv"])
def test_every_rule_and_every_sum(name: str, exports: Path, found: Callable) -> None:
    log = found(exports / "openrouter" / name)
    assert (log.source, log.start) == ("openrouter-generations", "2026-09-03T14:22:00Z")
    assert (log.rows_read, log.offered) == (12, 10)
    assert log.dropped == {
        "not a text generation": 1,
        "failed request": 1,
        "aborted before any output": 1,
        "missing token count": 1,
        "zero prompt tokens": 1,
        "duplicate request id": 1,
    }
    assert {name: n for name, n in log.adjusted.items() if "attempt" not in name} == {
        "aborted stream": 1,
        "more cached than prompt tokens": 1,
    }
    prompt, output = 1834 + 900 + 60 + 50 + 30, 212 + 100 + 6 + 60 + 20
    assert log.sums == {
        "qwen/qwen3-32b": (5, prompt, output, 1024 + 900),
        "other/model": (1, 70, 80, 0),
    }
    assert log.arrivals == {"qwen/qwen3-32b": 9, "other/model": 1}
