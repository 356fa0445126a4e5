from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from planner.traffic.canonical import Canonical
from planner.traffic.ingest import Order, ingest

DATA = Path(__file__).parents[2] / "data" / "traffic" / "burstgpt"


def _by_model(found: Canonical) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = {}
    for row in found.lengths.to_pylist():
        if row["period"] == "all":
            before = sums.get(row["model"], (0, 0, 0))
            own = (row["n"], row["sum_prompt"], row["sum_output"])
            sums[row["model"]] = tuple(a + b for a, b in zip(before, own, strict=True))  # type: ignore[assignment]
    return sums


@pytest.mark.parametrize(
    ("name", "sums", "start_s"),
    [
        ("burstgpt_v1_rows.csv", {"ChatGPT": (2, 472 + 1087, 18 + 230), "GPT-4": (1, 417, 276)}, 5),
        ("burstgpt_v2_rows.csv", {"ChatGPT": (2, 36 + 935, 29 + 178), "GPT-4": (2, 906 + 1779, 446 + 123)}, 19_440_110),
    ],
)
def test_both_versions_are_read_by_name(name: str, sums: dict[str, tuple[int, int, int]], start_s: int) -> None:
    found = ingest(Order((DATA / name,)))
    assert _by_model(found) == sums
    assert found.manifest.counts.dropped_by_reason == {}
    assert (found.manifest.window_start_us, found.manifest.time_base) == (start_s * 1_000_000, "start of the log")


def test_an_empty_response_is_a_failure_that_still_arrived(tmp_path: Path) -> None:
    path = tmp_path / "BurstGPT_1.csv.gz"
    text = (DATA / "burstgpt_v1_rows.csv").read_text().rstrip("\n") + "\n120,GPT-4,500,0,500,API log\n121,GPT-4,,,,\n"
    path.write_bytes(gzip.compress(text.encode()))
    counts = ingest(Order((path,))).manifest.counts
    assert (counts.rows_read, counts.kept, counts.offered) == (5, 3, 5)
    assert counts.dropped_by_reason == {"failed request": 1, "missing token count": 1}


def test_one_model_of_a_trace_can_be_asked_for() -> None:
    found = ingest(Order((DATA / "burstgpt_v2_rows.csv",), model="GPT-4"))
    assert _by_model(found) == {"GPT-4": (2, 2685, 569)}
    assert found.manifest.counts.dropped_by_reason == {"other model": 2}
