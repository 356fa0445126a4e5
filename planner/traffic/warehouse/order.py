"""What is asked of which table."""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass

from planner.errors import Problems
from planner.traffic.order import Asked
from planner.traffic.readers.columns import Wanted
from planner.traffic.sampling import check_fraction


@dataclass(frozen=True)
class TableOrder(Asked):
    """What to ask of which table."""

    backend: str
    table: str
    connect: str = ""
    """Address; may hold a password, so it is never stored or shown as it is."""

    def wanted(self) -> Wanted:
        """What the rules must know."""
        return Wanted(
            model=self.model,
            aliases=self.aliases,
            stamps=self.stamps,
            since_us=self.since_us,
            until_us=self.until_us,
        )


def check(order: TableOrder) -> None:
    """What can be told before anything is asked.

    Raises
    ------
    InputError
        If the options contradict each other.
    """
    problems = Problems()
    problems.attempt(lambda: check_fraction("--sampling", order.sampling_fraction))
    if order.mapping and order.log_format not in ("auto", "plain"):
        problems.add("--map", f"cannot be used with --format {order.log_format}", "Use --format plain")
    if order.time_zone != "UTC":
        try:
            zoneinfo.ZoneInfo(order.time_zone)
            what = "engines convert local times differently, so a table's stamps without a zone are read as UTC"
            problems.add("--tz", what, "Make a view that converts them to UTC, and give that")
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            problems.add("--tz", f"'{order.time_zone}' is not a time zone", "Leave it out: tables are read as UTC")
    problems.raise_if_any()


def table_name(table: str) -> str:
    """The table without what an address may hold: user, password, query."""
    return re.sub(r"(?<=://)[^/@]*@", "", table).partition("?")[0]
