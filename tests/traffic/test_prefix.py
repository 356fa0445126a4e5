from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.traffic import prefix
from planner.traffic.canonical import read, write
from planner.traffic.ingest import Order, ingest
from planner.traffic.prefix import CachedTokens, described, measure_reuse
from planner.traffic.readers import find_reader
from planner.traffic.readers.columns import Wanted
from planner.traffic.readers.head import read_head
from planner.traffic.tables.rates import counted
from planner.traffic.tables.rows import Names, Rows

DATA = Path(__file__).parents[1] / "data" / "traffic"


def _us(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def test_cached_tokens_by_model_and_hour() -> None:
    names = Names()
    chat, batch, code = names.code("m", "default"), names.code("m", "batch"), names.code("a", "default")
    tally = CachedTokens()
    noon, later = _us("2026-11-30 12:30:00"), _us("2026-12-08 00:00:00")
    tally.add(*counted(_rows([(chat, noon, 100, 60), (batch, noon, 10, 0)])))
    tally.add(*counted(_rows([])))
    tally.add(*counted(_rows([(code, later, 7, 7), (chat, noon, 1_000_000, 999_999), (chat, later, 3, 0)])))
    found = [
        tuple(row[k] for k in ("model", "hour_of_week", "n", "sum_prompt", "sum_cached")) for row in _list(tally, names)
    ]
    assert found == [("a", 24, 1, 7, 7), ("m", 12, 3, 1_000_110, 1_000_059), ("m", 24, 1, 3, 0)]
    assert {(row["kind"], row["cache_tokens"]) for row in _list(tally, names)} == {("cached", None)}


def test_a_batch_of_many_years_is_counted_as_well() -> None:
    names = Names()
    code = names.code("m", "default")
    tally = CachedTokens()
    moments = [_us("2016-01-04 05:00:00"), _us("2026-11-30 05:59:59"), _us("2099-01-05 06:00:00")]  # Mondays
    tally.add(*counted(_rows([(code, moment, 10, 1) for moment in moments])))
    assert [(row["hour_of_week"], row["n"]) for row in _list(tally, names)] == [(5, 2), (6, 1)]


def _list(tally: CachedTokens, names: Names) -> list[dict[str, object]]:
    return tally.table(names).to_pylist()  # type: ignore[no-any-return]


def _rows(rows: list[tuple[int, int, int, int]]) -> Rows:
    pair, ts_us, prompt, cached = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Rows(pair, ts_us, prompt.astype(np.int32), prompt.astype(np.int32), cached.astype(np.int32))


def _measured(*paths: Path, **wanted: object) -> list[dict[str, int]]:
    heads = tuple(read_head(path) for path in paths)
    order = Wanted(**wanted)  # type: ignore[arg-type]
    opened = find_reader("auto", heads, mapped=False).open(None, heads, order)  # type: ignore[arg-type]
    assert opened.blocks is not None
    table = measure_reuse(opened, order).table
    return [] if table is None else table.to_pylist()


def test_reuse_of_an_endless_cache_equals_a_plain_count(examples: Path) -> None:
    path = examples / "mooncake_conversation_head2500.jsonl"
    seen: set[int] = set()
    again = total = 0
    for row in sorted(map(json.loads, path.read_text().splitlines()), key=lambda r: r["timestamp"]):
        total += row["input_length"]
        for place, name in enumerate(row["hash_ids"]):
            if name in seen:
                again += min(512, row["input_length"] - 512 * place)
        seen.update(row["hash_ids"])
    found = _measured(path)
    assert {(row["kind"], row["n"], row["sum_prompt"]) for row in found} == {("reuse", 2500, total)}
    assert found[-1]["sum_cached"] == again
    assert [row["cache_tokens"] for row in found] == [512 << k for k in range(17)]


def test_only_kept_requests_touch_the_cache_in_order_of_time(tmp_path: Path) -> None:
    late, early = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    late.write_text(_line(9000, 20, [1, 2, 3], 512) + _line(10_000, -5, [7]) + _line(11_000, 700, [7, 8]) + "no json\n")
    early.write_text(_line(5, 1024, [1, 2]) + '{"timestamp": 6, "input_length": 9, "output_length": 1}\n')
    # The first prompt is in the later file; the second one has 20 tokens; one has no count, one no hashes.
    assert [(r["cache_tokens"], r["n"], r["sum_prompt"], r["sum_cached"]) for r in _measured(late, early)] == [
        (512, 3, 1744, 20),
        (1024, 3, 1744, 20),
        (2048, 3, 1744, 20),
        (4096, 3, 1744, 20),
    ]
    assert _measured(late, early, options={"block_tokens": "10"})[0]["cache_tokens"] == 10


def test_hashes_may_be_any_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = '{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": ["0xff", 99999999999999999999]}\n'
    path.write_text(line * 2)
    assert [row["sum_cached"] for row in _measured(path)] == [512, 600]


def test_a_trace_in_parquet_is_measured_too(examples: Path, tmp_path: Path) -> None:
    path = examples / "mooncake_conversation_head2500.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "trace.parquet")
    assert _measured(tmp_path / "trace.parquet") == _measured(path)


def test_a_log_without_any_readable_hash_has_no_curve(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": null}\n')
    assert _measured(path) == []


def _line(time_ms: int, prompt: int, hashes: list[int], output: int = 1) -> str:
    row = {"timestamp": time_ms, "input_length": prompt, "output_length": output, "hash_ids": hashes}
    return json.dumps(row) + "\n"


def test_a_log_that_tells_cached_tokens_gets_them_by_hour(tmp_path: Path) -> None:
    """Duplicates, failures and embeddings have no part in it."""
    found = ingest(Order((DATA / "bedrock" / "s3.jsonl",)))
    assert found.prefix is not None
    thursday_14 = 3 * 24 + 14
    assert [tuple(row.values()) for row in found.prefix.to_pylist()] == [
        ("us.anthropic.claude-x-v1:0", "cached", thursday_14, None, 2, 27_874, 1_000)
    ]
    write(found, tmp_path / "out")
    assert read(tmp_path / "out").prefix == found.prefix


def test_a_log_with_hashes_gets_its_reuse_and_the_hashes_stay_in_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(_line(0, 1024, [12_345_678_901, 2]) + _line(1000, 1024, [12_345_678_901, 3]))
    found = ingest(Order((path,)))
    assert found.prefix is not None
    assert [(row["cache_tokens"], row["sum_cached"]) for row in found.prefix.to_pylist()] == [
        (512, 512),
        (1024, 512),
        (2048, 512),
    ]
    assert "hash_ids" in found.manifest.columns_read
    assert "12345678901" not in found.manifest.model_dump_json() + str(found.tables())
    assert described(found.prefix, "default") == [
        "an endless prefix cache would answer 25.0 % of the prompt tokens, an LRU cache of 512 tokens 25.0 %"
    ]


def test_a_log_that_tells_nothing_has_no_prefix_table(examples: Path) -> None:
    assert ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",))).prefix is None


def test_too_many_hashes_are_not_measured_and_that_is_said(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix, "MOST_BLOCKS", 60_000)
    found = ingest(Order((examples / "mooncake_conversation_head2500.jsonl",)))
    assert found.prefix is None
    assert any("more than 60,000 block hashes" in remark for remark in found.manifest.remarks)


def test_cached_tokens_in_words() -> None:
    table = ingest(Order((DATA / "otel" / "spans.jsonl",))).prefix
    assert described(table, "llama-70b") == [
        "25.5 % of the prompt tokens were answered from a prefix cache, says the log"
    ]
    assert described(table, "another") == described(None, "llama-70b") == []
