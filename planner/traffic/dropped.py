"""Where the dropped rows stand in their files: a bounded second look, taken only when something was dropped.

The parallel reader knows no row numbers. So the start of each file is read once more, row by row, and judged by the
very SQL that dropped the rows, until every rule has its first few.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import duckdb
import pyarrow as pa

from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.readers.columns import TableFile, Wanted
from planner.traffic.readers.judge import judged_sql
from planner.traffic.readers.records import Budget, Record, records
from planner.traffic.rules import CODES, OFFERED_SQL, Rule
from planner.traffic.schema import Counts

SHOWN = 3
"""Rows named for each rule."""
MAX_ROWS = 1_000_000
MAX_CHARS = 1 << 29
"""A second look reads no further: a few seconds."""
CHUNK_ROWS = 50_000
VALUE_CHARS = 40
NUMERIC_ROLES = ("timestamp", "prompt", "output", "status")
"""Columns whose values may be shown, as far as they are numbers or dates."""
NUMBER = re.compile(r"(?=.*[0-9])[0-9+\-.,:/eETZ ]+|[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)

TWIN_COLUMNS = ("ts_us", "model", "prompt", "output", "cached", "verdict")
"""What a row of a repeated request id must share with the kept one to be taken for it."""

RULES = {code: rule for rule, code in CODES.items()}
ROLE_OF = {
    Rule.OTHER_MODEL: "model",
    Rule.BAD_TIMESTAMP: "timestamp",
    Rule.IMPLAUSIBLE_TIMESTAMP: "timestamp",
    Rule.CACHE_HIT: "cache_hit",
    Rule.FAILED: "status",
    Rule.ZERO_TOKENS: "prompt",
    Rule.DUPLICATE: "request_id",
}
OFFENDS: dict[Rule, Callable[[str | None, float | None], bool]] = {
    Rule.MISSING_TOKENS: lambda text, number: text is None,
    Rule.NOT_WHOLE_TOKENS: lambda text, number: number is None or not math.isfinite(number) or number % 1 != 0,
    Rule.NEGATIVE_TOKENS: lambda text, number: number is not None and number < 0,
    Rule.ABSURD_TOKENS: lambda text, number: number is not None and number > MAX_TOKENS,
}
"""For rules on either token count: whether this one is the offender."""


@dataclass(frozen=True)
class DroppedRow:
    """One dropped row."""

    file: str
    row: int
    """Row of the file, 1-based; the header of a CSV is row 1."""
    field: str
    """The offending column; empty when the row as a whole offends."""
    value: str
    """What stands there: a number or date, cut to `VALUE_CHARS`; of text only its length."""


def first_dropped(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[TableFile], wanted: Wanted, dropped: Mapping[Rule, int]
) -> dict[str, list[dict[str, Any]]]:
    """The first dropped rows of every rule, as plain values, by rule.

    A rule has fewer than `SHOWN` when it dropped fewer, or its rows stand beyond the first `MAX_ROWS` rows.
    Call it after the duplicates are marked.
    """
    needed = {rule: min(SHOWN, n) for rule, n in dropped.items() if n}
    found: dict[Rule, list[DroppedRow]] = {rule: [] for rule in needed}
    budget = Budget(MAX_ROWS, MAX_CHARS)
    _note_kept_twins(connection)
    seen: set[int] = set()
    for table in sorted(tables, key=lambda t: t.head.path.name):
        with closing(records(table, budget)) as rows:
            for chunk in _chunks(rows):
                for rule, row in _dropped_in(connection, table, wanted, chunk, seen):
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


def _note_kept_twins(connection: duckdb.DuckDBPyConnection) -> None:
    """The one row that was kept of every request id that came more than once."""
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE twins AS
        SELECT staged.* FROM staged JOIN doubled USING (id_hash) WHERE {OFFERED_SQL}
    """)


def _dropped_in(
    connection: duckdb.DuckDBPyConnection, table: TableFile, wanted: Wanted, chunk: list[Record], seen: set[int]
) -> list[tuple[Rule, DroppedRow]]:
    """Dropped rows of one chunk in their order, at least the first `SHOWN` of every rule."""
    name = table.head.path.name
    found = [
        (Rule.MALFORMED, DroppedRow(name, record.row, "", record.fault))
        for record in itertools.islice((r for r in chunk if r.fault), SHOWN)
    ]
    whole = [record for record in chunk if not record.fault]
    for row in _judge(connection, table, wanted, whole) if whole else ():
        rule = _rule(row, seen)
        if rule is not None:
            found.append((rule, _dropped_row(table, rule, row)))
    return sorted(found, key=lambda pair: pair[1].row)


def _judge(
    connection: duckdb.DuckDBPyConnection, table: TableFile, wanted: Wanted, chunk: list[Record]
) -> list[dict[str, Any]]:
    """The first rows of the chunk that every rule drops, and every row whose request id came more than once."""
    columns: dict[str, Any] = {"row": pa.array([r.row for r in chunk], type=pa.int64())}
    for place, column in zip(table.places().values(), zip(*(r.texts for r in chunk), strict=True), strict=True):
        columns[place] = pa.array(column, type=pa.string())
    same = " AND ".join(f"judged.{c} IS NOT DISTINCT FROM twins.{c}" for c in TWIN_COLUMNS)
    texts = ", ".join(f"{table.text(role)} AS {role}_text" for role in NUMERIC_ROLES)
    connection.register("chunk", pa.table(columns))
    try:
        result = connection.execute(f"""
            WITH {judged_sql("chunk", table, wanted, "row")},
            met AS (
                SELECT row, judged.verdict, p, o, {texts}, twins.id_hash AS twin, {same} AS keeps
                FROM judged LEFT JOIN twins ON judged.id_hash = twins.id_hash
                    AND {OFFERED_SQL.replace("verdict", "judged.verdict")}
            )
            SELECT * FROM met WHERE verdict IS NOT NULL OR twin IS NOT NULL
            QUALIFY twin IS NOT NULL OR row_number() OVER (PARTITION BY verdict, twin ORDER BY row) <= {SHOWN}
            ORDER BY row
        """)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, values, strict=True)) for values in result.fetchall()]
    finally:
        connection.unregister("chunk")


def _rule(row: Mapping[str, Any], seen: set[int]) -> Rule | None:
    """Of the rows with one request id, the first that equals the kept one is it; the others are duplicates."""
    twin = row["twin"]
    if twin is not None:
        if twin in seen or not row["keeps"]:
            return Rule.DUPLICATE
        seen.add(twin)
    return None if row["verdict"] is None else RULES[row["verdict"]]


def _dropped_row(table: TableFile, rule: Rule, row: Mapping[str, Any]) -> DroppedRow:
    role = _role(rule, row)
    field = getattr(table.columns, role) if role else ""
    value = _shown(row[f"{role}_text"]) if role in NUMERIC_ROLES else ""
    if rule is Rule.MALFORMED:
        value = "neither time nor tokens"
    return DroppedRow(table.head.path.name, int(row["row"]), _printable(field), value)


def _role(rule: Rule, row: Mapping[str, Any]) -> str:
    if rule in OFFENDS:
        return "prompt" if OFFENDS[rule](row["prompt_text"], row["p"]) else "output"
    return ROLE_OF.get(rule, "")


def _shown(text: str | None) -> str:
    """Numbers and dates as they are; of anything else, which may be somebody's words, only how long it is."""
    if text is None:
        return "empty"
    if not NUMBER.fullmatch(text):
        return f"text of length {len(text):,}"
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 1] + "…"


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)[:VALUE_CHARS]


def describe(row: Mapping[str, Any], *, with_file: bool = False) -> str:
    """A dropped row in words: ``row 7, prompt: -3``."""
    place = f"{_printable(row['file'])}, row {row['row']}" if with_file else f"row {row['row']}"
    return ": ".join(part for part in (f"{place}, {row['field']}" if row["field"] else place, row["value"]) if part)


def heavy_loss(counts: Counts) -> str:
    """A warning when more than half of the rows were dropped; rows of models that were not asked for do not count."""
    dropped = dict(counts.dropped_by_reason)
    others = dropped.pop(Rule.OTHER_MODEL.value, 0)
    lost, rows = sum(dropped.values()), counts.rows_read - others
    if 2 * lost <= rows:
        return ""
    most = max(dropped, key=lambda reason: dropped[reason])
    return f"{lost:,} of {rows:,} rows were dropped, most of them as '{most}': check the log before using this"
