"""What to ingest and how, and what can be told of it before any row is read."""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.errors import Problems
from planner.traffic.burstiness import STATED_IDC
from planner.traffic.readers.columns import Alias, OptionValue, Stamps, Wanted
from planner.traffic.schema import iso_utc
from planner.traffic.storage.files import LogFile, identity


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of rows, wherever they stand."""

    log_format: str = "auto"
    model: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[Alias, ...] = ()
    alias_version: str | None = None
    """Of the file that the aliases come from."""
    time_zone: str = "UTC"
    """Zone of naive time stamps."""
    stamps: Stamps | None = None
    """What time stamps say, where the user knows better than the format."""
    since_us: int | None = None
    """Keep arrivals from here on: microseconds since 1970."""
    until_us: int | None = None
    """Keep arrivals before this."""
    sampling_fraction: float | None = None
    """Share of the requests that the log holds, where no column says so."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    def filters(self) -> list[str]:
        """What is left out, in words for the manifest."""
        return [
            *([f"model = {self.model}"] if self.model else []),
            *([f"from {iso_utc(self.since_us)} on"] if self.since_us is not None else []),
            *([f"before {iso_utc(self.until_us)}"] if self.until_us is not None else []),
        ]


@dataclass(frozen=True)
class Order(Asked):
    """What to ingest and how."""

    files: tuple[LogFile, ...]
    prompt_bursts: bool = False
    """Whether to measure bursts by band of prompt lengths: one more look at every row."""

    def wanted(self) -> Wanted:
        """What a reader of request logs must know."""
        return Wanted(
            model=self.model,
            mapping=self.mapping,
            aliases=self.aliases,
            options=self.options,
            time_zone=self.time_zone,
            stamps=self.stamps,
            since_us=self.since_us,
            until_us=self.until_us,
        )


def order_problems(order: Order, reader: str, options: Mapping[str, str]) -> Problems:
    """Options that the reader does not have, a mapping that it does not take, and a time zone that is none.

    Parameters
    ----------
    reader
        The word for ``--format``.
    options
        Option name to what it does.
    """
    problems = Problems()
    for name in order.options:
        if name == "idc":
            problems.add("option idc", "is stated where a plan is made, not stored", f"In the request: {STATED_IDC}")
        elif name not in options:
            close = difflib.get_close_matches(name, options, n=1)
            known = f"{reader} knows: {', '.join(options) or 'no options'}"
            problems.add(f"option {name}", "is not known", f"Did you mean '{close[0]}'?" if close else known)
    if order.mapping and reader != "plain":
        problems.add("--map", f"cannot be used with --format {reader}", "Use --format plain")
    try:
        zoneinfo.ZoneInfo(order.time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        problems.add("--tz", f"'{order.time_zone}' is not a time zone", "Use a name such as UTC or Europe/Berlin")
    return problems


def refuse_twice(problems: Problems, files: Sequence[LogFile]) -> None:
    """Note it when a file is given twice, under whatever name."""
    if len({identity(path) for path in files}) < len(files):
        problems.add("FILE", "the same file is given twice", "Its requests would count twice")
