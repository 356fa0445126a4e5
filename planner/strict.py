"""What every table of a request is: immutable, and a key that is not known is an error; names that can be looked up."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

ESCAPE = re.compile(r"_x[0-9A-Fa-f]{4}_")
PADDING = "(none)"
"""Stands in rows of the workbook that a scenario does not have."""


class Strict(BaseModel):
    """Immutable, and a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _name(text: str) -> str:
    if not text.strip() or text != text.strip():
        raise ValueError("must not be empty, or begin or end with a blank")
    if not text.isprintable() or ESCAPE.search(text):
        raise ValueError("must not hold control characters, nor what a workbook writes for them, such as _x000D_")
    if text == PADDING:
        raise ValueError(f"must not be {PADDING}: the workbook writes it where a scenario has no such row")
    return text


Name = Annotated[str, AfterValidator(_name)]
"""A name by which rows of the workbook are looked up."""
