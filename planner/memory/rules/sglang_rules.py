"""What SGLang refuses of itself, beyond the rules it shares with vLLM.

Source: python/sglang/srt/arg_groups of 0.5.23 (``model_hook.py``, ``kv_cache_hook.py``, ``mamba_hook.py``,
``parallel_hook.py``, ``pd_disaggregation_hook.py``, ``overrides.py``), the versions in the catalogue. Every function
returns refusals and never raises.
"""

from __future__ import annotations

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.rules.cache_rules import has_indexer
from planner.memory.rules.format_rules import compute_capability
from planner.memory.sglang import backends
from planner.memory.types import Deployment, Refusal

BLACKWELL = (10, 0)
FOUR_BIT_AS_FP8, FOUR_BIT_NATIVE = "flashinfer", "trtllm_mha"


def config_read(shape: ModelShape, facts: EngineFacts) -> list[Refusal]:
    """Configs that this version fails to read."""
    if shape.architecture not in facts.sglang.unreadable_architectures:
        return []
    message = f"the config of {shape.architecture} cannot be read by {facts.name} {facts.version}"
    return [Refusal("architecture", message, "Use another engine or version")]


def states_kept(shape: ModelShape, facts: EngineFacts) -> list[Refusal]:
    """Recurrent layers need a pool of states, which only listed architectures get."""
    if not shape.state_layers or shape.architecture in facts.sglang.state_architectures:
        return []
    count = sum(layers.count for layers in shape.state_layers)
    message = f"{facts.name} {facts.version} keeps no states for {shape.architecture} ({count} recurrent layers)"
    return [Refusal("architecture", message, "Use vLLM, or another version")]


def attention_parallel(deployment: Deployment) -> list[Refusal]:
    """Data-parallel attention divides the ranks: ``tp % dp == 0``."""
    tp, dp = deployment.tp, deployment.attention_dp
    if tp % dp == 0:
        return []
    message = f"tp_size ({tp}) must be divisible by the data-parallel degree of attention ({dp})"
    return [Refusal("attention dp", message, "Use a degree that divides tp")]


def cache_dtype(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Cache formats that sparse models lack, and those that only Blackwell has."""
    name, rules, rule = deployment.kv_cache_dtype_name, facts.sglang, "KV cache format"
    if not name:
        return []
    if shape.architecture in rules.compressed.architectures:
        if name in rules.compressed_kv_dtypes:
            return []
        return [Refusal(rule, f"{name} is not supported for {shape.architecture}", "Use fp8_e4m3 or auto")]
    capability = compute_capability(gpu)
    if name in ("mxfp8", "nvfp4") and (capability is None or capability < BLACKWELL):
        message = f"--kv-cache-dtype {name} requires an SM100+ (Blackwell) GPU; {gpu.id} is none"
        return [Refusal(rule, message, "Use auto or fp8_e4m3")]
    if has_indexer(shape) and name not in rules.sparse_kv_dtypes:
        message = "DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype"
        return [Refusal(rule, f"{message} (got {name})", "Use auto, bfloat16 or fp8_e4m3")]
    return []


def four_bit_cache(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Prefill reads an nvfp4 cache as fp8, or as such but for latents; unified memory has no room for its scales.

    Source: arg_groups/kv_cache_hook.py, ``handle_nvfp4_prefill_kv_dequant_dtype`` (0.5.23).
    """
    rules, generation = facts.sglang, backends.generation_of(gpu)
    compressed = shape.architecture in rules.compressed.architectures
    if deployment.kv_cache_dtype_name != "nvfp4" or compressed or has_indexer(shape):
        return []
    native = FOUR_BIT_NATIVE if generation is backends.Generation.BLACKWELL else FOUR_BIT_AS_FP8
    own = backends.architecture_backend(rules, shape, deployment, generation)
    backend, found = deployment.sglang.attention_backend or own or native, []
    latent = backends.has_latent(rules, shape)
    if backend != FOUR_BIT_AS_FP8 and (latent or backend != FOUR_BIT_NATIVE):
        message = (
            f"NVFP4 prefill supports an FP8 E4M3 workspace or native NVFP4, but backend '{backend}' provides neither"
        )
        found.append(Refusal("KV cache format", message, "Use auto or fp8_e4m3"))
    if deployment.sglang.unified_memory:
        message = "FP4 KV cache does not yet support --enable-unified-memory"
        found.append(Refusal("KV cache format", message, "Leave out --enable-unified-memory"))
    return found


def attention_backend(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Attention backends that an architecture does not work with, where one is asked for."""
    backend = deployment.sglang.attention_backend
    if not backend:
        return []
    for entry in facts.sglang.attention_backends:
        if shape.architecture not in entry.architectures:
            continue
        if backend in entry.rejects or (entry.accepts and backend not in entry.accepts):
            message = f"{entry.message.format(accepts=', '.join(entry.accepts))}, but got {backend}"
            return [Refusal("attention backend", message, "Leave out --attention-backend")]
    return []


def backend_taken(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> str:
    """The backend that is asked for, or the default."""
    rules, generation = facts.sglang, backends.generation_of(gpu)
    kv_dtype = backends.cache_dtype(rules, shape, deployment, generation)
    return backends.attention_backend(rules, shape, deployment, generation, kv_dtype)


def backend_limits(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """What a backend needs of the cache, and one that is asked for of GPU and attention.

    Source: attention_registry.py, overrides.py.
    """
    name, capability = backend_taken(shape, gpu, facts, deployment), compute_capability(gpu)
    asked = bool(deployment.sglang.attention_backend)
    limits = next((each for each in facts.sglang.backend_limits if each.backend == name), None)
    if limits is None or capability is None:
        return []
    latents, cache = shape.has_latent_cache, deployment.kv_cache_dtype_name
    found = []
    if asked and limits.latents is not None and limits.latents is not latents:
        found.append(f"{name} backend can only be used with {'MLA' if limits.latents else 'non-MLA'} models.")
    elif asked and capability[0] not in (limits.latent_majors if latents and limits.latent_majors else limits.majors):
        found.append(f"{limits.message} ({gpu.id})")
    if cache and limits.kv_dtypes and cache not in limits.kv_dtypes:
        found.append(f"{name} backend only supports kv-cache-dtype of {', '.join(limits.kv_dtypes)} (got {cache})")
    fix = "Leave out --attention-backend" if asked else "Use auto or fp8_e4m3 for the KV cache"
    return [Refusal("attention backend", message, fix) for message in found]


def language_only(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """``--language-only`` serves the language part of a split encoder deployment, of the listed architectures."""
    if not deployment.sglang.language_only or shape.architecture in facts.sglang.language_only_architectures:
        return []
    message = f"Model type {shape.architecture} is not supported for encoder disaggregation"
    return [Refusal("language only", message, "Leave out --language-only")]


def state_pages(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Some recurrent models cache prefixes only with pages of one token."""
    page = deployment.sglang.page_size_tokens
    if (
        shape.architecture not in facts.sglang.single_token_pages
        or page in (None, 1)
        or backends.prefix_off(deployment)
    ):
        return []
    return [Refusal("page size", "no_buffer only supports page_size=1", "Leave out --page-size")]


def unified_memory(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """The unified pool works with listed attention backends only, asked for or not."""
    if not deployment.sglang.unified_memory:
        return []
    backend = backend_taken(shape, gpu, facts, deployment)
    if backend in facts.sglang.page_major_backends:
        return []
    message = (
        f"--enable-page-major-kv-layout: the resolved attention backends ['{backend}'] are not in the allowed set "
        f"{list(facts.sglang.page_major_backends)}"
    )
    return [Refusal("unified memory", message, "Leave out --enable-unified-memory")]
