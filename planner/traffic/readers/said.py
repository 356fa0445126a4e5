"""What a row says, as SQL: its model, arrival, token counts, class and rank, before any rule judges it."""

from __future__ import annotations

from planner.traffic.engine import sql_text
from planner.traffic.readers.columns import Stamps, Wanted
from planner.traffic.readers.values import Values, listed
from planner.traffic.readers.words import FALSE, TRUE

LONGEST_REQUEST_S = 7 * 86_400
"""A longer duration is taken for a wrong one and not subtracted from a stamp of completion."""
CLASS_PATTERN = "[a-z0-9_.:/-]{1,40}"
NO_CLASS = (*FALSE, "default", "standard", "auto", "none", "null")


def named_sql(values: Values, wanted: Wanted) -> str:
    """The model as the log calls it."""
    names = [values.text(role) for role in ("model", "fallback_model") if values.has(role)]
    return f"coalesce({', '.join([*names, sql_text(wanted.model or 'default')])})"


def sum_sql(values: Values, role: str, beside: str) -> str:
    """A token count, with what its source counts beside it."""
    if not values.has(beside):
        return values.number(role)
    return f"{values.double(role)} + {values.beside(beside)}"


def arrival_us_sql(values: Values, wanted: Wanted) -> str:
    """The arrival; from the completion less the duration, where that is what the log has.

    Stamps of arrival win over it. A row without a readable duration keeps the stamp of its completion.
    """
    stamp, end = values.moment_us("timestamp"), values.moment_us("completion")
    if _completes(values, wanted):
        return f"{stamp} - coalesce({_duration_us(values)}, 0)" if values.has("duration") else stamp
    if not end:
        return stamp
    computed = f"{end} - coalesce({_duration_us(values)}, 0)" if values.has("duration") else end
    return f"coalesce({stamp}, {computed})" if stamp else computed


def _completes(values: Values, wanted: Wanted) -> bool:
    return (wanted.stamps or values.table.stamps) is Stamps.COMPLETION and values.has("timestamp")


def _duration_us(values: Values) -> str:
    """Null where it is none that a request can have."""
    number, unit = values.double("duration"), values.table.duration_unit_s
    longest = LONGEST_REQUEST_S / unit
    return f"CASE WHEN {number} BETWEEN 0 AND {longest!r} THEN CAST(round({number} * {unit * 1e6!r}) AS BIGINT) END"


def class_sql(values: Values) -> str:
    """``batch`` for a flag that is set; a value that is no short word is ``other``: it may be somebody's text."""
    if not values.has("traffic_class"):
        return "'default'"
    if values.kind("traffic_class") == "truth":
        return "CASE WHEN r_traffic_class THEN 'batch' ELSE 'default' END"
    text = f"lower({values.text('traffic_class')})"
    usual = listed(("default", "standard", "auto", "false", "False", "0", ""))
    return (
        f"CASE WHEN r_traffic_class IS NULL OR CAST(r_traffic_class AS VARCHAR) IN ({usual}) THEN 'default' "
        f"WHEN {text} IS NULL OR {text} IN ({listed(NO_CLASS)}) THEN 'default' "
        f"WHEN {text} IN ({listed(TRUE)}) THEN 'batch' "
        f"WHEN regexp_full_match({text}, {sql_text(CLASS_PATTERN)}) THEN {text} ELSE 'other' END"
    )


def cached_tokens_sql(values: Values) -> str:
    """Cached prompt tokens as a double; unreadable or negative ones are none."""
    if values.has("cached_beside") and values.has("cached"):
        # A source of many clients: some count them inside, some beside.
        return f"({values.beside('cached_beside')} + {values.beside('cached')})"
    return values.double("cached_beside") or values.double("cached")


def readable(number: str) -> str:
    """Whether it is neither NaN, which is above all numbers to the engine, nor infinite."""
    return f"isfinite(CAST({number} AS DOUBLE))"


def cached_sql(values: Values) -> str:
    """Cached prompt tokens of a kept row, at most its prompt; 0 in the others."""
    cached = cached_tokens_sql(values)
    if not cached:
        return "CAST(0 AS INTEGER)"
    fits = f"verdict IS NULL AND {readable(cached)} AND {cached} >= 0"
    usual = ""
    if not values.has("cached_beside") and values.kind("cached") == values.kind("prompt") == "whole":
        # Nearly all there is, without a cast.
        usual = "WHEN verdict IS NULL AND r_cached BETWEEN 0 AND p THEN CAST(r_cached AS INTEGER)"
    return f"CASE {usual} WHEN {fits} THEN CAST(least({cached}, p) AS INTEGER) ELSE 0 END"


def rank_sql(values: Values) -> str:
    """The version as a whole number that grows with it: a number in thousandths, or a moment in microseconds."""
    if not values.has("version"):
        return "CAST(NULL AS BIGINT)"
    if values.kind("version") == "moment":
        return values.moment_us("version")
    number = values.double("version")
    scaled = (
        f"CASE WHEN abs({number}) < 9e15 THEN TRY_CAST({number} * 1000 AS BIGINT) ELSE TRY_CAST({number} AS BIGINT) END"
    )
    return f"coalesce({scaled}, epoch_us(TRY_CAST({values.text('version')} AS TIMESTAMPTZ)))"


def computed_sql(values: Values, wanted: Wanted) -> str:
    """Whether the arrival of a row is a completion less a duration."""
    if not values.has("duration"):
        return ""
    if _completes(values, wanted):
        return f"{_duration_us(values)} IS NOT NULL"
    if not values.has("completion"):
        return ""
    by_end = f"{values.moment_us('completion')} IS NOT NULL AND {_duration_us(values)} IS NOT NULL"
    stamp = values.moment_us("timestamp")
    return f"{stamp} IS NULL AND {by_end}" if stamp else by_end
