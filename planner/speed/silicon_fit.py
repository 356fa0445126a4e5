"""Step coefficients of a surface of latencies: non-negative least squares in relative error.

The surface is linear in the coefficients of `StepCoefficients` once computing is counted as part of what grows with
the batch: step(B, T) = constant + expert coverage(B) + cache T + window min(T, B w) + sequence B.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.optimize import nnls

from planner.speed.step import coverage, decode_step_s, prefill_s
from planner.speed.types import FloatArray, StepCoefficients
from planner.units import ms_to_s

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXTS = (256, 1024, 2048, 4096, 8192, 16384, 32768)
PROMPTS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
MOST_TOKENS = 2_000_000
"""Live tokens that are looked at where the pool is not known."""
LONG_PROMPT = 1024
"""Tokens from which a prompt's time is taken to grow by what its tokens add."""
SHARES = np.linspace(0.0, 1.0, 11)
"""Tried shares of a constant time that belong to one of two coefficients."""


class Engine(Protocol):
    """What is asked of a compiled engine; milliseconds."""

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        """One decode step of ``gen_tokens`` sequences in the middle of their outputs."""

    def predict_prefill_latency(self, bs: int, isl: int) -> float:
        """``bs`` prompts in one step."""


@dataclass(frozen=True)
class FitShape:
    """What the fit must know of a deployment.

    Attributes
    ----------
    expert_hit_share
        experts_per_token / num_experts; 0 without experts.
    window_tokens
        Window of sliding layers; 0 without.
    pool_tokens
        Live tokens that fit; the surface is not looked at beyond.
    """

    expert_hit_share: float
    window_tokens: float
    chunk_tokens: float
    pool_tokens: float
    max_model_len: float
    ttft_floor_s: float


@dataclass(frozen=True)
class Fit:
    """Coefficients and how well they follow the surface, relative errors."""

    coefficients: StepCoefficients
    decode_median: float
    decode_worst: float
    prefill_median: float
    prefill_worst: float


def fit_surface(engine: Engine, shape: FitShape) -> Fit:
    """Coefficients of a compiled engine.

    Raises
    ------
    ValueError
        If a latency is not a positive finite number.
    """
    batch, context = _grid(shape)
    live = batch * context
    decode_s = _checked([engine.decode_step_latency(int(b), int(s), 2) for b, s in zip(batch, context, strict=True)])
    prompts = np.array([p for p in PROMPTS if p <= max(shape.max_model_len, PROMPTS[3])], dtype=np.float64)
    prompt_s = _checked([engine.predict_prefill_latency(1, int(p)) for p in prompts])
    c = _with_prefill(shape, _decode_terms(batch, live, decode_s, shape), prompts, prompt_s)
    decode_error = _errors(decode_step_s(c, batch, live), decode_s)
    prefill_error = _prefill_errors(c, shape, prompts, prompt_s)
    return Fit(
        c,
        float(np.median(decode_error)),
        float(decode_error.max()),
        float(np.median(prefill_error)),
        float(prefill_error.max()),
    )


def _grid(shape: FitShape) -> tuple[FloatArray, FloatArray]:
    """Batches and contexts that fit together; at least single streams and short contexts."""
    most = shape.pool_tokens if shape.pool_tokens > 0 else MOST_TOKENS
    longest = max(shape.max_model_len, CONTEXTS[2])
    pairs = [
        (b, s)
        for b in BATCHES
        for s in CONTEXTS
        if s <= longest and (b * s <= most or (s <= CONTEXTS[1] and b <= BATCHES[5]) or b == 1)
    ]
    both = np.array(pairs, dtype=np.float64)
    return both[:, 0], both[:, 1]


def _checked(milliseconds: list[float]) -> FloatArray:
    values = ms_to_s(1.0) * np.asarray(milliseconds, dtype=np.float64)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError("a latency of the surface is not positive")
    return values


def _decode_terms(batch: FloatArray, live: FloatArray, seconds: FloatArray, shape: FitShape) -> FloatArray:
    """Constant, experts, cache, window and sequence; a term that the model lacks is 0."""
    columns = np.stack(
        [
            np.ones_like(batch),
            coverage(batch, shape.expert_hit_share),
            live,
            np.minimum(live, batch * shape.window_tokens),
            batch,
        ],
        axis=1,
    )
    return _relative_nnls(columns, seconds)


def _relative_nnls(columns: FloatArray, seconds: FloatArray) -> FloatArray:
    """Argmin over x ≥ 0 of Σ ((columns x − seconds) / seconds)²; columns are scaled to 1 before they are solved.

    C. Lawson and R. Hanson, "Solving Least Squares Problems", 1974, chapter 23.
    """
    weighted = columns / seconds[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(weighted / scale, np.ones_like(seconds))
    return np.asarray(found / scale)


def _with_prefill(shape: FitShape, terms: FloatArray, prompts: FloatArray, seconds: FloatArray) -> StepCoefficients:
    """The coefficients of decoding with those of prompts.

    What a prompt's tokens add is the slope of d + a P + b P² over prompts from `LONG_PROMPT` on. Of the constant part
    of a decode step a share is reading, which long prompts hide, and of what d exceeds it a share is put to the floor
    of TTFT; both are those that follow the surface best.
    """
    constant, expert, cache, window, sequence = (float(term) for term in terms)
    long = prompts >= LONG_PROMPT
    columns = np.stack([np.ones_like(prompts), prompts, prompts**2], axis=1)
    start, linear, square = _relative_nnls(columns[long], seconds[long])
    tries = [
        _coefficients(
            shape,
            dense_read_s=read * constant,
            fixed_s=(1.0 - read) * constant,
            expert_read_s=expert,
            kv_read_s_per_token=cache,
            sliding_read_s_per_token=window,
            sequence_s=sequence,
            prefill_s_per_token=linear,
            prefill_s_per_token2=square,
            ttft_floor_s=shape.ttft_floor_s + rest * max(start - (1.0 - read) * constant, 0.0),
        )
        for read in SHARES
        for rest in SHARES
    ]
    return min(tries, key=lambda c: float(_prefill_errors(c, shape, prompts, seconds).mean()))


def _coefficients(shape: FitShape, **values: float) -> StepCoefficients:
    """All of them; computing and exchanging are part of what a sequence costs."""
    given = {
        "expert_hit_share": shape.expert_hit_share,
        "window_tokens": shape.window_tokens,
        "chunk_tokens": shape.chunk_tokens,
        "compute_s_per_token": 0.0,
        "allreduce_s_per_token": 0.0,
    } | values
    return StepCoefficients(**{name: np.asarray(value, dtype=np.float64) for name, value in given.items()})


def _prefill_errors(c: StepCoefficients, shape: FitShape, prompts: FloatArray, seconds: FloatArray) -> FloatArray:
    """Errors of prompts that run in one step, as the surface has them, without the floor of other times."""
    whole = replace(c, chunk_tokens=np.asarray(float(prompts.max())))
    return _errors(prefill_s(whole, prompts) + c.ttft_floor_s - shape.ttft_floor_s, seconds)


def _errors(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    return np.asarray(np.abs(predicted / measured - 1.0))
