"""The canonical distribution on disk: the columns of its tables, and its manifest. Version 2.

Times are UTC, tokens are whole numbers, sums and maxima are exact. No text, no user, no key.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, computed_field

from planner.traffic.grid import Span

SCHEMA_VERSION: Literal[2] = 2
ALL, PEAK = "all", "peak"
"""Periods of the length law: the whole window, and the busiest twentieth of the minutes with traffic."""
DEFAULT_CLASS = "default"


class Coupling(StrEnum):
    """How prompt and output lengths of a law hang together."""

    JOINT = "joint"
    """As observed."""
    COMONOTONE = "comonotone"
    """Only marginals are known; long prompts are taken to have long outputs: the largest live-token load."""
    COUNTERMONOTONE = "countermonotone"
    """Only marginals are known; long prompts are taken to have short outputs: the smallest one."""


def _table(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()

LENGTHS = _table(
    model=_TEXT, traffic_class=_TEXT, period=_TEXT, coupling=_TEXT, prompt_lo=_WHOLE, prompt_hi=_WHOLE,
    output_lo=_WHOLE, output_hi=_WHOLE, n=_WHOLE, sum_prompt=_WHOLE, sum_output=_WHOLE, sum_cached=_WHOLE,
    sum_pp=_REAL, sum_po=_REAL, sum_oo=_REAL, max_prompt=_WHOLE, max_output=_WHOLE, max_total=_WHOLE,
)  # fmt: skip
"""The joint length law: one row per non-empty cell ``[prompt_lo, prompt_hi) x [output_lo, output_hi)``.

Cells are those of `planner.traffic.buckets` at ingest. Merging small ones, splitting and scaling make wider and other
cells, which may overlap once distributions of different cells are merged.
"""
TAIL = _table(model=_TEXT, prompt=_WHOLE, output=_WHOLE, n=_WHOLE)
"""The 1,000 largest totals of each model, exact, with every tie of the last one."""
RATES = _table(model=_TEXT, minute_utc=pa.timestamp("us"), n=_WHOLE, sum_prompt=_WHOLE, sum_output=_WHOLE)
"""Arrivals (failed ones included) per UTC minute, and the tokens of the kept ones; minutes without any are absent."""
BURST = _table(
    model=_TEXT, kind=_TEXT, scale_s=_REAL, windows=_WHOLE, mean_n=_REAL, var_n=_REAL, idc=_REAL, max_n=_WHOLE,
    resolution_ok=pa.bool_(),
)  # fmt: skip
"""``window``: counts per ``scale_s`` inside one-hour blocks; ``batch``: ``windows`` stamps are shared by ``max_n``."""
PREFIX = _table(
    model=_TEXT, kind=_TEXT, hour_of_week=pa.int16(), cache_tokens=_WHOLE, n=_WHOLE, sum_prompt=_WHOLE,
    sum_cached=_WHOLE,
)  # fmt: skip
"""Optional. ``cached``: prompt tokens that the log says were cached, by UTC hour of the week (0 is Monday 00:00).

``reuse``: prompt tokens that an LRU cache of ``cache_tokens`` would have answered, from the block hashes of the log.
"""
PROMPT_BURST = _table(
    model=_TEXT, scale_s=_REAL, prompt_lo=_WHOLE, other_lo=_WHOLE, mean_n=_REAL, covariance=_REAL,
)  # fmt: skip
"""Optional. Kept requests by bands of prompt lengths: mean count of the band from ``prompt_lo`` on, and its covariance
with that of the band from ``other_lo`` on, in windows as in ``burst``; bands end where the next one begins."""

TABLES: dict[str, pa.Schema] = {"lengths": LENGTHS, "tail": TAIL, "rates": RATES, "burst": BURST}
OPTIONAL_TABLES: dict[str, pa.Schema] = {"prefix": PREFIX, "prompt_burst": PROMPT_BURST}


class Strict(BaseModel):
    """Frozen, and nothing but what is declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Counts(Strict):
    """What became of the rows; nothing is dropped or changed without a count."""

    rows_read: int = Field(ge=0)
    kept: int = Field(ge=0)
    offered: int = Field(ge=0)
    """Kept rows and those dropped rows that were arrivals all the same."""
    dropped_by_reason: dict[str, int] = {}
    """By `planner.traffic.rules.Rule`."""
    dropped_rows: dict[str, list[dict[str, Any]]] = {}
    """The first dropped rows of every rule."""
    adjusted_by_reason: dict[str, int] = {}
    """Kept rows that were changed or deserve a remark, by `planner.traffic.rules.Adjustment`."""


class Kind(StrEnum):
    """How much of the traffic the source shows."""

    REQUESTS = "requests"
    """One row per request: joint lengths, exact tail, arrivals."""
    MARGINALS = "marginals"
    """Histograms: each length by itself within buckets, rates at the scrape interval; no joint law, no exact tail."""
    SUMS = "sums"
    """Totals per hour or day: rates and mean lengths only. It can scale another distribution, and plan nothing."""


class Manifest(Strict):
    """Where a distribution comes from and how it was made."""

    schema_version: Literal[2] = SCHEMA_VERSION
    kind: Kind = Kind.REQUESTS
    source: str
    """Format, such as ``litellm-spendlogs``."""
    files: list[str]
    files_sha256: str
    models: dict[str, int]
    """Kept requests by model."""
    window_start_us: int
    window_end_us: int
    """Microseconds since 1970, exclusive."""
    time_base: Literal["UTC", "start of the log"] = "UTC"
    tz_of_source: str = "UTC"
    ts_resolution_ms: float
    ts_meaning: Literal["arrival", "completion", "arrival from completion"] = "arrival"
    sampling_fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the requests that the log holds; all counts in the tables are as logged, not scaled up."""
    filters_applied: list[str] = []
    prompt_includes_cached: bool = True
    output_includes_reasoning: bool = True
    counts: Counts
    caps: dict[str, dict[str, dict[str, float]]] = {}
    alias_map: dict[str, str] = {}
    alias_map_version: str | None = None
    bucket_scheme: dict[str, int]
    smallest_cell: int = 1
    """Cells of the length law with fewer requests were merged into neighbours."""
    history: list[str] = []
    """What ``planner traffic merge|scale|split`` did, oldest first."""
    columns_read: list[str] = []
    """Of the log: everything else stayed in the file."""
    remarks: list[str] = []
    """Assumptions that a reader of the figures must know."""

    @property
    def window(self) -> Span:
        """The observed stretch of time."""
        return Span(self.window_start_us, self.window_end_us)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def window_start(self) -> str:
        """ISO 8601."""
        return iso_utc(self.window_start_us)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def window_end(self) -> str:
        """ISO 8601, exclusive."""
        return iso_utc(self.window_end_us)


def iso_utc(us: int) -> str:
    """Microseconds since 1970 as ISO 8601 with ``Z``."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    return moment.isoformat().replace("+00:00", "Z")
