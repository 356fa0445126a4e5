"""The manifest of merged logs: what is added, what must agree, and what a reader of the sum must know."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import of_model
from planner.traffic.grid import HOUR_US, Span
from planner.traffic.operations.merge_bursts import Stream, independence, stretches
from planner.traffic.schema import Counts, Manifest, iso_utc

ROWS_SHOWN = 5
"""First dropped rows kept for each rule."""
SAME_RATIO = 1.1
"""Arrivals over requests of the length law may differ by this between logs that are merged into one model."""


def merged_manifest(
    parts: Sequence[Canonical], names: Mapping[str, str], streams: Sequence[Stream], burst: pa.Table
) -> Manifest:
    """The manifest of merged logs.

    Parameters
    ----------
    parts
        In the order of their windows.
    names
        Old to new model names.
    streams, burst
        The arrivals of each model in each log, and the burst table of their sum.
    """
    found = [part.manifest for part in parts]
    before = [line for manifest in found for line in manifest.remarks]
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
            "remarks": list(dict.fromkeys([*before, *_remarks(parts, names, streams, burst)])),
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
    for one, other in itertools.combinations(parts, 2):
        a, b = one.manifest, other.manifest
        if a.source == b.source and a.window.end_us > b.window.start_us and set(a.models) & set(b.models):
            until = iso_utc(min(a.window.end_us, b.window.end_us))
            lines.append(
                f"windows of {a.source} overlap between {b.window_start} and {until}: requests in both logs count twice"
            )
    return lines


def _windows(parts: Sequence[Canonical]) -> list[str]:
    union = stretches([part.manifest.window for part in parts])
    lines = [
        f"no log covers {iso_utc(a.end_us)} to {iso_utc(b.start_us)}: mean rates count it as a time without arrivals"
        for a, b in itertools.pairwise(union)
    ]
    for part in parts:
        span = part.manifest.window
        own = next(s for s in union if s.start_us <= span.start_us and span.end_us <= s.end_us)
        apart = max(span.start_us - own.start_us, own.end_us - span.end_us)
        overlaps = any(_overlap(span, other.manifest.window) for other in parts if other is not part)
        if overlaps and apart > HOUR_US:
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
        if not any(_overlap(a.span, b.span) for a, b in itertools.combinations(mine, 2)):
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
