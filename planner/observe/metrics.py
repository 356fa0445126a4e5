"""What engines call their metrics, by version: ``catalogs/engines/metrics.csv``, where each row has its source.

A name holds from release ``first`` to release ``last``, both included; empty means that no bound is known. Where an
engine renamed a metric, both names are given for the releases in doubt, and a reader takes the first that has data.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.csv_table import read_rows
from planner.catalog.load import default_root
from planner.catalog.versions import version_key

FILE = "engines/metrics.csv"


class Figure(StrEnum):
    """What a metric says, whatever the engine calls it."""

    KV_USAGE = "kv_usage"
    """Share of the KV cache that live requests hold, 0 to 1."""
    RUNNING = "running"
    WAITING = "waiting"
    PREEMPTIONS = "preemptions"
    REQUESTS = "requests"
    """Requests that are done."""
    PROMPT_TOKENS = "prompt_tokens"
    OUTPUT_TOKENS = "output_tokens"
    PROMPT_LENGTH = "prompt_length"
    OUTPUT_LENGTH = "output_length"
    TTFT = "ttft"
    TPOT = "tpot"
    """Time per output token of a request, seconds: one observation a request."""
    TOKEN_GAP = "token_gap"
    """Time between two tokens, seconds: one observation a token."""
    CACHE_QUERIES = "cache_queries"
    CACHE_HITS = "cache_hits"
    POOL = "pool"
    """Size of the KV cache."""


class Kind(StrEnum):
    """How a metric counts."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"
    """A gauge that is 1, whose labels are what it says."""


class MetricName(BaseModel):
    """One row: the name of a figure in some releases of an engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str = Field(min_length=1)
    figure: Figure
    kind: Kind
    name: str = Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$")
    first: str = ""
    last: str = ""
    source: str = Field(min_length=1)
    as_of: dt.date

    def in_release(self, version: str) -> bool:
        """Whether a release exports it by default."""
        key = version_key(version)
        after = not self.first or key >= version_key(self.first)
        return after and (not self.last or key <= version_key(self.last))


def metric_names(root: Path | None = None) -> tuple[MetricName, ...]:
    """Every row of the table, in its order: of two names of one figure the newer comes first.

    Raises
    ------
    InputError
        If the table has a problem.
    """
    return _table((default_root() if root is None else root) / FILE)


@cache
def _table(path: Path) -> tuple[MetricName, ...]:
    return read_rows(path, MetricName)


def names_of(names: Sequence[MetricName], engine: str, version: str, figure: Figure) -> tuple[str, ...]:
    """What a release calls a figure, the newest name first; empty where it exports none."""
    mine = (row for row in names if row.engine == engine and row.figure is figure)
    return tuple(row.name for row in mine if row.in_release(version))
