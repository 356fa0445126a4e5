"""The queries on DuckDB, in every test run, against the engine that reads files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic.ingest import Order, ingest
from planner.traffic.readers.columns import Stamps
from planner.traffic.rules import Adjustment, Rule
from planner.traffic.warehouse.ingest import ingest_table
from planner.traffic.warehouse.order import TableOrder

from .dirty import ALIASES, MAPPING, SCHEMA, START_US, rows, saved
from .same import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")  # Ibis 12 on DuckDB 1.5
ASKED = {"mapping": MAPPING, "aliases": ALIASES}


def both(path: Path, **asked):
    return ingest_table(TableOrder("duckdb", str(path), **asked)), ingest(Order((path,), **asked))


@pytest.fixture(scope="module")
def dirty(tmp_path_factory) -> Path:
    return saved(rows(30_000, seed=1), tmp_path_factory.mktemp("rows") / "rows.parquet")


def test_a_dirty_table_gives_what_the_file_gives(dirty):
    found, expected = both(dirty, **ASKED)
    assert_same(found, expected)


def test_the_dirty_table_meets_every_rule_that_a_table_can_meet(dirty):
    counts = ingest_table(TableOrder("duckdb", str(dirty), **ASKED)).manifest.counts
    unmet = {rule.value for rule in Rule} - set(counts.dropped_by_reason)
    assert unmet == {
        Rule.OTHER_MODEL.value,
        Rule.OUTSIDE_WINDOW.value,
        Rule.NOT_A_GENERATION.value,
        Rule.NO_LENGTH_LAW.value,
    }
    assert set(counts.adjusted_by_reason) == {
        Adjustment.ABORTED.value,
        Adjustment.CACHED_CAPPED.value,
        Adjustment.ALIASED.value,
        Adjustment.SEVERAL_CHOICES.value,
        Adjustment.RETRY.value,
    }


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "code"},
        {"since_us": START_US + 3_600_000_000, "until_us": START_US + 50_000_000_000},
        {"model": "chat", "since_us": START_US + 90_000_000_000},
        {"sampling_fraction": 0.1},
    ],
    ids="+".join,
)
def test_filters(dirty, asked):
    assert_same(*both(dirty, **ASKED, **asked))


def test_counts_beside_others_and_completion(tmp_path):
    table = rows(3_000, seed=2).append_column("secs", pa.array([i % 40 - 2.0 for i in range(3_000)]))
    table = table.append_column("reasoned", pa.array([None if i % 5 else i % 300 for i in range(3_000)], pa.int32()))
    path = saved(table, tmp_path / "rows.parquet")
    mapping = {role: column for role, column in MAPPING.items() if role != "cached"}
    mapping |= {"cached_beside": "cached", "reasoning_beside": "reasoned", "duration": "secs"}
    assert_same(*both(path, mapping=mapping, stamps=Stamps.COMPLETION))


@pytest.mark.parametrize(
    ("kind", "per_second"), [("epoch_s", 1), ("epoch_ms", 1_000), ("epoch_us", 1_000_000), ("relative_s", 1)]
)
def test_times_in_numbers(tmp_path, kind, per_second):
    table = rows(2_000, seed=3)
    since = START_US if kind == "relative_s" else 0
    stamps = [
        None if us is None else (us - since) / 1e6 * per_second for us in table["ts"].cast(pa.int64()).to_pylist()
    ]
    path = saved(table.set_column(0, "ts", pa.array(stamps, pa.float64())), tmp_path / "rows.parquet")
    mapping = {role: MAPPING[role] for role in ("timestamp", "prompt", "output", "cached")}
    assert_same(*both(path, mapping=mapping, options={"time": kind}))


def test_columns_called_by_their_roles_need_no_mapping(tmp_path):
    table = rows(500, seed=4).select(["ts", "p", "o", "m"]).rename_columns(["timestamp", "prompt", "output", "model"])
    assert_same(*both(saved(table, tmp_path / "rows.parquet")))


def test_spend_logs_of_litellm_where_the_proxy_keeps_them(tmp_path):
    n = 4_000
    table = rows(n, seed=6)
    names = {
        "ts": "startTime",
        "p": "prompt_tokens",
        "o": "completion_tokens",
        "m": "model_group",
        "st": "status",
        "cached": "cached_tokens",
    }
    table = table.select(list(names)).rename_columns(list(names.values()))
    table = table.set_column(0, "startTime", table["startTime"].cast(pa.timestamp("us")))
    further = {
        "request_id": [f"r{i}" + ("_cache_hit123" if i % 50 == 0 else "") for i in range(n)],
        "cache_hit": ["True" if i % 70 == 0 else None if i % 3 else "False" for i in range(n)],
        "call_type": [("acompletion", "aembedding", "aresponses", None, "")[min(i % 90, 4)] for i in range(n)],
        "litellm_call_id": [f"c{i - i % 2}" + ("-attempt-1" if i % 2 else "") for i in range(n)],
        "error_code": [("429", "499", "500", "x", None)[i % 5] for i in range(n)],
        "user": ["never read"] * n,
    }
    for name, values in further.items():
        table = table.append_column(name, pa.array(values, pa.string()))
    found, expected = both(saved(table, tmp_path / "logs.parquet"), log_format="litellm")
    assert_same(found, expected)
    assert {Rule.NOT_A_GENERATION.value, Rule.CACHE_HIT.value, Rule.REJECTED_RETRIED.value} <= set(
        found.manifest.counts.dropped_by_reason
    )


def test_the_order_of_rows_is_no_input(dirty, tmp_path):
    table = rows(30_000, seed=1)
    turned = saved(table.take(list(range(len(table) - 1, -1, -1))), tmp_path / "turned.parquet")
    once, again = (ingest_table(TableOrder("duckdb", str(path), **ASKED)) for path in (dirty, turned))
    assert_same(again, once)
    assert once.manifest.files_sha256 == again.manifest.files_sha256


STAMPS = st.integers(0, 400_000) | st.sampled_from([None, -START_US // 1000, 3 * 10**12])
LENGTHS = st.integers(0, 200) | st.sampled_from(
    [None, -1.0, 0.5, float("nan"), float("inf"), 10_000_000.0, 10_000_001.0]
)
ROW = st.fixed_dictionaries(
    {
        "ts": STAMPS.map(lambda ms: None if ms is None else START_US + 1000 * ms),
        "p": LENGTHS,
        "o": st.integers(-1, 50) | st.sampled_from([None, 10_000_001]),
        "m": st.sampled_from(["chat", "chat-old", "", None, "b"]),
        "st": st.sampled_from(["success", "429", "failure", "499", "", None, "2xx", "299"]),
        "cached": st.integers(-2, 100) | st.none(),
        "hit": st.sampled_from([False, False, False, True, None]),
        "rid": st.sampled_from(["1", "2", "3", " 3 ", "", None]),
        "ver": st.integers(-3, 3) | st.none(),
        "call": st.sampled_from(["x", "y", "", None]),
        "tier": st.sampled_from(["", None, "batch", "0", "Somebody", "no\nword"]),
        "err": st.sampled_from(["", None, "-", "Too many requests", "x"]),
        "n": st.integers(0, 3) | st.none(),
        "messages": st.just("never read"),
    }
)


@given(found=st.lists(ROW, min_size=1, max_size=25))
@settings(
    max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_small_table(tmp_path, found):
    columns = {f.name: pa.array([r[f.name] for r in found], pa.int64() if f.name == "ts" else f.type) for f in SCHEMA}
    path = saved(pa.table({f.name: columns[f.name].cast(f.type) for f in SCHEMA}), tmp_path / "rows.parquet")
    try:
        expected = ingest(Order((path,), **ASKED))
    except InputError:
        with pytest.raises(InputError, match="no row remains"):
            ingest_table(TableOrder("duckdb", str(path), **ASKED))
        return
    assert_same(ingest_table(TableOrder("duckdb", str(path), **ASKED)), expected)


def test_a_model_that_is_text_is_refused(tmp_path):
    table = rows(50, seed=5)
    path = saved(
        table.set_column(3, "m", pa.array(["write to me at someone@example.com"] * 50)), tmp_path / "rows.parquet"
    )
    with pytest.raises(InputError, match="look like text"):
        ingest_table(TableOrder("duckdb", str(path), mapping=MAPPING))


def test_the_manifest_says_what_it_rests_on(dirty):
    order = TableOrder("duckdb", str(dirty), mapping=MAPPING)
    manifest = ingest_table(order).manifest
    assert manifest.source == "duckdb"
    assert manifest.columns_read == sorted(MAPPING.values())
    assert any("answers of the queries" in remark for remark in manifest.remarks)
    assert manifest.files_sha256 != ingest_table(replace(order, model="code")).manifest.files_sha256
