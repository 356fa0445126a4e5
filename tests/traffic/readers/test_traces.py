"""Traces for replay: Mooncake, Qwen-Bailian, AIPerf, Vidur and the Azure traces; same keys, other units."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import Order, ingest

DATA = Path(__file__).parents[2] / "data" / "traffic"


def _sums(found: Canonical) -> list[int]:
    whole = [row for row in found.lengths.to_pylist() if row["period"] == "all"]
    return [sum(row[name] for row in whole) for name in ("n", "sum_prompt", "sum_output")]


def test_mooncake_counts_in_milliseconds() -> None:
    path = DATA / "mooncake" / "conversation_head40.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = ingest(Order((path,)))
    assert found.manifest.source == "mooncake-trace"
    assert _sums(found) == [40, sum(r["input_length"] for r in rows), sum(r["output_length"] for r in rows)]
    assert found.manifest.window_start_us == min(r["timestamp"] for r in rows) * 1000


def test_bailian_counts_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress((DATA / "bailian" / "synthetic.jsonl").read_bytes()))
    found = ingest(Order((path,)))
    assert (found.manifest.source, _sums(found)) == ("qwen-bailian-trace", [2, 104, 212])
    assert found.manifest.window_start_us == 250_000
    assert found.manifest.counts.dropped_by_reason == {"zero prompt tokens": 1}


def test_a_turn_of_aiperf_without_a_time_is_dropped_and_counted() -> None:
    found = ingest(Order((DATA / "aiperf" / "trace.jsonl",)))
    assert (found.manifest.source, _sums(found)) == ("aiperf-trace", [2, 1300, 50])
    assert found.manifest.counts.dropped_by_reason == {
        "unparseable timestamp": 1,  # a delay after an answer
        "missing token count": 1,  # a prompt as text
    }


def test_a_trace_of_aiperf_may_begin_with_a_turn_without_a_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = (DATA / "aiperf" / "trace.jsonl").read_text().splitlines()
    path.write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    assert _sums(ingest(Order((path,)))) == [2, 1300, 50]


def test_records_of_an_aiperf_run() -> None:
    found = ingest(Order((DATA / "aiperf" / "profile_export.jsonl",), model="m"))
    counts = found.manifest.counts
    assert (counts.kept, counts.offered) == (3, 4)
    assert counts.dropped_by_reason == {"not a text generation": 1, "failed request": 1}  # the warm-up, a 500
    assert counts.adjusted_by_reason == {"aborted stream": 1}
    assert _sums(found) == [3, 550 + 551 + 552, 100 + 90 + 7]
    assert sum(r["sum_cached"] for r in found.lengths.to_pylist() if r["period"] == "all") == 512
    assert found.manifest.window_start == "2026-09-03T14:22:07.113000Z"  # the warm-up shows that the log had begun


def test_keys_that_do_not_tell_the_unit_are_not_guessed_at(tmp_path: Path) -> None:
    """Mooncake and AIPerf would mean milliseconds, GuideLLM seconds."""
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f'{{"timestamp": {t}, "input_length": 512, "output_length": 64}}\n' for t in (0, 50)))
    with pytest.raises(InputError, match="time=relative_ms or --option time=relative_s"):
        ingest(Order((path,)))
    by_seconds = ingest(Order((path,), options={"time": "relative_s"}))
    by_milliseconds = ingest(Order((path,), log_format="mooncake"))
    assert (_sums(by_seconds), _sums(by_milliseconds)) == ([2, 1024, 128], [2, 1024, 128])
    assert (by_seconds.manifest.ts_resolution_ms, by_milliseconds.manifest.ts_resolution_ms) == (50_000, 50)


def test_a_csv_with_the_same_columns_is_no_less_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,input_length,output_length\n0,512,64\n1.5,100,5\n")
    with pytest.raises(InputError, match="do not tell whether"):
        ingest(Order((path,)))
    assert _sums(ingest(Order((path,), options={"time": "relative_s"}))) == [2, 612, 69]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "minutes"}, "is not a way to write time"),
        ({"block_tokens": "0"}, "must be a whole number above 0"),
        ({"block_tokens": "1.5"}, "must be a whole number above 0"),
        ({"block_tokens": "nan"}, "must be a whole number above 0"),
        ({"blocks": "16"}, "is not known"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ingest(Order((DATA / "mooncake" / "conversation_head40.jsonl",), options=options))


def test_vidur_counts_in_seconds() -> None:
    found = ingest(Order((DATA / "vidur" / "synthetic.csv",)))
    assert (found.manifest.source, _sums(found)) == ("vidur-trace", [2, 600, 320])
    assert found.manifest.counts.dropped_by_reason == {"negative token count": 1}


def test_azure_traces_of_2023_and_2025() -> None:
    """Seven digits of a second and no zone; offsets, and a column of images in the middle."""
    old, new = (ingest(Order((DATA / "azure" / name,))) for name in ("code_2023_head5.csv", "synthetic_2025.csv"))
    assert _sums(old) == [5, 4808 + 3180 + 110 + 7433 + 34, 10 + 8 + 27 + 14 + 12]
    assert old.manifest.window_start_us == 1_700_158_623_979_960
    assert (_sums(new), new.manifest.window_start) == ([2, 1800, 60], "2025-03-03T00:00:01.123456Z")
