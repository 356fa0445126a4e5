"""What every table of a request is: immutable, and a key that is not known is an error; names that can be looked up."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

WILDCARDS, OPERATORS = "*?~", "=<>"
PADDING = "(none)"
"""Stands in rows of the workbook that a scenario does not have."""


class Strict(BaseModel):
    """Immutable, and a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _name(text: str) -> str:
    """Formulas of the workbook look rows up by name: what a spreadsheet reads as a criterion finds other rows."""
    if not text.strip() or text != text.strip():
        raise ValueError("must not be empty, or begin or end with a blank")
    if any(mark in text for mark in WILDCARDS):
        raise ValueError("must not hold *, ? or ~: spreadsheets read them as wildcards")
    if text[0] in OPERATORS or text == PADDING:
        raise ValueError(f"must not begin with =, < or >, nor be {PADDING}: spreadsheets would look for other rows")
    if not text.isprintable():
        raise ValueError("must not hold control characters")
    try:
        float(text.removesuffix("%").replace(",", ""))
    except ValueError:
        return text
    raise ValueError("must not be a number: spreadsheets would look for other rows")


Name = Annotated[str, AfterValidator(_name)]
"""A name by which formulas find rows."""
