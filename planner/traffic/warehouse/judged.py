"""From a table of a warehouse to judged rows: the rules of `planner.traffic.readers.judge` on typed columns.

The rules have the same names, codes and order there and here; tests compare the two on the same dirty rows. All roles
of `planner.traffic.warehouse.table.ROLES` are supported; rules whose roles a table lacks cost nothing, and the two that
look at several rows (`planner.traffic.warehouse.repeats`) sort by id only where an id is mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis

from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.readers.aliases import checked
from planner.traffic.readers.columns import Alias, Stamps, Wanted
from planner.traffic.readers.judge import EARLIEST_US, LATEST_US, LONGEST_RELATIVE_US
from planner.traffic.readers.outcome import Outcome
from planner.traffic.readers.said import CLASS_PATTERN, LONGEST_REQUEST_S, NO_CLASS
from planner.traffic.readers.words import CACHE_HIT, TRUE
from planner.traffic.rules import BITS, CODES, Adjustment, Rule
from planner.traffic.schema import DEFAULT_CLASS
from planner.traffic.tables.rows import KEPT
from planner.traffic.warehouse.numbers import LARGEST, NONE, is_fraction, rounded
from planner.traffic.warehouse.outcome import outcome
from planner.traffic.warehouse.repeats import with_attempts, without_duplicates
from planner.traffic.warehouse.table import TableColumns
from planner.traffic.warehouse.values import TableValues

SMALL = ("model", "traffic_class", "ts_us", "prompt", "output", "cached", "verdict", "adjusted")
"""What is left of a row once duplicates are told."""
LARGEST_TO_SCALE = 9e15


def judged(table: Any, columns: TableColumns, wanted: Wanted) -> Any:
    """Every row of the table in a few columns, with the code of the rule that dropped it.

    Parameters
    ----------
    table
        An Ibis table.
    columns
        Which of its columns play which part.
    wanted
        Model, aliases, window and the meaning of the stamps.

    Returns
    -------
    An Ibis table of the columns `SMALL`; ``verdict`` is `KEPT` for a kept row, the codes of the rules start at 0.
    """
    values = TableValues(table, columns)
    parsed = table.select(**_parsed(values, wanted))
    served = parsed.mutate(model=_served(parsed, wanted.aliases))
    ruled = served.mutate(verdict=_verdict(served, values, wanted))
    kept = ruled.verdict == KEPT
    cached = ibis.ifelse((ruled.c >= 0) & (ruled.c <= LARGEST), ibis.least(ruled.c, ruled.p), 0.0).fill_null(0.0)
    small = ruled.select(
        "model",
        "traffic_class",
        "ts_us",
        "request_id",
        "logical_id",
        "rank",
        "verdict",
        prompt=rounded(ibis.ifelse(kept, ruled.p, NONE)),
        output=rounded(ibis.ifelse(kept, ruled.o, NONE)),
        cached=rounded(ibis.ifelse(kept, cached, 0.0)),
        adjusted=_adjusted(ruled, kept),
    )
    if columns.has("request_id"):
        small = without_duplicates(small)
    if columns.has("logical_id"):
        small = with_attempts(small)
    return small.select(*SMALL)


def _parsed(values: TableValues, wanted: Wanted) -> dict[str, Any]:
    names = [values.text(role) for role in ("model", "fallback_model") if values.has(role)]
    arrival, computed = _arrival_us(values, wanted)
    empty = {role: values.is_empty(role) for role in ("prompt", "output")}
    no_time = values.is_empty("timestamp") & values.is_empty("completion")
    return {
        "named": ibis.coalesce(*names, ibis.literal(wanted.model or "default")),
        "traffic_class": _class(values),
        "ts_us": arrival,
        "p": _sum(values, "prompt", "cached_beside"),
        "o": _sum(values, "output", "reasoning_beside"),
        "c": _cached(values),
        "request_id": values.text("request_id"),
        "logical_id": values.text("logical_id"),
        "rank": _rank(values),
        "blank": no_time & empty["prompt"] & empty["output"],
        "missing": empty["prompt"] | empty["output"],
        "from_cache": values.is_true("cache_hit", CACHE_HIT) if values.has("cache_hit") else ibis.literal(False),
        "outcome": outcome(values),
        "other_call": _not_a_generation(values, empty["prompt"] & empty["output"]),
        "below_zero": _negative_beside(values),
        "computed": computed,
        "cached_added": _positive(values, "cached_beside"),
        "capped": ibis.literal(values.has("cached")),
        "reasoning_added": _positive(values, "reasoning_beside"),
        "several": (values.number("choices") > 1).fill_null(False),
    }


def _sum(values: TableValues, role: str, beside: str) -> Any:
    """A token count, with what its source counts beside it."""
    return values.number(role) + values.beside(beside) if values.has(beside) else values.number(role)


def _cached(values: TableValues) -> Any:
    """Cached prompt tokens; where some clients count them inside and some beside, both together."""
    if values.has("cached_beside") and values.has("cached"):
        return values.beside("cached_beside") + values.beside("cached")
    return values.number("cached_beside" if values.has("cached_beside") else "cached")


def _positive(values: TableValues, role: str) -> Any:
    return (values.number(role) > 0).fill_null(False) if values.has(role) else ibis.literal(False)


def _negative_beside(values: TableValues) -> Any:
    below = ibis.literal(False)
    for role in ("cached_beside", "reasoning_beside"):
        if values.has(role):
            below |= (values.number(role) < 0).fill_null(False)
    return below


def _arrival_us(values: TableValues, wanted: Wanted) -> tuple[Any, Any]:
    """The arrival, and whether it is the completion less the duration; stamps of arrival win over that."""
    never = ibis.literal(False)
    stamp = values.moment_us("timestamp")
    duration = _duration_us(values)
    if (wanted.stamps or values.columns.stamps) is Stamps.COMPLETION:
        return (stamp, never) if duration is None else (stamp - duration.fill_null(0), duration.notnull())
    if not values.has("completion"):
        return stamp, never
    end = values.moment_us("completion")
    if duration is None:
        return ibis.coalesce(stamp, end), never
    by_end = stamp.isnull() & end.notnull() & duration.notnull()
    return ibis.coalesce(stamp, end - duration.fill_null(0)), by_end


def _duration_us(values: TableValues) -> Any:
    """Null where it is none that a request can have; ``None`` where the table has no durations."""
    if not values.has("duration"):
        return None
    number, unit = values.number("duration"), values.columns.duration_unit_s
    possible = number.between(0, LONGEST_REQUEST_S / unit)
    return rounded(ibis.ifelse(possible, number, NONE) * (unit * 1e6))


def _class(values: TableValues) -> Any:
    """``batch`` for a flag that is set; a value that is no short word is ``other``: it may be somebody's text."""
    if not values.has("traffic_class"):
        return ibis.literal(DEFAULT_CLASS)
    if values.kind("traffic_class") == "truth":
        return ibis.ifelse(values.raw("traffic_class").fill_null(False), "batch", DEFAULT_CLASS)
    text = values.text("traffic_class").lower()
    return ibis.cases(
        (text.isnull() | text.isin(NO_CLASS), DEFAULT_CLASS),
        (text.isin(TRUE), "batch"),
        (text.re_search(f"^{CLASS_PATTERN}$"), text),
        else_="other",
    )


def _rank(values: TableValues) -> Any:
    """The version as a whole number that grows with it: a number in thousandths, or a moment in microseconds."""
    if not values.has("version"):
        return ibis.null("int64")
    if values.kind("version") == "moment":
        return values.moment_us("version")
    number = values.number("version")
    return rounded(ibis.ifelse(number.abs() < LARGEST_TO_SCALE, number * 1000, number))


def _served(row: Any, aliases: Sequence[Alias]) -> Any:
    """The weights behind the name at the arrival: of one name, the latest date that is not after it counts."""
    by_name: dict[str, list[Alias]] = {}
    for alias in checked("", aliases):
        by_name.setdefault(alias.alias, []).append(alias)
    if not by_name:
        return row.named
    return ibis.cases(*((row.named == name, _weights(row, own)) for name, own in by_name.items()), else_=row.named)


def _weights(row: Any, own: Sequence[Alias]) -> Any:
    always = next((ibis.literal(alias.weights) for alias in own if alias.since_us is None), row.named)
    dated = [(row.ts_us >= a.since_us, ibis.literal(a.weights)) for a in reversed(own) if a.since_us is not None]
    return ibis.cases(*dated, else_=always) if dated else always


def _not_a_generation(values: TableValues, no_tokens: Any) -> Any:
    """Another call than those of the format; one that has no name is none when it has no token counts either."""
    if not (values.has("operation") and values.columns.generations):
        return ibis.literal(False)
    return values.text("operation").lower().notin(values.columns.generations).fill_null(no_tokens)


def _verdict(row: Any, values: TableValues, wanted: Wanted) -> Any:
    """The rules in their order; the first that holds names the row."""
    low, high = (0, LONGEST_RELATIVE_US) if values.columns.time.relative else (EARLIEST_US, LATEST_US)
    tests = [(Rule.MALFORMED, row.blank)]
    if wanted.model and values.has("model"):
        tests.append((Rule.OTHER_MODEL, row.model != wanted.model))
    tests += [
        (Rule.BAD_TIMESTAMP, row.ts_us.isnull()),
        (Rule.IMPLAUSIBLE_TIMESTAMP, (row.ts_us < low) | (row.ts_us > high)),
    ]
    if wanted.since_us is not None:
        tests.append((Rule.OUTSIDE_WINDOW, row.ts_us < wanted.since_us))
    if wanted.until_us is not None:
        tests.append((Rule.OUTSIDE_WINDOW, row.ts_us >= wanted.until_us))
    tests += [
        (Rule.NOT_A_GENERATION, row.other_call),
        (Rule.CACHE_HIT, row.from_cache),
        (Rule.REJECTED, row.outcome == int(Outcome.REFUSED)),
        (Rule.FAILED, row.outcome == int(Outcome.FAILED)),
        (Rule.ABORTED_EMPTY, (row.outcome == int(Outcome.ABORTED)) & (row.o.fill_null(0) == 0)),
        (Rule.MISSING_TOKENS, row.missing),
        (Rule.NOT_WHOLE_TOKENS, row.p.isnull() | row.o.isnull()),
        (Rule.NEGATIVE_TOKENS, (row.p < 0) | (row.o < 0) | row.below_zero),
        (Rule.ABSURD_TOKENS, (row.p > MAX_TOKENS) | (row.o > MAX_TOKENS)),
        (Rule.NOT_WHOLE_TOKENS, is_fraction(row.p, MAX_TOKENS) | is_fraction(row.o, MAX_TOKENS)),
        (Rule.ZERO_TOKENS, row.p == 0),
    ]
    return ibis.cases(*((test, CODES[rule]) for rule, test in tests), else_=KEPT).cast("int64")


def _adjusted(row: Any, kept: Any) -> Any:
    """The sum of the bits of what holds for a kept row."""
    tests = {
        Adjustment.ABORTED: row.outcome == int(Outcome.ABORTED),
        Adjustment.CACHED_ADDED: row.cached_added,
        Adjustment.CACHED_CAPPED: row.capped & (row.c > row.p).fill_null(False),
        Adjustment.REASONING_ADDED: row.reasoning_added,
        Adjustment.ARRIVAL_COMPUTED: row.computed,
        Adjustment.ALIASED: row.model != row.named,
        Adjustment.SEVERAL_CHOICES: row.several,
    }
    bits = [ibis.ifelse(test, BITS[adjustment], 0) for adjustment, test in tests.items()]
    return ibis.ifelse(kept, sum(bits[1:], bits[0]), 0).cast("int64")
