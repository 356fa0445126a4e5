"""An attention backend that is asked for must suit the model and the GPU (vLLM)."""

from __future__ import annotations

from planner.catalog.engine import EngineFacts
from planner.catalog.engine_rules.vllm import AttentionBackend
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.rules.cache_rules import has_indexer
from planner.memory.rules.format_rules import compute_capability
from planner.memory.types import Deployment, KvDtype, Refusal

COMPRESSED = "DeepseekV4"
"""Models that bring backends of their own."""


def backend_suits(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Every reason at once, as ``validate_configuration`` lists them; nothing where its limits are not known."""
    name, capability = deployment.vllm.attention_backend.upper(), compute_capability(gpu)
    backend = next((each for each in facts.vllm.attention_backends if each.name == name), None)
    own = shape.architecture.startswith(COMPRESSED)
    if backend is None or capability is None or not shape.cache_layers or own:
        return []
    reasons = list(_reasons(backend, shape, capability, fp8=deployment.kv_dtype is KvDtype.FP8))
    if not reasons:
        return []
    message = f"Selected backend AttentionBackendEnum.{name} is not valid for this configuration. Reason: {reasons}"
    return [Refusal("attention backend", message, "Leave out --attention-backend")]


def _reasons(backend: AttentionBackend, shape: ModelShape, capability: tuple[int, int], *, fp8: bool) -> list[str]:
    latents, sparse = shape.has_latent_cache, has_indexer(shape)
    heads = {layers.key_dim for layers in shape.cache_layers if layers.value_dim}
    old = capability < backend.least or bool(backend.majors and capability[0] not in backend.majors)
    no_fp8 = not backend.fp8 or bool(backend.fp8_majors and capability[0] not in backend.fp8_majors)
    checks = (
        (not latents and not all(_fits(backend, head) for head in heads), "head_size not supported"),
        (fp8 and no_fp8, "kv_cache_dtype not supported"),
        (latents and not backend.latents, "MLA not supported"),
        (backend.latents and not latents, "non-MLA not supported"),
        (sparse and not backend.sparse, "sparse not supported"),
        (backend.sparse and not sparse, "non-sparse not supported"),
        (old, "compute capability not supported"),
    )
    return [reason for wrong, reason in checks if wrong]


def _fits(backend: AttentionBackend, head: int) -> bool:
    if backend.heads:
        return head in backend.heads
    return backend.head_least <= head <= backend.head_most and head % backend.head_multiple == 0
