"""What became of a request: the Ibis counterpart of `planner.traffic.readers.outcome`."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import ibis

from planner.traffic.readers.outcome import Outcome
from planner.traffic.readers.words import ABORTED, ABORTED_CODE, NO_ERROR, REFUSED_CODES, REFUSED_PATTERN, SUCCESS, TRUE
from planner.traffic.warehouse.values import TableValues

NUMBERS = ("whole", "real")


def outcome(values: TableValues) -> Any:
    """The code of the `Outcome`: a refusal wins over an abort, that over a failure; otherwise the row was served."""
    spoken = [role for role in ("status", "error") if values.has(role)]
    refused = [_refused(values, role) for role in spoken]
    aborted = [_status_aborted(values)] if values.has("status") else []
    if values.has("aborted"):
        aborted.append(values.is_true("aborted", (*TRUE, *ABORTED)))
    failed = [_FAILED[role](values) for role in spoken]
    cases = [
        (reduce(or_, tests), int(code))
        for tests, code in ((refused, Outcome.REFUSED), (aborted, Outcome.ABORTED), (failed, Outcome.FAILED))
        if tests
    ]
    served = int(Outcome.SERVED)
    return ibis.cases(*cases, else_=served) if cases else ibis.literal(served)


def _refused(values: TableValues, role: str) -> Any:
    """By HTTP code or by word; ``error`` may be an exception's name or a sentence."""
    if values.kind(role) in NUMBERS:
        return values.raw(role).isin(REFUSED_CODES).fill_null(False)
    if values.kind(role) != "text":
        return ibis.literal(False)
    # In one group, because some engines put the pattern between others.
    return values.text(role).lower().re_search(f"({REFUSED_PATTERN})").fill_null(False)


def _status_aborted(values: TableValues) -> Any:
    kind = values.kind("status")
    if kind in NUMBERS:
        return (values.raw("status") == ABORTED_CODE).fill_null(False)
    return values.text("status").lower().isin(ABORTED).fill_null(False) if kind == "text" else ibis.literal(False)


def _status_failed(values: TableValues) -> Any:
    """A status that is neither empty, nor a word for success, nor an HTTP 2xx, is a failure."""
    kind = values.kind("status")
    if kind == "truth":
        return (~values.raw("status")).fill_null(False)
    number = values.number("status")
    good = number.between(200, 299).fill_null(False)
    if kind in NUMBERS:
        return (~(good | (number == 1))).fill_null(False)
    return (values.text("status").lower().notin(SUCCESS) & ~good).fill_null(False)


def _has_error(values: TableValues) -> Any:
    """Any text but the usual ways to write none; a flag or a number counts unless it is false or 0."""
    kind = values.kind("error")
    if kind == "truth":
        return values.raw("error").fill_null(False)
    if kind in NUMBERS:
        return (values.raw("error") != 0).fill_null(False)
    return values.text("error").lower().notin(NO_ERROR).fill_null(False)


_FAILED = {"status": _status_failed, "error": _has_error}
