"""What one request holds over its life, and its moments, which are closed-form in the speed of the replica.

A request of a prompt of P tokens holds the footprint of P from admission, stays S(P) seconds in prefill, then grows
token by token for O tokens of ``w`` seconds each, and leaves. In bytes, with t live tokens, [t] whole blocks of them,

    decode   full * [t] + sliding * min([t], window in whole blocks) + state
    prefill  full * [P] + sliding * min([P], reserve) + state

counted in equivalents of one token of the layers that keep everything. Blocks are counted as they are taken, not by
their worst case ``t + block - 1``: next to recurrent layers they are hundreds to thousands of tokens, and half a block
too many is up to a sixth of a short request. The window in whole blocks is what vLLM keeps once blocks outside it are
freed on every step; while a prompt is computed, vLLM 0.33.0 reserves the tokens in flight as well
(``KVCacheManager.allocate_slots``, ``Scheduler._inflight_prefill_reserved_blocks``). The state (recurrent layers) is
held however short the request; one that has a pool of its own takes nothing here. A model that keeps nothing but states
counts requests: its token-equivalent is the state of one request.

A cell of the length law is held at its mean and rounded up from its longest prompt, or takes ``block - 1`` more where
that is less: at every age an upper bound on the mean of the cell's requests.

Source of the moments: integration over the age of a request of the footprint, by quadrature over decode; they are the
first three cumulants of the live-token sum of an M/G/infinity system divided by the arrival rate (Campbell's theorem).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np

from planner.memory.types import Sizing
from planner.queueing.holding import Holding, holding_of
from planner.traffic.types import FloatArray, IntArray, LengthLaw

DECODE_POINTS = 24
"""Gauss-Legendre points over the output of a cell: exact between the steps of blocks."""


@dataclass(frozen=True)
class Marks:
    """The length law as weighted points: one per cell, at the cell's mean.

    Attributes
    ----------
    weight
        Share of requests, sums to 1.
    prompt, output
        Mean lengths of the cell, tokens.
    longest_prompt
        Longest prompt of the cell, tokens.
    holding
        What tokens occupy.
    prompt_sd
        Standard deviation of the prompts inside the cell, tokens: what the law of few live requests can see.
    """

    weight: FloatArray
    prompt: FloatArray
    output: FloatArray
    longest_prompt: FloatArray
    holding: Holding
    prompt_sd: FloatArray

    @property
    def start(self) -> FloatArray:
        """Token-equivalents held at the end of prefill; without chunks, during all of it."""
        whole = self.holding.of(self.prompt, self.longest_prompt, self.holding.reserve_tokens)
        return whole - self._shared(self.prompt)

    def prefilling(self, done: FloatArray) -> FloatArray:
        """Token-equivalents held when a share ``done`` of the prompt is computed; cells along the last axis.

        In chunks, the blocks of the chunk that is being computed are taken.
        """
        chunk = self.holding.chunk_tokens
        if not chunk:
            return np.broadcast_to(self.start, np.broadcast_shapes(np.shape(done), self.start.shape))
        taken = (np.floor(done * self.prompt / chunk) + 1.0) * chunk
        tokens, longest = np.minimum(self.prompt, taken), np.minimum(self.longest_prompt, taken)
        return self.holding.of(tokens, longest, self.holding.reserve_tokens) - self._shared(tokens)

    def _shared(self, tokens: FloatArray) -> FloatArray:
        """Of ``tokens`` computed, those that are held once for all requests, in token-equivalents."""
        shared = float(self.holding.shared_tokens)
        return np.asarray(self.holding.full * np.where(self.prompt >= shared, np.minimum(tokens, shared), 0.0))

    @property
    def end(self) -> FloatArray:
        """Token-equivalents held when the last token is out."""
        return self.held(self.output)

    def held(self, generated: FloatArray) -> FloatArray:
        """Token-equivalents held in decode after ``generated`` tokens; cells along the last axis."""
        tokens, longest = self.prompt + generated, self.longest_prompt + generated
        return self.holding.of(tokens, longest, self.holding.window_tokens) - self._shared(self.prompt)


@dataclass(frozen=True)
class Moments:
    """Expectations over the length law that the time in system multiplies; of one law, or stacked over candidates.

    Attributes
    ----------
    mean_prompt, mean_prompt2, mean_output
        E[P], E[P^2], E[O], tokens.
    kept_output
        E[min(O, O')] / E[O] of two independent requests: share of a burst that is still in decode on average.
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
    kept_output: FloatArray
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
        return Moments(
            empty, empty, empty, empty, empty, np.zeros((4, 3, 0)), np.zeros((4, 0)), empty, np.zeros((3, 0))
        )
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
    return marks_held(law, holding_of(sizing))


def marks_held(law: LengthLaw, holding: Holding) -> Marks:
    """Weighted points of a length law under a holding that is stated."""
    n = law.n.astype(np.float64)
    longest = law.max_prompt.astype(np.float64)
    mean = law.sum_prompt / n
    spread = np.sqrt(np.maximum(law.sum_pp / n - mean**2, 0.0))
    return Marks(n / n.sum(), mean, law.sum_output / n, longest, holding, spread)


def moments_of(marks: Marks, law: LengthLaw) -> Moments:
    """Moments of the footprint.

    The first moment takes the tokens of the layers that keep everything from the cells' exact sums of products. The
    second and third take each cell at its mean, which understates them by at most the spread inside a cell (9 % of a
    length).
    """
    total = float(law.n.sum())
    weight, full = marks.weight, marks.holding.full
    points, shares = _decode_points()
    filling_powers = _mean_powers(marks, points, shares)
    prompt_powers = np.stack([np.ones_like(marks.prompt), marks.prompt, law.sum_pp / law.n])
    prefill = (weight * filling_powers) @ prompt_powers.T
    generated = points[:, None] * marks.output
    held = marks.held(generated)
    squared = held * held
    beside = shares @ (held - full * (marks.prompt + generated))
    exact_tokens = float((law.sum_po + law.sum_oo / 2).sum()) / total
    decode = np.array(
        [
            float(law.sum_output.sum()) / total,
            full * exact_tokens + float(np.sum(weight * marks.output * beside)),
            *(float(np.sum(weight * marks.output * (shares @ power))) for power in (squared, squared * held)),
        ]
    )
    return Moments(
        mean_prompt=np.asarray(law.mean_prompt),
        mean_prompt2=np.asarray(float(law.sum_pp.sum()) / total),
        mean_output=np.asarray(law.mean_output),
        kept_output=np.asarray(_kept(marks.weight, marks.output)),
        read_tokens=np.asarray(exact_tokens),
        prefill=prefill,
        decode=decode,
        decode_overlap=np.asarray(_decode_overlap(marks, shares @ held)),
        prefill_overlap=_prefill_overlap(marks, filling_powers[1]),
    )


def _kept(weight: FloatArray, output: FloatArray) -> float:
    """E[min(O, O')] / E[O], the integral of P(O > x)^2 over that of P(O > x)."""
    order = np.argsort(output)
    above = np.cumsum(weight[order][::-1])[::-1]
    width = np.diff(np.concatenate([[0.0], output[order]]))
    mean = float(above @ width)
    return float(above**2 @ width) / mean if mean > 0 else 1.0


def _mean_powers(marks: Marks, points: FloatArray, shares: FloatArray) -> FloatArray:
    """Means over the prefill phase of the powers 0 to 3 of what each cell holds; constant where there are no chunks."""
    filling = marks.prefilling(points[:, None]) if marks.holding.chunk_tokens else marks.start[None, :]
    kept = shares if marks.holding.chunk_tokens else np.ones(1)
    squared = filling * filling
    return np.stack([kept @ power for power in (np.ones_like(filling), filling, squared, squared * filling)])


@cache
def _decode_points() -> tuple[FloatArray, FloatArray]:
    """Points in (0, 1) and their shares, which sum to 1."""
    points, weights = np.polynomial.legendre.leggauss(DECODE_POINTS)
    return (points + 1.0) / 2.0, weights / 2.0


def _prefill_overlap(marks: Marks, mean_filling: FloatArray) -> FloatArray:
    """See `Moments.prefill_overlap`; exact without chunks, because G is a step function of p."""
    order = np.argsort(marks.prompt)
    edges = np.concatenate([[0.0], marks.prompt[order]])
    mass = (marks.weight * mean_filling)[order]
    above = np.cumsum(mass[::-1])[::-1]
    return np.array([mass.sum() ** 2, np.sum(above**2 * np.diff(edges)), np.sum(above**2 * np.diff(edges**2))])


def _decode_overlap(marks: Marks, mean_held: FloatArray, points: int = 400) -> float:
    """Integral of E[footprint at decode age x]^2 dx, where x counts generated tokens.

    Each cell's footprint is taken as a line with the right mean over decode, from its value at the start to that at the
    end.
    """
    longest = float(marks.output.max(initial=0.0))
    if longest <= 0:
        return 0.0
    edges = np.concatenate([[0.0], np.geomspace(max(longest * 1e-4, 1e-3), longest, points)])
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    growth = (marks.end - marks.held(np.zeros_like(marks.output))) / np.maximum(marks.output, 1e-12)
    level = mean_held - growth * marks.output / 2
    order = np.argsort(marks.output)
    output = marks.output[order]
    level_mass = np.cumsum((marks.weight * level)[order][::-1])[::-1]
    growth_mass = np.cumsum((marks.weight * growth)[order][::-1])[::-1]
    alive = np.searchsorted(output, middle, side="right")
    padded_level, padded_growth = np.append(level_mass, 0.0), np.append(growth_mass, 0.0)
    mean = padded_level[alive] + middle * padded_growth[alive]
    return float(np.sum(mean**2 * width))
