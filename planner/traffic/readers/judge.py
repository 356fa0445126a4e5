"""Logs with one row per request: from the columns of the allow-list to judged rows, as SQL.

Only the columns named in `Columns` are read, so text columns never leave the file. This is the one place where the
rules of `planner.traffic.rules` are applied; what a log lacks costs nothing, because it becomes a literal.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from planner.errors import Problems
from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.engine import sql_name, sql_text
from planner.traffic.readers.aliases import alias_sql
from planner.traffic.readers.columns import Columns, TableFile, TimeKind, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.readers.outcome import Outcome, outcome_sql
from planner.traffic.readers.relation import relation, with_types
from planner.traffic.readers.said import (
    arrival_us_sql,
    cached_sql,
    cached_tokens_sql,
    class_sql,
    computed_sql,
    named_sql,
    rank_sql,
    readable,
    sum_sql,
)
from planner.traffic.readers.values import Values, kind_of, listed
from planner.traffic.readers.words import CACHE_HIT
from planner.traffic.rules import BITS, CODES, Adjustment, Rule

EARLIEST_US = 1_420_070_400_000_000
"""2015-01-01 UTC."""
LATEST_US = 4_102_444_800_000_000
"""2100-01-01 UTC."""
LONGEST_RELATIVE_US = 10 * 366 * 86_400 * 1_000_000
"""Ten years, for logs whose time starts at 0."""
NEEDED = ("timestamp", "prompt", "output")
"""Roles that every log must have."""
EMPTY = '"NULL"'
"""The engine's type of a column without any value."""
BESIDE = ("cached_beside", "reasoning_beside")
JUDGED = pa.schema(
    [
        pa.field("model", pa.string()),
        pa.field("traffic_class", pa.string()),
        pa.field("ts_us", pa.int64()),
        pa.field("prompt", pa.int32()),
        pa.field("output", pa.int32()),
        pa.field("cached", pa.int32()),
        pa.field("id_hash", pa.uint64()),
        pa.field("rank", pa.int64()),
        pa.field("verdict", pa.uint8()),
        pa.field("adjusted", pa.uint16()),
        pa.field("logical_hash", pa.uint64()),
    ]
)
"""What every reader's rows become: one row of the log in a few bytes.

``ts_us`` is the arrival in microseconds. ``prompt`` includes cached tokens, ``output`` reasoning tokens; both are null
where the row was dropped. ``id_hash`` is null where the log has no request ids; of the rows of one id that are kept,
the one of the highest ``rank`` (null is lowest) counts. ``verdict`` is null for a kept row, else the code of the rule
that dropped it; ``adjusted`` is the sum of the bits of its adjustments. ``logical_hash`` is shared by the attempts at
one logical request, and null where the log does not say; see `planner.traffic.attempts`.
"""


def judged_queries(tables: Sequence[TableFile], wanted: Wanted) -> tuple[str, ...]:
    """One query with the columns of `JUDGED` per file."""
    return tuple(
        f"WITH {judged_sql(relation(table), table, wanted)} SELECT {', '.join(JUDGED.names)} FROM judged"
        for table in tables
    )


def checked(table: TableFile) -> TableFile:
    """The table with the types of its columns, if its file has the columns.

    Raises
    ------
    InputError
        If a needed column is missing, appears twice, or is nested or binary.
    """
    if not table.relation:
        _check_columns(table.head, table.columns)
    typed = _without_empty(with_types(table))
    _check_types(typed.head, typed.typed, typed.columns)
    return typed


def _without_empty(table: TableFile) -> TableFile:
    """The table less the columns of further roles that hold nothing at all: a Parquet file then gives them no type."""
    empty = {role: "" for role, kind in table.typed.items() if kind == EMPTY and role not in NEEDED}
    typed = {role: kind for role, kind in table.typed.items() if role not in empty}
    return replace(table, columns=replace(table.columns, **empty), typed=typed)


def _check_types(head: Head, typed: Mapping[str, str], columns: Columns) -> None:
    problems = Problems()
    for role, kind in typed.items():
        if kind_of(kind) == "other":
            name = getattr(columns, role)
            what = f"the column '{name}' is of type {kind[:60]}, which cannot be read (for {role})"
            if kind == EMPTY:
                what = f"the column '{name}' holds nothing (for {role})"
            problems.add(str(head.path), what, "Export it as a column of plain values", field=name)
    problems.raise_if_any()


def _check_columns(head: Head, columns: Columns) -> None:
    problems = Problems()
    for role, name in columns.used().items():
        count = head.columns.count(name)
        if head.is_json and count == 0 and role not in NEEDED:
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
    """Common table expressions that read and judge every row of ``relation``; the last one is ``judged``.

    ``judged`` has the columns of `JUDGED`, the values ``r_<role>`` as they stand, the numbers ``p`` and ``o``, and
    ``further``.
    """
    values = Values(table, wanted.time_zone)
    raw = [f"{sql_name(place)} AS r_{role}" for role, place in table.places().items()]
    kept = "verdict IS NULL"
    return f"""
    raw AS (SELECT {", ".join([*raw, *filter(None, [further])])} FROM {relation}),
    parsed AS (
        SELECT *, {named_sql(values, wanted)} AS named, {arrival_us_sql(values, wanted)} AS ts_us,
               {sum_sql(values, "prompt", "cached_beside")} AS p, {sum_sql(values, "output", "reasoning_beside")} AS o,
               {outcome_sql(values) or Outcome.SERVED.value} AS outcome
        FROM raw
    ),
    served AS (SELECT *, {alias_sql(wanted.aliases, "named", "ts_us")} AS model FROM parsed),
    ruled AS (SELECT *, {_verdict_sql(values, wanted)} AS verdict FROM served),
    judged AS (
        SELECT *, {class_sql(values)} AS traffic_class,
               CASE WHEN {kept} THEN CAST(p AS INTEGER) END AS prompt,
               CASE WHEN {kept} THEN CAST(o AS INTEGER) END AS output,
               {cached_sql(values)} AS cached,
               {values.hash("request_id")} AS id_hash, {rank_sql(values)} AS rank,
               {_adjusted_sql(values, wanted)} AS adjusted,
               {values.hash("logical_id")} AS logical_hash
        FROM ruled
    )
    """


def _verdict_sql(values: Values, wanted: Wanted) -> str:
    """The rules of `planner.traffic.rules`, in their order; what passes all of them is told first and at once."""
    rules = _rules(values, wanted)
    whole = values.kind("prompt") == values.kind("output") == "whole" and not _has_beside(values)
    good = [
        GOOD,
        f"ts_us BETWEEN {_earliest(values)} AND {_latest(values)}",
        f"p BETWEEN 1 AND {MAX_TOKENS}",
        f"o BETWEEN 0 AND {MAX_TOKENS}",
        *([] if whole else ["p = floor(p)", "o = floor(o)"]),
        *(f"NOT {test}" for test in _negative_beside(values)),
        # A served row passes all the rules on outcomes; the others are asked one by one.
        *([f"outcome = {Outcome.SERVED:d}"] if any(rule in OUTCOME_RULES for rule, _ in rules) else []),
        *(f"NOT ({test})" for rule, test in rules if rule not in TOKEN_RULES | OUTCOME_RULES),
    ]
    cases = " ".join(f"WHEN {test} THEN {CODES[rule]}" for rule, test in rules)
    return f"CAST(CASE WHEN {' AND '.join(good)} THEN NULL {cases} END AS UTINYINT)"


GOOD = "true"
"""Set to false, every row goes through the rules one by one: to check that it makes no difference."""
TOKEN_RULES = frozenset(
    {
        Rule.MALFORMED, Rule.BAD_TIMESTAMP, Rule.IMPLAUSIBLE_TIMESTAMP, Rule.MISSING_TOKENS, Rule.NOT_WHOLE_TOKENS,
        Rule.NEGATIVE_TOKENS, Rule.ABSURD_TOKENS, Rule.ZERO_TOKENS,
    }
)  # fmt: skip
"""Rules on the three needed values, which the first test of a row covers."""
OUTCOME_RULES = frozenset({Rule.REJECTED, Rule.FAILED, Rule.ABORTED_EMPTY})


def _has_beside(values: Values) -> bool:
    return any(values.has(role) for role in BESIDE)


def _earliest(values: Values) -> int:
    return 0 if values.table.time.relative else EARLIEST_US


def _latest(values: Values) -> int:
    return LONGEST_RELATIVE_US if values.table.time.relative else LATEST_US


def _rules(values: Values, wanted: Wanted) -> list[tuple[Rule, str]]:
    """Every rule that the log and the order leave possible, with its condition; none is ever null."""
    empty = {role: values.is_empty(role) for role in ("timestamp", "completion", "prompt", "output")}
    no_time = f"({empty['timestamp']} AND {empty['completion']})"
    not_whole = "p IS NULL OR o IS NULL OR NOT isfinite(CAST(p AS DOUBLE)) OR NOT isfinite(CAST(o AS DOUBLE))"
    no_output = f"(coalesce(o, 0) = 0 OR NOT {readable('o')})"
    tests = [(Rule.MALFORMED, f"{no_time} AND {empty['prompt']} AND {empty['output']}")]
    if wanted.model and values.has("model"):
        tests.append((Rule.OTHER_MODEL, f"model <> {sql_text(wanted.model)}"))
    tests += [
        (Rule.BAD_TIMESTAMP, "ts_us IS NULL"),
        (Rule.IMPLAUSIBLE_TIMESTAMP, f"ts_us NOT BETWEEN {_earliest(values)} AND {_latest(values)}"),
    ]
    outside = [
        *([f"ts_us < {wanted.since_us}"] if wanted.since_us is not None else []),
        *([f"ts_us >= {wanted.until_us}"] if wanted.until_us is not None else []),
    ]
    if outside:
        tests.append((Rule.OUTSIDE_WINDOW, " OR ".join(outside)))
    if values.has("operation") and values.table.generations:
        tests.append((Rule.NOT_A_GENERATION, _not_a_generation(values, empty)))
    if values.has("cache_hit"):
        tests.append((Rule.CACHE_HIT, values.is_true("cache_hit", CACHE_HIT)))
    if values.has("status") or values.has("error"):
        tests += [(Rule.REJECTED, f"outcome = {Outcome.REFUSED:d}"), (Rule.FAILED, f"outcome = {Outcome.FAILED:d}")]
    if values.has("status") or values.has("aborted"):
        tests.append((Rule.ABORTED_EMPTY, f"outcome = {Outcome.ABORTED:d} AND {no_output}"))
    return [
        *tests,
        (Rule.MISSING_TOKENS, f"{empty['prompt']} OR {empty['output']}"),
        (Rule.NOT_WHOLE_TOKENS, not_whole),
        (Rule.NEGATIVE_TOKENS, " OR ".join(["p < 0", "o < 0", *_negative_beside(values)])),
        (Rule.ABSURD_TOKENS, f"p > {MAX_TOKENS} OR o > {MAX_TOKENS}"),
        (Rule.NOT_WHOLE_TOKENS, "p <> floor(p) OR o <> floor(o)"),
        (Rule.ZERO_TOKENS, "p = 0"),
    ]


def _not_a_generation(values: Values, empty: dict[str, str]) -> str:
    """Another call than those of the format; one that has no name is none when it has no token counts either."""
    named = f"lower({values.text('operation')}) NOT IN ({listed(values.table.generations)})"
    return f"coalesce({named}, {empty['prompt']} AND {empty['output']})"


def _negative_beside(values: Values) -> list[str]:
    return [f"coalesce({values.double(role)} < 0, false)" for role in BESIDE if values.has(role)]


def _several(values: Values) -> str:
    choices = values.double("choices")
    return f"{choices} > 1 AND {readable(choices)}"


def _capped(values: Values) -> str:
    """More cached tokens than the prompt has; without a cast where none is needed, and unreadable ones are none."""
    if values.has("cached_beside"):
        cached = cached_tokens_sql(values)
        return f"{cached} > p AND {readable(cached)}"
    cached = values.number("cached")
    return f"{cached} > p" if values.kind("cached") == "whole" else f"{cached} > p AND {readable(cached)}"


def _adjusted_sql(values: Values, wanted: Wanted) -> str:
    """The sum of the bits of what holds for a kept row; `planner.traffic.attempts` adds the further attempts."""
    tests = {
        Adjustment.ABORTED: f"outcome = {Outcome.ABORTED:d}" if values.has("status") or values.has("aborted") else "",
        Adjustment.CACHED_ADDED: f"{values.double('cached_beside')} > 0" if values.has("cached_beside") else "",
        Adjustment.CACHED_CAPPED: _capped(values) if values.has("cached") else "",
        Adjustment.REASONING_ADDED: f"{values.double('reasoning_beside')} > 0"
        if values.has("reasoning_beside")
        else "",
        Adjustment.ARRIVAL_COMPUTED: computed_sql(values, wanted),
        Adjustment.ALIASED: "model <> named" if wanted.aliases else "",
        Adjustment.SEVERAL_CHOICES: _several(values) if values.has("choices") else "",
    }
    found = {adjustment: test for adjustment, test in tests.items() if test}
    if not found:
        return "CAST(0 AS USMALLINT)"
    bits = " + ".join(f"CASE WHEN {test} THEN {BITS[adjustment]} ELSE 0 END" for adjustment, test in found.items())
    # Hardly a row is adjusted: one test of all is cheaper than a sum of bits for each.
    some = " OR ".join(f"({test})" for test in found.values())
    return f"CASE WHEN verdict IS NULL AND ({some}) THEN CAST({bits} AS USMALLINT) ELSE CAST(0 AS USMALLINT) END"


def sniff_time(head: Head, column: str) -> TimeKind:
    """How a plain log writes time, told from its first row: text is ISO 8601, numbers go by their size."""
    value = dict(zip(head.columns, head.first_row, strict=False)).get(column, "")
    try:
        number = abs(float(value))
    except ValueError:
        return TimeKind.ISO
    by_size = ((1e17, TimeKind.EPOCH_NS), (1e14, TimeKind.EPOCH_US), (1e11, TimeKind.EPOCH_MS))
    found = next((kind for least, kind in by_size if number >= least), None)
    return found or (TimeKind.EPOCH_S if number >= EARLIEST_US / 1e6 else TimeKind.RELATIVE_S)
