"""Logs with one row per request: from named text columns to staged rows, entirely inside DuckDB.

Only the columns named in `Columns` are read (an allow-list), so text columns never leave the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import duckdb

from planner.errors import InputError, Problem, Problems
from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.engine import sql_name, sql_text
from planner.traffic.readers.base import Wanted
from planner.traffic.readers.columns import Columns, TableFile, TimeKind
from planner.traffic.readers.head import Head, check_gzip
from planner.traffic.rules import CODES, Rule

EARLIEST_US = 1_420_070_400_000_000
"""2015-01-01 UTC."""
LATEST_US = 4_102_444_800_000_000
"""2100-01-01 UTC."""
LONGEST_RELATIVE_US = 10 * 366 * 86_400 * 1_000_000
"""Ten years, for logs whose time starts at 0."""


def stage_table(connection: duckdb.DuckDBPyConnection, table: TableFile, wanted: Wanted) -> int:
    """Insert the rows of one file into ``staged``; returns the number of lines that never became a row.

    Raises
    ------
    InputError
        If the file breaks off.
    """
    head = table.head
    check_gzip(head)
    relation = _json_relation(table) if head.is_json else _csv_relation(table)
    query = f"""
    INSERT INTO staged WITH {judged_sql(relation, table, wanted)}
    SELECT model, ts_us, prompt, output, cached, id_hash, verdict FROM judged
    """
    try:
        connection.execute("DROP TABLE IF EXISTS reject_errors")
        connection.execute("DROP TABLE IF EXISTS reject_scans")
        connection.execute(query)
        return 0 if head.is_json else _rejected(connection)
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        raise InputError(Problem(str(head.path), _reason(error), "Export or copy the file again")) from None


def stage_tables(connection: duckdb.DuckDBPyConnection, tables: Sequence[TableFile], wanted: Wanted) -> int:
    """Stage every file; returns the number of lines that never became a row."""
    return sum(stage_table(connection, table, wanted) for table in tables)


def table_file(head: Head, columns: Columns, time: TimeKind, *, quoted: bool) -> TableFile:
    """How one file is read.

    Raises
    ------
    InputError
        If a needed column is missing or appears twice.
    """
    _check_columns(head, columns)
    return TableFile(head, columns, time, quoted)


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


def _csv_relation(table: TableFile) -> str:
    """Every column as text under a positional name; bad lines go to the rejects table instead of failing."""
    head = table.head
    names = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(head.columns)))
    quote = "'\"'" if table.quoted else "''"
    return (
        f"read_csv({sql_text(str(head.path))}, columns = {{{names}}}, auto_detect = false, header = false, skip = 1, "
        f"delim = {sql_text(head.delimiter)}, quote = {quote}, escape = {quote}, nullstr = '', "
        f"compression = '{'gzip' if head.is_gzip else 'none'}', ignore_errors = true, store_rejects = true, "
        f"rejects_limit = 0, strict_mode = true, null_padding = false)"
    )


def _json_relation(table: TableFile) -> str:
    head = table.head
    names = ", ".join(f"{sql_text(name)}: 'VARCHAR'" for name in table.columns.used().values())
    return (
        f"read_json({sql_text(str(head.path))}, columns = {{{names}}}, format = 'newline_delimited', "
        f"compression = '{'gzip' if head.is_gzip else 'none'}', ignore_errors = true)"
    )


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
               {_failed_sql(text("status"))} AS failed
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


def _rejected(connection: duckdb.DuckDBPyConnection) -> int:
    """Lines lost to malformed rows; a quote that is never closed swallows lines, and each of them counts.

    The engine hands out a malformed line with the blank lines before it; those are no rows.
    """
    row = connection.execute("""
        SELECT coalesce(sum(lines), 0) FROM (
            SELECT max(1 + length(line) - length(replace(line, chr(10), ''))) AS lines FROM (
                SELECT file_id, line_byte_position, trim(csv_line, chr(10) || chr(13)) AS line FROM reject_errors
            ) GROUP BY file_id, line_byte_position
        )
    """).fetchone()
    return int(row[0]) if row else 0


def _reason(error: duckdb.Error) -> str:
    """The engine's message without its advice, which speaks of options that our user does not have."""
    first = str(error).strip().splitlines()[0]
    return f"cannot be read: {first[:200]}"


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
