"""Facts of a vLLM release."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from planner.catalog.engine_rules.shared import Frozen, MethodCapability, StateRules
from planner.catalog.model_shape import StateKind


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
    cudagraph_estimated_on_amd: bool
    """Whether the estimate is made on ROCm too."""
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
    libraries_amd_gib: float = Field(ge=0)
    """The same on ROCm."""
    host_memory_gib: float = Field(ge=0)
    """Host memory of the engine's own processes, where GPU and host share one memory: it counts as outside PyTorch."""
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
    """Workspace of fused all-reduces by tensor-parallel degree, to four ranks."""
    fused_allreduce_eight_gib: float = Field(ge=0)
    """The same of eight ranks, for which it holds the fewest tokens."""
    graph_sizes: GraphSizes
    graph_mib_per_layer: float = Field(ge=0)
    """MiB of one CUDA graph per layer, as the estimate measures it where ``cudagraph_deducted``."""
    states: StateRules
