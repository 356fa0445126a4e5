"""Kinds of layers that vLLM keeps a cache for: block sizes and pages.

Source: vllm/platforms/interface.py (``update_block_size_for_backend``, ``_align_hybrid_block_size``),
vllm/platforms/cuda.py (backend by GPU), vllm/model_executor/models/config.py (``MambaModelConfig``) and
``get_kv_cache_spec`` of the layers, in the versions of the catalogue.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.catalog.engine_rules.vllm import HybridAlignment, LatentBlocks, StateCheckpoint, VllmRules
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import CacheKind, CacheLayers, CacheRole, ModelShape, StateKind, StateLayers
from planner.memory.kv import layer_bytes_per_token
from planner.memory.states import STATE_DTYPE_BYTES, state_bytes
from planner.memory.types import Deployment, KvDtype
from planner.memory.vllm.groups import Group, ceil_div

SPARSE_LATENT_BLOCK = 64
"""Block of a latent cache with an indexer (vllm/v1/attention/backends/mla/indexer.py)."""
SPARSE_BLOCK = 128
"""Block of grouped-query attention with an indexer (vllm/models/minimax_m3/common/indexer.py)."""
COMPRESSED_BLOCK = 256
"""Block of compressed latents (vllm/v1/attention/backends/mla/sparse_swa.py, ``get_preferred_block_size``)."""
WIDE_HEAD = 512
HOPPER, BLACKWELL = 9, 10
"""Major numbers of CUDA compute capabilities."""
STATES_AT_EVERY_BLOCK = frozenset({StateKind.MAMBA1, StateKind.MAMBA2})
"""Kinds whose models can keep a state at every block (``SupportsMambaPrefixCaching``)."""
SCAN_CHUNK = 2048
"""Tokens of a scan's chunk where the config names none (vllm/config/model.py, ``get_mamba_chunk_size``)."""


def kinds_of(
    shape: ModelShape, gpu: Gpu, rules: VllmRules, deployment: Deployment, kv_dtype: KvDtype, max_model_len: int
) -> tuple[Group, ...]:
    """One entry per kind of layer on one rank, with its block and page."""
    block = block_tokens(rules, gpu, shape, deployment, kv_dtype)
    layers = with_draft(_stored_latents(shape, gpu, rules), deployment)
    if not shape.state_layers:
        return tuple(_attention_kind(entry, deployment, kv_dtype, block) for entry in layers)
    mode = state_mode(shape, rules, deployment)
    pages = [_state_page(entry, rules, deployment) for entry in shape.state_layers]
    block = aligned_block(shape, gpu, rules, deployment, kv_dtype, block, max(pages), mode)
    attention = [_attention_kind(entry, deployment, kv_dtype, block) for entry in layers]
    padded = block * attention_token_bytes(shape, deployment.tp, kv_dtype) if attention else max(pages)
    states = [
        Group(
            entry.count,
            max_model_len if mode == "none" else block,
            padded,
            recurrent=True,
            held_blocks=held_states(entry, gpu, rules, deployment, mode),
        )
        for entry in shape.state_layers
    ]
    return (*states, *attention)


def _attention_kind(layers: CacheLayers, deployment: Deployment, kv_dtype: KvDtype, block: int) -> Group:
    """Pages of layers with a cache per token: ``entries of a block x bytes of an entry``, rounded up."""
    block = layers.block_tokens or block
    entries = block // layers.tokens_per_state
    page = entries * layer_bytes_per_token(layers, deployment.tp, kv_dtype)
    sliding = layers.kind is CacheKind.SLIDING
    return Group(
        layers.count,
        block,
        ceil_div(page, layers.page_alignment) * layers.page_alignment,
        layers.window_tokens if sliding else None,
        chunked=layers.chunked,
        latent=is_latent(layers),
        ranks=1 if sliding else deployment.dcp,
    )


def with_draft(cache_layers: tuple[CacheLayers, ...], deployment: Deployment) -> tuple[CacheLayers, ...]:
    """The cache layers with those of the draft.

    Another model adds its own; a draft that is built like the model (MTP, EAGLE) adds layers that keep every token, and
    with sparse attention their indexers. Beside compressed latents it keeps a window only (``compress_ratios`` ends
    with 0).
    """
    draft = deployment.speculative
    if draft is None:
        return cache_layers
    if draft.method == "draft":
        return cache_layers + (draft.draft.cache_layers if draft.draft else ())
    kind = CacheKind.SLIDING if any(layers.tokens_per_state > 1 for layers in cache_layers) else CacheKind.FULL
    alike = [layers for layers in cache_layers if layers.kind is kind] or list(cache_layers)
    copied = {id(next((layers for layers in alike if layers.role is CacheRole.TOKENS), alike[0]))}
    copied |= {id(layers) for layers in alike if is_index(layers)}
    return tuple(
        replace(layers, count=layers.count + draft.draft_layers) if id(layers) in copied else layers
        for layers in cache_layers
    )


def block_tokens(rules: VllmRules, gpu: Gpu, shape: ModelShape, deployment: Deployment, kv_dtype: KvDtype) -> int:
    """Block size that the engine picks before it looks at recurrent states, tokens: typed, or the backend's.

    Latent caches: by GPU generation and cache format; with an indexer 64. Heads of 512 in an fp8 cache on Hopper: as
    the backend of that version wants. Otherwise the default.
    """
    if deployment.vllm.block_size_tokens is not None:
        return deployment.vllm.block_size_tokens
    if is_compressed(shape):
        return COMPRESSED_BLOCK
    if any(is_latent(layers) for layers in shape.cache_layers):
        return SPARSE_LATENT_BLOCK if is_sparse(shape) else _latent_block(rules, gpu, kv_dtype)
    wide = any(layers.key_dim >= WIDE_HEAD for layers in shape.cache_layers)
    if wide and kv_dtype is KvDtype.FP8 and generation_of(gpu) == HOPPER:
        return rules.wide_head_fp8_block_hopper
    return SPARSE_BLOCK if is_sparse(shape) else rules.block_size_tokens


def _latent_block(rules: VllmRules, gpu: Gpu, kv_dtype: KvDtype) -> int:
    blocks: LatentBlocks = rules.latent_block_fp8 if kv_dtype is KvDtype.FP8 else rules.latent_block_16bit
    return {HOPPER: blocks.hopper, BLACKWELL: blocks.blackwell}.get(generation_of(gpu) or 0, blocks.other)


def kv_dtype_in_use(shape: ModelShape, gpu: Gpu, rules: VllmRules, asked: KvDtype) -> KvDtype:
    """The cache format in use: where latents have an indexer, some versions and GPUs store fp8 by default."""
    if not is_sparse(shape):
        return asked
    by_default = any(
        (not case.majors or generation_of(gpu) in case.majors)
        and (not case.architectures or shape.architecture in case.architectures)
        for case in rules.sparse_fp8_by_default
    )
    return KvDtype.FP8 if by_default else asked


def _stored_latents(shape: ModelShape, gpu: Gpu, rules: VllmRules) -> tuple[CacheLayers, ...]:
    """The cache layers, without the packed fp8 form of sparse latents where the backend stores plain fp8."""
    if not is_sparse(shape) or generation_of(gpu) not in rules.sparse_fp8_unpacked_majors:
        return shape.cache_layers
    return tuple(replace(layers, fp8_bytes_per_token=None) for layers in shape.cache_layers)


def generation_of(gpu: Gpu) -> int | None:
    """Major number of the CUDA compute capability; ``None`` for a GPU that has none."""
    major = gpu.compute_capability.partition(".")[0]
    return int(major) if major.isdigit() else None


def is_latent(layers: CacheLayers) -> bool:
    """Whether a layer stores one latent vector a token (MLA) and is not an indexer."""
    return layers.value_dim == 0 and layers.role is CacheRole.TOKENS


def is_index(layers: CacheLayers) -> bool:
    """Whether a layer keeps the keys of an indexer."""
    return layers.role is CacheRole.INDEX


def is_sparse(shape: ModelShape) -> bool:
    """Whether an indexer picks the tokens to attend to (its keys are a second cache beside the first)."""
    return any(map(is_index, shape.cache_layers))


def is_compressed(shape: ModelShape) -> bool:
    """Whether entries stand for several tokens; such caches are packed side by side in a block."""
    return any(layers.tokens_per_state > 1 for layers in shape.cache_layers)


def state_mode(shape: ModelShape, rules: VllmRules, deployment: Deployment) -> str:
    """When states of a sequence are kept (``mamba_cache_mode``).

    ``none``: the last one only, without prefix caching. ``align``: also the last at the end of a block. ``all``: one
    for every block.
    """
    asked = deployment.prefix_caching
    if not (rules.hybrid_prefix_caching and shape.cache_layers if asked is None else asked):
        return "none"
    every_block = all(entry.kind in STATES_AT_EVERY_BLOCK for entry in shape.state_layers)
    if rules.state_caching == "aligned" or deployment.vllm.mamba_cache_mode == "align":
        every_block = False
    if every_block and rules.state_caching.startswith("every-block"):
        return "all"
    return "align" if rules.state_caching.endswith("aligned") else "none"


def aligned_block(
    shape: ModelShape,
    gpu: Gpu,
    rules: VllmRules,
    deployment: Deployment,
    kv_dtype: KvDtype,
    block: int,
    state_page: int,
    mode: str,
) -> int:
    """Block of attention, raised until its page holds a state: ``alignment x ceil(state / (alignment x token))``.

    The alignment is the version's; a multiple of the offsets at which states are exported (mode ``align``), or of the
    scan's chunk (mode ``all``).
    """
    if not shape.cache_layers:
        return block
    token = attention_token_bytes(shape, deployment.tp, kv_dtype)
    alignment = _hybrid_alignment(rules.hybrid_alignment, shape, gpu, block)
    if mode == "all":
        alignment = math.lcm(alignment, *(entry.chunk_size or SCAN_CHUNK for entry in shape.state_layers))
    if mode == "align":
        exports = [checkpoint_of(entry, gpu, rules) for entry in shape.state_layers]
        if all(exports):
            alignment = math.lcm(alignment, *(export.block_alignment for export in exports if export))
    return max(block, alignment * ceil_div(state_page, alignment * token))


def _hybrid_alignment(rule: HybridAlignment, shape: ModelShape, gpu: Gpu, block: int) -> int:
    if any(is_latent(layers) for layers in shape.cache_layers):
        alignment = rule.latent
    elif generation_of(gpu) == BLACKWELL and any(layers.key_dim == 256 for layers in shape.cache_layers):
        alignment = rule.blackwell_head_256
    else:
        alignment = rule.attention
    return max(alignment, block) if rule.at_least_block else alignment


def attention_token_bytes(shape: ModelShape, tp: int, kv_dtype: KvDtype) -> int:
    """Bytes of a token in one attention layer, as the engine counts them to align states: ``2 x heads x head_dim``."""
    layers = next((layers for layers in shape.cache_layers if not is_index(layers)), shape.cache_layers[0])
    if layers.value_dim:
        layers = replace(layers, value_dim=layers.key_dim)
    return layer_bytes_per_token(layers, tp, kv_dtype)


def _state_page(layers: StateLayers, rules: VllmRules, deployment: Deployment) -> int:
    asked = deployment.vllm.mamba_ssm_cache_dtype
    return state_bytes(
        layers,
        deployment.tp,
        rules.states,
        recurrent_bytes=STATE_DTYPE_BYTES.get(asked) if asked else None,
        speculative_tokens=speculative_tokens(deployment),
    )


def held_states(layers: StateLayers, gpu: Gpu, rules: VllmRules, deployment: Deployment, mode: str) -> int | None:
    """States of a request (``MambaSpec.max_memory_usage_bytes``); ``None`` where they follow its tokens.

    The running one, and one for each speculative token; in mode ``align`` also the last at the end of a block, and one
    that is exported from inside a prefill where the kernels can.
    """
    if mode == "all":
        return None
    speculative = speculative_tokens(deployment) if rules.state_caching.endswith("aligned") else 0
    if mode == "none":
        return 1 + speculative
    return 2 + speculative + (checkpoint_of(layers, gpu, rules) is not None)


def checkpoint_of(layers: StateLayers, gpu: Gpu, rules: VllmRules) -> StateCheckpoint | None:
    """How this version exports a state from inside a prefill, where it can on this GPU."""
    for entry in rules.state_checkpoints:
        fits = not entry.generations or generation_of(gpu) in entry.generations
        gated = layers.bounded_gate or not entry.bounded_gate
        if entry.kind is layers.kind and fits and gated and entry.head_dim in (None, layers.state_size):
            return entry
    return None


def speculative_tokens(deployment: Deployment) -> int:
    """Draft tokens verified at once."""
    return deployment.speculative.num_tokens if deployment.speculative else 0
