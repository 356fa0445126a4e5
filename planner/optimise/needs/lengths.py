"""Values of max_model_len that are tried: a short ladder that the slices of a model share."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import binom

from planner.optimise.types import LengthChoice, Rejection, Slice
from planner.traffic.law import length_at_tail, refused_shares, truncate

LENGTH_STEP = 256
"""max_model_len is rounded up to a multiple of this; every engine block size in the catalogue divides it."""
RUNGS = 4
"""Most values for the slices of one model, beside those of the slice of all: each one is sized on every GPU type."""
SPACINGS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 64.0)


def length_choices(
    slices: Sequence[Slice], model_maximum: int, confidence: float
) -> tuple[dict[str, tuple[LengthChoice, ...]], tuple[Rejection, ...]]:
    """Values of max_model_len by slice key, ascending, and the slices that have none.

    For each slice from the least that keeps its tail budget, with a confidence (`sure_share`), to one that refuses
    nothing (the longest ones, or the model's maximum, if that keeps the budget). A slice has no choice when even the
    model's own maximum refuses more.
    """
    wanted = {each.key: _wanted(each, model_maximum, confidence) for each in slices}
    # What one pool would choose is always there: allowing more pools never takes a plan away.
    whole = {length for each in slices if is_whole(each) for length in wanted[each.key]}
    rungs = sorted({*whole, *ladder([length for lengths in wanted.values() for length in lengths])})
    found: dict[str, tuple[LengthChoice, ...]] = {}
    none: list[Rejection] = []
    for each in slices:
        tried = [length_choice(each, length) for length in _rungs_of(wanted[each.key], rungs)]
        kept = tuple(choice for choice in tried if choice is not None)
        if kept:
            found[each.key] = kept
        else:
            none.append(_too_long(each, model_maximum))
    return found, tuple(none)


def is_whole(each: Slice) -> bool:
    """Whether a slice is all requests of its model."""
    return each.prompt_lo_tokens == 0 and each.prompt_hi_tokens is None and not each.tenants


def _too_long(each: Slice, model_maximum: int) -> Rejection:
    share = refused_shares(each.traffic, model_maximum).requests
    detail = f"{each.key}: max_model_len {model_maximum} refuses {share:.3%} of requests, budget {each.tail_budget:.3%}"
    return Rejection(each.model, "any", 0, "tail length", detail, share / max(each.tail_budget, 1e-12))


def _wanted(each: Slice, model_maximum: int, confidence: float) -> tuple[int, ...]:
    """Lengths that a slice would choose, rounded up: the least, one in between, one that refuses nothing."""
    requests = each.traffic.law.requests
    shortest = length_at_tail(each.traffic, sure_share(each.tail_budget, requests, confidence))
    longest = int(each.traffic.law.max_total.max())
    lengths = {shortest, (shortest + longest) // 2, longest}
    return tuple(sorted({min(-(-length // LENGTH_STEP) * LENGTH_STEP, model_maximum) for length in lengths}))


def sure_share(budget: float, requests: int, confidence: float) -> float:
    """Share of a log's requests that may lie beyond a length such that the true share keeps a budget with confidence.

    The most k of n with P(Binomial(n, budget) <= k) <= 1 − confidence, over n: the one-sided interval of C. J. Clopper
    and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika
    26(4), 1934. Where even no request beyond would not prove it, 0: the longest that was seen.

    The log's requests count as independent.
    """
    if budget <= 0:
        return 0.0
    # The least k with P(<= k) >= 1 − confidence, less one.
    most = int(binom.ppf(1.0 - confidence, requests, budget)) - 1
    return max(most, 0) / requests


def ladder(lengths: Sequence[int]) -> tuple[int, ...]:
    """At most `RUNGS` of the lengths, ascending, the longest among them: neighbours stand for each other.

    From the longest down, a length is left out when the next longer one that is kept is not longer by a factor; the
    factor grows until few enough are left.
    """
    descending = sorted(set(lengths), reverse=True)
    for spacing in SPACINGS:
        kept: list[int] = []
        for length in descending:
            if not kept or length * spacing < kept[-1]:
                kept.append(length)
        if len(kept) <= RUNGS:
            return tuple(sorted(kept))
    return tuple(sorted(descending[:1]))


def _rungs_of(wanted: Sequence[int], rungs: Sequence[int]) -> tuple[int, ...]:
    """For each wanted length the least rung that is no shorter."""
    return tuple(sorted({min(rung for rung in rungs if rung >= length) for length in wanted}))


def length_choice(each: Slice, length: int) -> LengthChoice | None:
    """A length with what it refuses and the law of what it serves; ``None`` where it refuses too much."""
    if int(each.traffic.law.max_total.max()) <= length:
        return LengthChoice(length, 0.0, 0.0, each.traffic.law)
    requests, tokens = refused_shares(each.traffic, length)
    if requests > each.tail_budget:
        return None
    return LengthChoice(length, requests, tokens, truncate(each.traffic, length))
