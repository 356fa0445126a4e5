"""Figures as the page prints them."""

from __future__ import annotations

import math

NO_STEADY_STATE = "no steady state"
MINUS = "−"
PERCENT = "\N{NO-BREAK SPACE}%"
LEAST_PERCENT = 0.0005
"""Smaller ones are printed as none."""


def usd(value: float) -> str:
    """An amount in whole USD."""
    return count(value)


def usd_change(value: float) -> str:
    """A difference in whole USD, with its sign."""
    return "0" if round(value) == 0 else f"{value:+,.0f}".replace("-", MINUS)


def rate(value: float) -> str:
    """A price per unit, four decimals."""
    return f"{value:,.4f}".replace("-", MINUS)


def count(value: float) -> str:
    """A whole number."""
    if not math.isfinite(value):
        return NO_STEADY_STATE
    return f"{value:,.0f}".replace("-", MINUS) if round(value) else "0"


def gpus(number: int) -> str:
    """A number of GPUs, in words."""
    return "1 GPU" if number == 1 else f"{count(number)} GPUs"


def decimal(value: float) -> str:
    """Three significant digits, or every digit before the point."""
    if not math.isfinite(value):
        return NO_STEADY_STATE
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", MINUS)


def gib(value: float) -> str:
    """GiB, two decimals."""
    return f"{value:,.2f}".replace("-", MINUS)


def share(value: float) -> str:
    """A share in percent."""
    if not math.isfinite(value):
        return NO_STEADY_STATE
    percent = 100 * value
    if abs(percent) < LEAST_PERCENT:
        return f"0{PERCENT}"
    digits = 0 if abs(percent) >= 9.95 else 1 if abs(percent) >= 0.095 else 3
    return f"{percent:.{digits}f}{PERCENT}".replace("-", MINUS)


def of_unit(value: float, unit: str) -> str:
    """A planned figure or limit, with the digits of its unit; shares in percent."""
    if unit.startswith("share"):
        return share(value)
    return decimal(value) if unit == "ms" else count(value)
