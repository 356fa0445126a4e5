"""What a load test's file says about one run, before it is believed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.speed.points import Load, LoadKind, Served


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles of a time over the requests of a run, in milliseconds; ``None`` where not recorded."""

    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None

    @property
    def typical_ms(self) -> float | None:
        """The mean, else the median: means add up, so that balances hold for them."""
        return self.p50_ms if self.mean_ms is None else self.mean_ms


@dataclass(frozen=True)
class InFlight:
    """Where the concurrency of a run can be read.

    Attributes
    ----------
    measured
        Mean requests in flight, as the tool measured it.
    running
        Mean of the engine's own gauge.
    cap
        The most that the client sent at once.
    """

    measured: float | None = None
    running: float | None = None
    cap: float | None = None


@dataclass(frozen=True)
class Run:
    """One run of a load test, in one set of units.

    Attributes
    ----------
    place
        File, and entry in it, for messages.
    tool
        Name of the format.
    kind
        How requests were sent.
    stated
        What the file says of the deployment, by the names of the options: ``model``, ``tp`` and so on.
    input_tokens, output_tokens
        Mean lengths of a request.
    asked_per_s, done_per_s
        Arrivals that were asked for (``None``: no limit) and requests finished per second.
    e2e_mean_ms
        Mean time from sending a request to its last token.
    asked, completed, failed
        Requests.
    cached_share, acceptance
        As `planner.speed.points.Load` has them; ``None`` where not recorded.
    speculative
        Name of the speculative decoding that was on.
    measured_on
        Day, as the file writes it.
    unusable
        Why the file's own words rule the run out, such as a run that was cancelled.
    notes
        What a reader of the point must know.
    """

    place: str
    tool: str
    kind: LoadKind
    stated: Mapping[str, str] = field(default_factory=dict)
    input_tokens: float | None = None
    output_tokens: float | None = None
    asked_per_s: float | None = None
    done_per_s: float | None = None
    e2e_mean_ms: float | None = None
    output_tok_s: float | None = None
    total_tok_s: float | None = None
    ttft: Spread = Spread()
    tpot: Spread = Spread()
    in_flight: InFlight = InFlight()
    asked: float | None = None
    completed: float | None = None
    failed: float | None = None
    cached_share: float | None = None
    acceptance: float | None = None
    speculative: str = ""
    measured_on: str = ""
    unusable: str = ""
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The same for the same figures, wherever the file lies."""
        text = repr(replace(self, place="", tool="", stated={}, kind=LoadKind.CLOSED_LOOP, notes=()))
        return hashlib.sha256(text.encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Rejected:
    """A run, or a file of a folder, that gives no point, and why."""

    place: str
    reason: str


@dataclass(frozen=True)
class Findings:
    """What was read from one file or several.

    Attributes
    ----------
    skipped
        Files and runs that are no measurement by design (warm-ups, summaries of runs that are there too), by what
        they are.
    """

    runs: tuple[Run, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One row of the points file."""

    id: str
    served: Served
    load: Load
    concurrency_from: str
    cached_share: float | None
    acceptance: float | None
    output_tok_s: float | None
    total_tok_s: float | None
    ttft: Spread
    tpot: Spread
    measured_on: str
    source: str


@dataclass(frozen=True)
class Head:
    """The beginning of a file: enough to see which tool wrote it."""

    text: str
    keys: frozenset[str]
    """Names of JSON members that occur in it."""


@dataclass(frozen=True)
class Format:
    """One tool's results.

    Attributes
    ----------
    matches
        Whether a file that begins so is one of them.
    read
        The runs of a file. Raises `planner.errors.InputError` if it cannot be read at all.
    """

    name: str
    matches: Callable[[Head], bool]
    read: Callable[[Path], Findings]


Parse = Callable[[Mapping[str, object], str], Run]
"""The run that an object of a file describes, given where it stands."""
