"""Models cut by prompt length, as a router makes them that sees the prompt."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import Problems
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import of_model, renamed
from planner.traffic.operations.cell import Cell, cells_of
from planner.traffic.operations.scale import BurstRule, scale_burst
from planner.traffic.operations.split.cut import cut
from planner.traffic.operations.split.parts import (
    Band,
    bands_of,
    chosen_models,
    rates_of_band,
    together,
    without_models,
)
from planner.traffic.operations.tail_rows import rows_in_tail
from planner.traffic.schema import ALL, LENGTHS, Kind, Manifest


def part_names(limits: Sequence[int]) -> list[str]:
    """What the parts between limits are called: short and long, with medium between two limits, else by length."""
    if len(limits) == 1:
        return ["short", "long"]
    if len(limits) == 2:
        return ["short", "medium", "long"]
    inner = [f"{low}-{high - 1}" for low, high in itertools.pairwise(limits)]
    return [f"below-{limits[0]}", *inner, f"from-{limits[-1]}"]


def by_length(canonical: Canonical, limits: Sequence[int], models: Iterable[str] = ()) -> Canonical:
    """Each model as several by prompt length, as a router makes them that sees it: ``chat/short``, ``chat/long``.

    A part holds prompts of at least its lower limit and fewer tokens than its upper one. Cells that a limit cuts are
    cut with exact totals (`cut`): exact for the largest totals, in proportion for the others. Minute counts go to the
    parts by their shares of requests and tokens, as if lengths and arrival times were independent; the index of
    dispersion less one shrinks with the share, as thinning makes it.

    Parameters
    ----------
    canonical
        Of joint lengths.
    limits
        Prompt tokens, ascending, above 0.
    models
        Which to cut; all where empty.

    Raises
    ------
    InputError
        If a limit is none, a model is not there, or only marginals are known.
    """
    chosen = chosen_models(canonical, models)
    _check_limits(canonical, limits, chosen)
    parts = [without_models(canonical, chosen)]
    remarks = []
    for model in chosen:
        found, torn = _model_by_length(canonical, model, limits)
        parts += found
        remarks += torn
    if canonical.prefix is not None:
        remarks.append("models that were split by length have no prefix table: it is not known by length")
    what = f"split by prompt length at {', '.join(map(str, limits))}: {', '.join(chosen)}"
    remarks.append(
        "models that were split by length: minute counts and bursts follow from the shares, as if lengths and arrival "
        "times were independent"
    )
    return together(canonical, parts, what, remarks)


def _check_limits(canonical: Canonical, limits: Sequence[int], models: Sequence[str]) -> None:
    problems = Problems()
    if not limits or any(limit < 1 for limit in limits) or list(limits) != sorted(set(limits)):
        fix = "Give prompt tokens above 0, ascending: 4096,32768"
        problems.add("--by-length", f"'{','.join(map(str, limits))}' are no limits", fix)
    if canonical.manifest.kind is not Kind.REQUESTS:
        fix = "Ingest a log with one row for each request"
        problems.add("--by-length", "the distribution knows no joint lengths to split", fix)
    clash = [f"{m}/{name}" for m in models for name in part_names(limits) if f"{m}/{name}" in canonical.manifest.models]
    if clash:
        problems.add("--by-length", f"would make {', '.join(clash)} a second time", "Choose models with --model")
    problems.raise_if_any()


def _model_by_length(canonical: Canonical, model: str, limits: Sequence[int]) -> tuple[list[Canonical], list[str]]:
    """The parts of one model that hold a request, and remarks about torn cells."""
    cells = cells_of(of_model(canonical.lengths, model))
    tail = of_model(canonical.tail, model)
    held = rows_in_tail(cells, tail)
    names = [f"{model}/{name}" for name in part_names(limits)]
    bands: list[list[Cell]] = [[] for _ in names]
    torn = 0
    for place, cell in enumerate(cells):
        left: Cell | None = cell
        for band, limit in enumerate(limits):
            if left is None:
                break
            known = held.get(place) if left is cell else None
            below, left = cut(left, known, limit)
            torn += below is not None and left is not None and cell.period == ALL
            if below is not None:
                bands[band].append(below)
        if left is not None:
            bands[-1].append(left)
    edges = [0, *limits, math.inf]
    totals = [_total(band) for band in bands]
    shares = [bands_of([getattr(t, name) if t else 0 for t in totals]) for name in ("n", "sum_prompt", "sum_output")]
    parts = [
        _part(canonical, model, names[i], bands[i], total, (edges[i], edges[i + 1]), [share[i] for share in shares])
        for i, total in enumerate(totals)
        if total is not None
    ]
    remark = f"{model}: {torn:,} of its cells hold prompts on both sides of a limit and were cut in proportion"
    return parts, [remark] if torn else []


def _part(
    canonical: Canonical,
    model: str,
    name: str,
    cells: Sequence[Cell],
    total: Cell,
    edges: tuple[float, float],
    shares: Sequence[Band],
) -> Canonical:
    """One band of prompt lengths as a model of its own."""
    tail = of_model(canonical.tail, model)
    inside = pc.and_(pc.greater_equal(tail["prompt"], edges[0]), pc.less(tail["prompt"], edges[1]))
    caps = _caps_of(canonical.manifest, model, total)
    share = float(shares[0][1] - shares[0][0])
    burst = scale_burst(of_model(canonical.burst, model), share, BurstRule.AMPLIFY)
    return Canonical(
        canonical.manifest.model_copy(update={"models": {name: total.n}, "caps": {name: caps} if caps else {}}),
        lengths=pa.Table.from_pylist([cell.replaced(model=name).row() for cell in cells], schema=LENGTHS),
        tail=renamed(tail.filter(inside), {model: name}),
        rates=rates_of_band(of_model(canonical.rates, model), name, shares),
        burst=renamed(burst, {model: name}),
    )


def _total(cells: Iterable[Cell]) -> Cell | None:
    """All requests of the whole window together; None without any."""
    mine = [cell for cell in cells if cell.period == ALL]
    return reduce(Cell.joined, mine) if mine else None


def _caps_of(manifest: Manifest, model: str, law: Cell) -> dict[str, Any]:
    """Caps that the part's own largest lengths sit at; shares are of the whole model, since a pile may be torn."""
    largest = {"prompt": law.max_prompt, "output": law.max_output}
    return {side: cap for side, cap in manifest.caps.get(model, {}).items() if int(cap["tokens"]) == largest[side]}
