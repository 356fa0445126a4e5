"""What one request holds over its life, as moments that are closed-form in the speed of the replica.

A request with prompt P and output O holds F = a P + c token-equivalents from admission, stays S(P) seconds in
prefill, then grows by ``a`` a token for O tokens of ``w`` seconds each, and leaves. ``a`` and ``c`` turn sliding-window
layers and block rounding into equivalents of one token of the layers that keep everything:

    bytes held at t tokens <= full * (t + block − 1) + sliding * min(t, reserve) + state
                           <= full * (a * t + c)

with (a, c) = (1 + sliding/full, block − 1 + state/full) for requests that never outgrow the window and
(1, block − 1 + sliding/full * reserve + state/full) for the others; both bounds hold for every request, the smaller one
is taken. The state (recurrent layers) is held however short the request; one that has a pool of its own takes nothing
here. A model that keeps nothing but states counts requests: its token-equivalent is the state of one request.

Source of the moments: direct integration over the age of a request of the piecewise-linear footprint; they are the
first three cumulants of the live-token sum of an M/G/infinity system divided by the arrival rate (Campbell's theorem).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from planner.memory.types import Sizing
from planner.traffic.types import FloatArray, IntArray, LengthLaw


@dataclass(frozen=True)
class Marks:
    """The length law as weighted points: one per cell, at the cell's mean.

    Attributes
    ----------
    weight
        Share of requests, sums to 1.
    prompt, output
        Mean lengths of the cell, tokens.
    growth
        Token-equivalents that one token adds (``a``).
    start
        Token-equivalents held on admission (``F``).
    """

    weight: FloatArray
    prompt: FloatArray
    output: FloatArray
    growth: FloatArray
    start: FloatArray

    @property
    def end(self) -> FloatArray:
        """Token-equivalents held when the last token is out."""
        return self.start + self.growth * self.output


@dataclass(frozen=True)
class Moments:
    """Expectations over the length law that the time in system multiplies; of one law, or stacked over candidates.

    Attributes
    ----------
    mean_prompt, mean_prompt2, mean_output
        E[P], E[P^2], E[O], tokens.
    read_tokens
        E[P O + O^2 / 2] in real tokens: what decode reads.
    prefill
        Shape (4, 3, ...): E[F^k P^j] for k = 0..3, j = 0..2.
    decode
        Shape (4, ...): E of the integral of the k-th power of the footprint over the decode phase, in units of one
        token's time; decode[0] = E[O].
    decode_overlap
        Integral over x of E[footprint at decode age x]^2, in token-equivalents squared times tokens.
    prefill_overlap
        Shape (3, ...): E[F]^2, and the integrals over p of G(p)^2 and of 2 p G(p)^2 with G(p) = E[F; P > p]: what
        s0, s1 and s2 multiply in the integral of the squared mean footprint of the prefill phase.
    """

    mean_prompt: FloatArray
    mean_prompt2: FloatArray
    mean_output: FloatArray
    read_tokens: FloatArray
    prefill: FloatArray
    decode: FloatArray
    decode_overlap: FloatArray
    prefill_overlap: FloatArray

    def at(self, index: IntArray) -> Moments:
        """Of stacked moments, those at ``index``, one for each candidate."""
        return Moments(**{f.name: getattr(self, f.name)[..., index] for f in fields(self)})


def stack_moments(moments: Sequence[Moments]) -> Moments:
    """Moments of several laws along a last axis."""
    if not moments:
        empty = np.zeros(0)
        return Moments(empty, empty, empty, empty, np.zeros((4, 3, 0)), np.zeros((4, 0)), empty, np.zeros((3, 0)))
    return Moments(**{f.name: np.stack([getattr(m, f.name) for m in moments], axis=-1) for f in fields(Moments)})


def marks_of(law: LengthLaw, sizing: Sizing) -> Marks:
    """Weighted points of a length law, with footprints in token-equivalents of a sizing.

    Parameters
    ----------
    law
        Served requests (already cut at ``max_model_len``).
    sizing
        The pool that they are held in.
    """
    n = law.n.astype(np.float64)
    prompt, output = law.sum_prompt / n, law.sum_output / n
    unit = token_equivalent_bytes(sizing)
    full, sliding = sizing.bytes_per_token / unit, sizing.sliding_bytes_per_token / unit
    rounding = (sizing.largest_block_tokens - 1.0) if full or sliding else 0.0
    within = law.max_total.astype(np.float64) <= sizing.sliding_reserve_tokens
    growth = np.where(within, full + sliding, full)
    offset = np.where(within, rounding, rounding + sliding * sizing.sliding_reserve_tokens)
    offset = offset + sizing.pool_state_bytes_per_request / unit
    return Marks(n / n.sum(), prompt, output, growth, growth * prompt + offset)


def token_equivalent_bytes(sizing: Sizing) -> float:
    """Bytes per GPU of one token-equivalent: a token of the layers that keep everything, else of the sliding ones.

    The state of one request where no layer keeps tokens.
    """
    kinds = (sizing.bytes_per_token, sizing.sliding_bytes_per_token, sizing.pool_state_bytes_per_request)
    return next(figure for figure in kinds if figure > 0)


def longest_request(sizing: Sizing) -> float:
    """Token-equivalents that one request of ``max_model_len`` fills when its windows are full, states included."""
    windows = sizing.sliding_bytes_per_token * min(sizing.max_model_len, sizing.sliding_reserve_tokens)
    held = sizing.bytes_per_token * sizing.max_model_len + windows + sizing.pool_state_bytes_per_request
    return held / token_equivalent_bytes(sizing)


def pool_token_equivalents(sizing: Sizing) -> float:
    """The pool in token-equivalents: whole blocks only."""
    return sizing.num_blocks * sizing.bytes_per_block / token_equivalent_bytes(sizing)


def moments_of(marks: Marks, law: LengthLaw) -> Moments:
    """Moments of the footprint; first-order terms are exact whatever the cells.

    The second and third moments take each cell at its mean, which understates them by at most the spread inside a
    cell (9 % of a length); the first moment uses the cells' exact sums of products.
    """
    total = float(law.n.sum())
    weight, start, output, growth = marks.weight, marks.start, marks.output, marks.growth
    grown = growth * output
    prompt_powers = np.stack([np.ones_like(start), marks.prompt, law.sum_pp / law.n])
    prefill = np.array([[float(np.sum(weight * start**k * power)) for power in prompt_powers] for k in range(4)])
    offset = start - growth * marks.prompt
    exact_first = float(np.sum(growth * (law.sum_po + law.sum_oo / 2) + offset * law.sum_output)) / total
    decode = np.array(
        [
            float(law.sum_output.sum()) / total,
            exact_first,
            float(np.sum(weight * output * (start**2 + start * grown + grown**2 / 3))),
            float(np.sum(weight * output * (start**3 + 1.5 * start**2 * grown + start * grown**2 + grown**3 / 4))),
        ]
    )
    return Moments(
        mean_prompt=np.asarray(law.mean_prompt),
        mean_prompt2=np.asarray(float(law.sum_pp.sum()) / total),
        mean_output=np.asarray(law.mean_output),
        read_tokens=np.asarray(float((law.sum_po + law.sum_oo / 2).sum()) / total),
        prefill=prefill,
        decode=decode,
        decode_overlap=np.asarray(_decode_overlap(marks)),
        prefill_overlap=_prefill_overlap(marks),
    )


def _prefill_overlap(marks: Marks) -> FloatArray:
    """See `Moments.prefill_overlap`; exact, because G is a step function of p."""
    order = np.argsort(marks.prompt)
    edges = np.concatenate([[0.0], marks.prompt[order]])
    mass = (marks.weight * marks.start)[order]
    above = np.cumsum(mass[::-1])[::-1]
    return np.array([mass.sum() ** 2, np.sum(above**2 * np.diff(edges)), np.sum(above**2 * np.diff(edges**2))])


def _decode_overlap(marks: Marks, points: int = 400) -> float:
    """Integral of E[footprint at decode age x]^2 dx, where x counts generated tokens."""
    longest = float(marks.output.max(initial=0.0))
    if longest <= 0:
        return 0.0
    edges = np.concatenate([[0.0], np.geomspace(max(longest * 1e-4, 1e-3), longest, points)])
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    order = np.argsort(marks.output)
    output = marks.output[order]
    start_mass = np.cumsum((marks.weight * marks.start)[order][::-1])[::-1]
    growth_mass = np.cumsum((marks.weight * marks.growth)[order][::-1])[::-1]
    alive = np.searchsorted(output, middle, side="right")
    padded_start, padded_growth = np.append(start_mass, 0.0), np.append(growth_mass, 0.0)
    mean = padded_start[alive] + middle * padded_growth[alive]
    return float(np.sum(mean**2 * width))
