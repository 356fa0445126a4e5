"""The canonical tables against the raw rows, by hand; and independence of every order, batch size and thread count."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.traffic import scan
from planner.traffic.buckets import EDGES, lower_edge
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import Order, ingest
from planner.traffic.tables import cells, duplicates, hours, rates, tail
from planner.traffic.tables.rows import Names, Rows

START_US = 1_750_000_000_000_000
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.one_of(st.integers(0, 40_000_000), st.integers(0, 20_000_000_000)),
        st.one_of(st.integers(1, 30), st.integers(1, 10_000_000)),
        st.one_of(st.integers(0, 30), st.integers(0, 10_000_000)),
        st.sampled_from([200, 200, 200, 500]),
        st.one_of(st.none(), st.integers(0, 12)),
    ),
    min_size=1,
    max_size=60,
).filter(lambda rows: any(row[4] == 200 for row in rows))


def _frame(rows: list[tuple[str, int, int, int, int, int | None]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["model", "ts", "prompt", "output", "status", "id"])
    frame["ts"] += START_US
    return frame


def _order(*files: Path, ids: bool = False, **more: object) -> Order:
    roles = ("prompt", "output", "model", "status", *(["request_id"] if ids else []))
    mapping = {"timestamp": "ts", **{role: "id" if role == "request_id" else role for role in roles}}
    return Order(files, mapping=mapping, options={"time": "epoch_us"}, **more)  # type: ignore[arg-type]


def _write(frame: pd.DataFrame, path: Path) -> Path:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.set_column(table.column_names.index("id"), "id", table["id"].cast(pa.int64()))
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        frame.assign(id=frame["id"].astype("Int64")).to_csv(path, index=False)
    return path


def _same(first: Canonical, second: Canonical) -> bool:
    return all(table.equals(second.tables()[name]) for name, table in first.tables().items()) and (
        first.manifest.counts.model_dump(exclude={"dropped_rows"})
        == second.manifest.counts.model_dump(exclude={"dropped_rows"})
    )


def _deduplicated(frame: pd.DataFrame) -> pd.DataFrame:
    """Kept before failed, then earliest, then by model and length."""
    failed = frame["status"] != 200
    ordered = frame.assign(failed=failed, p=-frame["prompt"].where(~failed, 0), o=-frame["output"].where(~failed, 0))
    ordered = ordered.sort_values(["failed", "ts", "model", "p", "o"])
    twice = ordered["id"].notna() & ordered.duplicated("id")
    return frame.loc[ordered.index[~twice]]


def _check(found: Canonical, frame: pd.DataFrame, first_us: int) -> None:
    """``first_us``: the log is observed from its first row on, whether or not that row counts."""
    kept = frame[frame["status"] == 200]
    _check_cells(found, kept)
    for model, rows in kept.groupby("model"):
        total = rows["prompt"] + rows["output"]
        least = total.nlargest(tail.TAIL_SIZE).min()
        expected = Counter(zip(rows["prompt"][total >= least], rows["output"][total >= least], strict=True))
        shown = [row for row in found.tail.to_pylist() if row["model"] == model]
        assert {(row["prompt"], row["output"]): row["n"] for row in shown} == expected
        assert found.manifest.models[model] == len(rows)
    expected_minutes: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for model, ts, prompt, output, status in frame[["model", "ts", "prompt", "output", "status"]].itertuples(
        index=False
    ):
        cell = expected_minutes[model, ts // 60_000_000]
        cell[0] += 1
        cell[1] += prompt if status == 200 else 0
        cell[2] += output if status == 200 else 0
    minutes = found.rates.set_column(1, "minute_utc", found.rates["minute_utc"].cast(pa.int64())).to_pylist()
    assert {
        (row["model"], row["minute_utc"] // 60_000_000): [row["n"], row["sum_prompt"], row["sum_output"]]
        for row in minutes
    } == expected_minutes
    _check_bursts(found, frame, first_us)


def _check_cells(found: Canonical, kept: pd.DataFrame) -> None:
    expected: dict[tuple[str, int, int], list[tuple[int, int]]] = defaultdict(list)
    lows = lower_edge(kept["prompt"].to_numpy()), lower_edge(kept["output"].to_numpy())
    for model, p_lo, o_lo, p, o in zip(kept["model"], *lows, kept["prompt"], kept["output"], strict=True):
        expected[model, int(p_lo), int(o_lo)].append((int(p), int(o)))
    shown = {
        (row["model"], row["prompt_lo"], row["output_lo"]): row
        for row in found.lengths.to_pylist()
        if row["period"] == "all"
    }
    assert shown.keys() == expected.keys()
    for key, pairs in expected.items():
        row = shown[key]
        assert (row["n"], row["sum_prompt"], row["sum_output"]) == (len(pairs), *map(sum, zip(*pairs, strict=True)))
        for name, exact in (
            ("sum_pp", sum(p * p for p, _ in pairs)),
            ("sum_po", sum(p * o for p, o in pairs)),
            ("sum_oo", sum(o * o for _, o in pairs)),
        ):
            assert row[name] == float(exact)
        maxima = (max(p for p, _ in pairs), max(o for _, o in pairs), max(p + o for p, o in pairs))
        assert (row["max_prompt"], row["max_output"], row["max_total"]) == maxima
        assert row["prompt_hi"] == EDGES[EDGES.index(row["prompt_lo"]) + 1]


def _check_bursts(found: Canonical, frame: pd.DataFrame, first_us: int) -> None:
    start, end = found.manifest.window_start_us, found.manifest.window_end_us
    assert start == first_us
    for row in found.burst.to_pylist():
        mine = frame["ts"][frame["model"] == row["model"]].to_numpy() - start
        if row["kind"] == "batch":
            sizes = Counter(Counter(mine.tolist()).values())
            assert row["windows"] == sizes[row["max_n"]]
            continue
        scale = int(row["scale_s"])
        blocks = []
        for block in range(max(1, -(-(end - start) // 3_600_000_000))):
            bins = int(min((end - start) / 1e6 - block * 3600, 3600) // scale)
            inside = mine[(mine >= block * 3_600_000_000) & (mine < (block * 3600 + bins * scale) * 1_000_000)]
            blocks.append(np.bincount((inside // 1_000_000 - block * 3600) // scale, minlength=bins))
        blocks = [block for block in blocks if len(block)]
        counts = np.concatenate([*blocks, np.empty(0, dtype=np.int64)])
        assert (row["windows"], row["max_n"]) == (len(counts), int(counts.max(initial=0)))
        assert row["mean_n"] == (counts.sum() / len(counts) if len(counts) else 0)
        if row["var_n"] is not None:
            if scale == 3600:
                pairs = list(itertools.pairwise(counts.tolist()))
                expected = sum((b - a) ** 2 for a, b in pairs) / 2 / len(pairs)
            else:
                spread = sum(float(((block - block.mean()) ** 2).sum()) for block in blocks)
                expected = spread / (len(counts) - len(blocks))
            assert row["var_n"] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, ending=st.sampled_from([".csv", ".parquet"]), ids=st.booleans())
def test_tables_are_those_of_the_raw_rows(rows: list[tuple], ending: str, ids: bool, tmp_path: Path) -> None:
    frame = _frame(rows)
    found = ingest(_order(_write(frame, tmp_path / f"log{ending}"), ids=ids))
    _check(found, _deduplicated(frame) if ids else frame, frame["ts"].min())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, seed=st.integers(0, 2**32 - 1), batch=st.sampled_from([1, 7, 1000]))
def test_no_order_and_no_size_shows(rows: list[tuple], seed: int, batch: int, tmp_path: Path) -> None:
    """Rows shuffled over two files in other batches, all bounds small: the same tables, to the last bit."""
    frame = _frame(rows)
    first = ingest(_order(_write(frame, tmp_path / "whole.parquet"), ids=True))
    shuffled = frame.sample(frac=1, random_state=seed)
    half = len(shuffled) // 2
    parts = [part for part in (shuffled[:half], shuffled[half:]) if len(part)]
    files = [_write(part, tmp_path / f"part{place}.parquet") for place, part in enumerate(parts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BATCH_ROWS", batch)
        patch.setattr(cells, "_MOST_LOOKUPS", 10)
        patch.setattr(cells, "_EXACT", 1e9)
        patch.setattr(tail, "_PRUNE_ROWS", 5)
        patch.setattr(tail, "_MANY_ROWS", 3)
        patch.setattr(rates, "_MERGE_ROWS", 5)
        patch.setattr(rates, "_MOST_CELLS", 4)
        patch.setattr(rates, "_MOST_LOOKUPS", 1)
        patch.setattr(hours, "PART_ROWS", 10)
        patch.setattr(duplicates, "PART_ROWS", 10)
        patch.setattr(duplicates, "SETTLE_ROWS", 5)
        second = ingest(_order(*reversed(files), ids=True))
    assert _same(first, second)


def _log(folder: Path, n: int = 200_000) -> Path:
    """Rows without order over three days, in several row groups."""
    path = folder / "log.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"""
            COPY (SELECT {START_US} + CAST(hash(i) % 259200000000 AS BIGINT) AS ts,
                         'm' || CAST(hash(i + 1) % 5 AS VARCHAR) AS model,
                         CAST(1 + hash(i + 2) % 5000 AS INTEGER) AS prompt,
                         CAST(hash(i + 3) % 900 AS INTEGER) AS output,
                         CASE WHEN hash(i + 4) % 50 = 0 THEN 500 ELSE 200 END AS status, CAST(NULL AS BIGINT) AS id
                  FROM range({n}) AS numbers(i)) TO '{path}' (FORMAT PARQUET, ROW_GROUP_SIZE 20000)
        """)
    return path


def test_a_large_log_agrees_with_sql(tmp_path: Path) -> None:
    path = _log(tmp_path)
    found = ingest(_order(path))
    with duckdb.connect() as connection:
        (sums,) = connection.execute(
            f"SELECT count(*), sum(prompt), sum(output), sum(prompt::HUGEINT * output) FROM '{path}' WHERE status = 200"
        ).fetchall()
        batches = connection.execute(
            "SELECT model, n, count(*) FROM (SELECT model, ts, count(*) AS n "
            f"FROM '{path}' GROUP BY ALL) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        seconds = connection.execute(
            f"SELECT model, max(n) FROM (SELECT model, (ts - {found.manifest.window_start_us}) // 1000000 AS s, "
            f"count(*) AS n FROM '{path}' GROUP BY ALL) GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    law = found.lengths.filter(pa.compute.equal(found.lengths["period"], "all"))
    names = ("n", "sum_prompt", "sum_output", "sum_po")
    assert tuple(pa.compute.sum(law[name]).as_py() for name in names) == sums
    shown = [row for row in found.burst.to_pylist() if row["kind"] == "batch"]
    assert [(row["model"], row["max_n"], row["windows"]) for row in shown] == batches
    fastest = [row for row in found.burst.to_pylist() if row["kind"] == "window" and row["scale_s"] == 1]
    assert [(row["model"], row["max_n"]) for row in fastest] == seconds


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_and_parts_do_not_show(threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _log(tmp_path)
    first = ingest(_order(path))
    monkeypatch.setattr("planner.traffic.engine.THREADS", threads)
    monkeypatch.setattr(hours, "PART_ROWS", 30_000)
    monkeypatch.setattr(scan, "BATCH_ROWS", 33_333)
    assert _same(first, ingest(_order(path)))


def test_cells_survive_the_change_to_searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with many pairs between two batches with few: each cell still has one place."""
    rows = [
        Rows(*(np.array([value], dtype=np.int32) for value in (pair, 0, 7, 3, 0))) for pair in (0, 5000, 1, 5000, 0, 1)
    ]
    monkeypatch.setattr(cells, "_MOST_LOOKUPS", 100_000)
    names = Names()
    for pair in range(5001):
        names.code(f"m{pair}", "default")
    sums = cells.CellSums()
    for batch in rows:
        sums.add(batch)
    assert sums.table(names, "all")["n"].to_pylist() == [2, 2, 2]


def test_cells_hold_sums_far_above_what_is_packed_at_a_time() -> None:
    """Sums of lengths share a number of 64 bits until half of it is full; here each batch fills it many times."""
    most = 9_999_999
    length = np.full(3000, most, dtype=np.int32)
    pair, ts_us = np.zeros(3000, dtype=np.int64), np.zeros(3000, dtype=np.int64)
    names = Names()
    names.code("m", "default")
    sums = cells.CellSums()
    for _ in range(40):
        sums.add(Rows(pair, ts_us, length, length, length))
    n, tokens, products = 120_000, 120_000 * most, float(120_000 * most * most)
    (row,) = sums.table(names, "all").to_pylist()
    assert [row[name] for name in cells.SUMS] == [n, tokens, tokens, tokens, products, products, products]
    assert [row[name] for name in cells.MAXIMA] == [most, most, 2 * most]
