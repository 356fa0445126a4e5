"""Days that people type."""

from __future__ import annotations

import datetime as dt

from planner.errors import InputError, Problem


def day(text: str | None, option: str = "--today") -> dt.date:
    """A day in ISO 8601, or today's where none is given.

    Raises
    ------
    InputError
        If the text is no day.
    """
    if text is None:
        return dt.datetime.now(dt.UTC).date()
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise InputError(Problem(option, f"'{text}' is not an ISO 8601 day", "Write 2026-11-29")) from None
