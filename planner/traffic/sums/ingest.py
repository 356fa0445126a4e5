"""Usage reports in, canonical distribution of kind ``sums`` out."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem, Problems
from planner.traffic.buckets import PER_OCTAVE
from planner.traffic.canonical import Canonical, digest
from planner.traffic.canonical_tables import of_model
from planner.traffic.documents import Peek
from planner.traffic.grid import whole_growth
from planner.traffic.order import Order
from planner.traffic.readers.aliases import alias_map
from planner.traffic.rules import Rule
from planner.traffic.schema import BURST, LENGTHS, RATES, TAIL, Counts, Kind, Manifest, iso_utc
from planner.traffic.sums.azure_monitor import AzureMonitor
from planner.traffic.sums.daily import LITELLM_DAILY, OPENROUTER_ACTIVITY
from planner.traffic.sums.openai import OpenAi
from planner.traffic.sums.table import Sums, SumsReader, added
from planner.traffic.times import check_span
from planner.traffic.types import FloatArray, IntArray

MINUTE_S = 60
READERS: tuple[SumsReader, ...] = (OpenAi(), AzureMonitor(), LITELLM_DAILY, OPENROUTER_ACTIVITY)
SUMS_ONLY = (
    "sums only: no lengths and no bursts are known; it can scale another distribution (planner traffic scale BASE --to "
    "DIR), and nothing can be planned from it alone"
)


@dataclass(frozen=True)
class SumsSource:
    """One kind of usage report."""

    reader: SumsReader

    @property
    def name(self) -> str:
        """The word for ``--format``."""
        return self.reader.name

    @property
    def options(self) -> Mapping[str, str]:
        """Option name to what it does."""
        return self.reader.options

    def claims(self, peek: Peek) -> bool:
        """Whether a file that starts like this is such a report."""
        return self.reader.claims(peek)

    def ingest(self, order: Order) -> Canonical:
        """Read all files of an order.

        Raises
        ------
        InputError
            If a file cannot be read, spans overlap, or no request is in them.
        """
        problems = Problems()
        rows: list[Sums] = []
        for path in order.files:
            rows += problems.attempt(lambda path=path: list(self.reader.read(path, order.options))) or []  # type: ignore[misc]
        problems.raise_if_any()
        return _canonical(order, self.reader.source, _chosen(order, rows))


SOURCES: tuple[SumsSource, ...] = tuple(SumsSource(one) for one in READERS)


def means_of(canonical: Canonical, model: str) -> dict[str, float]:
    """Requests of a model, its arrivals per second, and its mean lengths in tokens, from the sums alone."""
    rows = of_model(canonical.rates, model)
    n, prompt, output = (int(pc.sum(rows[name]).as_py() or 0) for name in ("n", "sum_prompt", "sum_output"))
    manifest = canonical.manifest
    requests = manifest.models[model]
    return {
        "requests": requests,
        "offered_rate_per_s": n / manifest.window.seconds,
        "mean_prompt_tokens": prompt / max(requests, 1),
        "mean_output_tokens": output / max(requests, 1),
    }


def _chosen(order: Order, rows: Sequence[Sums]) -> list[Sums]:
    """The rows that were asked for, by the names of the weights; one for each model and span.

    Raises
    ------
    InputError
        If none is left, or two spans of one model overlap.
    """
    where = ", ".join(path.name for path in order.files[:3])
    aliases = alias_map(order.aliases)
    named = [replace(row, model=aliases.get(row.model, row.model) or order.model or "default") for row in rows]
    low = 0 if order.since_us is None else order.since_us / 1e6
    high = np.inf if order.until_us is None else order.until_us / 1e6
    found = added(
        row
        for row in named
        if row.model == (order.model or row.model) and low <= row.start_s and row.start_s + row.width_s <= high
    )
    if not any(row.n + row.failed for row in found):
        models = ", ".join(sorted({row.model for row in named})[:20]) or "nothing"
        raise InputError(Problem(where, "holds no request of the model and time asked for", f"It holds: {models}"))
    problems = Problems()
    for before, after in itertools.pairwise(found):
        if before.model == after.model and before.start_s + before.width_s > after.start_s:
            what = f"spans of {after.model} overlap at {iso_utc(after.start_s * 1_000_000)}"
            problems.add(where, what, "Give reports of one bucket width, each span once")
            break
    problems.raise_if_any()
    return found


def _canonical(order: Order, source: str, rows: Sequence[Sums]) -> Canonical:
    start_s, end_s = min(row.start_s for row in rows), max(row.start_s + row.width_s for row in rows)
    check_span(str(order.files[0]), start_s, end_s)
    by_model: dict[str, list[Sums]] = defaultdict(list)
    for row in rows:
        by_model[row.model].append(row)
    kept, failed = sum(row.n for row in rows), sum(row.failed for row in rows)
    width_s = max(row.width_s for row in rows)
    return Canonical(
        manifest=Manifest(
            kind=Kind.SUMS,
            source=source,
            files=sorted(path.name for path in order.files),
            files_sha256=digest(sorted(order.files, key=str)),
            models={model: sum(row.n for row in of_model) for model, of_model in sorted(by_model.items())},
            window_start_us=start_s * 1_000_000,
            window_end_us=end_s * 1_000_000,
            ts_resolution_ms=width_s * 1000,
            filters_applied=order.filters(),
            counts=Counts(
                rows_read=kept + failed,
                kept=kept,
                offered=kept + failed,
                dropped_by_reason={Rule.FAILED.value: failed} if failed else {},
            ),
            alias_map=alias_map(order.aliases),
            alias_map_version=order.alias_version,
            bucket_scheme={"base": 2, "per_octave": PER_OCTAVE},
            remarks=[SUMS_ONLY, *_spread(width_s)],
        ),
        lengths=LENGTHS.empty_table(),
        tail=TAIL.empty_table(),
        rates=pa.concat_tables([_rates(model, of_model) for model, of_model in sorted(by_model.items())]),
        burst=BURST.empty_table(),
    )


def _spread(width_s: int) -> list[str]:
    if width_s <= MINUTE_S:
        return []
    return [f"requests of each span of {width_s:,} s are spread evenly over its minutes: its peaks are not known"]


def _rates(model: str, rows: Sequence[Sums]) -> pa.Table:
    """Arrivals and tokens per minute: the sums of each span, spread evenly; running totals stay within one half."""
    edges = np.asarray([(row.start_s, row.start_s + row.width_s) for row in rows], dtype=np.float64)
    times = edges.ravel()
    minutes = np.unique(np.concatenate([_minutes(low, high) for low, high in edges]))
    bounds = np.append(minutes, minutes[-1] + MINUTE_S)

    def spread(values: Sequence[int]) -> IntArray:
        return _spread_over(times, np.repeat(np.cumsum(values), 2), np.asarray(values), bounds)

    counts = spread([row.n + row.failed for row in rows])
    tokens = spread([row.sum_prompt for row in rows]), spread([row.sum_output for row in rows])
    used = (counts > 0) | (tokens[0] > 0) | (tokens[1] > 0)
    columns = [
        pa.array([model] * int(used.sum()), type=pa.string()),
        pa.array((minutes[used] * 1e6).astype(np.int64)).cast(pa.timestamp("us")),
        *(pa.array(values[used]) for values in (counts, *tokens)),
    ]
    return pa.Table.from_arrays(columns, schema=RATES)


def _spread_over(times: FloatArray, upto: IntArray, values: IntArray, bounds: FloatArray) -> IntArray:
    """Whole counts between bounds of a cumulative function that rises linearly within each span."""
    rising = upto.astype(np.float64)
    rising[0::2] -= values  # each span's start holds what came before it
    at = np.interp(bounds, times, rising)
    at[-1] = rising[-1]
    return whole_growth(at).astype(np.int64)


def _minutes(low: float, high: float) -> FloatArray:
    return np.arange(np.floor(low / MINUTE_S), np.ceil(high / MINUTE_S), dtype=np.float64) * MINUTE_S
