"""Rules of the KV cache's format and of the attention backends that a GPU has.

Every function returns refusals and never raises.
"""

from __future__ import annotations

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import CacheRole, ModelShape
from planner.memory.rules.format_rules import compute_capability, method_of
from planner.memory.types import Deployment, KvDtype, Refusal

FLASHINFER_HEADS = frozenset({64, 128, 256, 512})
"""Head sizes of FlashInfer (vllm/v1/attention/backends/flashinfer.py)."""
TRITON_E4M3 = (8, 9)
"""Least compute capability with Triton's fp8e4nv, which its attention kernels read an fp8 cache as."""
AMPERE = (8, 0)
SIXTEEN_BIT = "Use a 16-bit KV cache or a newer GPU"
FP8_RULE = "fp8 KV support"


def has_indexer(shape: ModelShape) -> bool:
    """Sparse attention over latents (DeepSeek-V3.2 and V4, GLM-5): an indexer's keys beside them."""
    layers = shape.cache_layers
    indexed = any(each.role is CacheRole.INDEX for each in layers)
    return indexed and any(each.role is CacheRole.TOKENS and not each.value_dim for each in layers)


def fp8_cache(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """An fp8 cache needs a backend that stores one on this GPU (vllm/platforms/cuda.py, vllm/v1/attention/backends)."""
    if deployment.kv_dtype is not KvDtype.FP8:
        return []
    capability = compute_capability(gpu)
    if capability is None:
        message = f"no attention backend of {facts.name} stores an fp8 KV cache on {gpu.id}"
        return [Refusal(FP8_RULE, message, SIXTEEN_BIT)] if gpu.fp8_kv == "no" else []
    of_family = _fp8_latents if shape.has_latent_cache else _fp8_heads
    return of_family(shape, gpu, facts, deployment, capability)


def _fp8_latents(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, capability: tuple[int, int]
) -> list[Refusal]:
    """FlashMLA on Hopper and Blackwell, FlashInfer and CUTLASS on Blackwell; Triton MLA since it knows fp8."""
    if capability[0] in facts.vllm.latent_fp8_kv_majors and capability >= TRITON_E4M3:
        return []
    message = (
        f"No valid attention backend of {facts.name} {facts.version} stores latents in fp8 on {gpu.id} "
        f"(compute capability {capability[0]}.{capability[1]})"
    )
    return [Refusal(FP8_RULE, message, SIXTEEN_BIT)]


def _fp8_heads(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, capability: tuple[int, int]
) -> list[Refusal]:
    """FlashAttention 3 on Hopper, Triton from compute capability 8.9 on; FlashInfer below, where it is picked."""
    flashinfer = capability >= AMPERE and heads_for_flashinfer(shape)
    picked = capability >= facts.vllm.fp8_kv_min_capability
    asked = deployment.vllm.attention_backend.upper() == "FLASHINFER"
    if capability >= TRITON_E4M3 or (flashinfer and (picked or asked)):
        return []
    message = (
        f"FP8 KV cache is not supported by the Triton attention backend on {gpu.id} (compute capability "
        f"{capability[0]}.{capability[1]}); native FP8 (fp8e4nv) requires SM89+ ({facts.name} {facts.version})"
    )
    fix = "Use --kv-cache-dtype bfloat16, or --attention-backend FLASHINFER" if flashinfer else SIXTEEN_BIT
    return [Refusal(FP8_RULE, message, fix)]


def heads_for_flashinfer(shape: ModelShape) -> bool:
    """Whether FlashInfer has kernels for every layer's heads."""
    return all(layers.key_dim in FLASHINFER_HEADS for layers in shape.cache_layers if layers.value_dim)


FP8_METHODS = frozenset({"fp8", "modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8", "mxfp8", "quark"})
"""Methods that load scales for the cache."""
COMPRESSED_TENSORS = "compressed-tensors"


def e5m2_cache(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """A checkpoint that may bring scales for the cache takes no ``fp8_e5m2`` (vllm/.../attention.py).

    compressed-tensors counts as one before 0.25; from then on only where it declares a cache scheme.
    """
    method = method_of(shape, deployment)
    scaled = method in FP8_METHODS or (
        method == COMPRESSED_TENSORS and (shape.declares_fp8_kv or not facts.vllm.e5m2_with_packed_weights)
    )
    if deployment.kv_cache_dtype_name != "fp8_e5m2" or not scaled:
        return []
    message = "fp8_e5m2 kv-cache is not supported with fp8 checkpoints"
    return [Refusal("KV cache format", message, "Use --kv-cache-dtype fp8, or auto")]


def name_listed(facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """The parser's list of cache formats; ``fp8`` and ``auto`` are known to all."""
    name, listed = deployment.kv_cache_dtype_name, (facts.vllm if facts.name == "vllm" else facts.sglang).kv_dtypes
    if not name or name in listed or name in PLAIN:
        return []
    choices = ", ".join(f"'{each}'" for each in listed)
    message = f"argument --kv-cache-dtype: invalid choice: '{name}' (choose from {choices})"
    return [Refusal("KV cache format", message, "Use one of these, or another engine version")]


PLAIN = frozenset({"auto", "fp8", "bf16", "bfloat16"})
"""Formats that every release has, by whatever name."""
BLOCK_MULTIPLE = 16


def block_size(deployment: Deployment) -> list[Refusal]:
    """``--block-size`` must be a multiple of 16 on CUDA (flash_attn.py, triton_attn.py)."""
    asked = deployment.vllm.block_size_tokens
    if asked is None or (asked > 0 and asked % BLOCK_MULTIPLE == 0):
        return []
    return [Refusal("block size", f"Block size must be a multiple of 16 (got {asked})", "Leave out --block-size")]


def sparse_attention(shape: ModelShape, gpu: Gpu, facts: EngineFacts) -> list[Refusal]:
    """Sparse attention over latents has backends on few GPUs (vllm/v1/attention/backends/mla/*sparse*.py)."""
    capability = compute_capability(gpu)
    if capability is None or not has_indexer(shape) or capability[0] in facts.vllm.sparse_latent_majors:
        return []
    message = (
        f"No valid attention backend found for {gpu.id} (compute capability {capability[0]}.{capability[1]}) "
        f"with use_sparse=True in {facts.name} {facts.version}"
    )
    majors = " or ".join(f"{major}.x" for major in facts.vllm.sparse_latent_majors)
    return [Refusal("sparse attention", message, f"Use a GPU of compute capability {majors}")]
