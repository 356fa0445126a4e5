"""Logs with one row per request: from named text columns to judged rows, as SQL.

Only the columns named in `Columns` are read (an allow-list), so text columns never leave the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from planner.errors import Problems
from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.engine import sql_name, sql_text
from planner.traffic.readers.columns import Columns, TableFile, TimeKind, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.readers.relation import relation
from planner.traffic.rules import CODES, Rule

EARLIEST_US = 1_420_070_400_000_000
"""2015-01-01 UTC."""
LATEST_US = 4_102_444_800_000_000
"""2100-01-01 UTC."""
LONGEST_RELATIVE_US = 10 * 366 * 86_400 * 1_000_000
"""Ten years, for logs whose time starts at 0."""


def judged_queries(tables: Sequence[TableFile], wanted: Wanted) -> tuple[str, ...]:
    """One query with the columns of `planner.traffic.readers.base.JUDGED` per file."""
    return tuple(
        f"WITH {judged_sql(relation(table), table, wanted)} "
        "SELECT model, traffic_class, ts_us, prompt, output, cached, id_hash, rank, verdict, adjusted FROM judged"
        for table in tables
    )


def checked(table: TableFile) -> TableFile:
    """The table as it is, if its file has the columns.

    Raises
    ------
    InputError
        If a needed column is missing or appears twice.
    """
    if not table.relation:
        _check_columns(table.head, table.columns)
    return table


def _check_columns(head: Head, columns: Columns) -> None:
    problems = Problems()
    for role, name in columns.used().items():
        count = head.columns.count(name)
        if head.is_json and count == 0 and role not in ("timestamp", "prompt", "output"):
            continue
        if count == 0:
            close = difflib.get_close_matches(name, head.columns, n=1)
            shown = ", ".join(column[:40] for column in head.columns[:20])
            fix = f"Did you mean '{close[0]}'?" if close else f"The columns are: {shown}"
            problems.add(str(head.path), f"has no column '{name}' for {role}", fix, row="1", field=name)
        elif count > 1:
            problems.add(str(head.path), f"has {count} columns named '{name}'", "Keep one", row="1", field=name)
    problems.raise_if_any()


def judged_sql(relation: str, table: TableFile, wanted: Wanted, further: str = "") -> str:
    """Common table expressions that parse and judge every row of ``relation``; the last one is ``judged``.

    ``judged`` has the columns of ``staged``, the texts ``t_<role>``, the numbers ``p`` and ``o``, and ``further``.
    """
    text = table.text
    default = wanted.model or "default"
    model = f"coalesce({text('model')}, {text('fallback_model')}, {sql_text(default)})"
    if wanted.aliases:
        cases = " ".join(f"WHEN {sql_text(alias)} THEN {sql_text(name)}" for alias, name in wanted.aliases.items())
        model = f"CASE {model} {cases} ELSE {model} END"
    texts = [f"nullif(trim({sql_name(place)}), '') AS t_{role}" for role, place in table.places().items()]
    return f"""
    texts AS (SELECT {", ".join([*texts, *filter(None, [further])])} FROM {relation}),
    parsed AS (
        SELECT *, {model} AS model,
               {_time_sql(text("timestamp"), table.time)} AS ts_us,
               {text("timestamp")} IS NULL AND {text("prompt")} IS NULL AND {text("output")} IS NULL AS blank,
               {text("prompt")} IS NULL OR {text("output")} IS NULL AS missing,
               TRY_CAST({text("prompt")} AS DOUBLE) AS p,
               TRY_CAST({text("output")} AS DOUBLE) AS o,
               TRY_CAST({text("cached")} AS DOUBLE) AS c,
               CASE WHEN {text("request_id")} IS NOT NULL THEN hash({text("request_id")}) END AS id_hash,
               lower({text("cache_hit")}) IN ('true', 'hit', 'semantic hit', '1') AS from_cache,
               {_failed_sql(text("status"))} AS failed,
               'default' AS traffic_class,
               CAST(NULL AS BIGINT) AS rank,
               CAST(0 AS USMALLINT) AS adjusted
        FROM texts
    ),
    ruled AS (SELECT *, {_verdict_sql(table, wanted)} AS verdict FROM parsed),
    judged AS (
        SELECT *,
               CASE WHEN verdict IS NULL THEN CAST(p AS INTEGER) END AS prompt,
               CASE WHEN verdict IS NULL THEN CAST(o AS INTEGER) END AS output,
               CASE WHEN verdict IS NULL AND c BETWEEN 0 AND {MAX_TOKENS} THEN CAST(least(c, p) AS INTEGER) ELSE 0 END
               AS cached
        FROM ruled
    )
    """


def _time_sql(text: str, time: TimeKind) -> str:
    """Microseconds since 1970 (or since the start of the log), rounded down; null where unreadable."""
    if time is TimeKind.ISO:
        return f"epoch_us(TRY_CAST({text} AS TIMESTAMPTZ))"
    factor = 1_000_000 if time in (TimeKind.EPOCH_S, TimeKind.RELATIVE_S) else 1_000
    number = f"TRY_CAST({text} AS DOUBLE)"
    return f"CASE WHEN isfinite({number}) AND abs({number}) < 1e15 THEN CAST(round({number} * {factor}) AS BIGINT) END"


def _failed_sql(status: str) -> str:
    """A status that is neither empty, nor a word for success, nor an HTTP 2xx, is a failure."""
    return (
        f"coalesce(lower({status}) NOT IN ('success', 'ok', 'true', '1') "
        f"AND NOT regexp_full_match({status}, '2[0-9][0-9](\\.0)?'), false)"
    )


def _verdict_sql(table: TableFile, wanted: Wanted) -> str:
    """The rules of `planner.traffic.rules`, in their order."""
    low, high = (0, LONGEST_RELATIVE_US) if table.time.relative else (EARLIEST_US, LATEST_US)
    tests = [(Rule.MALFORMED, "blank")]
    if wanted.model and table.columns.model:
        tests.append((Rule.OTHER_MODEL, f"model <> {sql_text(wanted.model)}"))
    tests += [
        (Rule.BAD_TIMESTAMP, "ts_us IS NULL"),
        (Rule.IMPLAUSIBLE_TIMESTAMP, f"ts_us NOT BETWEEN {low} AND {high}"),
        (Rule.CACHE_HIT, "from_cache"),
        (Rule.FAILED, "failed"),
        (Rule.MISSING_TOKENS, "missing"),
        (Rule.NOT_WHOLE_TOKENS, "p IS NULL OR o IS NULL OR isnan(p) OR isnan(o) OR isinf(p) OR isinf(o)"),
        (Rule.NEGATIVE_TOKENS, "p < 0 OR o < 0"),
        (Rule.ABSURD_TOKENS, f"p > {MAX_TOKENS} OR o > {MAX_TOKENS}"),
        (Rule.NOT_WHOLE_TOKENS, "p <> floor(p) OR o <> floor(o)"),
        (Rule.ZERO_TOKENS, "p = 0"),
    ]
    return "CASE " + " ".join(f"WHEN {test} THEN {CODES[rule]}" for rule, test in tests) + " END"


def sniff_time(head: Head, column: str) -> TimeKind:
    """How a plain CSV writes time, told from its first row: text is ISO 8601, numbers go by their size."""
    value = _first_value(head.columns, head.first_row, column)
    try:
        number = abs(float(value))
    except ValueError:
        return TimeKind.ISO
    if number >= 1e11:
        return TimeKind.EPOCH_MS
    return TimeKind.EPOCH_S if number >= EARLIEST_US / 1e6 else TimeKind.RELATIVE_S


def _first_value(columns: Sequence[str], row: Sequence[str], column: str) -> str:
    return dict(zip(columns, row, strict=False)).get(column, "")
