"""The prefix table: prompt tokens that were cached, as the log says, or that a cache would have answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.traffic.canonical_tables import of_model
from planner.traffic.engine import sql_file, sql_name
from planner.traffic.grid import HOURS_A_WEEK, hour_of_week
from planner.traffic.readers.base import Blocks, Opened
from planner.traffic.readers.columns import TableFile, Wanted
from planner.traffic.readers.judge import judged_sql
from planner.traffic.readers.selected import TEXT, selected
from planner.traffic.reuse import Prompts, reuse_curve
from planner.traffic.schema import PREFIX
from planner.traffic.storage.engine import register
from planner.traffic.tables.definitions import MINUTE_US
from planner.traffic.tables.rates import Minutes
from planner.traffic.tables.rows import Column, Names

CACHED, REUSE = "cached", "reuse"
"""Kinds of rows."""
MOST_BLOCKS = 1 << 26
"""More hashes than this (half a gigabyte) are not looked at."""
_SUMS = 3


def tells_cached(opened: Opened) -> bool:
    """Whether any file says how many prompt tokens were cached, and its time has hours of a week."""
    return not opened.relative_time and any(t.columns.cached or t.columns.cached_beside for t in opened.tables)


class CachedTokens:
    """Requests, prompt and cached tokens of the kept rows, by model and UTC hour of the week."""

    def __init__(self) -> None:
        self._sums = np.zeros((0, HOURS_A_WEEK, _SUMS), dtype=np.int64)

    def add(self, minutes: Minutes, cached: Column) -> None:
        """Add the counts of some kept rows."""
        if not len(minutes.n):
            return
        pairs = int(minutes.group.max()) + 1
        if pairs > len(self._sums):
            wider = np.zeros((pairs, HOURS_A_WEEK, _SUMS), dtype=np.int64)
            wider[: len(self._sums)] = self._sums
            self._sums = wider
        places = (minutes.group, hour_of_week(minutes.minute * MINUTE_US))
        np.add.at(self._sums, places, np.stack([minutes.n, minutes.prompt, cached], axis=1))

    def table(self, names: Names) -> pa.Table:
        """Rows of kind ``cached``: one per model and hour of the week with requests."""
        models = names.models
        sums = np.zeros((len(models), HOURS_A_WEEK, _SUMS), dtype=np.int64)
        np.add.at(sums, names.model_of_pair()[: len(self._sums)], self._sums)
        rows = [
            _row(models[model], CACHED, sums[model, hour].tolist(), hour=hour)
            for model, hour in np.argwhere(sums[:, :, 0] > 0).tolist()
        ]
        return pa.Table.from_pylist(rows, schema=PREFIX)


def _row(model: str, kind: str, sums: Sequence[int], *, hour: int | None = None, cache: int | None = None) -> Any:
    n, prompt, cached = sums
    return {
        "model": model,
        "kind": kind,
        "hour_of_week": hour,
        "cache_tokens": cache,
        "n": n,
        "sum_prompt": prompt,
        "sum_cached": cached,
    }


@dataclass(frozen=True)
class Reuse:
    """What the hashes of a log show; the hashes themselves are not kept."""

    table: pa.Table | None = None
    """Rows of kind ``reuse``: per model and cache size, for the kept requests whose hashes could be read."""
    columns: tuple[str, ...] = ()
    """What was read for it, beside the columns of the rows."""
    remarks: tuple[str, ...] = ()
    """Why there is none, where there are hashes."""


def measure_reuse(opened: Opened, wanted: Wanted) -> Reuse:
    """Prompt tokens that LRU caches of growing size would have answered; each model has a cache of its own.

    The hashes are read apart from the rows, by the same rules: only kept requests count, in the order of their time
    stamps and, where these are equal, of the lines and the names of the files.
    """
    if opened.blocks is None:
        return Reuse()
    blocks = opened.blocks
    tables = sorted(opened.tables, key=lambda table: table.head.path.name)
    with duckdb.connect(config={"memory_limit": "2GB"}) as connection:
        register(connection, [table.head.path for table in tables])
        connection.execute(f"SET TimeZone = '{wanted.time_zone}'")
        if sum(_count(connection, table, blocks) for table in tables) > MOST_BLOCKS:
            remark = f"reuse of prefixes is not measured: the log has more than {MOST_BLOCKS:,} block hashes"
            return Reuse(remarks=(remark,))
        found = pa.concat_tables([_read(connection, table, blocks, wanted) for table in tables])
    rows: list[Any] = []
    for model in sorted(found["model"].unique().to_pylist()):
        own = of_model(found, model)
        prompts = _prompts(own)
        sums = (own.num_rows, int(prompts.tokens.sum()))
        curve = reuse_curve(prompts, blocks.tokens)
        rows.extend(
            _row(model, REUSE, (*sums, answered), cache=size * blocks.tokens)
            for size, answered in zip(curve.cache_blocks.tolist(), curve.answered_tokens.tolist(), strict=True)
        )
    return Reuse(pa.Table.from_pylist(rows, schema=PREFIX), (blocks.column,)) if rows else Reuse()


def _relation(table: TableFile, blocks: Blocks) -> str:
    """The columns of the format, and the hashes as text, whatever they are."""
    types = dict.fromkeys(table.columns.used().values(), TEXT) | {blocks.column: "VARCHAR[]"}
    if table.head.is_parquet and blocks.column in table.head.columns:
        columns = ", ".join(f"TRY_CAST({sql_name(name)} AS {kind}) AS {sql_name(name)}" for name, kind in types.items())
        return f"(SELECT {columns} FROM read_parquet({sql_file(table.head.path)}))"
    return selected(table.head, (), types, {name: sql_name(name) for name in types})


def _count(connection: duckdb.DuckDBPyConnection, table: TableFile, blocks: Blocks) -> int:
    query = f"SELECT coalesce(sum(len({sql_name(blocks.column)})), 0) FROM {_relation(table, blocks)}"
    return int(connection.execute(query).fetchall()[0][0])


def _read(connection: duckdb.DuckDBPyConnection, table: TableFile, blocks: Blocks, wanted: Wanted) -> pa.Table:
    column = sql_name(blocks.column)
    # A connection of its own keeps the order of the lines, which the engine of the rows does not.
    return connection.sql(f"""
        WITH {judged_sql(_relation(table, blocks), table, wanted, column)}
        SELECT model, ts_us, CAST(prompt AS BIGINT) AS prompt, [hash(h) FOR h IN {column}] AS hashes FROM judged
        WHERE verdict IS NULL AND {column} IS NOT NULL AND len([h FOR h IN {column} IF h IS NULL]) = 0
    """).to_arrow_table()


def _prompts(rows: pa.Table) -> Prompts:
    rows = rows.take(pa.array(np.argsort(rows["ts_us"].to_numpy(), kind="stable")))
    hashes = rows["hashes"].combine_chunks()
    return Prompts(
        rows["prompt"].to_numpy(),
        pc.list_value_length(hashes).to_numpy(zero_copy_only=False).astype(np.int64),
        hashes.flatten().to_numpy(),
    )


def prefix_table(cached: CachedTokens | None, names: Names, reuse: Reuse) -> pa.Table | None:
    """What was found, by model, kind, hour and cache size; none where the log tells nothing."""
    parts = [cached.table(names)] if cached is not None else []
    if reuse.table is not None:
        parts.append(reuse.table)
    parts = [part for part in parts if part.num_rows]
    return pa.concat_tables(parts).sort_by([("model", "ascending"), ("kind", "ascending")]) if parts else None


def described(table: pa.Table | None, model: str) -> list[str]:
    """What the table says about a model, in a sentence for each kind."""
    rows = [row for row in (table.to_pylist() if table is not None else []) if row["model"] == model]
    cached = [row for row in rows if row["kind"] == CACHED]
    reuse = [row for row in rows if row["kind"] == REUSE]
    lines = []
    if cached and sum(row["sum_cached"] for row in cached):
        share = sum(row["sum_cached"] for row in cached) / sum(row["sum_prompt"] for row in cached)
        lines.append(f"{100 * share:.1f} % of the prompt tokens were answered from a prefix cache, says the log")
    if reuse and reuse[-1]["sum_cached"]:
        most = reuse[-1]["sum_cached"]
        half = next(row for row in reuse if 2 * row["sum_cached"] >= most)
        lines.append(
            f"an endless prefix cache would answer {_percent(most, reuse)} % of the prompt tokens, an LRU "
            f"cache of {half['cache_tokens']:,} tokens {_percent(half['sum_cached'], reuse)} %"
        )
    return lines


def _percent(tokens: int, rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{100 * tokens / rows[-1]['sum_prompt']:.1f}"
