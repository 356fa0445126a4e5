"""What the memory room takes and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from planner import units
from planner.origin import Origin

if TYPE_CHECKING:
    from planner.catalog.model_shape import ModelShape


class WeightDtype(StrEnum):
    """Weight formats that a deployment can be started with."""

    BF16 = "bf16"
    FP8 = "fp8"
    INT4_AWQ = "int4-awq"
    INT4_GPTQ = "int4-gptq"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"
    MXFP8 = "mxfp8"
    INT8 = "int8"
    INT8_GPTQ = "int8-gptq"
    W4A16 = "w4a16"
    """Packed int4 of compressed-tensors."""
    W8A16 = "w8a16"
    """Packed int8 of compressed-tensors."""
    BNB_4BIT = "bnb-4bit"
    BNB_INT8 = "bnb-int8"
    MIXED = "mixed"
    """Several formats in one checkpoint."""


class KvDtype(StrEnum):
    """KV-cache formats."""

    BF16 = "bf16"
    FP8 = "fp8"


@dataclass(frozen=True)
class VllmFlags:
    """Flags of vLLM beyond those that every deployment has. ``None`` means the engine's default."""

    block_size_tokens: int | None = None
    mamba_cache_mode: str | None = None
    """``none``, ``align`` or ``all``."""
    mamba_ssm_cache_dtype: str | None = None
    hybrid_kv_cache_manager: bool = True
    language_model_only: bool = False
    """No vision tower is loaded and no image is profiled."""
    async_scheduling: bool | None = None
    offline: bool = False
    """Started through the ``LLM`` class, whose default ``max_num_batched_tokens`` is larger."""
    flashinfer_sampler: bool | None = None
    """Whether FlashInfer samples: from 0.8 to 0.11 wherever it is installed; ``VLLM_USE_FLASHINFER_SAMPLER``."""
    max_cudagraph_capture_size: int | None = None
    attention_backend: str = ""
    dtype: str = ""
    """``--dtype`` where it is typed (``bfloat16``, ``float16`` or ``half``)."""
    cpu_offload_gib: float = 0.0
    """``--cpu-offload-gb``: weights of each GPU that stay in host memory."""
    kv_offload_gib: float = 0.0
    """``--kv-offloading-size``: host memory for evicted blocks, all ranks together."""
    swap_space_gib: float | None = None
    """``--swap-space`` of older versions, per GPU."""
    host_memory_gib: float | None = None
    """Memory of the machine, where a rule needs it."""


@dataclass(frozen=True)
class SglangFlags:
    """Flags of SGLang beyond those that every deployment has. ``None`` means the engine's default."""

    page_size_tokens: int | None = None
    chunked_prefill: bool = True
    """False for ``--chunked-prefill-size -1``: a prompt is computed in one piece."""
    cuda_graph_max_batch: int | None = None
    disable_overlap_schedule: bool = False
    max_total_tokens: int | None = None
    swa_full_tokens_ratio: float | None = None
    mamba_full_memory_ratio: float | None = None
    mamba_ssm_dtype: str | None = None
    max_mamba_cache_size: int | None = None
    enable_multimodal: bool = False
    language_only: bool = False
    attention_backend: str = ""
    unified_memory: bool = False


DRAFT_MODEL = "draft"
"""Method of speculative decoding by another model."""


@dataclass(frozen=True)
class Speculative:
    """Speculative decoding: ``mtp`` (the model's own layers), ``eagle`` or `DRAFT_MODEL`."""

    method: str
    num_tokens: int
    draft_layers: int = 1
    """Layers that add weights and cache, shaped like the model's own (``mtp``, ``eagle``)."""
    draft: ModelShape | None = None
    """The other model (``draft``)."""


@dataclass(frozen=True)
class LoraAdapters:
    """LoRA adapters kept on the GPU."""

    max_loras: int
    max_rank: int


@dataclass(frozen=True)
class Deployment:
    """How one replica is started. ``None`` means the engine's default for this GPU and version."""

    tp: int
    weight_dtype: WeightDtype
    kv_dtype: KvDtype
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    """vLLM's ``gpu_memory_utilization``; for SGLang ``mem_fraction_static``."""
    pp: int = 1
    """Pipeline-parallel degree."""
    expert_parallel: bool = False
    """Routed experts are divided whole among the ranks instead of by width."""
    dcp: int = 1
    """Decode-context-parallel degree: ranks that share one request's cache by tokens."""
    attention_dp: int = 1
    """Data-parallel degree of attention inside the replica (SGLang ``--enable-dp-attention --dp``)."""
    prefix_caching: bool | None = None
    """False is SGLang's ``--disable-radix-cache``."""
    enforce_eager: bool = False
    """No CUDA graphs (SGLang: ``--disable-cuda-graph``)."""
    vllm: VllmFlags = VllmFlags()
    sglang: SglangFlags = SglangFlags()
    speculative: Speculative | None = None
    lora: LoraAdapters | None = None
    kv_cache_dtype_name: str = ""
    """The engine's own name of the cache format where it says more than `kv_dtype` (``fp8_e5m2``, ``nvfp4``)."""


@dataclass(frozen=True)
class GivenTerms:
    """Terms typed by the user instead of predicted, GiB per GPU."""

    gpu_memory_gib: float | None = None
    weights_gib: float | None = None
    overhead_gib: float | None = None
    """Everything that is neither weights nor pool."""
    available_gib: float | None = None
    """What is left for the cache, as the engine logs it; nothing before it is then looked at."""
    free_before_weights_gib: float | None = None
    """SGLang: free memory before weights are loaded."""
    free_after_weights_gib: float | None = None
    """SGLang: free memory after weights are loaded; replaces the weights term."""


@dataclass(frozen=True)
class Term:
    """One line of the subtraction: a positive ``gib`` that is taken from the budget."""

    name: str
    gib: float
    origin: Origin
    source: str


@dataclass(frozen=True)
class Refusal:
    """Why the engine would not start, with the engine's own rule and a fix."""

    rule: str
    message: str
    fix: str


@dataclass(frozen=True)
class WeightBytes:
    """Weight bytes of one rank, by how a decode step reads them."""

    embedding: float
    """Looked up, not streamed."""
    lm_head: float
    """Streamed once a step (equals the embedding's bytes when tied, and then not counted twice in ``total``)."""
    dense: float
    """Attention, dense MLP, shared experts, norms, router: streamed once a step."""
    experts: float
    """All routed experts of the rank: the streamed share depends on the batch."""
    vision: float
    parameters: float
    """The parts together, a tied table once."""
    total: float
    """What loading occupies: the parameters, tables of positions, and what the allocator rounds up."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The pool of a replica's cache.

    Attributes
    ----------
    bytes_per_token
        Bytes per token per GPU of layers that keep every token.
    sliding_bytes_per_token
        Bytes per token per GPU of layers that keep a window.
    window_tokens
        The window of those layers (0 without).
    sliding_reserve_tokens
        Most tokens a request can hold in sliding layers (window plus tokens in flight), 0 without; it does so while its
        prompt is computed, and holds the window alone afterwards.
    state_bytes_per_request
        Bytes of the pool (SGLang: of the state pool) that one request holds however short it is: recurrent states.
    state_slots
        Slots of a state pool of its own, as SGLang logs them; a running request takes several, and ``max_num_seqs`` is
        what they allow. ``None`` where states come out of the one pool.
    sliding_pool_tokens
        Tokens of a pool of its own that sliding layers have (SGLang); ``None`` where they share the one pool.
    workers
        Workers of data-parallel attention in the replica, each with a pool of this size, ``max_num_seqs`` and
        ``state_slots`` of its own (SGLang); 1 without.
    block_size_tokens, num_blocks
        The engine's pool in blocks (SGLang: pages); the smallest block of the groups, which the engine logs with.
    largest_block_tokens
        The largest block of the groups: a request's tokens are rounded up to it.
    bytes_per_block
        Of the pool, padding of short groups included.
    pool_tokens
        The pool's bytes over ``bytes_per_token``: live tokens that fit when every layer keeps every token. For a hybrid
        the windows are on top and charged per request by the caller: a request with t live tokens (in whole blocks of
        the largest group) occupies at most
        ``bytes_per_token * t + sliding_bytes_per_token * min(t, sliding_reserve_tokens) + state_bytes_per_request`` of
        ``pool_bytes``. Where every layer slides, ``bytes_per_token`` is 0 and this counts sliding tokens; where none
        has a cache per token, those of requests of ``max_model_len``.
    logged_tokens
        The "GPU KV cache size" figure that this engine version prints.
    max_concurrency
        The engine's "Maximum concurrency" at ``max_model_len``.
    """

    bytes_per_token: float
    sliding_bytes_per_token: float
    window_tokens: int
    sliding_reserve_tokens: int
    block_size_tokens: int
    largest_block_tokens: int
    num_blocks: int
    bytes_per_block: int
    pool_tokens: int
    logged_tokens: int
    max_concurrency: float
    state_bytes_per_request: float = 0.0
    state_slots: int | None = None
    sliding_pool_tokens: int | None = None
    workers: int = 1


@dataclass(frozen=True, kw_only=True)
class Sizing(Pool):
    """The subtraction of one replica and the pool it leaves.

    Attributes
    ----------
    budget
        ``utilization x visible memory`` (vLLM) or its SGLang counterpart, GiB per GPU.
    terms
        What is taken from the budget, in order.
    available_kv_gib
        What is left; negative when it does not fit.
    native_weight_dtype, declares_fp8_kv
        How the checkpoint is stored, for the launch command.
    """

    model_id: str
    gpu_id: str
    engine: str
    engine_version: str
    deployment: Deployment
    weights: WeightBytes
    gpu_memory: Term
    utilization: float
    budget: Term
    terms: tuple[Term, ...]
    available_kv_gib: float
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    refusals: tuple[Refusal, ...] = field(default=())
    native_weight_dtype: str = "bf16"
    declares_fp8_kv: bool = False

    @property
    def starts(self) -> bool:
        """Whether the engine would start."""
        return not self.refusals

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool, in whole blocks."""
        return self.num_blocks * self.bytes_per_block

    @property
    def pool_state_bytes_per_request(self) -> float:
        """State bytes that a request takes from the pool itself: 0 where states have a pool beside that of tokens."""
        only_states = not self.bytes_per_token and not self.sliding_bytes_per_token
        return self.state_bytes_per_request if self.state_slots is None or only_states else 0.0

    @property
    def available_tokens(self) -> int:
        """Tokens of the available bytes before they are cut into blocks, 0 where nothing is left or kept by token."""
        per_token = self.bytes_per_token or self.sliding_bytes_per_token
        return max(0, int(self.available_kv_bytes / per_token)) if per_token else 0

    @property
    def available_kv_bytes(self) -> float:
        """`available_kv_gib` in bytes."""
        return units.gib_to_bytes(self.available_kv_gib)
