"""Terms of the subtraction that both engines share.

GPU memory: an engine's budget is a share of what CUDA reports, and its measured terms exclude what the driver reserves.
When the user types the overhead instead ("everything that is neither weights nor pool"), it includes the driver's
reserve; the budget is then a share of the nvidia-smi total, as published worked examples count it.
"""

from __future__ import annotations

from planner import units
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.types import Deployment, GivenTerms, Refusal, Term, WeightBytes
from planner.origin import Origin

MORE_ROOM = "Quantise the weights, use more GPUs, or a larger GPU"


def memory_term(gpu: Gpu, given: GivenTerms) -> Term:
    """The memory that the utilisation is a share of, GiB.

    Typed; else the nvidia-smi total where the overhead is typed (it then includes the driver's reserve); else what CUDA
    reports.
    """
    if given.gpu_memory_gib is not None:
        return Term("GPU memory", given.gpu_memory_gib, Origin.GIVEN, "typed by the user")
    if given.overhead_gib is not None and gpu.memory_driver_mib is not None:
        source = (
            f"nvidia-smi total of {gpu.id}, {gpu.memory_driver_mib:,} MiB: "
            "the overhead is typed, so it includes the driver's reserve"
        )
        return Term("GPU memory", units.mib_to_gib(gpu.memory_driver_mib), Origin.CATALOGUE, source)
    origin = Origin.CATALOGUE if gpu.memory_visible_gib is not None else Origin.GUESS
    return Term("GPU memory", gpu.visible_memory_gib, origin, gpu.visible_memory_origin)


def weights_term(shape: ModelShape, deployment: Deployment, weights: WeightBytes, given: GivenTerms) -> Term:
    """Weights of one rank, typed or computed from the shapes.

    A typed overhead is all that is neither weights nor pool, so it holds what loading occupies beside the parameters.
    """
    if given.weights_gib is not None:
        return Term("weights", given.weights_gib, Origin.GIVEN, "typed by the user")
    source = f"{shape.parameters.total:,} parameters as {deployment.weight_dtype}, one rank of TP {deployment.tp}"
    loaded = weights.total if given.overhead_gib is None else weights.parameters
    return Term("weights", units.bytes_to_gib(loaded), Origin.COMPUTED, source)


def no_room(available_bytes: float) -> Refusal:
    """Weights and overheads take the whole budget."""
    message = f"No available memory for the cache blocks: {units.bytes_to_gib(available_bytes):.2f} GiB are left for KV"
    return Refusal("no room for KV cache", message, MORE_ROOM)
