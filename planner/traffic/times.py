"""Time stamps as people and tools write them, one at a time: of options, and of files of few rows."""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, datetime

from planner.errors import InputError, Problem

_NUMBER = re.compile(r"\d{9,19}(\.\d+)?")
_IN_NAME = re.compile(
    r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)[T_ -]?(\d\d)[-:.]?(\d\d)(?:[-:.]?(\d\d))?(Z|[+-]\d\d:?\d\d)?(?!\d)"
)
_EPOCH_IN_NAME = re.compile(r"(?<!\d)(1\d{9})(?:\d{3})?(?!\d)")
MS_FROM, US_FROM, NS_FROM = 1e11, 1e14, 1e17
"""A number of seconds this large would lie beyond the year 5000: it counts in a smaller unit."""

LONGEST_S = 3 * 366 * 86_400
FIRST_S, LAST_S = 1_420_070_400, 4_102_444_800
"""2015 and 2100: times outside are mistakes."""


def seconds_of(text: str, zone: str) -> float | None:
    """Seconds since 1970: of a number in s, ms, us or ns, or of an ISO 8601 stamp, in ``zone`` if it names none."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        value = float(text)
        unit = next((1000.0**k for k, limit in ((3, NS_FROM), (2, US_FROM), (1, MS_FROM)) if value >= limit), 1.0)
        return value / unit
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _seconds(stamp, zone)


def moment_us(where: str, text: str) -> int | None:
    """Microseconds text 1970 of an ISO 8601 moment, UTC where it names no zone; none for empty text.

    Raises
    ------
    InputError
        If it is no such moment.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fix = "Write a date such as 2026-08-01, or a moment such as 2026-08-01T06:00:00Z"
        raise InputError(Problem(where, f"'{text}' is no time", fix)) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1e6)


def check_span(where: str, start_s: float, end_s: float) -> None:
    """Refuse a window of time that no log has.

    Raises
    ------
    InputError
        If it does not lie between 2015 and 2100, or is longer than three years.
    """
    if not (start_s >= FIRST_S and end_s <= LAST_S):
        what = f"has times outside of 2015 to 2100 ({start_s:.0f} s to {end_s:.0f} s since 1970)"
        raise InputError(Problem(where, what, "Check the unit of its times, and options that state times"))
    if end_s - start_s > LONGEST_S:
        what = f"spans {(end_s - start_s) / 86_400:,.0f} days"
        raise InputError(Problem(where, what, "Leave out what has a wrong date, or choose with --since and --until"))


def time_in_name(stem: str, zone: str) -> tuple[str, float] | None:
    """The time that a file name states, and what is left of the name: ``pod-a_2026-09-03T142207Z`` or an epoch."""
    for pattern in (_IN_NAME, _EPOCH_IN_NAME):
        found = pattern.search(stem)
        if found is None:
            continue
        rest = (stem[: found.start()] + stem[found.end() :]).strip("-_. @")
        if pattern is _EPOCH_IN_NAME:
            return rest, float(found[1])
        year, month, day, hour, minute, second, offset = found.groups()
        text = f"{year}-{month}-{day}T{hour}:{minute}:{second or '00'}{offset or ''}"
        try:
            return rest, _seconds(datetime.fromisoformat(text), zone)
        except ValueError:
            continue
    return None


def _seconds(stamp: datetime, zone: str) -> float:
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=zoneinfo.ZoneInfo(zone))).timestamp()
