"""Bands of prompt lengths, which a router sees before it routes: where they can be cut, and the traffic of each.

A length law is known by cells. A cut is admissible where no cell has prompts on both sides of it: only then is the law
of each side exact. A cut inside a cell is refused, with the nearest admissible ones: sharing out the requests of a cell
would be a guess, and a guess that is too small for the longer side is a pool that overflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from planner.errors import InputError, Problem
from planner.traffic.law import BoolArray, corners
from planner.traffic.prompt_bursts import burst_of_prompts
from planner.traffic.tables.definitions import CAP_RATIO
from planner.traffic.types import Cap, FloatArray, IntArray, LengthLaw, Tail, Traffic

_SAME_WORK = 1e-9
"""Cuts that are this close to the wanted share of work are equally good: the shorter one is taken."""


def cuts_of(
    law: LengthLaw, count: int, *, also: Sequence[LengthLaw] = (), within: IntArray | None = None
) -> tuple[int, ...]:
    """Prompt lengths (tokens) that cut a law into at most ``count`` bands of about equal work.

    The work of a cell is its share of all tokens (prompt plus output: what is computed) plus its share of all KV
    token-steps, ``P O + O^2 / 2`` (what is held and read while decoding). Bands of equal requests would put nearly all
    work into the last one. Cuts are taken from the shortest prompts on, each where the work so far is nearest to an
    equal part of what is left, so that one cell with much of the work does not use up several cuts. The last band has
    the long tail.

    Parameters
    ----------
    law
        Whose work is shared out; cuts are lower edges of its cells.
    count
        Most bands.
    also
        Laws whose cells must not be cut either.
    within
        If given, only these lengths may be cuts.

    Returns
    -------
    tuple of int
        ``count - 1`` lengths, ascending and above 0, or as many as there are: fewer where cells overlap or are few.
        Where all cells overlap, as after merging laws of other cells, none.

    Raises
    ------
    ValueError
        If ``count`` is below 1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    edges = [c for c in _edges(law) if all(is_admissible(other, c) for other in also)]
    if within is not None:
        allowed = {int(edge) for edge in within}
        edges = [c for c in edges if c in allowed]
    low, work = corners(law)[0], _work(law)
    below = [float(work[low < c].sum()) for c in edges]
    cuts: list[int] = []
    done, first = 0.0, 0
    for left in range(count, 1, -1):
        if first == len(edges):
            break
        wanted = done + (1.0 - done) / left
        # As many edges stay as there are further cuts, where there are so many.
        choices = range(first, max(first + 1, len(edges) - left + 2))
        best = min(choices, key=lambda i: (round(abs(below[i] - wanted) / _SAME_WORK), edges[i]))
        cuts.append(edges[best])
        done, first = below[best], best + 1
    return tuple(cuts)


def _edges(law: LengthLaw) -> list[int]:
    """Lower prompt edges of cells that no cell crosses, without the first."""
    low, high = corners(law)[0], law.max_prompt
    order = np.argsort(low, kind="stable")
    reached = np.maximum.accumulate(high[order])
    clear = low[order][1:] > reached[:-1]
    return [int(edge) for edge in low[order][1:][clear]]


def _work(law: LengthLaw) -> FloatArray:
    """Share of the work of each cell, sums to 1; by requests where no token is known."""
    tokens, steps = law.sum_prompt + law.sum_output, law.sum_po + law.sum_oo / 2.0
    parts = [part / part.sum() for part in (tokens, steps) if part.sum() > 0] or [law.n / law.n.sum()]
    return np.asarray(sum(parts) / len(parts))


def is_admissible(law: LengthLaw, cut: int) -> bool:
    """Whether no cell of the law has prompts on both sides of the cut (below it, and at or above it)."""
    return not bool(((corners(law)[0] < cut) & (law.max_prompt >= cut)).any())


def check_cut(law: LengthLaw, cut: int, where: str) -> Problem | None:
    """What is wrong with a cut that the user states, with the nearest admissible ones; ``None`` where nothing is."""
    if is_admissible(law, cut):
        return None
    edges = _edges(law)
    last = int(law.max_prompt.max()) + 1
    near = [*(edge for edge in edges if edge < cut)][-1:] + [*(edge for edge in edges if edge > cut), last][:1]
    what = f"the log does not tell prompts of fewer than {cut:,} tokens from longer ones: its cells reach across"
    return Problem(where, what, f"Cut at {' or '.join(f'{edge}' for edge in near)}", field="cuts")


def occupied_cuts(law: LengthLaw, cuts: Sequence[int]) -> tuple[int, ...]:
    """The cuts that leave a request in every band; an empty band goes to the longer neighbour, else to the shorter.

    A prompt that comes later to a stretch without any today so meets the pool for longer requests.
    """
    kept: list[int] = []
    low = 0
    for cut in sorted(set(cuts)):
        if _inside(law, low, cut).any():
            kept.append(cut)
            low = cut
    if kept and not _inside(law, low, None).any():
        kept.pop()
    return tuple(kept)


def _inside(law: LengthLaw, lo: int, hi: int | None) -> BoolArray:
    low = corners(law)[0]
    return (low >= lo) if hi is None else (low >= lo) & (low < hi)


def restrict_prompts(traffic: Traffic, lo: int, hi: int | None) -> Traffic:
    """The traffic of the requests with ``lo <= prompt < hi``; no upper end where ``hi`` is ``None``.

    Exact: the cells of the law, so that the sums of all bands add up to those of the whole, and the rows of the tail
    table, which holds every request of the band from its least total on. Minute counts are the whole's, times the share
    of the requests, to whole requests by running totals (as if lengths and hours of the day were independent). Bursts:
    `planner.traffic.prompt_bursts`. A cap of prompts goes to the band that has its length; a cap of outputs to every
    band that reaches it, counted by its cells: an upper bound.

    Raises
    ------
    InputError
        If the law has a cell on both sides of ``lo`` or ``hi``.
    ValueError
        If the stretch is none, or no request lies in it.
    """
    if lo < 0 or (hi is not None and hi <= lo):
        raise ValueError(f"[{lo}, {hi}) is no stretch of prompt lengths")
    law = traffic.law
    problems = [check_cut(law, cut, traffic.model) for cut in (lo, hi) if cut]
    if any(problems):
        raise InputError([problem for problem in problems if problem is not None])
    inside = _inside(law, lo, hi)
    if not inside.any():
        raise ValueError(f"no request has a prompt in [{lo}, {hi})")
    if inside.all():
        return traffic
    share = float(law.n[inside].sum() / law.n.sum())
    kept = _cells(law, inside)
    return replace(
        traffic,
        law=kept,
        tail=_tail(traffic.tail, lo, hi),
        burst=burst_of_prompts(traffic, lo, hi),
        minute_counts=_scaled(traffic.minute_counts, share),
        caps=_caps(traffic.caps, kept, lo, hi),
        prompt_bursts=None,
    )


def _cells(law: LengthLaw, inside: BoolArray) -> LengthLaw:
    low = dict(zip(("prompt_lo", "output_lo"), corners(law), strict=True))
    columns = {field.name: getattr(law, field.name) for field in fields(law)} | low
    return LengthLaw(**{name: column[inside] for name, column in columns.items()})


def _tail(tail: Tail, lo: int, hi: int | None) -> Tail:
    inside = tail.prompt >= lo
    if hi is not None:
        inside &= tail.prompt < hi
    return Tail(tail.prompt[inside], tail.output[inside], tail.n[inside])


def _scaled(counts: IntArray, share: float) -> IntArray:
    """Whole numbers whose running totals are the nearest to the share of the observed ones."""
    running = np.rint(np.cumsum(counts) * share).astype(np.int64)
    return np.asarray(np.diff(running, prepend=0), dtype=np.int64)


def _caps(caps: Sequence[Cap], law: LengthLaw, lo: int, hi: int | None) -> tuple[Cap, ...]:
    found = []
    for cap in caps:
        most = law.max_prompt if cap.side == "prompt" else law.max_output
        reach = int(law.n[most >= cap.tokens * CAP_RATIO].sum())
        here = cap.side != "prompt" or (lo <= cap.tokens and (hi is None or cap.tokens < hi))
        if reach and here:
            requests = min(cap.requests, reach)
            found.append(replace(cap, requests=requests, share=requests / law.requests))
    return tuple(found)


def bands_between(cuts: Sequence[int]) -> tuple[tuple[int, int | None], ...]:
    """The stretches [lo, hi) that ascending cuts leave, from 0 to no upper end."""
    return tuple(zip((0, *cuts), (*cuts, None), strict=True))
