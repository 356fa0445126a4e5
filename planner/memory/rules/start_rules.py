"""Rules that make an engine refuse to start, each with the engine's own reason and a fix.

Families of rules have modules of their own: what ranks divide (`split_rules`), formats of weights (`format_rules`),
cache formats and attention backends (`cache_rules`), GPU, precision and host (`device_rules`), SGLang's own
(`sglang_rules`). Every function returns refusals and
never raises; `size` puts them together.
"""

from __future__ import annotations

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.rules import (
    backend_rules,
    cache_rules,
    device_rules,
    draft_rules,
    format_rules,
    sglang_rules,
    split_rules,
)
from planner.memory.rules.format_rules import compute_capability
from planner.memory.rules.split_rules import heads_divide
from planner.memory.types import Deployment, KvDtype, Refusal

__all__ = [
    "before_sizing",
    "compute_capability",
    "heads_divide",
    "length_allowed",
    "memory_free",
    "scheduler_budget",
    "seqs_within_state_blocks",
    "whole_prompts",
]


def before_sizing(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, weights_given: bool
) -> list[Refusal]:
    """Every rule that does not depend on memory."""
    own = _vllm_rules if facts.name == "vllm" else _sglang_rules
    quantised = bool(format_rules.method_of(shape, deployment))
    return [
        *device_rules.generation(gpu, facts),
        *split_rules.heads_divide(shape, deployment.tp // _attention_dp(deployment)),
        *split_rules.states_divide(shape, facts, deployment.tp // _attention_dp(deployment), quantised=quantised),
        *split_rules.widths_divide(shape, deployment),
        *split_rules.vocabulary_divides(shape, facts, deployment.tp),
        *split_rules.experts_present(shape, deployment),
        *split_rules.pipeline_allowed(shape, facts, deployment),
        *split_rules.context_parallel(shape, facts, deployment),
        *split_rules.lora_allowed(shape, facts, deployment),
        *format_rules.method_known(shape, facts, deployment),
        *format_rules.gpu_runs(shape, gpu, facts, deployment),
        *format_rules.weights_readable(shape, deployment, weights_given),
        *format_rules.blocks_divide(shape, facts, deployment),
        *format_rules.groups_divide(shape, facts, deployment),
        *cache_rules.name_listed(facts, deployment),
        *own(shape, gpu, facts, deployment),
    ]


def _attention_dp(deployment: Deployment) -> int:
    """Degree that attention's ranks are divided by; 1 where it does not divide tp, which is a refusal of its own."""
    return deployment.attention_dp if deployment.tp % deployment.attention_dp == 0 else 1


def _vllm_rules(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    return [
        *architecture_known(shape, facts, deployment.tp),
        *device_rules.precision(shape, gpu, deployment),
        *device_rules.swap_space(facts, deployment),
        *format_rules.tiles_fit(shape, gpu, facts, deployment),
        *format_rules.ordering_accepted(shape, facts, deployment),
        *format_rules.bitsandbytes_whole(shape, facts, deployment),
        *cache_rules.fp8_cache(shape, gpu, facts, deployment),
        *cache_rules.e5m2_cache(shape, facts, deployment),
        *backend_rules.backend_suits(shape, gpu, facts, deployment),
        *draft_rules.drafts(shape, facts, deployment),
        *cache_rules.block_size(deployment),
        *cache_rules.sparse_attention(shape, gpu, facts),
    ]


def _sglang_rules(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    found = [
        *sglang_rules.config_read(shape, facts),
        *sglang_rules.states_kept(shape, facts),
        *sglang_rules.attention_parallel(deployment),
        *sglang_rules.cache_dtype(shape, gpu, facts, deployment),
        *sglang_rules.four_bit_cache(shape, gpu, facts, deployment),
        *sglang_rules.attention_backend(shape, facts, deployment),
        *sglang_rules.backend_limits(shape, gpu, facts, deployment),
        *sglang_rules.language_only(shape, facts, deployment),
        *sglang_rules.state_pages(shape, facts, deployment),
        *sglang_rules.unified_memory(shape, gpu, facts, deployment),
    ]
    if deployment.kv_dtype is KvDtype.FP8 and gpu.fp8_kv == "no":
        message = f"no attention backend of {facts.name} stores an fp8 KV cache on {gpu.id}"
        found.append(Refusal("fp8 KV support", message, cache_rules.SIXTEEN_BIT))
    return found


def architecture_known(shape: ModelShape, facts: EngineFacts, tp: int) -> list[Refusal]:
    """The architecture must be in the release's registry (vllm/model_executor/models/registry.py)."""
    if facts.registry is None or facts.knows(shape.architecture, tp):
        return []
    message = f"architecture {shape.architecture} is not in the model registry of {facts.name} {facts.version}"
    return [Refusal("architecture", message, facts.registry.advice(shape.architecture))]


def length_allowed(shape: ModelShape, max_model_len: int, asked: int | None) -> list[Refusal]:
    """``max_model_len`` at most what the model's config allows, where it states a length."""
    if asked is None or shape.context_unstated or asked <= shape.max_position_embeddings:
        return []
    message = (
        f"User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len "
        f"({shape.max_position_embeddings})"
    )
    return [
        Refusal("model's longest context", message, f"Set max_model_len to at most {shape.max_position_embeddings}")
    ]


def scheduler_budget(batched_tokens: int, max_num_seqs: int) -> list[Refusal]:
    """``max_num_batched_tokens >= max_num_seqs`` (vllm/config/scheduler.py)."""
    if batched_tokens >= max_num_seqs:
        return []
    message = (
        f"max_num_batched_tokens ({batched_tokens}) must be greater than or equal to max_num_seqs ({max_num_seqs})"
    )
    return [Refusal("scheduler budget", message, "Lower max_num_seqs or raise max_num_batched_tokens")]


def memory_free(facts: EngineFacts, gpu: Gpu, utilization: float, memory_gib: float) -> list[Refusal]:
    """The share must be free when the server starts: ``utilization x memory <= memory − context`` (gpu_worker.py)."""
    context = facts.vllm.context_gib
    wanted, free = utilization * memory_gib, memory_gib - context
    if not context or wanted <= free:
        return []
    message = (
        f"Free memory on device ({free:.2f}/{memory_gib:.2f} GiB) on startup is less than desired GPU memory "
        f"utilization ({utilization:g}, {wanted:.2f} GiB) on {gpu.id}"
    )
    return [Refusal("free memory", message, f"Lower gpu_memory_utilization to {int(100 * free / memory_gib) / 100:g}")]


def whole_prompts(facts: EngineFacts, batched_tokens: int, max_model_len: int) -> list[Refusal]:
    """A release that computes prompts in one piece needs ``max_num_batched_tokens >= max_model_len`` (scheduler.py)."""
    if max_model_len > facts.vllm.unchunked_up_to_tokens or batched_tokens >= max_model_len:
        return []
    message = (
        f"max_num_batched_tokens ({batched_tokens}) is smaller than max_model_len ({max_model_len}). This effectively "
        "limits the maximum sequence length to max_num_batched_tokens and makes vLLM reject longer sequences"
    )
    return [Refusal("scheduler budget", message, "Raise max_num_batched_tokens or lower max_model_len")]


def seqs_within_state_blocks(
    shape: ModelShape, facts: EngineFacts, deployment: Deployment, max_num_seqs: int, num_blocks: int
) -> list[Refusal]:
    """Recurrent layers: each decoding sequence needs a block, or full CUDA graphs cannot be captured.

    ``max_num_seqs <= num_blocks`` (vllm/config/compilation.py since 0.20.0), unless graphs are off.
    """
    if not shape.state_layers or deployment.enforce_eager or not facts.vllm.seqs_within_state_blocks:
        return []
    if max_num_seqs <= num_blocks:
        return []
    message = (
        f"max_num_seqs ({max_num_seqs}) exceeds available Mamba cache blocks ({num_blocks}). Each decode sequence "
        "requires one Mamba cache block, so CUDA graph capture cannot proceed"
    )
    fix = f"Lower max_num_seqs to at most {num_blocks} or raise gpu_memory_utilization"
    return [Refusal("state blocks", message, fix)]
