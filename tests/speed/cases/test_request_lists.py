from __future__ import annotations

import pytest

from planner.speed.cases.request_lists import RequestList, request_list

OFFLINE = "suite C; lengths are the suite-declared p50; offline: engine receives the request list"
PAGE = "https://github.com/NVIDIA/TensorRT-LLM/blob/00f37686/docs/source/performance/perf-overview.md"


@pytest.mark.parametrize(
    ("row_id", "source", "notes", "lengths", "expected"),
    [
        ("trt10_x", "", "", (128, 2048), RequestList(3000)),
        ("other", PAGE, "", (20000, 2000), RequestList(1000)),
        ("trtdev_x", "", "", (8192, 1024), RequestList()),
        ("am_x", "", OFFLINE, (280, 310), RequestList(100, 512)),
        ("am_x", "", OFFLINE.replace("suite C", "suite D"), (28650, 256), RequestList(50, 256)),
        ("am_x", "", "suite C; online Poisson", (280, 310), RequestList()),
        ("mine", "", OFFLINE, (280, 310), RequestList()),
        ("mine", "https://example.org/bench", "offline max throughput", (128, 2048), RequestList()),
    ],
)
def test_lists_of_known_benchmarks(
    row_id: str, source: str, notes: str, lengths: tuple[float, float], expected: RequestList
) -> None:
    assert request_list(row_id, source, notes, lengths) == expected
