from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from planner.traffic.ingest import Order, ingest
from planner.traffic.schema import Counts

DATA = Path(__file__).parents[2] / "data" / "traffic" / "bedrock"
MODEL = "us.anthropic.claude-x-v1:0"


def _read(path: Path, **order: object) -> tuple[Counts, list[int], dict[str, int]]:
    """Counts, sums of prompt, output and cached tokens, and requests by model."""
    found = ingest(Order((path,), **order))  # type: ignore[arg-type]
    whole = [row for row in found.lengths.to_pylist() if row["period"] == "all"]
    sums = [sum(row[name] for row in whole) for name in ("sum_prompt", "sum_output", "sum_cached")]
    return found.manifest.counts, sums, found.manifest.models


def test_every_row_of_the_s3_log_is_accounted_for() -> None:
    counts, sums, models = _read(DATA / "s3.jsonl")
    assert (counts.rows_read, counts.kept, counts.offered) == (8, 2, 5)
    assert counts.dropped_by_reason == {
        "malformed line": 1,  # cut off
        "not a text generation": 1,  # an embedding model
        "rejected before prefill": 1,  # ThrottlingException
        "failed request": 1,  # ModelErrorException
        "missing token count": 1,  # input is no object
        "duplicate request id": 1,
    }
    # 3 fresh + 1,000 read from + 25,037 written to the cache, and 1,834.
    assert sums == [26_040 + 1_834, 13 + 212, 1_000]
    assert counts.adjusted_by_reason == {"cached tokens added to the prompt": 1}
    assert models == {MODEL: 2}


def test_an_arn_gives_no_account_away() -> None:
    """The second row is called by its ARN: what is left is the name that the first row uses."""
    assert "000000000000" not in ingest(Order((DATA / "s3.jsonl",))).manifest.model_dump_json()


@pytest.mark.parametrize(("name", "malformed"), [("cloudwatch_events.jsonl", 1), ("insights.csv", 0)])
def test_records_inside_cloudwatch_events_read_the_same(name: str, malformed: int) -> None:
    counts, sums, models = _read(DATA / name)
    assert counts.dropped_by_reason == ({"malformed line": malformed} if malformed else {})
    assert (sums, models) == ([27_874, 225, 1_000], {MODEL: 2})


def test_a_batch_of_s3_is_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "20260903T142207Z_x.json.gz"
    path.write_bytes(gzip.compress((DATA / "s3.jsonl").read_bytes()))
    (packed, *rest), (plain, *same) = _read(path), _read(DATA / "s3.jsonl")
    assert (packed.dropped_by_reason, packed.offered, rest) == (plain.dropped_by_reason, plain.offered, same)


def test_a_count_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    line = '{"schemaType":"ModelInvocationLog","timestamp":"2026-09-03T14:22:07Z","modelId":"m","input":%s,"output":{"outputTokenCount":5}}\n'  # noqa: E501
    path.write_text(line % '{"inputTokenCount":7}' + line % '{"inputTokenCount":"many","cacheWriteInputTokenCount":4}')
    counts, sums, _ = _read(path)
    assert counts.dropped_by_reason == {"token count is not a whole number": 1}
    assert sums == [7, 5, 0]


def test_stamps_of_a_second_are_no_batches() -> None:
    remarks = ingest(Order((DATA / "s3.jsonl",))).manifest.remarks
    assert any("did not come as a batch" in remark for remark in remarks)
