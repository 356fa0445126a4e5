"""Where the dropped rows stand in their files: a bounded second look, taken only when something was dropped.

The parallel reader knows no row numbers. So the start of each file is read once more, row by row, and judged by the
very SQL that dropped the rows, until every rule has its first few.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

import duckdb
import pyarrow as pa

from planner.traffic.offenders import NUMERIC_ROLES, DroppedRow, dropped_row, printable
from planner.traffic.privacy import safe_name
from planner.traffic.readers.columns import TableFile, Wanted
from planner.traffic.readers.judge import judged_sql
from planner.traffic.readers.records import Budget, Record, records
from planner.traffic.readers.relation import relation
from planner.traffic.readers.values import Values
from planner.traffic.rules import CODES, OFFERED_SQL, Rule
from planner.traffic.schema import Counts

SHOWN = 3
"""Rows named for each rule."""
MAX_ROWS = 1_000_000
MAX_CHARS = 1 << 29
"""A second look reads no further: a few seconds."""
CHUNK_ROWS = 50_000

NOT_MEANT = (Rule.OTHER_MODEL, Rule.OUTSIDE_WINDOW, Rule.NOT_A_GENERATION, Rule.CACHE_HIT)
"""Rules that pick rows rather than find fault with them."""
TWIN_COLUMNS = ("ts_us", "model", "prompt", "output", "cached", "verdict")
"""What a row of a repeated request id must share with the kept one to be taken for it."""

SETTLED = {
    "twins": "id_hash UBIGINT, ts_us BIGINT, model VARCHAR, prompt INTEGER, output INTEGER, cached INTEGER, "
    "verdict UTINYINT",
    "retried": "logical_hash UBIGINT, ts_us BIGINT",
}
"""Tables that the second look needs, and their columns.

``twins`` holds the one row that counts of every request id that came more than once; ``retried`` where the refused
rows stand that were tried again.
"""

RULES = {code: rule for rule, code in CODES.items()}


Dropped = tuple[Rule, DroppedRow]


def first_dropped(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[TableFile], wanted: Wanted, dropped: Mapping[Rule, int]
) -> dict[str, list[dict[str, Any]]]:
    """The first dropped rows of every rule, as plain values, by rule.

    A rule has fewer than `SHOWN` when it dropped fewer, or its rows stand beyond the first `MAX_ROWS` rows. What only
    all files together can tell is looked up in `SETTLED` tables of the connection; see `note_settled`.
    """
    needed = {rule: min(SHOWN, n) for rule, n in dropped.items() if n}
    found: dict[Rule, list[DroppedRow]] = {rule: [] for rule in needed}
    budget = Budget(MAX_ROWS, MAX_CHARS)
    for name, columns in SETTLED.items():
        connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {name} ({columns})")
    seen: set[int] = set()
    for table in sorted(tables, key=lambda t: t.head.path.name):
        with closing(_looks(connection, table, wanted, budget, seen)) as looks:
            for look in looks:
                for rule, row in look:
                    if len(found.get(rule, ())) < needed.get(rule, 0):
                        found[rule].append(row)
                if all(len(found[rule]) == n for rule, n in needed.items()):
                    return _plain(found)
    return _plain(found)


def _plain(found: Mapping[Rule, list[DroppedRow]]) -> dict[str, list[dict[str, Any]]]:
    return {rule.value: [asdict(row) for row in rows] for rule, rows in found.items() if rows}


def _chunks(rows: Iterable[Record]) -> Iterator[list[Record]]:
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        yield chunk


def note_settled(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill the `SETTLED` tables from ``staged``, after duplicates and further attempts are marked."""
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE twins AS
        SELECT id_hash, ts_us, model, prompt, output, cached, verdict
        FROM staged JOIN doubled USING (id_hash) WHERE {OFFERED_SQL} OR verdict = {CODES[Rule.REJECTED_RETRIED]}
    """)
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE retried AS
        SELECT DISTINCT logical_hash, ts_us FROM staged WHERE verdict = {CODES[Rule.REJECTED_RETRIED]}
    """)


def _looks(
    connection: duckdb.DuckDBPyConnection, table: TableFile, wanted: Wanted, budget: Budget, seen: set[int]
) -> Generator[list[Dropped]]:
    """Dropped rows of one file, piece by piece in their order, at least the first `SHOWN` of every rule.

    Text files are read again row by row. A relation of its own and a typed file are asked as they are: their rows
    count from 1, after the header of a CSV, in the order in which one thread reads them.
    """
    if table.relation or table.typed:
        yield _whole(connection, table, wanted, budget, seen)
        return
    with closing(records(table, budget)) as rows:
        for chunk in _chunks(rows):
            yield _dropped_in(connection, table, wanted, chunk, seen)


def _whole(
    connection: duckdb.DuckDBPyConnection, table: TableFile, wanted: Wanted, budget: Budget, seen: set[int]
) -> list[Dropped]:
    header = 1 if table.head.is_csv else 0
    numbered = f"(SELECT *, row_number() OVER () + {header} AS row FROM {relation(table)} LIMIT {max(budget.rows, 0)})"
    (before,) = connection.execute("SELECT current_setting('threads')").fetchone() or (1,)
    connection.execute("SET threads = 1; SET preserve_insertion_order = true")
    try:
        return _named(table, _judge(connection, numbered, table, wanted), seen)
    finally:
        connection.execute(f"SET threads = {int(before)}; SET preserve_insertion_order = false")


def _dropped_in(
    connection: duckdb.DuckDBPyConnection, table: TableFile, wanted: Wanted, chunk: list[Record], seen: set[int]
) -> list[Dropped]:
    """Dropped rows of one chunk."""
    name = safe_name(table.head.path.name)
    found = [
        (Rule.MALFORMED, DroppedRow(name, record.row, "", record.fault))
        for record in itertools.islice((r for r in chunk if r.fault), SHOWN)
    ]
    whole = [record for record in chunk if not record.fault]
    if whole:
        columns: dict[str, Any] = {"row": pa.array([r.row for r in whole], type=pa.int64())}
        for place, column in zip(table.places().values(), zip(*(r.texts for r in whole), strict=True), strict=True):
            columns[place] = pa.array(column, type=pa.string())
        connection.register("chunk", pa.table(columns))
        try:
            found += _named(table, _judge(connection, "chunk", table, wanted), seen)
        finally:
            connection.unregister("chunk")
    return sorted(found, key=lambda pair: pair[1].row)


def _judge(connection: duckdb.DuckDBPyConnection, rows: str, table: TableFile, wanted: Wanted) -> list[dict[str, Any]]:
    """The first rows that every rule drops, and every row whose request id came more than once."""
    same = " AND ".join(f"judged.{c} IS NOT DISTINCT FROM twins.{c}" for c in TWIN_COLUMNS)
    values = Values(table)
    texts = ", ".join(f"{values.text(role) or 'NULL'} AS {role}_text" for role in NUMERIC_ROLES)
    retried = (
        f"CASE WHEN judged.verdict = {CODES[Rule.REJECTED]} AND EXISTS (SELECT 1 FROM retried WHERE "
        "retried.logical_hash = judged.logical_hash AND retried.ts_us = judged.ts_us) "
        f"THEN {CODES[Rule.REJECTED_RETRIED]} ELSE judged.verdict END"
    )
    result = connection.execute(f"""
        WITH {judged_sql(rows, table, wanted, "row")},
        met AS (
            SELECT row, {retried} AS verdict, p, o, {texts}, twins.id_hash AS twin, {same} AS keeps
            FROM judged LEFT JOIN twins ON judged.id_hash = twins.id_hash
                AND {OFFERED_SQL.replace("verdict", "judged.verdict")}
        )
        SELECT * FROM met WHERE verdict IS NOT NULL OR twin IS NOT NULL
        QUALIFY twin IS NOT NULL OR row_number() OVER (PARTITION BY verdict, twin ORDER BY row) <= {SHOWN}
        ORDER BY row
    """)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, values, strict=True)) for values in result.fetchall()]


def _named(table: TableFile, rows: Iterable[Mapping[str, Any]], seen: set[int]) -> list[Dropped]:
    ruled = ((_rule(row, seen), row) for row in rows)
    return [(rule, dropped_row(table, rule, row)) for rule, row in ruled if rule is not None]


def _rule(row: Mapping[str, Any], seen: set[int]) -> Rule | None:
    """Of the rows with one request id, the first that equals the kept one is it; the others are duplicates."""
    twin = row["twin"]
    if twin is not None:
        if twin in seen or not row["keeps"]:
            return Rule.DUPLICATE
        seen.add(twin)
    return None if row["verdict"] is None else RULES[row["verdict"]]


def describe(row: Mapping[str, Any], *, with_file: bool = False) -> str:
    """A dropped row in words: ``row 7, prompt: -3``."""
    place = f"{printable(row['file'])}, row {row['row']}" if with_file else f"row {row['row']}"
    return ": ".join(part for part in (f"{place}, {row['field']}" if row["field"] else place, row["value"]) if part)


def heavy_loss(counts: Counts) -> str:
    """A warning when more than half of the rows were dropped; rows that were not asked for, or need no GPU, aside."""
    dropped = dict(counts.dropped_by_reason)
    others = sum(dropped.pop(rule.value, 0) for rule in NOT_MEANT)
    lost, rows = sum(dropped.values()), counts.rows_read - others
    if 2 * lost <= rows:
        return ""
    most = max(dropped, key=lambda reason: dropped[reason])
    aside = f" ({others:,} of other models, times, calls or cache hits aside)" if others else ""
    return f"{lost:,} of {rows:,} rows{aside} were dropped, most of them as '{most}': check the log before using this"
