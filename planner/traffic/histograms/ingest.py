"""Metrics in, canonical distribution of kind ``marginals`` out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from planner.errors import InputError, Problem, Problems
from planner.traffic.buckets import PER_OCTAVE
from planner.traffic.canonical import Canonical, digest
from planner.traffic.documents import Peek
from planner.traffic.histograms.collect import ModelCounts, Start, collect, process_starts, vocabulary_of
from planner.traffic.histograms.counters import Counted, gaps_of, scrape_interval_s
from planner.traffic.histograms.gauges import contexts_of, counters_of, live_tokens
from planner.traffic.histograms.model import Beside, ModelTables, tables_of
from planner.traffic.histograms.names import Vocabulary
from planner.traffic.histograms.options import OPTIONS, Options, understood
from planner.traffic.histograms.rates import Span
from planner.traffic.histograms.readers import READERS, Clock, HistogramReader
from planner.traffic.histograms.series import Track, joined, tracks_of
from planner.traffic.order import Order
from planner.traffic.readers.aliases import alias_map
from planner.traffic.rules import Rule
from planner.traffic.schema import BURST, LENGTHS, PREFIX, RATES, TAIL, Counts, Kind, Manifest
from planner.traffic.tables.definitions import SCALES_S
from planner.traffic.times import check_span

MARGINALS_ONLY = (
    "marginals only: which prompts have which outputs is not known; the lengths hold both extremes, and plans take the "
    "larger load (comonotone) unless coupling says otherwise"
)


@dataclass(frozen=True)
class HistogramSource:
    """Histograms of engines in one form of export."""

    reader: HistogramReader

    @property
    def name(self) -> str:
        """The word for ``--format``."""
        return self.reader.name

    @property
    def options(self) -> Mapping[str, str]:
        """Option name to what it does."""
        return OPTIONS

    def claims(self, peek: Peek) -> bool:
        """Whether a file that starts like this is of this form."""
        return self.reader.claims(peek)

    def ingest(self, order: Order) -> Canonical:
        """Read all files of an order.

        Raises
        ------
        InputError
            If a file cannot be read, no histogram of lengths is there, or its figures contradict each other.
        """
        options = understood(order.options, order.time_zone)
        tracks = _tracks(order, self.reader, Clock(order.time_zone, options.at_s))
        where = ", ".join(path.name for path in order.files[:3]) + (", ..." if len(order.files) > 3 else "")
        vocabulary = vocabulary_of(tracks, options.engine, where)
        return _canonical(order, self.reader.source, vocabulary, tracks, options, where)


SOURCES: tuple[HistogramSource, ...] = tuple(HistogramSource(reader) for reader in READERS)


def _tracks(order: Order, reader: HistogramReader, clock: Clock) -> tuple[Track, ...]:
    problems = Problems()
    tracks: list[Track] = []
    since_s, until_s = (None if us is None else us / 1e6 for us in (order.since_us, order.until_us))
    for path in order.files:
        found = problems.attempt(lambda path=path: tracks_of(reader.read(path, clock), since_s, until_s))  # type: ignore[misc]
        tracks += found or []
    problems.raise_if_any()
    return joined(tracks)


def _canonical(
    order: Order, source: str, vocabulary: Vocabulary, tracks: Sequence[Track], options: Options, where: str
) -> Canonical:
    fallback, names = order.model or "default", alias_map(order.aliases)
    counts = _renamed(collect(tracks, vocabulary, fallback=fallback, started_s=options.started_s, where=where), names)
    span = _span(where, counts)
    wanted = _wanted(where, counts, order.model)
    beside = _beside(tracks, vocabulary, fallback, options, names)
    stated = {names.get(m, m): limit for m, limit in contexts_of(tracks, vocabulary, fallback).items()}
    limits = {model: options.limit(model) or stated.get(model) for model in wanted}
    found = _tables(wanted, beside, vocabulary, span, limits)
    idle = [model for model in wanted if model not in found]
    lengths = pa.concat_tables([tables.lengths for tables in found.values()])
    prefix = [row for tables in found.values() for row in tables.prefix]
    live = {names.get(m, m): live for m, live in live_tokens(tracks, vocabulary, fallback).items()}
    remarks = [
        MARGINALS_ONLY,
        *_unseen(span, vocabulary),
        *([f"without any request, and left out: {', '.join(idle)}"] if idle else []),
        *(f"{model}: {live[model]}" for model in found if model in live),
        *(f"{model}: {remark}" for model, tables in found.items() for remark in tables.remarks),
    ]
    return Canonical(
        manifest=_manifest(order, source, vocabulary, span, found, remarks),
        lengths=lengths.select(LENGTHS.names),
        tail=pa.Table.from_pylist([dict(tables.tail) for tables in found.values()], schema=TAIL),
        rates=pa.concat_tables([pa.table(dict(tables.rates), schema=RATES) for tables in found.values()]),
        burst=pa.Table.from_pylist([row for tables in found.values() for row in tables.bursts], schema=BURST),
        prefix=pa.Table.from_pylist(prefix, schema=PREFIX) if prefix else None,
    )


def _tables(
    wanted: Mapping[str, ModelCounts],
    beside: Mapping[str, Beside],
    vocabulary: Vocabulary,
    span: Span,
    limits: Mapping[str, int | None],
) -> dict[str, ModelTables]:
    """The tables of every model that served a request.

    Raises
    ------
    InputError
        If none did, or the figures of one contradict each other; names all of these.
    """
    busy = {model: counts for model, counts in wanted.items() if counts.requests()}
    if not busy:
        fix = "Export a range in which requests were served"
        raise InputError(
            Problem(", ".join(wanted), "no request was counted between the first and the last sample", fix)
        )
    problems = Problems()
    found = {
        model: problems.attempt(
            lambda model=model, counts=counts: tables_of(  # type: ignore[misc]
                model, counts, beside.get(model, Beside()), vocabulary, span, limits[model]
            )
        )
        for model, counts in busy.items()
    }
    problems.raise_if_any()
    return {model: tables for model, tables in found.items() if tables is not None}


def _renamed(counts: Mapping[str, ModelCounts], aliases: Mapping[str, str]) -> dict[str, ModelCounts]:
    """Models by the names of their weights; what several names of one model counted is put together."""
    found: dict[str, ModelCounts] = {}
    for model, of_model in counts.items():
        name = aliases.get(model, model)
        before = found.get(name, ModelCounts((), ()))
        found[name] = ModelCounts(
            before.prompt + of_model.prompt, before.output + of_model.output, before.notes + of_model.notes
        )
    return dict(sorted(found.items()))


def _wanted(where: str, counts: Mapping[str, ModelCounts], model: str) -> dict[str, ModelCounts]:
    if not model:
        return dict(counts)
    if model not in counts:
        fix = f"It holds: {', '.join(list(counts)[:20])}"
        raise InputError(Problem(where, f"holds no model '{model}'", fix, field="model"))
    return {model: counts[model]}


def _span(where: str, counts: Mapping[str, ModelCounts]) -> Span:
    """The window that all models together were observed in."""
    counted: list[Counted] = [s.counted for one in counts.values() for s in (*one.prompt, *one.output)]
    if not counted:
        fix = "Give at least two samples of every series: a longer range, or a second snapshot"
        raise InputError(Problem(where, "holds but one sample of every histogram", fix))
    start, end = min(float(one.time_s[0]) for one in counted), max(float(one.time_s[-1]) for one in counted)
    check_span(where, start, end)
    interval = scrape_interval_s(counted)
    return Span(start, end, interval, gaps_of(counted, interval))


def _beside(
    tracks: Sequence[Track], vocabulary: Vocabulary, fallback: str, options: Options, aliases: Mapping[str, str]
) -> dict[str, Beside]:
    start = Start(options.started_s, process_starts(tracks))
    parts: dict[str, dict[str, list[Counted]]] = defaultdict(lambda: defaultdict(list))
    for part in ("hits", "queries", "prompt_total"):
        for model, counted in counters_of(tracks, getattr(vocabulary, part), vocabulary, fallback, start).items():
            parts[aliases.get(model, model)][part] += counted
    return {model: Beside(**found) for model, found in parts.items()}


def _unseen(span: Span, vocabulary: Vocabulary) -> list[str]:
    """What the scrape interval and its gaps hide."""
    interval = f"{span.interval_s:,.4g} s"
    unseen = [f"{scale} s" for scale in SCALES_S if scale < 10 * span.interval_s]
    remarks = [
        f"counts are known every {interval}: bursts at {', '.join(unseen)} are not known and must be stated if they "
        "matter (option idc)"
    ]
    if not vocabulary.at_arrival:
        remarks.append("requests are counted as they end, not as they arrive: rates lag by a request's duration")
    lost = sum(end - start for start, end in span.gaps)
    if lost:
        remarks.append(
            f"{len(span.gaps)} gap{'s' if len(span.gaps) > 1 else ''} of {lost / 3600:,.2f} h in all without a scrape: "
            "what was counted there is spread evenly"
        )
    return remarks


def _manifest(
    order: Order, source: str, vocabulary: Vocabulary, span: Span, found: Mapping[str, ModelTables], remarks: list[str]
) -> Manifest:
    kept, offered = sum(t.kept for t in found.values()), sum(t.offered for t in found.values())
    dropped = {Rule.FAILED.value: offered - kept} if offered > kept else {}
    used = dict(sorted(order.options.items()))
    return Manifest(
        kind=Kind.MARGINALS,
        source=f"{source} ({vocabulary.engine})",
        files=sorted(path.name for path in order.files),
        files_sha256=digest(sorted(order.files, key=str)),
        models={model: tables.kept for model, tables in found.items()},
        window_start_us=round(span.start_s * 1e6),
        window_end_us=round(span.end_s * 1e6),
        tz_of_source=order.time_zone,
        filters_applied=[
            *order.filters(),
            *(f"{name} = {value}" for name, value in used.items()),
        ],
        ts_resolution_ms=span.interval_s * 1000,
        ts_meaning="arrival" if vocabulary.at_arrival else "completion",
        counts=Counts(rows_read=offered, kept=kept, offered=offered, dropped_by_reason=dropped),
        alias_map=alias_map(order.aliases),
        alias_map_version=order.alias_version,
        bucket_scheme={"base": 2, "per_octave": PER_OCTAVE},
        remarks=remarks,
    )
