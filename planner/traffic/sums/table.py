"""Requests and tokens of one model in one span of time: what every usage report comes down to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Protocol

from planner.errors import Problems
from planner.traffic.documents import Peek
from planner.traffic.readers.columns import OptionValue
from planner.traffic.storage.files import LogFile

DAY_S = 86_400
MOST = 1 << 53
"""Counts beyond this are no counts: floats of other tools would have lost digits."""


@dataclass(frozen=True)
class Sums:
    """One row of a usage report; the prompt holds cached tokens, the output reasoning tokens."""

    model: str
    start_s: int
    """Seconds since 1970."""
    width_s: int
    n: int
    """Requests that were answered."""
    sum_prompt: int
    sum_output: int
    sum_cached: int = 0
    failed: int = 0
    """Requests beside ``n`` that failed."""


class SumsReader(Protocol):
    """One kind of usage report."""

    @property
    def name(self) -> str:
        """The word for ``--format``."""

    @property
    def source(self) -> str:
        """The name in the manifest."""

    @property
    def options(self) -> Mapping[str, str]:
        """Option name to what it does."""

    def claims(self, peek: Peek) -> bool:
        """Whether a file that starts like this is such a report."""

    def read(self, path: LogFile, options: Mapping[str, OptionValue]) -> Iterable[Sums]:
        """Every row of a file.

        Raises
        ------
        InputError
            If it is no such report, or a figure in it is none.
        """


def added(rows: Iterable[Sums]) -> list[Sums]:
    """One row for each model and span, in their order: reports split them by key, user, provider and the like."""
    whole = [f.name for f in fields(Sums) if f.name not in ("model", "start_s", "width_s")]
    found: dict[tuple[str, int, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(whole, 0))
    for row in rows:
        total = found[row.model, row.start_s, row.width_s]
        for name in whole:
            total[name] += getattr(row, name)
    return [Sums(model, start_s, width_s, **total) for (model, start_s, width_s), total in sorted(found.items())]


def count_of(problems: Problems, where: str, row: str, record: Mapping[str, object], name: str) -> int:
    """A whole number of a record; 0 where it is absent or empty. Whatever else stands there is noted as a problem."""
    value = record.get(name)
    if value is None or value == "":
        return 0
    try:
        number = float(str(value)) if not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not (0 <= number <= MOST and number == int(number)):
        problems.add(where, f"{value!r:.40} is no count", "Export the report again", row=row, field=name)
        return 0
    return int(number)
