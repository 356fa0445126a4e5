"""What a model is, for memory and speed: the layers that hold a cache and the parameters that hold weights.

A `ModelShape` is read from a Hugging Face ``config.json`` by `planner.catalog.hf_config.read_model_shape`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class AttentionFamily(StrEnum):
    """How the model's attention shares keys and values."""

    MHA = "MHA"
    MQA = "MQA"
    GQA = "GQA"
    MLA = "MLA"
    HYBRID = "hybrid"


class CacheKind(StrEnum):
    """What a group of layers keeps of the past."""

    FULL = "full"
    """Every token."""
    SLIDING = "sliding"
    """The last ``window_tokens`` tokens."""


@dataclass(frozen=True)
class CacheLayers:
    """``count`` layers that keep the same kind of cache.

    One token of one layer holds ``kv_heads * (key_dim + value_dim)`` elements. MLA is stored as one latent head:
    ``kv_heads = 1``, ``key_dim = kv_lora_rank + qk_rope_head_dim``, ``value_dim = 0``; it is therefore never split
    by tensor parallelism.

    Attributes
    ----------
    chunked
        The window is a chunk: it starts anew every ``window_tokens`` tokens instead of sliding.
    fixed_bytes_per_token
        Bytes of one token in one layer whatever the cache dtype (indexer keys of sparse attention, with their scale).
    fp8_bytes_per_token
        Bytes of one token in one layer of an fp8 cache, where that is not a byte an element.
    """

    kind: CacheKind
    count: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None
    chunked: bool = False
    fixed_bytes_per_token: int | None = None
    fp8_bytes_per_token: int | None = None


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters by how they are stored and split (whole model, not per rank).

    Attributes
    ----------
    embedding, lm_head
        Token embedding and output head; ``lm_head`` is 0 when tied. Kept at 16 bits by fp8/AWQ/GPTQ.
    attention
        Attention projections that a quantiser converts.
    kv_projection
        The part of ``attention`` that makes keys and values: replicated when tp exceeds the KV heads.
    mlp
        Dense MLP projections and shared experts that a quantiser converts.
    experts
        Routed experts, all of them.
    router, other
        Router gates, norms, biases, positional tables: kept at 16 bits.
    vision
        Vision tower and projector, kept at 16 bits (0 for text models).
    attention_replicated
        The part of ``attention`` that every rank holds whole (down-projections to a latent).
    expert_biases
        The part of ``other`` that is biases of routed experts.
    """

    embedding: int
    lm_head: int
    attention: int
    kv_projection: int
    mlp: int
    experts: int
    router: int
    other: int
    vision: int = 0
    attention_replicated: int = 0
    expert_biases: int = 0

    @property
    def total(self) -> int:
        """All parameters of the model."""
        return (
            self.embedding
            + self.lm_head
            + self.attention
            + self.mlp
            + self.experts
            + self.router
            + self.other
            + self.vision
        )


@dataclass(frozen=True)
class ModelShape:
    """Everything that memory and speed need to know about a model.

    Attributes
    ----------
    id
        Hugging Face id.
    native_weight_dtype
        How the checkpoint is stored: ``bf16``, ``fp8`` (with ``weight_block``), ``int4-awq``, ``int4-gptq``, ``mxfp4``,
        or ``unsupported: ...`` where its bytes are not modelled.
    weight_block
        Block of an fp8 block-quantised checkpoint, such as ``(128, 128)``.
    group_size
        Group of an int4 checkpoint.
    declares_fp8_kv
        The checkpoint declares an fp8 KV cache; newer engines then use one unless told otherwise.
    attention_kept_16bit
        A quantised checkpoint that leaves attention at 16 bits.
    router_32bit
        Routers are kept at 32 bits.
    gptq_activation_order
        GPTQ quantised in order of activation (``desc_act``), which newer engines refuse.
    longrope_original_length
        The length before LongRoPE extends it: some engine versions serve only this unless asked for more.
    active_parameters
        Parameters that one token multiplies with (dense part plus the routed share), without embedding lookup.
    vision_encoder
        Layers and hidden size of the vision tower as its config states them (``None`` each where it does not), for a
        multimodal model.
    notes
        Traps met while reading the config, such as an explicit head_dim that differs from hidden/heads.
    """

    id: str
    architecture: str
    model_type: str
    family: AttentionFamily
    cache_layers: tuple[CacheLayers, ...]
    parameters: ParameterCounts
    num_layers: int
    num_moe_layers: int
    hidden_size: int
    vocab_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    shared_expert_intermediate_size: int = 0
    native_weight_dtype: str = "bf16"
    weight_block: tuple[int, int] | None = None
    group_size: int | None = None
    declares_fp8_kv: bool = False
    attention_kept_16bit: bool = False
    router_32bit: bool = False
    gptq_activation_order: bool = False
    longrope_original_length: int | None = None
    active_parameters: int = 0
    vision_encoder: tuple[int | None, int | None] | None = None
    tied_embeddings: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def is_moe(self) -> bool:
        """Whether the model has routed experts."""
        return self.num_experts > 0
