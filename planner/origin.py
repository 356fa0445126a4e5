"""How far a figure can be trusted: printed beside every one."""

from __future__ import annotations

from enum import StrEnum


class Origin(StrEnum):
    """How far a figure can be trusted."""

    GIVEN = "given"
    """Typed by the user."""
    MEASURED = "measured"
    CATALOGUE = "catalogue"
    """A dated fact with a source."""
    COMPUTED = "computed"
    """Exact arithmetic on facts."""
    FITTED = "fitted"
    """A coefficient fitted on start-up logs, with its residual in the source."""
    GUESS = "guess"
