"""Facts of an SGLang release."""

from __future__ import annotations

from pydantic import Field

from planner.catalog.engine_rules.shared import Frozen, MethodCapability, StateRules


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


class BackendRule(Frozen):
    """Attention backends that an architecture accepts, or some that it rejects (SGLang)."""

    architectures: tuple[str, ...]
    accepts: tuple[str, ...] = ()
    rejects: tuple[str, ...] = ()
    message: str = Field(min_length=1)


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
    """Of these, those whose window counts the token itself, and is therefore one less to the engine."""
    unified_pages: bool
    """With unified memory, both pools get as many whole pages as fit; else their sizes stay as they are."""
    packed_cache_declared: bool
    """Whether an fp8 cache that a compressed-tensors checkpoint declares is taken."""
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
