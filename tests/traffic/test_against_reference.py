"""The canonical tables against `tests.traffic.reference`, which computes them from their definitions, row by row."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import InputError
from planner.traffic import scan
from planner.traffic.buckets import EDGES
from planner.traffic.canonical import write
from planner.traffic.engine import connect
from planner.traffic.ingest import Order, ingest
from planner.traffic.operations.scale import Factors, scale
from planner.traffic.readers import find_reader
from planner.traffic.readers.head import read_head
from planner.traffic.rules import BITS, CODES, Rule
from planner.traffic.tables import duplicates, hours, tail
from tests.traffic.dirty_logs import Log, dirty_log, write_log
from tests.traffic.reference import DAY, HOUR, MINUTE, Row, differences, reference, reuse, settle

DATA = Path(__file__).parents[1] / "data" / "traffic"
EXAMPLES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
ENDINGS = (".csv", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz")
START = 1_750_000_000_000_000
FULL_HOUR = START // HOUR * HOUR
MOST = 10_000_000


def _parts(log: Log, seed: int, folder: Path) -> list[Path]:
    """The rows shuffled over up to three files."""
    dice = random.Random(seed)
    rows = list(log.rows)
    dice.shuffle(rows)
    ending, files = dice.choice(ENDINGS), dice.randint(1, 3)
    shares = [rows[place::files] for place in range(files)]
    return [write_log(log, share, folder / f"{place}{ending}") for place, share in enumerate(shares) if share]


@pytest.mark.parametrize("seed", range(4, 20))
def test_dirty_logs(seed: int, tmp_path: Path) -> None:
    log = dirty_log(seed)
    judged = log.judged()
    order = log.order(*_parts(log, seed, tmp_path))
    if any(row.rule is None for row in settle(judged)):
        assert differences(ingest(order), reference(judged, log.asked)) == []
    else:
        with pytest.raises(InputError, match="no row remains"):
            ingest(order)


@pytest.mark.parametrize("seed", [6, 10, 19])
def test_the_bytes_do_not_show_the_order_of_rows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = dirty_log(seed)

    def written(name: str, rows: list[dict[str, str]]) -> dict[str, bytes]:
        (tmp_path / name).mkdir()
        write(ingest(log.order(write_log(log, rows, tmp_path / name / "log.csv"))), tmp_path / name / "out")
        return {file.name: file.read_bytes() for file in (tmp_path / name / "out").glob("*.parquet")}

    rows = list(log.rows)
    first = written("first", rows)
    random.Random(seed).shuffle(rows)
    for module, name in ((scan, "BATCH_ROWS"), (hours, "PART_ROWS"), (duplicates, "PART_ROWS"), (tail, "_PRUNE_ROWS")):
        monkeypatch.setattr(module, name, 3)
    assert written("second", rows) == first


def test_duplicates_that_differ_in_the_logical_request_alone(tmp_path: Path) -> None:
    """Whichever counts decides over another refused row, so it must not be the first of the file."""
    rows = ["2026-01-05 00:00:00,1,1,200,x,K", "2026-01-05 00:00:01,1,1,429,r,L", "2026-01-05 00:00:01,1,1,429,r,K"]
    found = []
    for name, lines in (("a", rows), ("b", rows[::-1])):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["timestamp,prompt,output,status,request_id,logical_id", *lines]) + "\n")
        found.append(ingest(Order((path,))).manifest.counts.dropped_by_reason)
    assert found[0] == found[1]


Columns = dict[str, object]


def _case(models: object, ts: object, prompt: object, output: object, **more: object) -> Columns:
    return {"model": models, "timestamp": ts, "prompt": prompt, "output": output, **more}


def _dice(n: int) -> tuple[np.random.Generator, list[str]]:
    rng = np.random.default_rng(n)
    return rng, [f"m{place}" for place in rng.integers(0, 3, n)]


def _heavy() -> Columns:
    rng, _ = _dice(3000)
    lengths = MOST - 1 - 2 * rng.integers(0, 300_000, (2, 3000))
    return _case(["m"] * 3000, START + rng.integers(0, 3 * HOUR, 3000), *lengths)


def _tied() -> Columns:
    rng, models = _dice(5000)
    return _case(models, START + rng.integers(0, HOUR, 5000), *rng.integers(1, 40, (2, 5000)))


def _on_edges() -> Columns:
    rng, models = _dice(3000)
    ts = (
        FULL_HOUR
        + rng.integers(0, 20, 3000) * HOUR
        + rng.choice([0, MINUTE, 5 * MINUTE], 3000)
        + rng.integers(-1, 2, 3000)
    )
    return _case(models, ts, *rng.integers(1, 900, (2, 3000)), status=rng.choice([200, 200, 429, 500], 3000))


def _many_models() -> Columns:
    rng, _ = _dice(2000)
    models = [f"m{place}" for place in rng.integers(0, 200, 2000)]
    return _case(["rare"] * 3 + models[3:], START + rng.integers(0, HOUR, 2000), *rng.integers(1, 900, (2, 2000)))


CASES = {
    "sums far above 2^53": _heavy(),
    "ties at the cut of the tail": _tied(),
    "exactly a thousand": _case(["m"] * 1001, START + np.arange(1001), [5] * 1001, [0] * 1001),
    "one row": _case(["m"], [FULL_HOUR], [MOST], [MOST]),
    "two rows in one microsecond": _case(["m", "k"], [START, START], [1, 2], [0, 3]),
    "three of two hundred models": _many_models(),
    "on the edges of hours and minutes": _on_edges(),
    "three years": _case(["a"] * 3, [START - 1095 * DAY, START - 7 * DAY, START], [1, 2, 3], [1, 2, 3]),
    "offered before the first kept row": _case(
        ["a"] * 300, [FULL_HOUR, *(FULL_HOUR + 5 * HOUR + np.arange(299))], [1] * 300, [1] * 300,
        status=[429, *[200] * 298, 500],
    ),
    "edges of buckets": _case(
        ["a"] * 3 * len(EDGES[1:-1]), START + np.arange(3 * len(EDGES[1:-1])),
        [min(max(1, edge + k), MOST) for edge in EDGES[1:-1] for k in (-1, 0, 1)],
        [min(edge + k, MOST) for edge in EDGES[1:-1] for k in (1, 0, -1)],
    ),
    "a clock of three seconds that jitters": _case(
        ["a"] * 900, START + np.repeat(np.arange(300), 3) * 3_000_000 + np.tile([0, 0, 1000], 300), [1] * 900, [1] * 900
    ),
    "a pile at the cap, by one token": _case(
        ["a"] * 40, START + np.arange(40), [100_000] * 5 + [99_900] * 10 + [99_899] * 5 + [98_999] * 20,
        [1000] * 3 + [999] * 3 + [998] + [990] + [989] * 32,
    ),
    "ties among busy minutes": _case(
        ["a"] * 400, FULL_HOUR + np.repeat(np.arange(40), 10) * MINUTE, [7] * 400, [3] * 400
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_hard_cases(name: str, tmp_path: Path) -> None:
    columns = CASES[name]
    pq.write_table(pa.table({role: pa.array(values) for role, values in columns.items()}), tmp_path / "log.parquet")
    found = ingest(Order((tmp_path / "log.parquet",), options={"time": "epoch_us"}))
    rules = {200: None, 429: Rule.REJECTED, 500: Rule.FAILED}
    status = columns.get("status", [200] * len(columns["model"]))  # type: ignore[arg-type,call-overload]
    every = zip(*(columns[role] for role in ("model", "timestamp", "prompt", "output")), status, strict=True)  # type: ignore[call-overload]
    rows = [Row(m, "default", int(ts), None, int(p), int(o)) if rules[int(s)] is None
            else Row(m, "default", int(ts), rules[int(s)]) for m, ts, p, o, s in every]  # fmt: skip
    assert differences(found, reference(rows)) == []


@pytest.mark.parametrize("row_group", [10, 100_000])
def test_nan_in_typed_columns_is_no_number(row_group: int, tmp_path: Path) -> None:
    """The statistics of a Parquet file leave NaN out: the engine may take a comparison for settled by them."""
    nan = float("nan")
    columns = {
        "timestamp": pa.array(np.arange(1000) + START, pa.timestamp("us", "UTC")),
        "prompt": pa.array([5.0, nan] * 500), "output": pa.array([5.0] * 1000),
        "cached": pa.array([3.0, 3.0, nan, nan] * 250),
        "duration": pa.array([1.0, 1.0, nan, nan] * 250), "choices": pa.array([2.0, 2.0, nan, nan] * 250),
        "status": pa.array([200.0, 200.0, nan, nan] * 250),
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=row_group)
    found = ingest(Order((tmp_path / "log.parquet",)))
    assert found.manifest.counts.dropped_by_reason == {"token count is not a whole number": 500}
    assert found.manifest.counts.adjusted_by_reason == {"several choices in one request": 250}
    assert found.lengths.to_pylist()[0]["sum_cached"] == 750


def _judged(path: Path) -> tuple[list[Row], tuple[int, int] | None]:
    """Rows as the reader judges them."""
    heads, order = (read_head(path),), Order((path,))
    rules, rows = {code: rule for rule, code in CODES.items()}, []
    with connect("UTC") as connection:
        opened = find_reader("auto", heads, mapped=False).open(connection, heads, order.wanted())
        for query in opened.selects:
            for m, c, ts, p, o, cached, key, rank, verdict, bits, logical in connection.execute(query).fetchall():
                adjusted = frozenset(name for name, bit in BITS.items() if bits & bit)
                row = Row(m, c, ts, None, p or 0, o or 0, cached, key, rank, logical, adjusted)
                rows.append(row if verdict is None else row.dropped(rules[verdict]))
    return rows, opened.window_us


FIXTURES = (
    "litellm/spend_logs.jsonl", "langfuse/observations.csv", "helicone/requests.jsonl", "portkey/logs.jsonl",
    "bedrock/s3.jsonl", "kong/file_log.jsonl", "cloudflare/logs.csv", "otel/spans.jsonl",
    "burstgpt/burstgpt_v2_rows.csv",
    "databricks/endpoint_usage.parquet", "aiperf/profile_export.jsonl", "vidur/synthetic.csv",
)  # fmt: skip


@pytest.mark.parametrize("path", [*(DATA / name for name in FIXTURES), EXAMPLES / "AzureLLMInferenceTrace_code.csv"])
def test_every_kind_of_log(path: Path) -> None:
    found = ingest(Order((path,)))
    rows, window = _judged(path)
    lost = found.manifest.counts.rows_read - len(rows)
    assert differences(found, reference(rows, malformed=lost, window=window)) == []


def test_reuse_is_that_of_a_cache() -> None:
    path = DATA / "mooncake" / "conversation_head40.jsonl"
    lines = sorted(map(json.loads, path.read_text().splitlines()), key=lambda line: line["timestamp"])
    prompts = [(line["input_length"], line["hash_ids"]) for line in lines]
    found = ingest(Order((path,))).prefix
    assert found is not None
    shown = {row["cache_tokens"]: row["sum_cached"] for row in found.to_pylist() if row["kind"] == "reuse"}
    assert shown == {tokens: reuse(prompts, 512, tokens // 512) for tokens in shown}
    blocks = Counter(name for _, hashes in prompts for name in hashes)
    assert max(shown) >= len(blocks) * 512
    assert max(shown.values()) > 0


def test_whole_factors_scale_the_sums_of_two_classes_exactly(tmp_path: Path) -> None:
    """The tail table knows no classes: what it holds must not be taken out of the wrong class's cell."""
    rng, _ = _dice(4000)
    lengths = rng.integers(1, 11, 4000), rng.integers(0, 900, 4000)
    columns = _case(["m"] * 4000, START + rng.integers(0, HOUR, 4000), *lengths)
    columns["traffic_class"] = [("default", "batch")[place] for place in rng.integers(0, 2, 4000)]
    pq.write_table(pa.table({role: pa.array(values) for role, values in columns.items()}), tmp_path / "log.parquet")
    found = ingest(Order((tmp_path / "log.parquet",), options={"time": "epoch_us"}))
    scaled = scale(found, {"m": Factors(prompt=3, output=2)})
    for name, factor in (("n", 1), ("sum_prompt", 3), ("sum_pp", 9), ("sum_output", 2), ("sum_oo", 4), ("sum_po", 6)):
        assert sum(scaled.lengths[name].to_pylist()) == factor * sum(found.lengths[name].to_pylist()), name
