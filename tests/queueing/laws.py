"""Length laws and sizings for the tests of queueing and optimise."""

from __future__ import annotations

import numpy as np

from planner.memory.types import Deployment, KvDtype, Sizing, Term, WeightBytes, WeightDtype
from planner.origin import Origin
from planner.speed.types import Band, SpeedModel, StepCoefficients
from planner.traffic.buckets import lower_edge
from planner.traffic.types import Burst, LengthLaw


def law_of(prompt: np.ndarray, output: np.ndarray) -> LengthLaw:
    """A law with one cell per distinct pair of lengths."""
    pairs, n = np.unique(np.stack([prompt, output]), axis=1, return_counts=True)
    p, o = pairs
    w = n.astype(float)
    return LengthLaw(n, w * p, w * o, 0.0 * w, w * p * p, w * p * o, w * o * o, p, o, p + o)


def law_of_requests(prompt: np.ndarray, output: np.ndarray) -> LengthLaw:
    """The law as a log is summed up: cells of eight to an octave in prompt and in output."""
    cells, of = np.unique(np.stack([lower_edge(prompt), lower_edge(output)]), axis=1, return_inverse=True)
    of, size, p, o = of.ravel(), cells.shape[1], prompt.astype(float), output.astype(float)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(of, values, size)

    def most(values: np.ndarray) -> np.ndarray:
        found = np.zeros(size, dtype=np.int64)
        np.maximum.at(found, of, values)
        return found

    n = np.bincount(of, minlength=size)
    largest = most(prompt), most(output), most(prompt + output)
    return LengthLaw(n, total(p), total(o), 0.0 * n, total(p * p), total(p * o), total(o * o), *largest)


def burst_of(idc: float) -> Burst:
    """The same index of dispersion at every scale."""
    scale = np.array([1.0, 5.0, 15.0, 60.0, 300.0, 3600.0])
    one = np.ones_like(scale)
    return Burst(scale, one, idc * one, idc * one, one, scale > 0)


def plain_sizing(
    *, bytes_per_token: float = 131072.0, num_blocks: int = 26785, block: int = 16, max_num_seqs: int = 256
) -> Sizing:
    """A sizing of one group of full-attention layers."""
    term = Term("budget", 73.278, Origin.GIVEN, "test")
    return Sizing(
        model_id="test/model", gpu_id="H100-SXM", engine="vllm", engine_version="0.19.0",
        deployment=Deployment(1, WeightDtype.BF16, KvDtype.BF16), weights=WeightBytes(0, 0, 0, 0, 0, 0, 0),
        gpu_memory=term, utilization=0.92, budget=term, terms=(), available_kv_gib=52.3,
        bytes_per_token=bytes_per_token, sliding_bytes_per_token=0.0, window_tokens=0, sliding_reserve_tokens=0,
        block_size_tokens=block, largest_block_tokens=block, num_blocks=num_blocks,
        bytes_per_block=int(bytes_per_token * block),
        pool_tokens=num_blocks * block, logged_tokens=num_blocks * block, max_concurrency=1.0, max_model_len=8192,
        max_num_seqs=max_num_seqs, max_num_batched_tokens=8192,
    )  # fmt: skip


def speed_of(**changes: float) -> SpeedModel:
    """A replica with a step of 10 ms plus a little for each sequence and token."""
    values = {
        "dense_read_s": 0.008, "expert_read_s": 0.0, "expert_hit_share": 0.0, "kv_read_s_per_token": 4e-8,
        "sliding_read_s_per_token": 0.0, "window_tokens": 0.0, "compute_s_per_token": 1e-5, "fixed_s": 0.002,
        "sequence_s": 6e-6, "allreduce_s_per_token": 0.0, "prefill_s_per_token": 3e-5, "prefill_s_per_token2": 0.0,
        "chunk_tokens": 8192.0, "ttft_floor_s": 0.05,
    } | changes  # fmt: skip
    coefficients = StepCoefficients(**{name: np.float64(value) for name, value in values.items()})
    return SpeedModel(coefficients, Band(1.0, 1.0), Band(1.0, 1.0), "test")
