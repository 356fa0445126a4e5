from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.traffic.ingest import Order, ingest

DROPPED = {
    "rejected before prefill": 1,
    "failed request": 1,
    "missing token count": 1,  # an embedding has no output
    "zero prompt tokens": 1,
    "duplicate request id": 1,
}


@pytest.mark.parametrize("name", ["endpoint_usage.csv", "endpoint_usage.jsonl", "endpoint_usage.parquet"])
def test_every_rule_and_every_sum(name: str, exports: Path, found: Callable) -> None:
    log = found(exports / "databricks" / name)
    assert (log.source, log.start) == ("databricks-endpoint-usage", "2026-09-03T14:22:00Z")
    assert (log.rows_read, log.offered, log.dropped) == (9, 8, DROPPED)
    assert log.sums == {"e77": (3, 1834 + 900 + 30, 212 + 100 + 20, 0), "e78": (1, 40, 4, 0)}
    assert log.arrivals == {"e77": 7, "e78": 1}


def test_a_join_names_the_model_and_the_sampling(exports: Path, found: Callable) -> None:
    path = exports / "databricks" / "usage_and_payload.csv"
    assert found(path).sums == {"main.models.llama": (4, 1834 + 900 + 30 + 40, 212 + 100 + 20 + 4, 0)}
    assert ingest(Order((path,))).manifest.sampling_fraction == 0.25


@pytest.mark.parametrize(
    ("zone", "start"), [("UTC", "2026-09-03T12:22:07.500000Z"), (None, "2026-09-03T10:22:07.500000Z")]
)
def test_typed_stamps_keep_their_zone(zone: str | None, start: str, tmp_path: Path, found: Callable) -> None:
    """Spark writes moments; a table without zones is local time of ``--tz``."""
    stamp = pa.array([dt.datetime(2026, 9, 3, 12, 22, 7, 500_000)], pa.timestamp("us", tz=zone))
    path = tmp_path / "usage.parquet"
    pq.write_table(pa.table({"request_time": stamp, "input_token_count": [7], "output_token_count": [3]}), path)
    assert found(path, time_zone="Europe/Berlin", model="m").start == start
