"""GPU generation, cache format, attention backend and page that SGLang picks for a model, one after the other.

Source: python/sglang/srt/arg_groups/overrides.py, attention_hook.py and model_overrides (0.5.23), server_args.py
(0.5.16).
"""

from __future__ import annotations

from enum import StrEnum

from planner.catalog.engine_rules.sglang import SglangBackends, SglangRules
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import AttentionFamily, CacheRole, ModelShape
from planner.memory.rules.cache_rules import COMPRESSED_TENSORS
from planner.memory.rules.format_rules import compute_capability
from planner.memory.types import Deployment, KvDtype

FOUR_BIT_DECODE = "trtllm_mha"
"""What decodes from an nvfp4 cache, whatever reads it in prefill (arg_groups/kv_cache_hook.py, 0.5.23)."""


class Generation(StrEnum):
    """GPU generations that SGLang tells apart."""

    OLDER = "older"
    AMPERE = "Ampere or Ada"
    HOPPER = "Hopper"
    BLACKWELL = "Blackwell"
    BLACKWELL_CONSUMER = "consumer Blackwell"
    ROCM = "ROCm"


_GENERATIONS = {
    8: Generation.AMPERE,
    9: Generation.HOPPER,
    10: Generation.BLACKWELL,
    12: Generation.BLACKWELL_CONSUMER,
}


IS_BLACKWELL = (Generation.BLACKWELL, Generation.BLACKWELL_CONSUMER)


def generation_of(gpu: Gpu) -> Generation:
    """By CUDA compute capability; a GPU without one is AMD's."""
    capability = compute_capability(gpu)
    if capability is None:
        return Generation.ROCM
    return _GENERATIONS.get(capability[0], Generation.OLDER)


def has_latent(rules: SglangRules, shape: ModelShape) -> bool:
    """Whether a token's cache is one latent (``attention_arch == MLA``): by architecture, where the model has one.

    Some architectures come with and without (``use_mla``, ``kv_lora_rank``).
    """
    if shape.architecture not in rules.latent_architectures:
        return False
    cached = any(layers.role is CacheRole.TOKENS and layers.value_dim == 0 for layers in shape.cache_layers)
    return cached or any(matrix.module.endswith("kv_a_proj_with_mqa") for matrix in shape.matrices)


def is_sparse(rules: SglangRules, shape: ModelShape) -> bool:
    """Whether sparse backends pick the tokens to attend to (``is_deepseek_dsa``)."""
    indexed = any(layers.role is CacheRole.INDEX for layers in shape.cache_layers)
    return indexed and shape.architecture in rules.sparse_architectures


def cache_dtype(rules: SglangRules, shape: ModelShape, deployment: Deployment, generation: Generation) -> str:
    """The engine's name of the cache format.

    Compressed attention and, on Blackwell, sparse attention store fp8 where nothing is asked for.
    """
    asked = deployment.kv_cache_dtype_name
    if asked == "bf16":
        return "bfloat16"
    if asked and asked != "auto":
        return asked
    if not asked and deployment.kv_dtype is KvDtype.FP8:
        return "fp8_e4m3"
    if shape.architecture in rules.compressed.architectures:
        return "fp8_e4m3"
    if is_sparse(rules, shape):
        return "fp8_e4m3" if generation in IS_BLACKWELL and asked else "bfloat16"
    packed = shape.quant_method == COMPRESSED_TENSORS
    declared = shape.sglang_fp8_kv and (rules.packed_cache_declared or not packed)
    return "fp8_e4m3" if asked and declared else "bfloat16"


def attention_backend(
    rules: SglangRules, shape: ModelShape, deployment: Deployment, generation: Generation, kv_dtype: str
) -> str:
    """The flag, else the architecture's default, else the general one.

    Pages are chosen for it; fa3 then leaves an e5m2 cache to Triton.
    arg_groups/model_overrides and model_override_base.py, ``get_default_attn_backend``; attention_hook.py.
    """
    if shape.architecture in rules.compressed.architectures:
        return "dsv4"
    if deployment.sglang.attention_backend:
        return deployment.sglang.attention_backend
    if is_sparse(rules, shape):
        return "dsa"
    if (
        shape.architecture in rules.index_architectures
        and generation is Generation.BLACKWELL
        and kv_dtype == "fp8_e4m3"
    ):
        return "trtllm_mha"
    return _default_backend(rules, shape, deployment, generation)


def architecture_backend(
    rules: SglangRules, shape: ModelShape, deployment: Deployment, generation: Generation
) -> str | None:
    """The default that an architecture brings."""
    if gated_on_triton(rules, shape, deployment, generation):
        return "triton"
    for row in rules.architecture_attention:
        if shape.architecture in row.architectures and (stated := _on(row, generation) or row.default):
            return stated
    return None


def _default_backend(rules: SglangRules, shape: ModelShape, deployment: Deployment, generation: Generation) -> str:
    if own := architecture_backend(rules, shape, deployment, generation):
        return own
    if has_latent(rules, shape):
        return _on(rules.latent_attention, generation) or rules.latent_attention.default
    general = _on(rules.attention, generation)
    if generation is Generation.BLACKWELL and any(0 < c.value_dim != c.key_dim for c in shape.cache_layers):
        return "fa4"
    if general:
        return general
    return "triton" if shape.architecture in rules.sink_architectures else rules.attention.default


def _on(row: SglangBackends, generation: Generation) -> str:
    return {
        Generation.AMPERE: row.ampere,
        Generation.HOPPER: row.hopper,
        Generation.BLACKWELL: row.blackwell,
        Generation.BLACKWELL_CONSUMER: row.blackwell_consumer,
        Generation.ROCM: row.rocm,
    }.get(generation, "")


def gated_on_triton(rules: SglangRules, shape: ModelShape, deployment: Deployment, generation: Generation) -> bool:
    """Whether Triton with pages of 1 serves a gated hybrid on data-centre Blackwell.

    arg_groups/model_overrides/qwen3_5.py: TensorRT-LLM's backend needs larger pages, which prefix caching of states
    without drafts does not have when the backend is chosen.
    """
    chosen = gated_default(rules, shape, deployment, generation)
    return chosen and not prefix_off(deployment) and deployment.speculative is None


def gated_default(rules: SglangRules, shape: ModelShape, deployment: Deployment, generation: Generation) -> bool:
    """Whether backend and page of a gated hybrid are chosen together; a page that is asked for is then ignored."""
    gated = shape.architecture in rules.gated_hybrid_architectures
    return gated and generation is Generation.BLACKWELL and not deployment.sglang.attention_backend


def prefix_off(deployment: Deployment) -> bool:
    """Whether prefixes are not cached."""
    return deployment.prefix_caching is False


def page_tokens(
    rules: SglangRules,
    shape: ModelShape,
    deployment: Deployment,
    generation: Generation,
    backend: str,
    kv_dtype: str,
) -> int:
    """Tokens of a page: the flag or the default, as far as architecture and backend allow.

    arg_groups/overrides.py, ``_mla_backend_page_constraints``, ``_fa4_page_constraint``, ``_page_size_default``.
    """
    if shape.architecture in rules.compressed.architectures:
        return rules.compressed.page_size_tokens
    if is_sparse(rules, shape):
        return rules.sparse_page_size_tokens
    page = None if gated_default(rules, shape, deployment, generation) else deployment.sglang.page_size_tokens
    if gated_on_triton(rules, shape, deployment, generation):
        return rules.page_size_tokens
    if page is None and shape.architecture in rules.long_page_architectures and backend in ("fa3", "fa4", "trtllm_mha"):
        page = rules.long_page_tokens
    limiting = (backend, FOUR_BIT_DECODE) if kv_dtype == "nvfp4" and not has_latent(rules, shape) else (backend,)
    for limit in rules.pages:
        if limit.backend in limiting and page not in limit.accepted:
            page = limit.otherwise
    if backend == "fa4" and generation is Generation.BLACKWELL and shape.family is not AttentionFamily.MLA:
        page = rules.long_page_tokens
    return page or rules.page_size_tokens
