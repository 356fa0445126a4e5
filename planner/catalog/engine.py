"""Engine facts by version: what a release does that changes the pool.

``catalogs/engines/<engine>.toml`` lists the versions and dated facts. A fact holds from the version in ``since`` until
a newer entry of the same name replaces it; so a rule that did not change is written once.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.catalog.model_shape import StateKind
from planner.catalog.registry import Registry, read_registry
from planner.catalog.versions import VERSION, is_development, version_key
from planner.errors import InputError, Problem, Problems
from planner.memory.types import Origin


class Frozen(BaseModel):
    """Immutable, and strict about keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FactSource(Frozen):
    """Where a fact comes from."""

    since: str
    source: str = Field(min_length=1)
    as_of: dt.date
    origin: Origin = Origin.CATALOGUE

    def __str__(self) -> str:
        return f"{self.source} ({self.as_of.isoformat()})"


class MemoryTier(Frozen):
    """A default that depends on the GPU's memory."""

    min_memory_gib: float = Field(ge=0)
    value: int = Field(gt=0)


class TpFigure(Frozen):
    """A figure that grows with the tensor-parallel degree: holds from ``min_tp`` on."""

    min_tp: int = Field(ge=1)
    gib: float = Field(ge=0)


class LatentBlocks(Frozen):
    """Block size of latent (MLA) caches by GPU generation, tokens."""

    hopper: int = Field(gt=0)
    blackwell: int = Field(gt=0)
    other: int = Field(gt=0)


class HybridAlignment(Frozen):
    """What a block of attention beside recurrent states is a multiple of, tokens: by kind of attention.

    Attributes
    ----------
    blackwell_head_256
        Heads of 256 on GPUs of compute capability 10.
    at_least_block
        No less than the block size that was typed or that the backend picks.
    """

    attention: int = Field(gt=0)
    latent: int = Field(gt=0)
    blackwell_head_256: int = Field(gt=0)
    at_least_block: bool


class Mxfp4Padding(Frozen):
    """Multiples that an mxfp4 expert's two dimensions are padded to, elements."""

    width: int = Field(ge=1)
    hidden: int = Field(ge=1)


class Sampler(Frozen):
    """What the sampler's dummy run holds at its peak (`planner.memory.overheads`)."""

    bytes_per_logit: float = Field(gt=0)
    """Bytes alive for every sequence and entry of the vocabulary, the model's own 16-bit logits included."""
    row_per_processor: bool = False
    """A float32 row of the vocabulary for each multiprocessor (Triton's top-k and top-p)."""


class SecondRunner(Frozen):
    """The second model runner: which models it takes, and what it does otherwise."""

    takes: Literal["none", "listed", "dense", "all"]
    """``listed``: the architectures below. ``dense``: those, and every model without experts or recurrent layers."""
    plain_only: bool = False
    """Of the listed architectures, only unquantised models without experts."""
    architectures: tuple[str, ...] = ()
    sampler: Sampler
    graphs_estimated: bool
    images_profiled: bool


class GraphSizes(Frozen):
    """Batch sizes that CUDA graphs are captured for: 1, 2, 4, then every 8th to 256, then every 16th."""

    per_sequence: int = Field(gt=0)
    """The largest size is at most this times ``max_num_seqs``."""
    largest: int = Field(gt=0)
    largest_blackwell: int = Field(gt=0)
    """The same on compute capability 10.x."""


class StateRules(Frozen):
    """How a release lays out the states of recurrent layers (`planner.memory.states`)."""

    recurrent_bytes: int | None = None
    """Precision of recurrent states where neither a flag nor the config asks for one; without it the model's."""
    fixed_recurrent_bytes: tuple[tuple[StateKind, int], ...] = ()
    """Kinds whose recurrent state has this precision whatever is asked."""
    config_precision_followed: bool = True
    """Whether the precision that a config asks for is taken."""
    speculative_convolutions: tuple[StateKind, ...] = ()
    """Kinds whose convolution state holds the speculative tokens too."""
    delta_groups_extended: bool = False
    """Key heads of delta nets are extended like groups of Mamba-2 where they do not divide over the ranks."""


class Fp8Default(Frozen):
    """A case in which ``auto`` is an fp8 cache; an empty list means any."""

    majors: tuple[int, ...] = ()
    """Major numbers of the CUDA compute capabilities."""
    architectures: tuple[str, ...] = ()


class StateCheckpoint(Frozen):
    """Recurrent layers whose kernels export a state from inside a prefill: one more state is held for it."""

    kind: StateKind
    generations: tuple[int, ...] = ()
    """Major numbers of the CUDA compute capabilities that can; empty for every GPU."""
    bounded_gate: bool = False
    """Only where the decay has a lower bound."""
    head_dim: int | None = None
    """Only at this key head dimension."""
    block_alignment: int = Field(default=1, ge=1)
    """Tokens that blocks must be a multiple of for it."""


class MethodCapability(Frozen):
    """Least CUDA compute capability of a quantisation method, or of one scheme of it (``compressed-tensors fp8``)."""

    method: str = Field(min_length=1)
    capability: tuple[int, int]


class BackendLimits(Frozen):
    """What an attention backend of SGLang needs of the GPU and the model, where it is asked for."""

    backend: str = Field(min_length=1)
    majors: tuple[int, ...]
    """Major compute capabilities."""
    latent_majors: tuple[int, ...] = ()
    """The same for attention over latents, where it differs."""
    latents: bool | None = None
    """Only for attention over latents, or only for other attention."""
    kv_dtypes: tuple[str, ...] = ()
    """Cache formats; empty: any."""
    message: str = Field(min_length=1)


class AttentionBackend(Frozen):
    """What an attention backend of vLLM takes, where one is asked for (``validate_configuration``)."""

    name: str = Field(min_length=1)
    least: tuple[int, int] = (0, 0)
    """Least compute capability."""
    majors: tuple[int, ...] = ()
    """Major compute capabilities; empty: any from ``least`` on."""
    heads: tuple[int, ...] = ()
    """Head sizes; empty: those that the three limits allow."""
    head_least: int = 1
    head_most: int = 1_000_000
    head_multiple: int = 1
    latents: bool = False
    sparse: bool = False
    fp8: bool = False
    fp8_majors: tuple[int, ...] = ()
    """Major compute capabilities with an fp8 cache; empty: all, where ``fp8``."""


class BackendRule(Frozen):
    """Attention backends that an architecture accepts, or some that it rejects (SGLang)."""

    architectures: tuple[str, ...]
    accepts: tuple[str, ...] = ()
    rejects: tuple[str, ...] = ()
    message: str = Field(min_length=1)


class VllmRules(Frozen):
    """How a vLLM release sizes the pool. Overheads are GiB per GPU."""

    default_utilization: float = Field(gt=0, le=1)
    batched_tokens: tuple[MemoryTier, ...]
    """Default ``max_num_batched_tokens`` of the API server by visible memory; the highest tier that fits."""
    batched_tokens_offline: tuple[MemoryTier, ...]
    """The same of the offline ``LLM`` class."""
    max_num_seqs: tuple[MemoryTier, ...]
    small_tier_gpus: tuple[str, ...]
    """GPU names (lower case, part of the id) that take the smallest tier whatever their memory."""
    batched_tokens_capped_by_seqs: bool
    """Default batched tokens at most ``max_num_seqs x max_model_len``."""
    block_size_tokens: int = Field(gt=0)
    latent_block_16bit: LatentBlocks
    latent_block_fp8: LatentBlocks
    wide_head_fp8_block_hopper: int = Field(gt=0)
    """Block size of an fp8 cache with heads of 512 on Hopper (Gemma-4), tokens."""
    sparse_fp8_by_default: tuple[Fp8Default, ...]
    """Where latents with an indexer are stored in fp8 unless a 16-bit cache is asked for by name."""
    sparse_fp8_unpacked_majors: tuple[int, ...]
    """GPU generations whose backend stores fp8 latents with an indexer a byte an element, without scales."""
    chunks_kept_apart: bool
    """Chunked layers get groups of their own; else every layer of the model is allocated at full length."""
    null_blocks: int = Field(ge=0)
    """Blocks that the start-up check keeps back."""
    batches_in_flight: int = Field(ge=1)
    """Batches of ``max_num_batched_tokens`` whose tokens a window must hold beside the window itself."""
    logged_tokens: Literal["pool", "concurrency"]
    """``pool``: blocks / groups x block size. ``concurrency``: maximum concurrency x max_model_len."""
    start_check: Literal["layers", "first-group", "groups"]
    """One request's need is summed over layers; or counted in blocks of the pool, of the first layer's group alone or
    of every group."""
    check_counts_all_stages: bool
    """The check compares what one pipeline stage has left with the need of all of them."""
    group_size_rule: Literal["fewest", "fewest-or-most-below-1.25", "fewest-or-most"]
    """Layers per group of a hybrid: the fewest of any kind; or the most when below 1.25 x, 1.5 x the fewest."""
    uneven_pages: Literal["refuse", "scale", "scale-or-pad", "scale-pad-or-keep-whole"]
    """Layers of unequal page size: not supported; unified by raising the smaller ones' block size; or padded too; or
    else, windows beside latents, allocated as if nothing slid."""
    compressed_layout: Literal["equal-slots", "slots", "overlaid", "dense"]
    """How pages of compressed latents and their windows are packed into a block (`planner.memory.vllm.packing`)."""
    hybrid_prefix_caching: bool
    """Whether models with recurrent states keep shared prefixes by default."""
    state_caching: Literal["last-only", "every-block", "every-block-or-aligned", "aligned"]
    """States that prefix caching keeps: none but the last; one for every block, where the model can (else none, or the
    last at the end of a block); the last at the end of a block."""
    state_checkpoints: tuple[StateCheckpoint, ...]
    hybrid_alignment: HybridAlignment
    cudagraph_deducted: bool
    fp8_moe_least_block: int = Field(ge=0)
    """Where an fp8 block that does not divide an expert's share is refined, the least it may come to; 0: refused."""
    fp8_merged_columns_checked: bool
    """Whether the parts of a merged matrix (queries, keys and values; gate and up) must divide by the block's rows."""
    quant_methods: tuple[str, ...]
    """Quantisation methods in the registry."""
    method_capability: tuple[MethodCapability, ...]
    marlin_pads: bool
    """Dense int4 matrices are padded to the kernel's tiles, so that only a group across ranks refuses to start."""
    latent_fp8_kv_majors: tuple[int, ...]
    """Major compute capabilities with a backend that stores latents in fp8."""
    sparse_latent_majors: tuple[int, ...]
    """Major compute capabilities with a backend for sparse attention over latents."""
    no_pipeline: tuple[str, ...]
    """Architectures that cannot be split into pipeline stages, of those that the catalogue knows."""
    no_lora: tuple[str, ...]
    """Architectures without LoRA, of those that the catalogue knows."""
    lora_ranks: tuple[int, ...]
    """Values of ``max_lora_rank`` that are accepted."""
    lora_experts: bool
    """LoRA also on routed experts."""
    lora_merged_experts: tuple[str, ...]
    """Architectures whose experts hold gate and up as one adapter, of those that the catalogue knows."""
    lora_tables: tuple[str, ...]
    """Architectures with LoRA on embedding and output head, of those that the catalogue knows."""
    lora_with_expert_parallel: bool
    """Adapters of routed experts also where the experts are divided whole."""
    e5m2_with_packed_weights: bool
    """An ``fp8_e5m2`` cache beside compressed-tensors weights that declare no cache scheme."""
    attention_backends: tuple[AttentionBackend, ...]
    """Backends of ``--attention-backend`` whose limits are known."""
    kv_dtypes: tuple[str, ...]
    """Names that ``--kv-cache-dtype`` takes."""
    mtp_models: tuple[str, ...]
    """Model types and architectures whose own next-token layers may draft (``method: mtp``)."""
    draft_model_allowed: bool
    """Whether another model may draft."""
    context_gib: float = Field(ge=0)
    """Least memory that is taken when the server checks what is free; 0 where it does not check."""
    lora_most_vocabulary: int = Field(gt=0)
    """Largest vocabulary whose output head takes adapters."""
    swap_space_gib: float = Field(ge=0)
    """Host memory that is kept for swapped-out blocks, per GPU; the start is refused above a share of the host's."""
    least_capability: tuple[int, int]
    """CUDA compute capability below which nothing starts."""
    context_parallel_for_groups: bool
    """Decode context parallelism also for attention that is no MLA."""
    quantised_groups_divide: bool
    """Groups of Mamba-2, even one, must divide among ranks where the weights are quantised."""
    seqs_within_state_blocks: bool
    """``max_num_seqs`` must not exceed the blocks of a model with recurrent layers, unless graphs are off."""
    fp8_on_loading: str = Field(min_length=1)
    """``--quantization`` that makes fp8 weights of a 16-bit checkpoint."""
    declared_fp8_kv_honoured: bool
    fp8_kv_min_capability: tuple[int, int]
    """CUDA compute capability from which a backend stores an fp8 cache."""
    gptq_activation_order: bool
    """Whether a GPTQ checkpoint quantised in order of activation is accepted."""
    longrope_serves_original: bool
    """Without ``max_model_len``, a LongRoPE model serves the length before extension."""
    mxfp4_padding: Mxfp4Padding
    """What the expert matrices of an mxfp4 checkpoint are created with on Hopper."""
    mxfp4_padding_elsewhere: Mxfp4Padding
    """The same on other GPUs."""
    mxfp4_layout_multiple: int = Field(ge=1)
    """What the hidden size of mxfp4 weights is padded to when they are laid out for Hopper's kernels."""
    rocm_measures_device: bool
    """On AMD, what loading takes is read from the device's free memory instead of the allocator."""
    language_model_only: bool
    """Whether the release can leave vision towers out."""
    packed_expert_indexes: bool
    """Packed integer experts of compressed-tensors are created with an index of every column, ordered or not."""
    mixed_unread: tuple[str, ...]
    """Algorithms of ModelOpt that a mixed checkpoint may name, and the release leaves at 16 bits."""
    shared_keys_built: bool
    """Layers that read another layer's cache have keys and values of their own all the same."""
    bnb_scales_nested: bool
    """Scales of 4-bit bitsandbytes stay quantised to 8 bits themselves."""
    modules_16bit: tuple[str, ...]
    """Modules that the release builds without quantisation although the checkpoint quantises them."""
    sampler: Sampler
    """The first model runner's on CUDA."""
    sampler_elsewhere: Sampler
    """The same on other platforms, where FlashInfer does not run."""
    second_runner: SecondRunner
    buffers_counted: bool
    """Tensors that the runner allocates beside the weights are part of what the profile finds consumed."""
    expert_workspace_kept: bool
    """Whether the buffers of routed experts stay allocated while the sampler runs."""
    expert_chunk_tokens: int = Field(ge=0)
    """Tokens that routed experts take at once; 0 for all."""
    marlin_workspace_kept: bool
    """The same of experts in Marlin's kernels."""
    unchunked_up_to_tokens: int = Field(ge=0)
    """Up to this ``max_model_len`` prompts are prefilled whole, so that the default of ``max_num_batched_tokens`` is at
    least ``max_model_len``."""
    libraries_gib: float = Field(ge=0)
    """Memory outside PyTorch of one rank: kernels and libraries that load while profiling."""
    descriptor_mib_per_processor: float = Field(ge=0)
    """What the driver sets aside for each multiprocessor at the first tensor descriptor of the kernels of gated delta
    nets, on GPUs of compute capability 10 and above."""
    nccl_gib: tuple[TpFigure, ...]
    """What several ranks add to it, by tensor-parallel degree, joined by NVLink."""
    nccl_pcie_gib: tuple[TpFigure, ...]
    """The same where ranks are joined by PCIe."""
    allreduce_fused: bool
    """Whether all-reduces are fused with norms where the GPU allows it (Hopper and data-centre Blackwell)."""
    fused_allreduce_gib: tuple[TpFigure, ...]
    """Workspace of fused all-reduces by tensor-parallel degree."""
    graph_sizes: GraphSizes
    graph_mib_per_layer: float = Field(ge=0)
    """MiB of one CUDA graph per layer, as the estimate measures it where ``cudagraph_deducted``."""
    states: StateRules


class SglangTier(Frozen):
    """SGLang's defaults for GPUs of up to ``below_mib`` (nvidia-smi total)."""

    below_mib: int = Field(gt=0)
    chunked_prefill_tokens: int = Field(gt=0)
    graph_max_batch: int = Field(gt=0)
    graph_max_batch_tp4: int = Field(gt=0)


class SglangBackends(Frozen):
    """Attention backends that SGLang picks by GPU generation; an empty one leaves the choice to ``default``."""

    architectures: tuple[str, ...] = ()
    ampere: str = ""
    hopper: str = ""
    blackwell: str = ""
    """Data-centre Blackwell, compute capability 10."""
    blackwell_consumer: str = ""
    """Compute capability 12."""
    rocm: str = ""
    default: str = ""


class SglangPages(Frozen):
    """Page sizes that an attention backend accepts; any other becomes ``otherwise``."""

    backend: str
    accepted: tuple[int, ...] = ()
    otherwise: int = Field(ge=1)


class SglangGraphCap(Frozen):
    """Models whose prefill graphs stop at ``tokens``: those with ``name`` in their id (lower case)."""

    name: str
    tokens: int = Field(ge=1)


class SglangTower(Frozen):
    """Vision tower of some architectures whose config states none."""

    architectures: tuple[str, ...]
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)


class SglangArchitectureValue(Frozen):
    """A default of some architectures that differs from the general one."""

    architectures: tuple[str, ...]
    value: float


class SglangCompressed(Frozen):
    """Pools of compressed attention (DeepSeek-V4)."""

    architectures: tuple[str, ...]
    page_size_tokens: int = Field(ge=1)
    sliding_ratio: float = Field(gt=0, le=1)
    """Tokens of the sliding pool per token of the full pool, unless a flag says otherwise."""
    max_running: int = Field(ge=1)
    """Requests where no flag says how many."""
    page_align_bytes: int = Field(ge=1)
    """Pages are padded to a multiple of this."""
    state_bytes: int = Field(ge=1)
    """Bytes per element of compressor states."""
    ring_rows: tuple[tuple[int, int], ...]
    """Rows of a compressor's ring by compression ratio."""
    speculative_ring_rows: tuple[tuple[int, int], ...]
    ring_tokens: int = Field(ge=1)
    """Tokens of the sliding pool that share a ring of the shorter ratio."""
    window_checked: bool
    """Whether a sliding pool that cannot hold a window and a page is refused."""


class SglangStatePolicy(Frozen):
    """How many recurrent states SGLang keeps: a pool of its own, in slots."""

    memory_ratio: float = Field(gt=0)
    """States' share of memory over the cache's."""
    slots_per_request: int = Field(ge=1)
    """With prefix caching, before tracking buffers."""
    buffer_slots: int = Field(ge=0)
    """Further slots that an extra buffer takes with the overlap scheduler (one without it)."""
    padding_slots: int = Field(ge=0)
    """Slots that are allocated beside those that are counted."""


class SglangRules(Frozen):
    """How an SGLang release derives ``mem_fraction_static`` and the pool. MB as in its source (1 MB = 1 MiB)."""

    tiers: tuple[SglangTier, ...]
    metadata_mb: float = Field(ge=0)
    mb_per_chunk_token: float = Field(ge=0)
    min_chunk_tokens: int = Field(ge=0)
    unchunked_prefill_tokens: int = Field(ge=1)
    """Tokens of a prefill batch (``max_prefill_tokens``) that stand for the chunk where prefill is not chunked."""
    mb_per_rank: float = Field(ge=0)
    mb_per_graph_sequence: float = Field(ge=0)
    mb_per_dp_graph_sequence: float = Field(ge=0)
    """For each sequence of the largest decode graph and each worker of data-parallel attention."""
    mb_per_large_dp_graph_sequence: float = Field(ge=0)
    """The same on top, for graphs of more than ``large_dp_graph_batch`` sequences."""
    large_dp_graph_batch: int = Field(ge=1)
    large_gpu_mib: int = Field(gt=0)
    large_gpu_floor_mb: float = Field(ge=0)
    graphs_follow_requests: bool
    """Decode graphs shrink to ``max_running_requests``, and are widened to it for some multimodal models."""
    rocm_long_context_share: float = Field(gt=0, le=1)
    """Share of the fraction that is left on ROCm for contexts above ``rocm_long_context_tokens``."""
    rocm_long_context_tokens: int = Field(ge=1)
    prefill_graphs: bool
    """Prefill CUDA graphs are reserved for (multi-head models)."""
    latent_prefill_graphs: bool
    mb_per_prefill_graph: float = Field(ge=0)
    latent_prefill_graphs_mb: float = Field(ge=0)
    prefill_graph_caps: tuple[SglangGraphCap, ...]
    prefill_graphs_within_context: bool
    """No prefill graph is larger than a context length that is typed."""
    prefill_graphs_with_dp: bool
    prefill_graphs_with_pp: bool
    latent_graph_architectures: tuple[str, ...]
    """Latent architectures whose prefill is captured although ``latent_prefill_graphs`` is off."""
    prefill_graphs_off_architectures: tuple[str, ...]
    prefill_graphs_kept_architectures: tuple[str, ...]
    """Architectures with Kimi delta attention that keep prefill graphs."""
    multimodal_architectures: tuple[str, ...]
    """Architectures that are multimodal whatever their config holds."""
    text_only_architectures: tuple[str, ...]
    """Architectures with a tower that are served as text models unless asked for more."""
    multimodal_graph_architectures: tuple[str, ...]
    """Multimodal architectures whose prefill is captured all the same."""
    multimodal_share: float = Field(gt=0, le=1)
    """Share of the fraction that a multimodal model keeps, before its tower's size is weighed."""
    class_towers: tuple[SglangTower, ...]
    unread_tower_architectures: tuple[str, ...]
    """Architectures whose tower's size is not seen: the fraction is reduced as for a tower of the base size."""
    unchunked_architectures: tuple[str, ...]
    """Multimodal architectures whose prefill is not chunked."""
    multimodal_cache_mib: float = Field(ge=0)
    """Kept back for embeddings of images."""
    hopper_vision_architectures: tuple[str, ...]
    """Architectures that keep a transfer pool instead on Hopper GPUs of ``large_gpu_mib`` and more."""
    hopper_transfer_mib: float = Field(ge=0)
    hopper_busy_transfer_mib: float = Field(ge=0)
    """The transfer pool from ``hopper_busy_requests`` running requests on, as typed."""
    hopper_busy_requests: int = Field(ge=1)
    hopper_graph_requests: int = Field(ge=1)
    """Most running requests, as typed, that their decode graphs are widened to."""
    page_size_tokens: int = Field(ge=1)
    sparse_page_size_tokens: int = Field(ge=1)
    """Page of latent caches with an indexer."""
    pages: tuple[SglangPages, ...]
    long_page_tokens: int = Field(ge=1)
    """Page of FlashAttention 4 on data-centre Blackwell, and of the listed architectures on their own backends."""
    long_page_architectures: tuple[str, ...]
    attention: SglangBackends
    """For multi-head attention."""
    latent_attention: SglangBackends
    architecture_attention: tuple[SglangBackends, ...]
    sink_architectures: tuple[str, ...]
    """Architectures with attention sinks, which FlashInfer lacks."""
    gated_hybrid_architectures: tuple[str, ...]
    """On data-centre Blackwell Triton with pages of 1 serves them while prefix caching is on without drafts."""
    latent_architectures: tuple[str, ...]
    """Architectures whose cache is a latent; any other is charged by heads."""
    sparse_architectures: tuple[str, ...]
    """Architectures whose indexer, where the config has one, brings the sparse backends."""
    swa_full_tokens_ratio: float = Field(gt=0, le=1)
    swa_ratios: tuple[SglangArchitectureValue, ...]
    swa_architectures: tuple[str, ...]
    """Architectures whose sliding layers get their own pool; all others are charged at full length."""
    swa_inclusive_architectures: tuple[str, ...]
    unified_pages: bool
    packed_cache_declared: bool
    """Of these, those whose window counts the token itself, and is therefore one less to the engine."""
    swa_eviction_tokens: int = Field(ge=1)
    scaled_sparse_architectures: tuple[str, ...]
    """Sparse architectures whose fp8 latents keep their scales on consumer Blackwell."""
    sparse_scales_counted: bool
    """Whether the scales of sparse fp8 latents are charged."""
    shared_indexers_left_out: bool
    """Whether layers that use another layer's indexer are left out; else every layer is charged for one."""
    index_narrowed: bool
    """Whether an index pool follows an fp8 cache where kernels allow it."""
    index_architectures: tuple[str, ...]
    """Architectures with an index pool for block-sparse attention."""
    compressed: SglangCompressed
    state_policy: SglangStatePolicy
    state_architectures: tuple[str, ...]
    """Architectures whose recurrent layers the engine gives a pool; the layers of any other count as attention."""
    state_prefix_architectures: tuple[str, ...]
    """Of these, those whose states are cached with prefixes."""
    state_buffer_architectures: tuple[str, ...]
    """Architectures with an extra buffer; the others run without the overlap scheduler and with pages of 1."""
    speculative_running: int = Field(ge=1)
    """Running requests with speculative decoding, where no flag says how many."""
    context_gib: float = Field(ge=0)
    """CUDA context and libraries held before weights load."""
    min_running: int = Field(ge=1)
    max_running: int = Field(ge=1)
    running_factor: int = Field(ge=1)
    quant_methods: tuple[str, ...]
    """Quantisation methods in the registry."""
    method_capability: tuple[MethodCapability, ...]
    least_capability: tuple[int, int]
    """CUDA compute capability below which nothing starts."""
    unreadable_architectures: tuple[str, ...]
    """Architectures whose config this version fails to read, of those that were tried."""
    attention_backends: tuple[BackendRule, ...]
    backend_limits: tuple[BackendLimits, ...]
    language_only_architectures: tuple[str, ...]
    """Architectures that ``--language-only`` is for."""
    single_token_pages: tuple[str, ...]
    """Architectures with recurrent layers whose radix cache needs pages of one token."""
    kv_dtypes: tuple[str, ...]
    """Names that ``--kv-cache-dtype`` takes."""
    sparse_kv_dtypes: tuple[str, ...]
    """Cache formats of sparse attention over latents."""
    compressed_kv_dtypes: tuple[str, ...]
    """Cache formats of DeepSeek-V4."""
    page_major_backends: tuple[str, ...]
    """Attention backends that ``--enable-unified-memory`` works with."""
    states: StateRules


class EngineFacts(Frozen):
    """One release of one engine."""

    name: Literal["vllm", "sglang"]
    version: str
    note: str = ""
    rules: VllmRules | SglangRules
    sources: Mapping[str, FactSource]
    registry: Registry | None = None
    """Architectures of all releases, where the catalogue lists them."""
    successor: str = ""
    """For a development build after this release: the next one listed, whose architectures it may have already."""

    def knows(self, architecture: str, tp: int) -> bool:
        """Whether this release has a class for an architecture; also where the catalogue, or the config, is silent."""
        if self.registry is None or not architecture:
            return True
        versions = (self.version, self.successor) if self.successor else (self.version,)
        return any(self.registry.knows(architecture, version, tp) for version in versions)

    def source(self, fact: str) -> str:
        """Source text of a fact."""
        return f"{self.name} {self.version}: {self.sources[fact]}"

    def origin(self, fact: str) -> Origin:
        """Origin of a fact."""
        return self.sources[fact].origin

    @property
    def vllm(self) -> VllmRules:
        """Rules of vLLM."""
        assert isinstance(self.rules, VllmRules)
        return self.rules

    @property
    def sglang(self) -> SglangRules:
        """Rules of SGLang."""
        assert isinstance(self.rules, SglangRules)
        return self.rules


def load_engines(root: Path) -> tuple[EngineFacts, ...]:
    """Every version in ``<root>/engines/*.toml``, by engine and version.

    Raises
    ------
    InputError
        Listing every problem of every file.
    """
    problems = Problems()
    engines: list[EngineFacts] = []
    for path in engine_files(root):
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            problems.add(str(path), f"cannot be read: {error}")
            continue
        engines.extend(_versions(path, raw, problems))
    problems.raise_if_any()
    return tuple(sorted(engines, key=lambda facts: (facts.name, version_key(facts.version))))


def engine_files(root: Path) -> tuple[Path, ...]:
    """The files that `load_engines` reads."""
    return tuple(sorted((root / "engines").glob("*.toml")))


def find_engine(engines: tuple[EngineFacts, ...], name: str, version: str = "") -> EngineFacts:
    """Facts of a version, or of the nearest older one that is listed; the newest where ``version`` is empty.

    Raises
    ------
    InputError
        If the engine is unknown or every listed version is newer.
    """
    known = [facts for facts in engines if facts.name == name]
    if not known:
        names = ", ".join(sorted({facts.name for facts in engines}))
        raise InputError(
            Problem("engine", f"{name!r} is not in the catalogue", f"Choose one of: {names}", field="name")
        )
    if not version:
        return known[-1]
    wanted = version_key(version)
    older = [facts for facts in known if version_key(facts.version) <= wanted]
    if not older:
        raise InputError(
            Problem(
                "engine",
                f"{name} {version} is older than every version in the catalogue",
                f"Choose {known[0].version} or newer",
                field="version",
            )
        )
    newer = [facts for facts in known if version_key(facts.version) > wanted]
    if newer and is_development(version) and version_key(older[-1].version) < wanted:
        return older[-1].model_copy(update={"successor": newer[0].version})
    return older[-1]


def substitution(engines: tuple[EngineFacts, ...], facts: EngineFacts, asked: str) -> str:
    """What to tell a user whose version is not listed; empty where it is, or where none was asked for."""
    if not asked or version_key(asked) == version_key(facts.version):
        return ""
    newest = max(version_key(known.version) for known in engines if known.name == facts.name)
    why = "newer than every version in the catalogue" if version_key(asked) > newest else "not in the catalogue"
    return f"engine facts of {facts.name} {facts.version} are used for {asked}, which is {why}"


def _versions(path: Path, raw: Mapping[str, Any], problems: Problems) -> list[EngineFacts]:
    name = str(raw.get("engine", ""))
    kinds: dict[str, type[VllmRules] | type[SglangRules]] = {"vllm": VllmRules, "sglang": SglangRules}
    rules = kinds.get(name)
    if rules is None:
        problems.add(str(path), f"unknown engine {name!r}", "Write vllm or sglang", field="engine")
        return []
    found = []
    facts = _dated(path, raw, problems)
    registry = read_registry(path.with_name(f"{name}_architectures.csv"), problems)
    for entry in raw.get("version", ()):
        version = str(entry.get("id", ""))
        if not _is_version(path, version, "version", problems):
            continue
        values, sources = _facts_at(path, facts, version, problems, str(entry.get("older_as", "")))
        try:
            found.append(
                EngineFacts.model_validate(
                    {
                        "name": name,
                        "version": version,
                        "note": entry.get("note", ""),
                        "rules": rules.model_validate(values),
                        "sources": sources,
                        "registry": None if entry.get("older_as") else registry,
                    }
                )
            )
        except ValidationError as error:
            for item in error.errors():
                field = ".".join(str(part) for part in item["loc"])
                problems.add(str(path), str(item["msg"]), row=f"version {version}", field=field)
    return found


def _is_version(path: Path, text: str, row: str, problems: Problems) -> bool:
    if VERSION.fullmatch(text):
        return True
    problems.add(str(path), f"{text!r} is not a version", "Write it like 0.33.0", row=row)
    return False


def _dated(path: Path, raw: Mapping[str, Any], problems: Problems) -> list[Mapping[str, Any]]:
    """The facts of a file whose ``since`` is a version; the others are noted."""
    return [
        fact
        for fact in raw.get("fact", ())
        if _is_version(path, str(fact.get("since")), f"fact {fact.get('name')}", problems)
    ]


def _facts_at(
    path: Path, facts: list[Mapping[str, Any]], version: str, problems: Problems, older_as: str = ""
) -> tuple[dict[str, Any], dict[str, FactSource]]:
    """Value and source of each fact that holds at ``version``.

    A version older than the first that was read takes what it lacks from that one (``older_as``), as guesses; its
    registry was not read, so that no architecture is refused.
    """
    chosen = _newest_until(facts, version)
    if older_as and _is_version(path, older_as, f"version {version}", problems):
        first = _newest_until(facts, older_as)
        chosen |= {name: {**fact, "origin": Origin.GUESS} for name, fact in first.items() if name not in chosen}
    sources = {}
    for name, fact in chosen.items():
        try:
            sources[name] = FactSource.model_validate({k: v for k, v in fact.items() if k not in ("name", "value")})
        except ValidationError as error:
            problems.add(str(path), str(error.errors()[0]["msg"]), row=f"fact {name}")
    return {name: fact.get("value") for name, fact in chosen.items()}, sources


def _newest_until(facts: list[Mapping[str, Any]], version: str) -> dict[str, Mapping[str, Any]]:
    """The newest entry of each fact that is not newer than ``version``."""
    chosen: dict[str, Mapping[str, Any]] = {}
    for fact in facts:
        name, since = str(fact.get("name")), str(fact.get("since"))
        if version_key(since) > version_key(version):
            continue
        if name not in chosen or version_key(since) >= version_key(str(chosen[name]["since"])):
            chosen[name] = fact
    return chosen
