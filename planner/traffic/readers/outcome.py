"""What became of a request, told from its status, its error and whether the client went away: as SQL."""

from __future__ import annotations

from enum import IntEnum

from planner.traffic.engine import sql_text
from planner.traffic.readers.values import Values, listed
from planner.traffic.readers.words import (
    ABORTED,
    ABORTED_CODE,
    COMMON_SUCCESS,
    NO_ERROR,
    REFUSED_CODES,
    REFUSED_PATTERN,
    SUCCESS,
    TRUE,
)


class Outcome(IntEnum):
    """What became of a request."""

    SERVED = 0
    REFUSED = 1
    """Before prefill: no GPU work."""
    ABORTED = 2
    """The client went away; what was computed until then loaded a GPU."""
    FAILED = 3


def outcome_sql(values: Values) -> str:
    """The code of the `Outcome`; empty where the log says nothing, so that every row counts as served.

    A refusal wins over everything. A client that went away wins over a failure, because proxies log such requests as
    failures too (nginx: 499). An error text is a failure whatever the status says (some proxies answer 200 and fail
    in the stream).
    """
    roles = [role for role in ("status", "error", "aborted") if values.has(role)]
    if not roles:
        return ""
    usual = " AND ".join(_USUAL[role](values) for role in roles)
    refused = _either(_refused(values, role) for role in roles if role != "aborted")
    aborted = _either([_status_aborted(values), _aborted(values)])
    failed = _either([_status_failed(values), _has_error(values)])
    return (
        f"CAST(CASE WHEN {usual} THEN {Outcome.SERVED:d} WHEN {refused} THEN {Outcome.REFUSED:d} "
        f"WHEN {aborted} THEN {Outcome.ABORTED:d} WHEN {failed} THEN {Outcome.FAILED:d} ELSE {Outcome.SERVED:d} END "
        "AS UTINYINT)"
    )


def _either(tests: object) -> str:
    found = [test for test in tests if test]  # type: ignore[attr-defined]
    return " OR ".join(found) if found else "false"


def _usual_status(values: Values) -> str:
    """A cheap test that nearly every row passes; the others are looked at with care."""
    kind = values.kind("status")
    if kind in ("whole", "real"):
        return f"({values.number('status')} BETWEEN 200 AND 299)"
    if kind == "truth":
        return "r_status"
    return f"(r_status IN ({listed(COMMON_SUCCESS)}))" if kind == "text" else "false"


def _usual_error(values: Values) -> str:
    return "(r_error IS NULL OR r_error = '')" if values.kind("error") == "text" else "r_error IS NULL"


def _usual_aborted(values: Values) -> str:
    return f"NOT {_aborted(values)}"


_USUAL = {"status": _usual_status, "error": _usual_error, "aborted": _usual_aborted}


def _refused(values: Values, role: str) -> str:
    """By HTTP code or by word; ``error`` may be an exception's name or a sentence."""
    if values.kind(role) in ("whole", "real"):
        return f"coalesce({values.number(role)} IN ({', '.join(map(str, REFUSED_CODES))}), false)"
    if values.kind(role) != "text":
        return ""
    return f"coalesce(regexp_matches(lower({values.text(role)}), {sql_text(REFUSED_PATTERN)}), false)"


def _status_aborted(values: Values) -> str:
    if not values.has("status"):
        return ""
    kind = values.kind("status")
    if kind in ("whole", "real"):
        return f"coalesce({values.number('status')} = {ABORTED_CODE}, false)"
    return f"coalesce(lower({values.text('status')}) IN ({listed(ABORTED)}), false)" if kind == "text" else ""


def _aborted(values: Values) -> str:
    return f"({values.is_true('aborted', (*TRUE, *ABORTED))})" if values.has("aborted") else ""


def _status_failed(values: Values) -> str:
    """A status that is neither empty, nor a word for success, nor an HTTP 2xx, is a failure."""
    if not values.has("status"):
        return ""
    kind = values.kind("status")
    if kind in ("whole", "real"):
        number = values.number("status")
        return f"coalesce(NOT ({number} BETWEEN 200 AND 299 OR {number} = 1), false)"
    if kind == "truth":
        return "coalesce(NOT r_status, false)"
    text = values.text("status")
    return (
        f"coalesce(lower({text}) NOT IN ({listed(SUCCESS)}) "
        f"AND NOT coalesce(TRY_CAST({text} AS DOUBLE) BETWEEN 200 AND 299, false), false)"
    )


def _has_error(values: Values) -> str:
    """Any text but the usual ways to write none; a flag or a number counts unless it is false or 0."""
    if not values.has("error"):
        return ""
    kind = values.kind("error")
    if kind == "truth":
        return "coalesce(r_error, false)"
    if kind in ("whole", "real"):
        return f"coalesce({values.number('error')} <> 0, false)"
    return f"coalesce(lower({values.text('error')}) NOT IN ({listed(NO_ERROR)}), false)"
