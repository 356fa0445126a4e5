"""Figures as people read them on a terminal."""

from __future__ import annotations

import math


def number(value: float, digits: int) -> str:
    """Significant digits without an exponent: 12,346; 0.0123; never 1.2e+04."""
    if value == 0:
        return "0"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def window(start: str, end: str, time_base: str) -> str:
    """The observed window; a log that counts time from its own start stands at 1970, which is no date."""
    dates = f"{start} to {end}"
    return dates if time_base == "UTC" else f"{dates}, counted from the start of the log: no dates"


def percent(share: float) -> str:
    """A share in percent: two digits, but never 100 for less than all."""
    if 0.995 <= share < 1:
        return f"{math.floor(share * 1e4) / 100:.2f}"
    return number(100 * share, 2)
