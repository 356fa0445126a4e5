"""Several canonical distributions into one: regions, weeks, gateways."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem, Problems
from planner.traffic.bursts import Span, Stream, independence, merge_bursts, stretches
from planner.traffic.canonical import Canonical
from planner.traffic.cells import add_cells, add_rows, largest_totals, of_model, renamed
from planner.traffic.merge_prefix import merge_prefix
from planner.traffic.schema import Counts, Manifest, iso_utc

ROWS_SHOWN = 5
"""First dropped rows kept for each rule."""
SAME_RATIO = 1.1
"""Arrivals over requests of the length law may differ by this between logs that are merged into one model."""


def merge(parts: Sequence[Canonical], renames: Mapping[str, str] | None = None) -> Canonical:
    """One distribution of all requests of the parts; the order of the parts does not show.

    Cells and minute counts are added exactly. The 1,000 largest totals stay exact: each part holds every request from
    some total on, so the merged table holds every one from the largest of these totals on, and a request among the
    1,000 largest of all is among the 1,000 largest of its own part. Bursts: see `planner.traffic.bursts.merge_bursts`.
    The period ``peak`` holds the peak minutes of each part. Requests that two logs both hold count twice: without
    request ids nobody can tell.

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
    spans = [_span(part) for part in ordered]
    streams = [stream for part in ordered for stream in _streams(part, names)]
    burst = merge_bursts(streams, rates, spans)
    manifest = _manifest(ordered, names)
    remarks = [*manifest.remarks, *_remarks(ordered, names, streams, burst)]
    return Canonical(
        manifest=manifest.model_copy(update={"remarks": list(dict.fromkeys(remarks))}),
        lengths=lengths,
        tail=_tail(ordered, names),
        rates=rates,
        burst=burst,
        prefix=merge_prefix([part.prefix for part in ordered], names),
    )


def _place(part: Canonical) -> tuple[Any, ...]:
    manifest = part.manifest
    return manifest.window_start_us, manifest.window_end_us, manifest.source, manifest.files_sha256, *manifest.files


def _span(part: Canonical) -> Span:
    return Span(part.manifest.window_start_us, part.manifest.window_end_us)


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
    return [Stream(names.get(m, m), _span(part), resolution_ms, of_model(part.burst, m)) for m in models]


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


def _manifest(parts: Sequence[Canonical], names: Mapping[str, str]) -> Manifest:
    found = [part.manifest for part in parts]
    first = found[0]
    meanings = {manifest.ts_meaning for manifest in found}
    digests = sorted(manifest.files_sha256 for manifest in found)
    zones = sorted({manifest.tz_of_source for manifest in found})
    versions = {manifest.alias_map_version for manifest in found}
    return first.model_copy(
        update={
            "source": " + ".join(sorted({source for m in found for source in m.source.split(" + ")})),
            "files": sorted(name for manifest in found for name in manifest.files),
            "files_sha256": digests[0] if len(found) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest(),
            "models": _added_models(found, names),
            "window_start_us": min(manifest.window_start_us for manifest in found),
            "window_end_us": max(manifest.window_end_us for manifest in found),
            "tz_of_source": ", ".join(zones),
            "ts_resolution_ms": max(manifest.ts_resolution_ms for manifest in found),
            "ts_meaning": first.ts_meaning if len(meanings) == 1 else _worst(meanings),
            "filters_applied": sorted({text for manifest in found for text in manifest.filters_applied}),
            "counts": _counts([manifest.counts for manifest in found]),
            "caps": _caps(found, names),
            "alias_map": {k: v for m in found for k, v in sorted(m.alias_map.items())},
            "alias_map_version": versions.pop() if len(versions) == 1 else None,
            "smallest_cell": min(manifest.smallest_cell for manifest in found),
            "columns_read": sorted({name for manifest in found for name in manifest.columns_read}),
            "history": [*(line for m in found for line in m.history), _history(found, names)],
            "remarks": [line for manifest in found for line in manifest.remarks],
        }
    )


def _worst(meanings: Collection[str]) -> str:
    return "completion" if "completion" in meanings else "arrival from completion"


def _history(found: Sequence[Manifest], names: Mapping[str, str]) -> str:
    parts = "; ".join(f"{m.source} {iso_utc(m.window_start_us)} to {iso_utc(m.window_end_us)}" for m in found)
    as_new = "".join(f", {old} as {new}" for old, new in sorted(names.items()))
    return f"merge of {len(found)}: {parts}{as_new}"


def _added_models(found: Sequence[Manifest], names: Mapping[str, str]) -> dict[str, int]:
    models: dict[str, int] = {}
    for manifest in found:
        for model, n in manifest.models.items():
            models[names.get(model, model)] = models.get(names.get(model, model), 0) + n
    return dict(sorted(models.items()))


def _counts(counts: Sequence[Counts]) -> Counts:
    rows: dict[str, list[dict[str, Any]]] = {}
    for count in counts:
        for rule, first in count.dropped_rows.items():
            rows.setdefault(rule, []).extend(first)
    return Counts(
        rows_read=sum(count.rows_read for count in counts),
        kept=sum(count.kept for count in counts),
        offered=sum(count.offered for count in counts),
        dropped_by_reason=_added([count.dropped_by_reason for count in counts]),
        dropped_rows={rule: first[:ROWS_SHOWN] for rule, first in sorted(rows.items())},
        adjusted_by_reason=_added([count.adjusted_by_reason for count in counts]),
    )


def _added(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {key: sum(c.get(key, 0) for c in counts) for key in dict.fromkeys(key for c in counts for key in c)}


def _piles(found: Sequence[Manifest], names: Mapping[str, str]) -> dict[tuple[str, str], dict[int, int]]:
    """Requests at each cap, by model and side."""
    piles: dict[tuple[str, str], dict[int, int]] = {}
    for manifest in found:
        for model, sides in manifest.caps.items():
            for side, cap in sides.items():
                pile = piles.setdefault((names.get(model, model), side), {})
                pile[int(cap["tokens"])] = pile.get(int(cap["tokens"]), 0) + int(cap["n"])
    return piles


def _caps(found: Sequence[Manifest], names: Mapping[str, str]) -> dict[str, dict[str, dict[str, float]]]:
    """The highest cap of each model and side; a lower one of another part is in the remarks."""
    models = _added_models(found, names)
    caps: dict[str, dict[str, dict[str, float]]] = {}
    for (model, side), pile in sorted(_piles(found, names).items()):
        tokens = max(pile)
        caps.setdefault(model, {})[side] = {
            "tokens": tokens, "n": pile[tokens], "share": pile[tokens] / models[model],
        }  # fmt: skip
    return caps


def _remarks(
    parts: Sequence[Canonical], names: Mapping[str, str], streams: Sequence[Stream], burst: pa.Table
) -> list[str]:
    found = [part.manifest for part in parts]
    return [
        *_doubles(parts),
        *_windows(parts),
        *_bursts(streams, burst),
        *_weights(parts, names),
        *(
            f"{model}: {n:,} {side} lengths sit at a lower cap of {tokens:,} tokens in one of the merged logs"
            for (model, side), pile in sorted(_piles(found, names).items())
            for tokens, n in sorted(pile.items())
            if tokens < max(pile)
        ),
        *(["merged logs differ in what their time stamps mean"] if len({m.ts_meaning for m in found}) > 1 else []),
        *(["not every merged log tells cached tokens or reuse: the prefix table is of those that do"]
          if 0 < sum(part.prefix is not None for part in parts) < len(parts) else []),
    ]  # fmt: skip


def _doubles(parts: Sequence[Canonical]) -> list[str]:
    """Windows of one source that overlap: nobody can tell whether they hold the same requests."""
    lines = []
    for place, a in enumerate(parts):
        for b in parts[place + 1 :]:
            same = a.manifest.source == b.manifest.source and set(a.models()) & set(b.models())
            if same and _span(a).end_us > _span(b).start_us:
                lines.append(
                    f"windows of {a.manifest.source} overlap between {iso_utc(_span(b).start_us)} and "
                    f"{iso_utc(min(_span(a).end_us, _span(b).end_us))}: requests in both logs count twice"
                )
    return lines


def _windows(parts: Sequence[Canonical]) -> list[str]:
    union = stretches([_span(part) for part in parts])
    lines = [
        f"no log covers {iso_utc(a.end_us)} to {iso_utc(b.start_us)}: mean rates count it as a time without arrivals"
        for a, b in itertools.pairwise(union)
    ]
    for part in parts:
        span = _span(part)
        own = next(s for s in union if s.start_us <= span.start_us and span.end_us <= s.end_us)
        apart = max(span.start_us - own.start_us, own.end_us - span.end_us)
        overlaps = any(_overlap(span, _span(other)) for other in parts if other is not part)
        if overlaps and apart > 3_600_000_000:
            lines.append(
                f"{part.manifest.source} was logged from {iso_utc(span.start_us)} to {iso_utc(span.end_us)} only: "
                "outside of it the rates lack its arrivals"
            )
    if len(parts) > 1 and parts[0].manifest.time_base != "UTC":
        lines.append("the clocks of the merged logs all start with the log: they were laid over each other")
    return lines


def _overlap(a: Span, b: Span) -> bool:
    return a.start_us < b.end_us and b.start_us < a.end_us


def _bursts(streams: Sequence[Stream], burst: pa.Table) -> list[str]:
    lines = []
    for model in sorted({stream.model for stream in streams}):
        mine = [stream for stream in streams if stream.model == model]
        if not any(_overlap(a.span, b.span) for i, a in enumerate(mine) for b in mine[i + 1 :]):
            continue
        check = independence(mine, of_model(burst, model))
        lines.append(
            f"{model}: below 60 s the bursts of the merged logs are taken as independent"
            + (f" ({check})" if check else "")
        )
    return lines


def _weights(parts: Sequence[Canonical], names: Mapping[str, str]) -> list[str]:
    """Models whose length laws were mixed by other weights than their rates."""
    ratios: dict[str, list[float]] = {}
    for part in parts:
        for model, n in part.manifest.models.items():
            arrivals = pc.sum(of_model(part.rates, model)["n"]).as_py() or 0
            ratios.setdefault(names.get(model, model), []).append(arrivals / n if n else 0.0)
    return [
        f"{model}: its lengths are mixed by the observed requests, not by the rates, which were scaled or hold "
        "failures in unequal shares"
        for model, found in sorted(ratios.items())
        if min(found) * SAME_RATIO < max(found)
    ]
