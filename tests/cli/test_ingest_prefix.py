from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., tuple[int, str, str]]
LOG = Path(__file__).parents[2] / "catalogs" / "example" / "traffic" / "mooncake_conversation_head2500.jsonl"


def test_the_report_says_what_a_prefix_cache_would_answer(planner: Run, tmp_path: Path) -> None:
    code, out, _ = planner("ingest", str(LOG), "-o", str(tmp_path / "out"))
    said = "an endless prefix cache would answer 30.6 % of the prompt tokens, an LRU cache of 4,194,304 tokens 18.3 %"
    assert (code, out.count(said)) == (0, 1)
    code, out, _ = planner("ingest", str(LOG), "-o", str(tmp_path / "out"), "--json")
    assert json.loads(out)["models"]["default"]["prefix"] == [said]
