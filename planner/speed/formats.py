"""At which peak a weight format multiplies on a GPU.

What the kernels of vLLM 0.33.0 do (``vllm/model_executor/kernels/linear``), taken for SGLang as well:

- fp8: at the FP8 peak where the GPU has FP8 units, else widened to 16 bits (Marlin).
- mxfp8: at the FP8 peak from compute capability 10.0 (``mxfp8/flashinfer.py``, ``deep_gemm.py``, ``b12x.py``), else
  widened (Marlin).
- nvfp4: weights and activations in FP4 where NVIDIA's units have it (``nvfp4/flashinfer.py``, ``cutlass.py``), at the
  FP4 peak; else widened (Marlin). A checkpoint with 16-bit activations is not told apart.
- mxfp4: routed experts at the FP4 peak where there is one, else at 16 bits.
- int8 (w8a8): at the INT8 rate below compute capability 10.0, where it is known; else counted at 16 bits ("INT8 is not
  supported on compute capability >= 10.0", https://docs.vllm.ai/en/latest/features/quantization/int8/, 2026-11-29).
- awq, gptq, w4a16, w8a16, bitsandbytes: weights only, always multiplied at 16 bits.
- mixed: every matrix at 16 bits; never too fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner import units
from planner.catalog.gpu import Gpu
from planner.memory.types import WeightDtype

FIRST_WITH_FP4 = (10, 0)
"""Compute capability of the first chips with FP4 units and block-scaled FP8 (Blackwell)."""


class Unit(StrEnum):
    """Matrix units of a GPU by the format they multiply."""

    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"


@dataclass(frozen=True)
class Peak:
    """A unit and its dense peak, FLOP/s."""

    unit: Unit
    flops: float


@dataclass(frozen=True)
class Peaks:
    """Where matrices are multiplied on one GPU, by the bits that they are stored in."""

    four_bit: Peak
    eight_bit: Peak
    sixteen_bit: Peak
    note: str = ""
    """What is assumed, for the reader of the plan; empty at 16 bits."""


def peaks_of(gpu: Gpu, dtype: WeightDtype) -> Peaks:
    """Peaks of the formats that a deployment's weights are stored in."""
    sixteen = Peak(Unit.BF16, units.tflops_to_flops(gpu.bf16_tflops or 0.0))
    eight, four = _eight_bit_tflops(gpu, dtype), _four_bit_tflops(gpu, dtype)
    if eight is not None:
        unit = Unit.INT8 if dtype is WeightDtype.INT8 else Unit.FP8
        note = f"{dtype} weights multiply in the {unit.upper()} units"
        return Peaks(sixteen, Peak(unit, units.tflops_to_flops(eight)), sixteen, note)
    if four is not None:
        note = f"{dtype} weights multiply in the FP4 units"
        return Peaks(Peak(Unit.FP4, units.tflops_to_flops(four)), sixteen, sixteen, note)
    note = "" if dtype is WeightDtype.BF16 else f"{dtype} weights are widened and multiply in the 16-bit units"
    return Peaks(sixteen, sixteen, sixteen, note)


def _eight_bit_tflops(gpu: Gpu, dtype: WeightDtype) -> float | None:
    """Peak of 8-bit matrices; ``None`` where they are widened."""
    if dtype is WeightDtype.FP8 and gpu.fp8_weights == "native":
        return gpu.fp8_tflops
    if dtype is WeightDtype.MXFP8 and has_fp4_units(gpu):
        return gpu.fp8_tflops
    if dtype is WeightDtype.INT8 and gpu.vendor == "NVIDIA" and not has_fp4_units(gpu):
        return gpu.int8_tops
    return None


def _four_bit_tflops(gpu: Gpu, dtype: WeightDtype) -> float | None:
    """Peak of 4-bit matrices; ``None`` where they are widened."""
    if dtype is WeightDtype.MXFP4 or (dtype is WeightDtype.NVFP4 and has_fp4_units(gpu)):
        return gpu.fp4_tflops
    return None


def has_fp4_units(gpu: Gpu) -> bool:
    """Whether an NVIDIA GPU is of the generations from Blackwell on."""
    major, _, minor = gpu.compute_capability.partition(".")
    return gpu.vendor == "NVIDIA" and major.isdigit() and (int(major), int(minor or 0)) >= FIRST_WITH_FP4
