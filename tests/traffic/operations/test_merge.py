"""Merging: exact where it says so, whatever the order, and honest where it is not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic import law
from planner.traffic.burstiness import idc_at
from planner.traffic.canonical import Canonical, read, write
from planner.traffic.ingest import Order, ingest
from planner.traffic.operations.merge import complete_from, merge
from planner.traffic.schema import PREFIX, Kind
from planner.traffic.source import to_traffic
from tests.traffic.handmade import MINUTE_US, START_US, Request, canonical_of, window_row

requests = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 59), st.integers(1, 40_000), st.integers(0, 3000)),
    min_size=1, max_size=30,
)  # fmt: skip
TABLES = ("lengths", "tail", "rates")


def same(left: Canonical, right: Canonical) -> bool:
    return all(left.tables()[name].equals(right.tables()[name]) for name in TABLES)


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(requests, min_size=1, max_size=3), size=st.sampled_from([2, 1000]))
def test_merged_tables_are_those_of_all_requests(parts: list[list[Request]], size: int) -> None:
    merged = merge([canonical_of(part, tail_size=size) for part in parts])
    whole = canonical_of([request for part in parts for request in part], tail_size=size)
    assert merged.lengths.equals(whole.lengths)
    assert merged.rates.equals(whole.rates)
    assert merged.manifest.models == whole.manifest.models
    if size == 1000:
        assert merged.tail.equals(whole.tail)


@settings(max_examples=40, deadline=None)
@given(first=requests, second=requests, third=requests)
def test_neither_order_nor_grouping_shows(first: list[Request], second: list[Request], third: list[Request]) -> None:
    a, b, c = (
        canonical_of(part, files=[name], files_sha256=name * 64)
        for part, name in zip((first, second, third), "abc", strict=True)
    )
    merged = merge([a, b, c])
    for order in itertools.permutations((a, b, c)):
        again = merge(order)
        assert same(again, merged)
        assert again.burst.equals(merged.burst)
        assert again.manifest == merged.manifest
    assert same(merge([merge([a, b]), c]), merged)
    assert same(merge([a, merge([c, b])]), merged)


def test_one_distribution_merged_is_itself() -> None:
    burst = [window_row("a", 1.0, 3600, 0.1, 2.5, 7), window_row("a", 60.0, 60, 6.0, 3.5, 11)]
    alone = canonical_of([("a", 0, 5, 6), ("a", 3, 70, 8)], burst=burst)
    merged = merge([alone])
    assert same(merged, alone)
    assert merged.burst.equals(alone.burst)


def test_tail_starts_where_every_part_is_complete() -> None:
    short = canonical_of([("a", 0, 100, 0), ("a", 0, 90, 0), ("a", 0, 10, 0)], tail_size=2)
    long = canonical_of([("a", 0, 95, 0), ("a", 0, 50, 0)])
    assert (complete_from(short, "a"), complete_from(long, "a")) == (90, 0)
    merged = merge([short, long])
    assert merged.tail["prompt"].to_pylist() == [100, 95, 90]  # the 50 of the second may not be the fourth largest


def test_azure_code_and_conv_merge_to_what_both_files_give(examples: Path) -> None:
    files = [examples / f"AzureLLMInferenceTrace_{name}.csv" for name in ("code", "conv")]
    code, conv = (ingest(Order((path,), model=path.stem[-4:])) for path in files)
    both = ingest(Order(tuple(files), model="one"))
    merged = merge([conv, code], {"code": "one", "conv": "one"})
    whole = pc.equal(both.lengths["period"], "all")
    assert merged.lengths.filter(pc.equal(merged.lengths["period"], "all")).equals(both.lengths.filter(whole))
    assert merged.tail.equals(both.tail)
    assert merged.rates.equals(both.rates)
    assert merged.manifest.models == both.manifest.models
    assert merged.manifest.window_start_us == both.manifest.window_start_us
    assert merged.manifest.window_end_us == both.manifest.window_end_us
    measured, truth = (to_traffic(c, model="one", name="one", where=examples, sha256="") for c in (merged, both))
    for scale in (1, 5, 15, 60, 300):  # below a minute independence is assumed; above, the minutes start elsewhere
        assert idc_at(measured.burst, scale) == pytest.approx(idc_at(truth.burst, scale), rel=0.13)
    for limit in (2000, 5000, 7000, 7500):
        assert law.refused_shares(measured, limit) == law.refused_shares(truth, limit)
        assert law.truncate(measured, limit).requests == law.truncate(truth, limit).requests
    assert any("taken as independent" in remark for remark in merged.manifest.remarks)


def test_bursts_of_the_same_hour_are_those_of_the_sum() -> None:
    counts = {"x": [0, 4, 0, 4] * 15, "y": [4, 0, 4, 0] * 15}  # each moves; their sum never does
    parts = [
        canonical_of(
            [("a", minute, 10, 1) for minute, n in enumerate(counts[name]) for _ in range(n)],
            source=name, burst=[window_row("a", 1.0, 3600, 120 / 3600, 2.0, 3), window_row("a", 60.0, 60, 2.0, 2.0, 4)],
        )
        for name in ("x", "y")
    ]  # fmt: skip
    rows = {row["scale_s"]: row for row in merge(parts).burst.to_pylist()}
    assert (rows[60.0]["windows"], rows[60.0]["mean_n"], rows[60.0]["var_n"], rows[60.0]["max_n"]) == (60, 4.0, 0.0, 4)
    fine = rows[1.0]
    assert fine["windows"] == 3600
    assert fine["mean_n"] == pytest.approx(240 / 3600)
    assert fine["var_n"] == pytest.approx(2 * 2.0 * 120 / 3600)  # the variance of a sum of independent counts
    assert fine["idc"] == pytest.approx(2.0)
    assert fine["max_n"] == 6


def test_bursts_of_hours_in_a_row_are_pooled() -> None:
    rng = np.random.default_rng(3)
    parts = []
    for hour in range(2):
        requests = [("a", m, 10, 1) for m, n in enumerate(rng.poisson(3, 60)) for _ in range(n)]
        mean = len(requests) / 3600
        burst = [window_row("a", 1.0, 3600, mean, 1.0 + hour, 4 + hour), window_row("a", 60.0, 60, 60 * mean, 9.9, 9)]
        parts.append(canonical_of(requests, start_us=START_US + hour * 60 * MINUTE_US, burst=burst))
    merged = merge(parts)
    rows = {row["scale_s"]: row for row in merged.burst.to_pylist()}
    n = [part.manifest.models["a"] for part in parts]
    assert rows[1.0]["windows"] == 7200
    assert rows[1.0]["var_n"] == pytest.approx((n[0] / 3600 * 1.0 + n[1] / 3600 * 2.0) / 2)
    assert rows[1.0]["max_n"] == 5
    counts = [part.rates["n"].to_numpy() for part in parts]
    dense = [np.pad(c, (0, 60 - c.size)) for c in counts]  # zeros may stand anywhere: a variance does not see it
    pooled = sum(float(((d - d.mean()) ** 2).sum()) for d in dense) / (2 * 59)
    assert rows[60.0]["var_n"] == pytest.approx(pooled)
    assert not any("independent" in remark for remark in merged.manifest.remarks)


def test_batches_are_added() -> None:
    batch = {"model": "a", "kind": "batch", "scale_s": 0.001, "windows": 5, "max_n": 2}
    parts = [
        canonical_of([("a", 0, 5, 5)], burst=[batch]),
        canonical_of([("a", 1, 5, 5)], burst=[batch, batch | {"max_n": 3}]),
    ]
    rows = [(r["max_n"], r["windows"]) for r in merge(parts).burst.to_pylist() if r["kind"] == "batch"]
    assert rows == [(2, 10), (3, 5)]


def test_cached_tokens_are_added_and_reuse_only_where_both_measured() -> None:
    def told(*rows: tuple[str, int | None, int | None, int]) -> Canonical:
        table = pa.Table.from_pylist(
            [
                {
                    "model": "a", "kind": kind, "hour_of_week": hour, "cache_tokens": cache, "n": 1,
                    "sum_prompt": 100, "sum_cached": cached,
                }
                for kind, hour, cache, cached in rows
            ],
            schema=PREFIX,
        )  # fmt: skip
        return replace(canonical_of([("a", 0, 100, 5)]), prefix=table)

    first = told(("cached", 3, None, 40), ("cached", 9, None, 10), ("reuse", None, 512, 20), ("reuse", None, 1024, 30))
    second = told(("cached", 3, None, 2), ("reuse", None, 512, 7))
    merged = merge([first, second, canonical_of([("a", 0, 1, 5)], source="silent")])
    assert merged.prefix is not None
    wanted = ("kind", "hour_of_week", "cache_tokens", "n", "sum_cached")
    keys = [tuple(row[name] for name in wanted) for row in merged.prefix.to_pylist()]
    assert keys == [("cached", 3, None, 2, 42), ("cached", 9, None, 1, 10), ("reuse", None, 512, 2, 27)]
    assert any("prefix table" in remark for remark in merged.manifest.remarks)
    assert merge([canonical_of([("a", 0, 1, 5)])]).prefix is None


def test_overlapping_windows_of_one_source_are_named() -> None:
    a, b = (canonical_of([("a", 0, 5, 5)], source="proxy", files=[name]) for name in ("x", "y"))
    assert any("count twice" in remark for remark in merge([a, b]).manifest.remarks)
    other = canonical_of([("a", 0, 5, 5)], source="another proxy")
    assert not any("count twice" in remark for remark in merge([a, other]).manifest.remarks)
    later = canonical_of([("a", 0, 5, 5)], source="proxy", start_us=START_US + 60 * MINUTE_US)
    assert not any("count twice" in remark for remark in merge([a, later]).manifest.remarks)


def test_a_gap_and_a_part_of_the_window_are_named() -> None:
    early = canonical_of([("a", 0, 5, 5)])
    late = canonical_of([("a", 0, 5, 5)], start_us=START_US + 600 * MINUTE_US)
    assert any(
        "no log covers 2026-01-05T01:00:00Z to 2026-01-05T10:00:00Z" in r for r in merge([early, late]).manifest.remarks
    )
    long = canonical_of([("a", 0, 5, 5)], minutes=600, source="other")
    remarks = merge([early, long]).manifest.remarks
    assert any("test was logged from" in remark and "lack its arrivals" in remark for remark in remarks)


def test_caps_of_the_highest_limit_stay_and_lower_ones_are_named() -> None:
    def capped(tokens: int, n: int) -> Canonical:
        return canonical_of(
            [("a", 0, tokens, 5)] * 10, caps={"a": {"prompt": {"tokens": tokens, "n": n, "share": n / 10}}}
        )

    merged = merge([capped(4000, 6), capped(8000, 7), capped(8000, 5)])
    assert merged.manifest.caps == {"a": {"prompt": {"tokens": 8000, "n": 12, "share": 0.4}}}
    assert any("6 prompt lengths sit at a lower cap of 4,000" in remark for remark in merged.manifest.remarks)


def test_counts_and_history_are_added() -> None:
    first = canonical_of([("a", 0, 5, 5)], history=["scale a: rate x 2"], smallest_cell=5)
    second = canonical_of([("b", 0, 5, 5)], source="other", remarks=["as it is"])
    manifest = merge([first, second], {"b": "c"}).manifest
    assert (manifest.counts.rows_read, manifest.counts.kept, manifest.models) == (2, 2, {"a": 1, "c": 1})
    assert (manifest.source, manifest.files, manifest.smallest_cell) == ("other + test", ["a.csv", "a.csv"], 1)
    assert manifest.history[0] == "scale a: rate x 2"
    assert manifest.history[-1].endswith("b as c")
    assert "as it is" in manifest.remarks


def test_what_cannot_be_added_is_all_named() -> None:
    first = canonical_of([("a", 0, 5, 5)], sampling_fraction=0.5)
    second = canonical_of([("a", 0, 5, 5)], kind=Kind.MARGINALS, time_base="start of the log")
    with pytest.raises(InputError) as caught:
        merge([first, second], {"z": "a"})
    text = str(caught.value)
    for words in (
        "kinds: marginals, requests",
        "time bases",
        "sampling fractions: 0.5, 1.0",
        "no distribution holds a model 'z'",
    ):
        assert words in text
    with pytest.raises(InputError, match="no distribution"):
        merge([])


def test_a_merged_distribution_is_read_back(tmp_path: Path) -> None:
    merged = merge([canonical_of([("a", 0, 5, 5)]), canonical_of([("a", 1, 500, 5)], source="other")])
    write(merged, tmp_path / "merged")
    found = read(tmp_path / "merged")
    assert found.manifest == merged.manifest
    assert same(found, merged)
