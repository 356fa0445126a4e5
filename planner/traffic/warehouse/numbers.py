"""Whole numbers in SQL that every engine agrees on: no logarithm and no floating division."""

from __future__ import annotations

from typing import Any

import ibis

from planner.traffic.warehouse.cells import OCTAVES, STEPS

NUMBER = r"^[+-]?([0-9]{1,30}([.][0-9]{0,30})?|[.][0-9]{1,30})([eE][+-]?[0-9]{1,2})?$"
"""Texts that every engine reads as the same finite number."""
LARGEST = 1e300
LARGEST_WHOLE = 9.2e18
"""Below the largest number of 64 bits."""
NONE = ibis.null("float64")


def start_of(value: Any, step: int) -> Any:
    """The largest multiple of ``step`` that is not above ``value``, for values that are not negative.

    Engines disagree on whether ``/`` of whole numbers is whole, real or decimal; on the remainder they agree.
    """
    return value - value % step


def octave(tokens: Any) -> Any:
    """The largest power of two that is not above a token count; 0 for none."""
    return ibis.cases(*((tokens >= power, power) for power in reversed(OCTAVES)), else_=0).cast("int64")


def step(tokens: Any, power: Any) -> Any:
    """The place of a token count among the buckets of its octave, which starts at ``power``."""
    scaled = tokens * STEPS[0]
    tests = ((scaled >= power * least, place) for place, least in reversed(list(enumerate(STEPS))[1:]))
    return ibis.ifelse(power == 0, 0, ibis.cases(*tests, else_=0)).cast("int64")


def trimmed(column: Any) -> Any:
    """The text of a column, null where it is empty."""
    return column.cast("string").strip().nullif("")


def finite(column: Any) -> Any:
    """The number in a column as a double; null for text that is no number, NaN and the infinities.

    NaN is asked for by itself: DuckDB leaves out a comparison that a Parquet file's statistics, which do not count NaN,
    say is always true. Infinity is told by comparison, because Ibis takes Databricks to have none.
    """
    if column.type().is_string() or column.type().is_uuid():
        text = trimmed(column)
        return ibis.ifelse(text.re_search(NUMBER), text, ibis.null("string")).cast("float64")
    number = column.cast("float64")
    if not column.type().is_floating():
        return number
    return ibis.ifelse(~number.isnan() & (number < LARGEST) & (number > -LARGEST), number, NONE)


def rounded(number: Any) -> Any:
    """The nearest whole number of 64 bits; null where it has no room."""
    fits = (number < LARGEST_WHOLE) & (number > -LARGEST_WHOLE)
    return ibis.ifelse(fits, _floored(fits, number + 0.5), ibis.null("int64"))


def is_fraction(number: Any, most: int) -> Any:
    """Whether a number between 0 and ``most`` is not whole; numbers outside are not judged."""
    inside = (number >= 0) & (number <= most)
    return ibis.ifelse(inside, number, 0.0) != _floored(inside, number).cast("float64")


def _floored(judged: Any, number: Any) -> Any:
    """Some engines convert what stands under a null too, and fail there: such places hold 0 until it is done."""
    return ibis.ifelse(judged, number, 0.0).floor().cast("int64")
