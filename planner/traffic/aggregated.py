"""Sources that show counts rather than requests: histograms of engines, and sums of usage reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from planner.errors import InputError, Problem
from planner.traffic.canonical import Canonical
from planner.traffic.documents import Peek, peek
from planner.traffic.histograms.ingest import SOURCES as HISTOGRAMS
from planner.traffic.order import Order, order_problems, refuse_twice
from planner.traffic.privacy import check_models, safe_name
from planner.traffic.readers import READERS
from planner.traffic.sums.ingest import SOURCES as SUMS


class AggregatedSource(Protocol):
    """One such source."""

    @property
    def name(self) -> str:
        """The word for ``--format``."""

    @property
    def options(self) -> Mapping[str, str]:
        """Option name to what it does."""

    def claims(self, peek: Peek) -> bool:
        """Whether a file that starts like this is of this source."""

    def ingest(self, order: Order) -> Canonical:
        """Read all files of an order.

        Raises
        ------
        InputError
            If a file cannot be read, or its figures contradict each other.
        """


AGGREGATED: tuple[AggregatedSource, ...] = (*HISTOGRAMS, *SUMS)
"""In the order in which they are asked whether a file is theirs, all before the readers of request logs."""


def check_format(log_format: str) -> None:
    """Refuse a word for ``--format`` that neither a reader of request logs nor such a source has.

    Raises
    ------
    InputError
        If it is neither ``auto`` nor one of theirs.
    """
    known = ("auto", *(reader.name for reader in READERS), *(source.name for source in AGGREGATED))
    if log_format not in known:
        raise InputError(Problem("format", f"'{log_format}' is not a log format", f"Use one of: {', '.join(known)}"))


def find_aggregated(order: Order) -> AggregatedSource | None:
    """The source that was named, or the one that claims every file; ``None`` where the files hold requests.

    Raises
    ------
    InputError
        If only some of the files are of one such source.
    """
    if order.log_format != "auto":
        return next((source for source in AGGREGATED if source.name == order.log_format), None)
    if order.mapping or not order.files:
        return None
    claims = [_claimed(peek(path)) for path in order.files]
    found = {source.name if source else "" for source in claims}
    if len(found) > 1:
        what = "but all files of one run must be of one format"
        kinds = [source.name if source else "another format" for source in claims]
        pairs = zip(order.files, kinds, strict=True)
        raise InputError([Problem(str(path), f"is {kind}, {what}", "Ingest apart") for path, kind in pairs])
    return claims[0]


def _claimed(head: Peek) -> AggregatedSource | None:
    return next((source for source in AGGREGATED if head.text and source.claims(head)), None)


def ingest_aggregated(source: AggregatedSource, order: Order) -> Canonical:
    """Read the files of an order with this source.

    Raises
    ------
    InputError
        If an option does not apply, or as the source says.
    """
    problems = order_problems(order, source.name, source.options)
    if order.stamps is not None:
        problems.add("--stamps", "means nothing for counts", "Leave it out")
    if order.sampling_fraction is not None:
        problems.add("--sampling", "means nothing for counts, which miss no request", "Leave it out")
    dated = [alias.alias for alias in order.aliases if alias.since_us is not None]
    if dated:
        fix = "Ingest the time before and after apart, with --until and --since, and merge them"
        problems.add("--alias", f"counts of '{dated[0]}' cannot be told apart by date", fix)
    refuse_twice(problems, order.files)
    problems.raise_if_any()
    canonical = source.ingest(order)
    check_models(canonical.models())
    files = sorted(safe_name(name) for name in canonical.manifest.files)
    return replace(canonical, manifest=canonical.manifest.model_copy(update={"files": files}))
