"""Sums per UTC day: the daily spend tables of LiteLLM, and the activity of OpenRouter.

LiteLLM: tables ``LiteLLM_DailyUserSpend`` and its likes, dumped as CSV (columns of the proxy's Prisma schema);
``prompt_tokens`` include what was read from a cache. OpenRouter: the activity page's CSV, or the answer of its activity
API (JSON); ``reasoning_tokens`` are part of ``completion_tokens``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from planner.errors import InputError, Problem, Problems
from planner.traffic.documents import Peek, json_objects, text_of
from planner.traffic.readers.columns import OptionValue
from planner.traffic.readers.head import wide_fields
from planner.traffic.storage.files import LogFile
from planner.traffic.sums.table import DAY_S, Sums, count_of


@dataclass(frozen=True)
class Daily:
    """A report with one row per day, model and whatever else it is split by."""

    name: str
    source: str
    needed: frozenset[str]
    """Columns by which it is told."""
    models: tuple[str, ...]
    """Columns of the model, the first that is not empty counts."""
    requests: str
    """Requests that were answered."""
    cached: str = ""
    failed: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def claims(self, peek: Peek) -> bool:
        """By the columns of a CSV, or the members of a JSON document."""
        return self.needed <= (peek.keys if peek.is_json else frozenset(peek.header))

    def read(self, path: LogFile, options: Mapping[str, OptionValue]) -> Iterator[Sums]:
        """Every row."""
        problems = Problems()
        found = [self._row(problems, str(path), row, record) for row, record in _records(path)]
        problems.raise_if_any()
        yield from found

    def _row(self, problems: Problems, where: str, row: str, record: Mapping[str, object]) -> Sums:
        absent = sorted(name for name in self.needed if name not in record)
        if absent:
            problems.add(where, f"has no {', '.join(absent)}", "Export the table with its header", row=row)
        names = (self.requests, "prompt_tokens", "completion_tokens", self.cached, self.failed)
        figures = [count_of(problems, where, row, record, name) if name else 0 for name in names]
        model = next((str(record[name]) for name in self.models if record.get(name)), "")
        return Sums(model, _day(problems, where, row, record), DAY_S, *figures)


def _day(problems: Problems, where: str, row: str, record: Mapping[str, object]) -> int:
    text = str(record.get("date", ""))[:10]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        problems.add(where, f"{text!r} is no date", "Dates are written as 2026-09-03", row=row, field="date")
        return 0
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _records(path: LogFile) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Rows of a CSV, or objects of a JSON document or of the list ``data`` in it, each with its place."""
    text = text_of(path)
    if text.lstrip().startswith(("{", "[")):
        for place, record in json_objects(path):
            data = record.get("data")
            items = data if isinstance(data, list) else [record]
            for number, item in enumerate(items, start=1):
                if not isinstance(item, dict):
                    raise InputError(Problem(place, f"holds a {type(item).__name__}, no object", row=f"entry {number}"))
                yield f"entry {number}", item
        return
    try:
        with wide_fields():
            rows = list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise InputError(Problem(str(path), f"is no CSV: {error}", "Export it again")) from None
    for line, row in enumerate(rows, start=2):
        yield str(line), row


LITELLM_DAILY = Daily(
    name="litellm-daily",
    source="litellm-daily-spend",
    needed=frozenset({"date", "prompt_tokens", "completion_tokens", "successful_requests", "failed_requests"}),
    models=("model_group", "model"),
    requests="successful_requests",
    cached="cache_read_input_tokens",
    failed="failed_requests",
)
OPENROUTER_ACTIVITY = Daily(
    name="openrouter-activity",
    source="openrouter-activity",
    needed=frozenset({"date", "requests", "prompt_tokens", "completion_tokens", "provider_name"}),
    models=("model", "model_permaslug"),
    requests="requests",
)
