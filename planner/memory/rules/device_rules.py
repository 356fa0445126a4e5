"""Rules of the GPU's generation, the model's precision and the machine's memory.

Every function returns refusals and never raises.
"""

from __future__ import annotations

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.rules.format_rules import compute_capability
from planner.memory.types import Deployment, Refusal

BFLOAT16_CAPABILITY = (8, 0)
WITHOUT_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
"""Model types that are numerically unstable in float16 (vllm/config/model.py, ``_FLOAT16_NOT_SUPPORTED_MODELS``)."""
MOST_OF_HOST = 0.7
"""Share of the host's memory that swapped-out blocks may take (vllm/config/cache.py)."""


def generation(gpu: Gpu, facts: EngineFacts) -> list[Refusal]:
    """Compute capability below which nothing starts."""
    rules = facts.vllm if facts.name == "vllm" else facts.sglang
    capability, least = compute_capability(gpu), rules.least_capability
    if capability is None or capability >= least:
        return []
    message = (
        f"GPUs with compute capability below {least[0]}.{least[1]} are not supported by {facts.name}; "
        f"{gpu.id} has {capability[0]}.{capability[1]}"
    )
    return [Refusal("GPU generation", message, "Use a newer GPU")]


def precision(shape: ModelShape, gpu: Gpu, deployment: Deployment) -> list[Refusal]:
    """``--dtype`` as typed: bfloat16 needs compute capability 8.0, and some models do not stand float16.

    Without the flag an older GPU falls back to float16 (``_resolve_auto_dtype``, since 0.9).
    """
    asked, capability = deployment.vllm.dtype.lower(), compute_capability(gpu)
    if asked == "bfloat16" and capability is not None and capability < BFLOAT16_CAPABILITY:
        message = (
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
            f"Your {gpu.id} GPU has compute capability {capability[0]}.{capability[1]}"
        )
        return [Refusal("dtype", message, "Use --dtype half")]
    if asked in ("float16", "half") and shape.model_type in WITHOUT_FLOAT16:
        message = f"The model type {shape.model_type!r} does not support float16. Reason: Numerical instability"
        return [Refusal("dtype", message, "Use --dtype bfloat16 or float32")]
    return []


def swap_space(facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Older versions keep host memory for swapped-out blocks: ``swap space x tp <= 0.7 x host memory``."""
    flags, default = deployment.vllm, facts.vllm.swap_space_gib
    if not default or flags.host_memory_gib is None:
        return []
    per_gpu = default if flags.swap_space_gib is None else flags.swap_space_gib
    wanted = per_gpu * deployment.tp
    if wanted <= MOST_OF_HOST * flags.host_memory_gib:
        return []
    message = (
        f"Too large swap space. {wanted:.2f} GiB out of the {flags.host_memory_gib:.2f} GiB total CPU memory "
        "is allocated for the swap space"
    )
    fix = f"Use --swap-space {MOST_OF_HOST * flags.host_memory_gib / deployment.tp:.1f} or less"
    return [Refusal("swap space", message, fix)]
