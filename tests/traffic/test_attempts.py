from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.traffic.attempts import KEPT, REJECTED, further_attempts
from planner.traffic.ingest import Order, ingest
from planner.traffic.rules import CODES, Rule

MAPPING = {
    "timestamp": "t", "prompt": "p", "output": "o", "request_id": "id", "status": "s", "logical_id": "call",
    "model": "m",
}  # fmt: skip


def _counts(folder: Path, rows: list[str], files: int = 1) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    paths = []
    for place in range(files):
        path = folder / f"{place}.csv"
        path.write_text("t,p,o,id,s,call,m\n" + "\n".join(rows[place::files]) + "\n")
        paths.append(path)
    return ingest(Order(tuple(paths), mapping=MAPPING)).manifest.counts.model_dump()


ROWS = [
    "1700000000,10,1,a1,429,A,chat",  # tried again twice, then served
    "1700000001,10,1,a2,503,A,chat",
    "1700000002,10,1,a3,200,A,chat",
    "1700000003,10,1,b1,429,B,chat",  # tried again, never served: unmet demand once
    "1700000004,10,1,b2,429,B,chat",
    "1700000005,10,1,c1,500,C,chat",  # failed on a GPU, then a fallback to another model served it
    "1700000006,10,1,c2,200,C,big",
    "1700000007,10,1,d1,200,D,chat",  # tried twice, both on a GPU
    "1700000008,10,1,d2,200,D,chat",
    "1700000009,10,1,e1,429,,chat",  # nothing ties these two together
    "1700000010,10,1,e2,200,,chat",
    "1700000011,10,1,f1,200,F,chat",  # a hedge that was refused after the first answer
    "1700000012,10,1,f2,429,F,chat",
]


@pytest.mark.parametrize("files", [1, 3])
def test_attempts_at_one_request_over_all_files(files: int, tmp_path: Path) -> None:
    counts = _counts(tmp_path, ROWS, files)
    assert counts["dropped_by_reason"] == {
        "rejected, then tried again": 4,
        "rejected before prefill": 2,
        "failed request": 1,
    }
    assert (counts["rows_read"], counts["kept"], counts["offered"]) == (13, 6, 9)
    assert counts["adjusted_by_reason"] == {"further attempt at one logical request": 1}


def test_rows_that_were_tried_again_are_named(tmp_path: Path) -> None:
    found = _counts(tmp_path, ROWS)["dropped_rows"]
    assert [row["row"] for row in found["rejected, then tried again"]] == [2, 3, 5]
    assert [row["row"] for row in found["rejected before prefill"]] == [6, 11]
    assert found["rejected before prefill"][0]["value"] == "429"


def test_the_order_of_rows_is_no_input(tmp_path: Path) -> None:
    shuffled = ROWS.copy()
    random.Random(1).shuffle(shuffled)
    one, other = _counts(tmp_path / "a", ROWS), _counts(tmp_path / "b", shuffled)
    for part in ("dropped_by_reason", "adjusted_by_reason", "offered"):
        assert one[part] == other[part]


def test_against_a_plain_count() -> None:
    random_ = np.random.default_rng(3)
    logical, ts = random_.integers(0, 300, 1000), random_.integers(0, 10, 1000)
    verdict = random_.choice([KEPT, REJECTED, CODES[Rule.FAILED]], 1000)
    found = further_attempts(logical, ts, verdict, [np.arange(1000)])
    retried, further = set(), set()
    for request in range(300):
        own = sorted(np.flatnonzero(logical == request), key=lambda i: (ts[i], verdict[i], i))
        kept = [i for i in own if verdict[i] == KEPT]
        further |= set(kept[1:])
        retried |= {i for i in own if verdict[i] == REJECTED and (kept or i != own[-1])}
    assert set(found.retried) == retried
    assert set(found.further) == further


def test_no_attempts_at_all() -> None:
    none = np.empty(0, dtype=np.int64)
    found = further_attempts(none, none, none)
    assert found.retried.size == found.further.size == 0
