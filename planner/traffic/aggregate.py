"""From staged rows to the canonical tables, by aggregation inside DuckDB; only small tables come back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from planner.traffic.buckets import lower_edge_sql, upper_edge
from planner.traffic.rules import CODES, OFFERED_SQL, Rule
from planner.traffic.schema import BURST, LENGTHS

TAIL_SIZE = 1000
"""Largest total lengths kept exactly, per model; ties with the last of them are kept too."""
SCALES_S = (1, 5, 15, 60, 300, 3600)
BLOCK_S = 3600
"""Rates are taken as stationary within blocks of one hour; variance between blocks is no burst."""
MIN_FREEDOM = 7
"""Fewer degrees of freedom than this say nothing about a variance."""
PEAK_SHARE = 0.05
CAP_RATIO = 0.999
"""Lengths within 0.1 % of the largest count as sitting at the cap."""
BELOW_CAP_RATIO = 0.99
CAP_COUNT = 5
CAP_EXCESS = 3
CAP_TOKENS = 100


@dataclass(frozen=True)
class Window:
    """The observed window in microseconds, and the resolution of the time stamps."""

    start_us: int
    end_us: int
    resolution_us: int
    exact_ticks: bool
    """True where every stamp is a whole multiple of the resolution."""

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end_us - self.start_us) / 1e6


def mark_duplicates(connection: duckdb.DuckDBPyConnection) -> None:
    """Give the second and later rows of a request id the duplicate verdict, whatever the order of rows."""
    connection.execute(f"""
        CREATE TEMP TABLE doubled AS
        SELECT id_hash FROM staged WHERE id_hash IS NOT NULL AND {OFFERED_SQL} GROUP BY id_hash HAVING count(*) > 1
    """)
    connection.execute(f"""
        UPDATE staged SET verdict = {CODES[Rule.DUPLICATE]}, prompt = NULL, output = NULL
        WHERE rowid IN (
            SELECT row_id FROM (
                SELECT staged.rowid AS row_id, row_number() OVER (
                    PARTITION BY id_hash
                    ORDER BY verdict NULLS FIRST, ts_us, model, prompt DESC, output DESC, cached DESC, staged.rowid
                ) AS place
                FROM staged JOIN doubled USING (id_hash) WHERE {OFFERED_SQL}
            ) WHERE place > 1
        )
    """)


def count_verdicts(connection: duckdb.DuckDBPyConnection) -> dict[Rule | None, int]:
    """Rows by rule; ``None`` counts the kept ones."""
    rules = {code: rule for rule, code in CODES.items()}
    rows = connection.execute("SELECT verdict, count(*) FROM staged GROUP BY verdict ORDER BY verdict").fetchall()
    return {None if code is None else rules[code]: int(n) for code, n in rows}


def kept_models(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Kept requests by model."""
    rows = connection.execute("SELECT model, count(*) FROM staged WHERE verdict IS NULL GROUP BY model ORDER BY model")
    return {str(model): int(n) for model, n in rows.fetchall()}


def span_us(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """First and last plausible time stamp, over all models, so that a model filter does not shorten the window."""
    useless = ", ".join(str(CODES[r]) for r in (Rule.BAD_TIMESTAMP, Rule.IMPLAUSIBLE_TIMESTAMP, Rule.MALFORMED))
    low, high = _limits(connection)
    row = connection.execute(
        f"SELECT min(ts_us), max(ts_us) FROM staged WHERE (verdict IS NULL OR verdict NOT IN ({useless})) "
        f"AND ts_us BETWEEN {low} AND {high}"
    ).fetchone()
    if row is None or row[0] is None:
        raise AssertionError("a kept row always has a time stamp")
    return int(row[0]), int(row[1])


def _limits(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Rows of other models were never judged by time; hold them to the span that any judged row could have."""
    row = connection.execute(f"SELECT min(ts_us), max(ts_us) FROM staged WHERE {OFFERED_SQL}").fetchone()
    if row is None or row[0] is None:
        raise AssertionError("aggregation runs only when a row was kept")
    margin = 366 * 86_400 * 1_000_000
    return int(row[0]) - margin, int(row[1]) + margin


def count_seconds(connection: duckdb.DuckDBPyConnection, start_us: int) -> None:
    """Arrivals per second of the window, as a scratch table."""
    connection.execute(f"""
        CREATE TEMP TABLE seconds AS
        SELECT model, (ts_us - {start_us}) // 1000000 AS s, count(*) AS n FROM staged WHERE {OFFERED_SQL} GROUP BY ALL
    """)


def resolution(connection: duckdb.DuckDBPyConnection, start_us: int) -> tuple[int, bool]:
    """Resolution of the time stamps in microseconds, and whether they are exact multiples of it.

    Taken from the busiest hour of all models (a filter does not make the clock coarser): the greatest common divisor
    of the gaps between distinct stamps; or, where a fifth of the arrivals share a stamp and the distinct stamps are
    evenly spaced, that spacing (a clock that ticks every 3 s with a jitter of 1 ms has a divisor of 1 ms but a
    resolution of 3 s).
    """
    seen = f"({OFFERED_SQL} OR verdict = {CODES[Rule.OTHER_MODEL]}) AND ts_us >= {start_us}"
    row = connection.execute(
        f"SELECT (ts_us - {start_us}) // {BLOCK_S * 1_000_000} AS block, count(*) AS n FROM staged WHERE {seen} "
        "GROUP BY block ORDER BY n DESC, block LIMIT 1"
    ).fetchone()
    if row is None:
        raise AssertionError("aggregation runs only when a row was kept")
    low = start_us + int(row[0]) * BLOCK_S * 1_000_000
    stamps = connection.execute(
        f"SELECT DISTINCT ts_us FROM staged WHERE {seen} AND ts_us >= {low} "
        f"AND ts_us < {low + BLOCK_S * 1_000_000} ORDER BY ts_us LIMIT 2000000"
    ).fetchnumpy()["ts_us"]
    gaps = np.diff(np.asarray(stamps, dtype=np.int64))
    if gaps.size == 0:
        return 1, True
    divisor = int(np.gcd.reduce(gaps))
    ties = 1.0 - stamps.size / int(row[1])
    spacing, median = np.percentile(gaps, [10, 50])
    if ties >= 0.2 and spacing >= 0.5 * median and spacing > divisor:
        return round(float(spacing)), False
    return divisor, True


def rates(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """Per model and UTC minute: arrivals (failed ones included) and the tokens of the kept ones."""
    connection.execute(f"""
        CREATE TEMP TABLE minutes AS
        SELECT model, ts_us // 60000000 AS minute, count(*) AS n,
               CAST(coalesce(sum(prompt), 0) AS BIGINT) AS sum_prompt,
               CAST(coalesce(sum(output), 0) AS BIGINT) AS sum_output
        FROM staged WHERE {OFFERED_SQL} GROUP BY ALL
    """)
    return _arrow(
        connection,
        "SELECT model, make_timestamp(minute * 60000000) AS minute_utc, n, sum_prompt, sum_output "
        "FROM minutes ORDER BY model, minute",
    )


def lengths(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """The joint law by cell, for the whole window and for the busiest twentieth of the minutes with traffic.

    Sums are exact: they are whole-number sums, so neither the order of rows nor the number of threads can show.
    """
    connection.execute(f"""
        CREATE TEMP TABLE peak_minutes AS
        SELECT model, minute FROM (
            SELECT model, minute, percent_rank() OVER (
                PARTITION BY model ORDER BY sum_prompt + sum_output DESC, n DESC
            ) AS place FROM minutes
        ) WHERE place < {PEAK_SHARE}
    """)
    peak = "SEMI JOIN peak_minutes ON staged.model = peak_minutes.model AND ts_us // 60000000 = minute"
    cells = pa.concat_tables([_cells(connection, "all", ""), _cells(connection, "peak", peak)])
    for side in ("prompt", "output"):
        upper = upper_edge(cells[f"{side}_lo"].to_numpy())
        cells = cells.append_column(f"{side}_hi", pa.array(upper, type=pa.int64()))
    return cells.select(LENGTHS.names).cast(LENGTHS)


def _cells(connection: duckdb.DuckDBPyConnection, period: str, join: str) -> pa.Table:
    wide = "CAST(prompt AS BIGINT)", "CAST(output AS BIGINT)"
    return _arrow(
        connection,
        f"""
        SELECT staged.model AS model, 'default' AS traffic_class, '{period}' AS period, 'joint' AS coupling,
               CAST({lower_edge_sql("prompt")} AS BIGINT) AS prompt_lo,
               CAST({lower_edge_sql("output")} AS BIGINT) AS output_lo,
               count(*) AS n,
               CAST(sum(prompt) AS BIGINT) AS sum_prompt,
               CAST(sum(output) AS BIGINT) AS sum_output,
               CAST(sum(cached) AS BIGINT) AS sum_cached,
               CAST(sum({wide[0]} * {wide[0]}) AS DOUBLE) AS sum_pp,
               CAST(sum({wide[0]} * {wide[1]}) AS DOUBLE) AS sum_po,
               CAST(sum({wide[1]} * {wide[1]}) AS DOUBLE) AS sum_oo,
               CAST(max(prompt) AS BIGINT) AS max_prompt,
               CAST(max(output) AS BIGINT) AS max_output,
               CAST(max(prompt + output) AS BIGINT) AS max_total
        FROM staged {join} WHERE verdict IS NULL
        GROUP BY ALL ORDER BY model, prompt_lo, output_lo
        """,
    )


def tail(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """The `TAIL_SIZE` largest totals of each model, exact, longest first, with every tie of the last one."""
    return _arrow(
        connection,
        f"""
        WITH threshold AS (
            SELECT model, list_min(max(prompt + output, {TAIL_SIZE})) AS least
            FROM staged WHERE verdict IS NULL GROUP BY model
        )
        SELECT * FROM (
            SELECT model, CAST(prompt AS BIGINT) AS prompt, CAST(output AS BIGINT) AS output, count(*) AS n
            FROM staged JOIN threshold USING (model) WHERE verdict IS NULL AND prompt + output >= least GROUP BY ALL
        ) ORDER BY model, prompt + output DESC, prompt DESC
        """,
    )


def caps(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, dict[str, float | int]]]:
    """Lengths that pile up at their maximum, per model and side: the old limit, at which lengths were cut.

    A pile is at least 5 requests within 0.1 % of the largest length, and three times as many as in the ten times
    wider band below: a natural tail thins out towards its end, a cut one does not. Maxima below 100 tokens, where
    such bands hold no whole number, are not judged; nor are lengths that are all alike, which nothing has cut.
    """
    found: dict[str, dict[str, dict[str, float | int]]] = {}
    for side in ("prompt", "output"):
        rows = connection.execute(f"""
            WITH top AS (SELECT model, max({side}) AS most, count(*) AS total FROM staged
                         WHERE verdict IS NULL GROUP BY model)
            SELECT model, most, total, count(*) FILTER ({side} >= {CAP_RATIO} * most) AS n, count(*) AS n_wide
            FROM staged JOIN top USING (model)
            WHERE verdict IS NULL AND {side} >= {BELOW_CAP_RATIO} * most GROUP BY ALL ORDER BY model
        """).fetchall()
        for model, most, total, n, n_wide in rows:
            if most >= CAP_TOKENS and n < total and n >= max(CAP_COUNT, CAP_EXCESS * (n_wide - n)):
                found.setdefault(model, {})[side] = {"tokens": int(most), "n": int(n), "share": n / total}
    return found


def bursts(connection: duckdb.DuckDBPyConnection, window: Window) -> pa.Table:
    """Counts per window of every scale inside one-hour blocks, and the sizes of batches that share one stamp.

    ``idc = variance / mean``. Up to 300 s the variance is pooled within blocks. At 3600 s it is half the mean
    square of the difference between neighbouring hours, so that a daily swell does not count as a burst.
    ``resolution_ok`` is false where the time stamps are too coarse for the scale or the window is too short.
    """
    parts = [_burst_rows(connection, window, scale) for scale in SCALES_S]
    parts.append(_batch_rows(connection, window))
    rows = [row for part in parts for row in part]
    rows.sort(key=lambda row: (row["model"], row["kind"] != "window", row["scale_s"], row["max_n"]))
    return pa.Table.from_pylist(rows, schema=BURST)


def _burst_rows(connection: duckdb.DuckDBPyConnection, window: Window, scale_s: int) -> list[dict[str, Any]]:
    bins = _bins_per_block(window, scale_s)
    last = len(bins) - 1
    rows = connection.execute(f"""
        SELECT model, block, sum(n), sum(n * n), max(n) FROM (
            SELECT model, s // {BLOCK_S} AS block, s % {BLOCK_S} // {scale_s} AS bin, sum(n) AS n
            FROM seconds GROUP BY ALL
        ) WHERE bin < CASE WHEN block = {last} THEN {bins[last]} ELSE {BLOCK_S // scale_s} END AND block <= {last}
        GROUP BY model, block ORDER BY model, block
    """).fetchall()
    models = connection.execute("SELECT DISTINCT model FROM seconds ORDER BY model").fetchall()
    counts: dict[str, dict[int, tuple[int, int, int]]] = {model: {} for (model,) in models}
    for model, block, total, squares, most in rows:
        counts[model][int(block)] = (int(total), int(squares), int(most))
    return [_burst_row(model, blocks, bins, scale_s, window) for model, blocks in counts.items()]


def _bins_per_block(window: Window, scale_s: int) -> list[int]:
    """Whole windows of ``scale_s`` in each one-hour block; the last block may be short."""
    blocks = max(1, -int(-window.seconds // BLOCK_S))
    left = window.seconds - (blocks - 1) * BLOCK_S
    return [BLOCK_S // scale_s] * (blocks - 1) + [int(min(left, BLOCK_S) // scale_s)]


def _burst_row(
    model: str, blocks: Mapping[int, tuple[int, int, int]], bins: list[int], scale_s: int, window: Window
) -> dict[str, Any]:
    windows = sum(bins)
    mean = sum(total for total, _, _ in blocks.values()) / windows if windows else 0.0
    if scale_s == BLOCK_S:
        hours = [blocks.get(b, (0, 0, 0))[0] for b in range(len(bins)) if bins[b]]
        freedom = len(hours) - 1
        spread = sum((b - a) ** 2 for a, b in itertools.pairwise(hours)) / 2
    else:
        freedom = sum(k - 1 for k in bins if k)
        spread = sum(squares - total * total / bins[b] for b, (total, squares, _) in blocks.items())
    enough = freedom >= MIN_FREEDOM and mean > 0
    variance = spread / freedom if enough else None
    return {
        "model": model,
        "kind": "window",
        "scale_s": float(scale_s),
        "windows": windows,
        "mean_n": mean,
        "var_n": variance,
        "idc": variance / mean if variance is not None else None,
        "max_n": max((most for _, _, most in blocks.values()), default=0),
        "resolution_ok": enough and _resolved(window, scale_s),
    }


def _resolved(window: Window, scale_s: int) -> bool:
    """Ten ticks a window, or exact ticks that divide it."""
    scale_us = scale_s * 1_000_000
    divides = window.exact_ticks and scale_us % window.resolution_us == 0
    return divides or scale_us >= 10 * window.resolution_us


def _batch_rows(connection: duckdb.DuckDBPyConnection, window: Window) -> list[dict[str, Any]]:
    rows = connection.execute(f"""
        SELECT model, n, count(*) FROM (
            SELECT model, ts_us, count(*) AS n FROM staged WHERE {OFFERED_SQL} GROUP BY ALL
        ) GROUP BY ALL ORDER BY model, n
    """).fetchall()
    return [
        {"model": model, "kind": "batch", "scale_s": window.resolution_us / 1e6, "windows": int(k), "max_n": int(n)}
        for model, n, k in rows
    ]


def _arrow(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    result = connection.sql(query)
    return result.to_arrow_table() if hasattr(result, "to_arrow_table") else result.fetch_arrow_table()
