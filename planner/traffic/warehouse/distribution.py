"""From the answers of a warehouse to the canonical distribution, with a manifest that says where it comes from."""

from __future__ import annotations

from collections.abc import Mapping

from planner.errors import InputError, Problem
from planner.traffic.buckets import PER_OCTAVE
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import LONGEST_WINDOW_US
from planner.traffic.privacy import check_models, safe_name
from planner.traffic.readers.aliases import alias_map
from planner.traffic.readers.columns import Stamps
from planner.traffic.remarks import StampMeaning, remarks
from planner.traffic.rules import TREATMENTS, Rule
from planner.traffic.schema import Counts, Manifest
from planner.traffic.tables.definitions import Window
from planner.traffic.warehouse import assemble
from planner.traffic.warehouse.answers import Answers
from planner.traffic.warehouse.bursts import bursts
from planner.traffic.warehouse.order import TableOrder, table_name

HASHED_REMARK = "files_sha256 is taken over the answers of the queries: the rows of the table were not read out"


def distribution(order: TableOrder, answers: Answers, used: Mapping[str, str]) -> Canonical:
    """The canonical distribution from the answers of all queries.

    Parameters
    ----------
    used
        Role to the column of the table that played it.

    Raises
    ------
    InputError
        If no row remains, the models look like text, or the stamps span more than three years.
    """
    counts = assemble.counts(answers)
    if not counts.kept:
        raise InputError(nothing_left(order, answers))
    check_models({*assemble.models(answers), *(row["model"] for row in answers.rows("rates"))})
    seen = assemble.window(answers)
    tells_cached = not _relative(order) and bool({"cached", "cached_beside"} & set(used))
    if seen.end_us - seen.start_us > LONGEST_WINDOW_US:
        days = (seen.end_us - seen.start_us) / 86_400e6
        fix = "Remove rows with a wrong date, or use --since and --until"
        raise InputError(Problem(order.table, f"the time stamps span {days:,.0f} days", fix))
    return Canonical(
        manifest=_manifest(order, answers, counts, seen, used),
        lengths=assemble.lengths(answers),
        tail=assemble.tail(answers),
        rates=assemble.rates(answers),
        burst=bursts(answers, seen),
        prefix=assemble.prefix(answers) if tells_cached else None,
    )


def _manifest(order: TableOrder, answers: Answers, counts: Counts, seen: Window, used: Mapping[str, str]) -> Manifest:
    """As of files; but the rows cannot be hashed, and where they stand has no row numbers."""
    relative_time = _relative(order)
    meaning = _meaning(order, used)
    fraction = 1.0 if order.sampling_fraction is None else order.sampling_fraction
    return Manifest(
        source=order.backend if order.log_format in ("auto", "plain") else f"{order.backend}, {order.log_format}",
        files=[safe_name(table_name(order.table))],
        files_sha256=answers.digest(),
        models=assemble.models(answers),
        window_start_us=seen.start_us,
        window_end_us=seen.end_us,
        time_base="start of the log" if relative_time else "UTC",
        tz_of_source="none" if relative_time else "UTC",
        ts_resolution_ms=seen.resolution_us / 1000,
        ts_meaning=meaning,
        filters_applied=order.filters(),
        counts=counts,
        caps=assemble.caps(answers),
        alias_map=alias_map(order.aliases),
        alias_map_version=order.alias_version,
        sampling_fraction=fraction,
        columns_read=sorted(safe_name(name) for name in used.values()),
        bucket_scheme={"base": 2, "per_octave": PER_OCTAVE},
        remarks=[*remarks(counts, meaning, seen.resolution_us, fraction), HASHED_REMARK],
    )


def _relative(order: TableOrder) -> bool:
    """Whether time counts from the start of the log."""
    return str(order.options.get("time", "")).startswith("relative")


def _meaning(order: TableOrder, used: Mapping[str, str]) -> StampMeaning:
    if order.stamps is not Stamps.COMPLETION:
        return "arrival"
    return "arrival from completion" if "duration" in used else "completion"


def nothing_left(order: TableOrder, answers: Answers) -> list[Problem]:
    """Why no row remains, by rule."""
    counts = assemble.counts(answers)
    if not counts.rows_read:
        return [Problem(order.table, "the table holds no row", "Give a table with at least one request")]
    return [
        Problem(
            order.table,
            f"no row remains: {n:,} of {counts.rows_read:,} dropped as '{reason}'",
            f"Rule: {TREATMENTS[Rule(reason)].why}",
        )
        for reason, n in counts.dropped_by_reason.items()
    ]
