"""What the speed room returns: coefficients of a step, each figure with source and band."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from planner.speed.curve import Loads

FloatArray = npt.NDArray[np.float64]


class Provider(StrEnum):
    """Where step times come from, best first."""

    MEASURED_CURVE = "measured curve"
    """Several measured points of this deployment."""
    MEASURED_POINT = "measured point"
    """One measured point of this deployment, which rescales a model."""
    SILICON = "aiconfigurator"
    """Kernel measurements put together by aiconfigurator-core."""
    ROOFLINE = "roofline"
    """The built-in model."""


MEASURED_PROVIDERS = frozenset({Provider.MEASURED_CURVE, Provider.MEASURED_POINT})


@dataclass(frozen=True)
class Band:
    """Multipliers of a prediction that hold 80 % of measured points."""

    low: float
    high: float


@dataclass(frozen=True)
class Banded:
    """A figure that may leave the room: value, 80 % interval, source."""

    value: float
    low: float
    high: float
    source: str


@dataclass(frozen=True)
class StepCoefficients:
    """Coefficients of the step-time model of one replica (scalars, or arrays over candidates after `stack`).

    With B sequences that hold T live tokens together,

        decode_step(B, T) = max(dense_read_s + expert_read_s * coverage(B) + kv_read_s_per_token * T,
                                compute_s_per_token * B)
                            + fixed_s + sequence_s * B + allreduce_s_per_token * B

    and coverage(B) = 1 − (1 − experts_per_token / num_experts) ** B for a MoE, 0 without experts.
    Times in seconds; T counts tokens of layers that keep everything (``kv_read_s_per_token``) plus, for sliding
    layers, at most ``window_tokens`` per sequence (``sliding_read_s_per_token``).
    """

    dense_read_s: FloatArray
    expert_read_s: FloatArray
    expert_hit_share: FloatArray
    """experts_per_token / num_experts; 0 without experts."""
    kv_read_s_per_token: FloatArray
    sliding_read_s_per_token: FloatArray
    window_tokens: FloatArray
    compute_s_per_token: FloatArray
    fixed_s: FloatArray
    """Fixed overhead of a step, all-reduce latency included."""
    sequence_s: FloatArray
    allreduce_s_per_token: FloatArray
    prefill_s_per_token: FloatArray
    """Compute time of one prompt token without attention."""
    prefill_s_per_token2: FloatArray
    """Attention of a prompt: seconds per token squared."""
    chunk_tokens: FloatArray
    """max_num_batched_tokens: a prompt takes ceil(P / chunk) steps."""
    ttft_floor_s: FloatArray
    """Measured floor of TTFT beyond compute (tokeniser, HTTP, scheduling)."""
    ttft_client_s: FloatArray = field(default_factory=lambda: np.asarray(0.0))
    """Front-end time for each running request: HTTP, tokeniser and streaming share one event loop."""
    ttft_wait_steps: FloatArray = field(default_factory=lambda: np.asarray(0.0))
    """Steps of the running batch, each one TPOT long, from the arrival of a request to its first token."""
    ttft_together_share: FloatArray = field(default_factory=lambda: np.asarray(0.0))
    """Share of the other running requests whose prompts arrive together with this one in a closed loop."""


@dataclass(frozen=True)
class Reach:
    """How far the measurements of a deployment carry, and what they measured."""

    batch: float
    """Most sequences: twice the largest measured number."""
    context_tokens: float
    """Longest mean context of a sequence: twice the longest measured one."""
    tpot: bool = True
    ttft: bool = True
    """Whether this time was measured at all."""

    def covers(self, batch: float, context_tokens: float) -> bool:
        """Whether a load lies within."""
        return batch <= self.batch and context_tokens <= self.context_tokens


@dataclass(frozen=True)
class SpeedModel:
    """The step-time model of one deployment, with its provenance."""

    coefficients: StepCoefficients
    tpot_band: Band
    ttft_band: Band
    source: str
    """Such as ``roofline: bandwidth efficiency 0.95 fitted on H100 silicon points``."""
    provider: Provider = Provider.ROOFLINE
    reach: Reach | None = None
    """Loads for which this very deployment, engine version included, counts as measured: constraints need no upper
    edge there. ``None``: nowhere."""
    bands_at: Callable[[Loads], tuple[tuple[Band, Band], ...]] | None = field(default=None, compare=False, repr=False)
    """Bands of TPOT and TTFT at each load, where they depend on the load; see `planner.speed.chain.bands_of`."""

    @property
    def measured(self) -> bool:
        """Whether this very deployment was measured, at some load."""
        return self.reach is not None
