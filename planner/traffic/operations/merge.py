"""Several canonical distributions into one: regions, weeks, gateways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import add_cells, add_rows, largest_totals, of_model, renamed
from planner.traffic.operations.merge_bursts import Stream, merge_bursts
from planner.traffic.operations.merge_manifest import merged_manifest
from planner.traffic.operations.merge_prefix import merge_prefix


def merge(parts: Sequence[Canonical], renames: Mapping[str, str] | None = None) -> Canonical:
    """One distribution of all requests of the parts; the order of the parts does not show.

    Cells and minute counts are added exactly. The 1,000 largest totals stay exact: each part holds every request from
    some total on, so the merged table holds every one from the largest of these totals on, and a request among the
    1,000 largest of all is among the 1,000 largest of its own part. Bursts: see `merge_bursts`. The period
    ``peak`` holds the peak minutes of each part. Requests that two logs both hold count twice: without request ids
    nobody can tell.

    Parameters
    ----------
    parts
        At least one, of the same kind, time base and sampling fraction.
    renames
        Old to new model names; models with the same new name become one.

    Raises
    ------
    InputError
        If the parts cannot be added, or a model to rename is in none of them.
    """
    names = dict(renames or {})
    _check(parts, names)
    ordered = sorted(parts, key=_place)
    lengths = add_cells(pa.concat_tables([renamed(part.lengths, names) for part in ordered]))
    rates = add_rows(
        pa.concat_tables([renamed(part.rates, names) for part in ordered]),
        ("model", "minute_utc"), ("n", "sum_prompt", "sum_output"),
    )  # fmt: skip
    spans = [part.manifest.window for part in ordered]
    streams = [stream for part in ordered for stream in _streams(part, names)]
    burst = merge_bursts(streams, rates, spans)
    return Canonical(
        manifest=merged_manifest(ordered, names, streams, burst),
        lengths=lengths,
        tail=_tail(ordered, names),
        rates=rates,
        burst=burst,
        prefix=merge_prefix([part.prefix for part in ordered], names),
    )


def _place(part: Canonical) -> tuple[Any, ...]:
    manifest = part.manifest
    return manifest.window_start_us, manifest.window_end_us, manifest.source, manifest.files_sha256, *manifest.files


def _check(parts: Sequence[Canonical], names: Mapping[str, str]) -> None:
    problems = Problems()
    if not parts:
        raise InputError(Problem("DIR", "no distribution is given"))
    known = {model for part in parts for model in part.models()}
    for old in sorted(set(names) - known):
        problems.add("--rename", f"no distribution holds a model '{old}'", f"They hold: {', '.join(sorted(known))}")
    for attribute, what, fix in (
        ("kind", "kinds", "Merge distributions of one kind"),
        ("time_base", "time bases", "Clocks that start with the log cannot be laid over UTC"),
        (
            "sampling_fraction",
            "sampling fractions",
            "First make them whole: planner traffic scale --unsample",
        ),
        ("prompt_includes_cached", "ways to count cached tokens", "Ingest again so that prompts include them"),
        ("output_includes_reasoning", "ways to count reasoning tokens", "Ingest again so that outputs include them"),
        ("bucket_scheme", "bucket schemes", "Ingest again with one version of planner"),
    ):
        found = {str(getattr(part.manifest, attribute)) for part in parts}
        if len(found) > 1:
            problems.add("DIR", f"the distributions have different {what}: {', '.join(sorted(found))}", fix)
    problems.raise_if_any()


def _streams(part: Canonical, names: Mapping[str, str]) -> list[Stream]:
    models = sorted(set(part.burst["model"].to_pylist()))
    resolution_ms = part.manifest.ts_resolution_ms
    return [Stream(names.get(m, m), part.manifest.window, resolution_ms, of_model(part.burst, m)) for m in models]


def _tail(parts: Sequence[Canonical], names: Mapping[str, str]) -> pa.Table:
    """The largest totals, from the total on from which every part holds all of them."""
    held: list[pa.Table] = []
    least: dict[str, int] = {}
    for part in parts:
        for model in part.models():
            new = names.get(model, model)
            least[new] = max(least.get(new, 0), complete_from(part, model))
            held.append(renamed(of_model(part.tail, model), names))
    rows = pa.concat_tables(held)
    floor = pa.array([least[model] for model in rows["model"].to_pylist()], type=pa.int64())
    return largest_totals(rows.filter(pc.greater_equal(pc.add(rows["prompt"], rows["output"]), floor)))


def complete_from(part: Canonical, model: str) -> int:
    """The total from which on the tail table holds every request of a model."""
    tail, lengths = of_model(part.tail, model), of_model(part.lengths, model)
    whole = lengths.filter(pc.equal(lengths["period"], "all"))
    if (pc.sum(tail["n"]).as_py() or 0) == (pc.sum(whole["n"]).as_py() or 0):
        return 0
    if not tail.num_rows:
        return int(pc.max(whole["max_total"]).as_py()) + 1
    return int(pc.min(pc.add(tail["prompt"], tail["output"])).as_py())
