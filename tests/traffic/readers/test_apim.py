from __future__ import annotations

from pathlib import Path

import pytest

from planner.traffic.ingest import Order, ingest

DATA = Path(__file__).parents[2] / "data" / "traffic" / "apim"


@pytest.mark.parametrize(("name", "unreadable"), [("llm_log.csv", 1), ("llm_log.jsonl", 0)])
def test_rows_of_one_request_are_one_request(name: str, unreadable: int) -> None:
    found = ingest(Order((DATA / name,)))
    counts = found.manifest.counts
    assert (counts.rows_read, counts.kept, counts.offered) == (7 + unreadable, 2, 3)
    assert counts.dropped_by_reason == {
        # c1 has two rows of messages, c2 a row of zeros before its counts, c3 a row of messages and no counts.
        "duplicate request id": 4,
        "missing token count": 1,
        **({"unparseable timestamp": 1} if unreadable else {}),  # the portal's local manner
    }
    whole = [row for row in found.lengths.to_pylist() if row["period"] == "all"]
    assert {row["model"]: (row["sum_prompt"], row["sum_output"]) for row in whole} == {
        "chat-prod": (1834, 212),
        "gpt-y": (300, 20),  # no deployment name: the model's
    }
    assert found.manifest.window_start == "2026-09-03T14:22:07.113000Z"


def test_the_portals_name_for_the_time_is_known(tmp_path: Path) -> None:
    path = tmp_path / "query_data.csv"
    text = (
        "TimeGenerated [UTC],CorrelationId,DeploymentName,PromptTokens,CompletionTokens\n2026-09-03T14:22:07Z,c,d,8,4\n"
    )
    path.write_text("\ufeff" + text)
    found = ingest(Order((path,)))
    assert (found.manifest.source, found.manifest.models) == ("azure-apim-llm-log", {"d": 1})
