"""Step times from `StepCoefficients`: pure, vectorised, nothing but numpy.

Every function broadcasts the coefficients (scalars, or one entry per candidate after `stack`) with its other arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from planner.speed.types import FloatArray, SpeedModel, StepCoefficients

Number = npt.ArrayLike


def stack(models: Sequence[SpeedModel]) -> StepCoefficients:
    """Coefficients of several candidates as arrays of shape ``(len(models),)``."""
    return StepCoefficients(
        **{
            item.name: np.array([getattr(model.coefficients, item.name) for model in models], dtype=np.float64)
            for item in fields(StepCoefficients)
        }
    )


def coverage(batch: Number, hit_share: Number) -> FloatArray:
    """Expected share of a layer's experts that a batch touches.

    One token misses a given expert with probability 1 − k/E when routing is uniform, so B independent tokens touch the
    share 1 − (1 − k/E)^B. Skewed routing touches fewer.

    Parameters
    ----------
    batch
        Tokens routed together, B ≥ 0 (a mean may be fractional).
    hit_share
        k/E, experts per token over experts; 0 without experts.

    Returns
    -------
    FloatArray
        Between 0 and 1.
    """
    return np.asarray(1.0 - np.power(1.0 - np.asarray(hit_share, dtype=np.float64), batch))


def decode_step_s(c: StepCoefficients, batch: Number, live_tokens: Number) -> FloatArray:
    """Time of one decode step, seconds.

    Parameters
    ----------
    c
        Coefficients of the replica.
    batch
        Sequences in the step, B.
    live_tokens
        Tokens that the batch holds together, T. Sliding layers read at most ``window_tokens`` of each sequence: with
        equal lengths that is min(T, B × window), which no mix of lengths exceeds.

    Returns
    -------
    FloatArray
        max(reading, computing) + overheads; reading is dense_read + expert_read × coverage(B) + cache.
    """
    b = np.asarray(batch, dtype=np.float64)
    t = np.asarray(live_tokens, dtype=np.float64)
    cache_read_s = c.kv_read_s_per_token * t + c.sliding_read_s_per_token * np.minimum(t, b * c.window_tokens)
    read_s = c.dense_read_s + c.expert_read_s * coverage(b, c.expert_hit_share) + cache_read_s
    busy_s = np.maximum(read_s, c.compute_s_per_token * b)
    return np.asarray(busy_s + c.fixed_s + (c.sequence_s + c.allreduce_s_per_token) * b)


def prefill_work_s(c: StepCoefficients, prompt_tokens: Number, cached_share: Number = 0.0) -> FloatArray:
    """Compute that one prompt takes from the decode streams, seconds: a P (1 − h) + b P² (1 − h²).

    Tokens that a prefix cache holds (the first h P) are neither multiplied nor do they attend; the others attend to
    them. Linear and quadratic in P, so its mean over a length law needs only E[P] and E[P²]: `mean_prefill_work_s`. In
    a chunked prefill the prompt's tokens ride in steps whose weights are read and whose overheads are paid for the
    decode batch anyway; what they add is their own compute. Experts that a prompt touches and the batch would not are
    left out: counting their read as well moves the median error on 1,484 measured points by 0.2 percentage points, but
    none of those prompts is shorter than 1,000 tokens.
    """
    p, h = np.asarray(prompt_tokens, dtype=np.float64), np.asarray(cached_share, dtype=np.float64)
    return np.asarray(c.prefill_s_per_token * p * (1.0 - h) + c.prefill_s_per_token2 * p * p * (1.0 - h * h))


def mean_prefill_work_s(
    c: StepCoefficients, mean_prompt_tokens: Number, mean_square_prompt_tokens: Number
) -> FloatArray:
    """E[`prefill_work_s`] from the first two moments of the prompt length."""
    m1 = np.asarray(mean_prompt_tokens, dtype=np.float64)
    m2 = np.asarray(mean_square_prompt_tokens, dtype=np.float64)
    return np.asarray(c.prefill_s_per_token * m1 + c.prefill_s_per_token2 * m2)


def prefill_s(c: StepCoefficients, prompt_tokens: Number, cached_share: Number = 0.0) -> FloatArray:
    """Time of a prompt alone on an idle replica, seconds, without `ttft_floor_s`.

    The P (1 − h) tokens that no prefix cache holds run in ceil(P (1 − h) / chunk) steps. A step multiplies its tokens
    or streams the weights that they touch, whichever is longer, and pays the fixed overhead; attention over the whole
    prompt comes on top.
    """
    p, h = np.asarray(prompt_tokens, dtype=np.float64), np.asarray(cached_share, dtype=np.float64)
    computed = p * (1.0 - h)
    full_chunks = np.floor(computed / c.chunk_tokens)
    rest = computed - full_chunks * c.chunk_tokens
    full_s = full_chunks * _chunk_s(c, c.chunk_tokens)
    rest_s = np.where(rest > 0, _chunk_s(c, rest), 0.0)
    return np.asarray(full_s + rest_s + c.prefill_s_per_token2 * p * p * (1.0 - h * h))


def _chunk_s(c: StepCoefficients, tokens: FloatArray) -> FloatArray:
    """One prefill step without attention: the longer of compute and weight streaming, plus the fixed overhead."""
    read_s = c.dense_read_s + c.expert_read_s * coverage(tokens, c.expert_hit_share)
    return np.asarray(np.maximum(c.prefill_s_per_token * tokens, read_s) + c.fixed_s)


def interfered_tpot_s(c: StepCoefficients, batch: Number, live_tokens: Number, prefill_share: Number) -> FloatArray:
    """Mean time per output token of a stream while prompts of other requests are prefilled, seconds.

    Requests arrive at rate r and each brings E[prefill_work] seconds of prompt work, so the replica spends the share
    u = r E[prefill_work] of its time on prompts. In a long time t it has (1 − u) t left for decode steps, hence it
    makes (1 − u) t / decode_step of them, and a stream gets one token from each:

        TPOT = decode_step(B, T) / (1 − u).

    It does not matter whether prompts interrupt decoding or are chunked into the steps (A. Agrawal et al.,
    "Sarathi-Serve", arXiv:2403.02310): chunking spreads the same work evenly, which changes the spread of the
    inter-token times, not their mean. Work hidden under the weight read of a mixed step is not credited, so the figure
    errs on the slow side when decoding is memory bound.

    Parameters
    ----------
    prefill_share
        u, between 0 and 1; at 1 or above no time is left and the result is infinite.

    Returns
    -------
    FloatArray
        Seconds per token.
    """
    step_s = decode_step_s(c, batch, live_tokens)
    left = 1.0 - np.asarray(prefill_share, dtype=np.float64)
    safe = np.where(left > 0, left, 1.0)
    return np.asarray(np.where(left > 0, step_s / safe, np.inf))
