"""What arrived, minute by minute of the horizon, added up over the logs of a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from planner import units
from planner.traffic.canonical_tables import ints
from planner.traffic.grid import Span
from planner.traffic.season import BLOCK_MINUTES
from planner.traffic.tables.definitions import MINUTE_US
from planner.traffic.types import FloatArray


@dataclass(frozen=True)
class Minutes:
    """Arrivals and tokens by minute, sampling undone; the rest of a log is only counted.

    Attributes
    ----------
    start_us
        Of the first minute.
    arrivals
        Failed requests included.
    input_tokens, output_tokens
        Of the requests whose lengths the log knows.
    outside
        Arrivals before or after.
    """

    start_us: int
    arrivals: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    outside: int = 0

    def __add__(self, other: Minutes) -> Minutes:
        return Minutes(
            self.start_us,
            self.arrivals + other.arrivals,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.outside + other.outside,
        )


def minutes_of(rates: pa.Table, bounds: Span, shift_us: int, sampling_fraction: float) -> Minutes:
    """The minutes of one model in one log.

    Parameters
    ----------
    rates
        Its rows of the ``rates`` table.
    bounds
        Whole minutes that count.
    shift_us
        Added to the log's times.
    """
    size = (bounds.end_us - bounds.start_us) // MINUTE_US
    place = (rates["minute_utc"].cast(pa.int64()).to_numpy() + shift_us - bounds.start_us) // MINUTE_US
    inside = (place >= 0) & (place < size)

    def column(name: str) -> FloatArray:
        # Tokens are missing where a source shows none.
        values = np.nan_to_num(np.asarray(rates[name].to_numpy(), dtype=np.float64)[inside])
        return np.bincount(place[inside], values, minlength=size) / sampling_fraction

    outside = int(ints(rates, "n")[~inside].sum())
    return Minutes(bounds.start_us, column("n"), column("sum_prompt"), column("sum_output"), outside)


def busiest_per_s(minutes: Minutes, spans: tuple[Span, ...]) -> float | None:
    """Arrivals per second of the busiest ten minutes in a row that were seen whole; ``None`` where none were."""
    counts = np.append(0.0, np.cumsum(minutes.arrivals))
    best = None
    for span in spans:
        first, end = (edge - minutes.start_us // MINUTE_US for edge in span.whole_minutes)
        if end - first < BLOCK_MINUTES:
            continue
        window = counts[first + BLOCK_MINUTES : end + 1] - counts[first : end + 1 - BLOCK_MINUTES]
        best = max(best or 0.0, float(window.max()) / units.minutes_to_s(BLOCK_MINUTES))
    return best
