"""Multiples of whole numbers in whole numbers, by the decimal factor that is meant."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction


def exact(factor: float) -> Fraction:
    """The decimal number that is meant: 1.4 is 7/5, not its nearest binary fraction."""
    return Fraction(Decimal(repr(float(factor))))


def nearest(tokens: int, factor: Fraction) -> int:
    """The nearest whole number to the multiple, halves up."""
    return (2 * tokens * factor.numerator + factor.denominator) // (2 * factor.denominator)


def rounded_up(value: int, factor: Fraction) -> int:
    """The least whole number that is not below the multiple."""
    return -((-value * factor.numerator) // factor.denominator)


def running(values: Sequence[int], factor: Fraction, keep: Sequence[bool] | None = None) -> list[int]:
    """Multiples in whole numbers: each running total is the nearest to the multiple of the observed one.

    With ``keep``, only at those places; what falls between goes to the next of them, and what is left to the last.
    """
    kept = [True] * len(values) if keep is None else list(keep)
    last = max((place for place, wanted in enumerate(kept) if wanted), default=-1)
    total, given, found = 0, 0, []
    whole = sum(values)
    for place, value in enumerate(values):
        total += value
        if kept[place]:
            reached = nearest(whole if place == last else total, factor)
            found.append(reached - given)
            given = reached
    return found
