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


class StateKind(StrEnum):
    """Recurrences whose layers keep a state per sequence, however long it is."""

    MAMBA1 = "Mamba"
    MAMBA2 = "Mamba-2"
    GATED_DELTA = "gated delta net"
    KIMI_DELTA = "Kimi delta attention"
    LIGHTNING = "lightning attention"
    SHORT_CONVOLUTION = "short convolution"


class Part(StrEnum):
    """What a matrix belongs to: how a decode step reads it, and what a quantiser does with it."""

    EMBEDDING = "embedding"
    LM_HEAD = "output head"
    ATTENTION = "attention"
    STATE = "state layers"
    MLP = "dense MLP"
    SHARED_EXPERTS = "shared experts"
    EXPERTS = "routed experts"
    ROUTER = "router"
    OTHER = "norms, biases, positions"
    VISION = "vision tower"


class Split(StrEnum):
    """How tensor parallelism divides a matrix."""

    WHOLE = "whole"
    """On every rank."""
    COLUMN = "column"
    """``out_features / tp``."""
    ROW = "row"
    """``in_features / tp``."""
    KV_HEADS = "KV heads"
    """``out_features`` by ``heads``: ``max(1, heads // tp)`` of them on a rank."""
    VOCABULARY = "vocabulary"
    """``out_features`` rows, padded, then divided."""


@dataclass(frozen=True)
class Matrix:
    """``copies`` equal matrices in each of ``layers``, named as the checkpoint names them.

    The inventory of a model is a tuple of these: parameters, bytes by format, ignore lists and the limits of split and
    group sizes all come from it.

    Attributes
    ----------
    module
        Name below the layer, such as ``self_attn.q_proj`` or ``mlp.experts.*.gate_proj``; below the model where
        ``layers`` is empty (``embed_tokens``, ``lm_head``).
    out_features, in_features
        Rows and columns of one copy of the whole model; a vector has ``in_features = 1``.
    layers
        Decoder layers that hold it; empty for a matrix outside the layers (then held once).
    copies
        Matrices per layer (experts).
    heads
        With `Split.KV_HEADS`: heads that the rows are made of.
    fused
        Name of the module that the engine fuses it into (``self_attn.qkv_proj``, ``mlp.gate_up_proj``); empty if none.
    linear
        Whether a quantiser converts it unless told otherwise; never true for vectors, embeddings, norms, convolutions.
    bytes_per_element
        Where it is kept in another precision than the model's 16 bits (4 for a float32 router); ``None`` otherwise.
    """

    module: str
    part: Part
    out_features: int
    in_features: int
    layers: tuple[int, ...] = ()
    copies: int = 1
    split: Split = Split.WHOLE
    heads: int = 0
    fused: str = ""
    linear: bool = True
    bytes_per_element: int | None = None

    @property
    def count(self) -> int:
        """Matrices in the whole model."""
        return self.copies * (len(self.layers) or 1)

    @property
    def elements(self) -> int:
        """Parameters in the whole model."""
        return self.count * self.out_features * self.in_features


@dataclass(frozen=True)
class StateLayers:
    """``count`` layers that keep a state per sequence: a convolution's last inputs and a recurrent state.

    Raw sizes of the whole model; `planner.memory.states` makes shapes and bytes per rank of them. A size that a kind
    does not have is 0.

    Attributes
    ----------
    layers
        Their indexes among the decoder layers.
    heads, head_dim
        Value heads of the recurrent state (Mamba-1: ``heads = intermediate size``, ``head_dim = 1``).
    state_size
        Other dimension of the recurrent state: ``d_state``, or the key head's dimension.
    groups
        ``n_groups`` of Mamba-2, key heads of delta nets.
    conv_kernel
        Taps of the convolution; the state keeps one fewer (short convolution included).
    conv_channels
        Channels that are convolved, all ranks together, before groups are extended for tp.
    state_bytes_per_element
        Precision of the recurrent state that the config asks for; ``None`` means the model's.
    chunk_size
        Tokens of a chunk of the scan (Mamba-2), 0 where unknown.
    with_attention
        Attention runs beside it in the same layer (Falcon-H1).
    """

    kind: StateKind
    layers: tuple[int, ...]
    heads: int
    head_dim: int
    state_size: int
    groups: int
    conv_kernel: int
    conv_channels: int
    state_bytes_per_element: int | None = None
    chunk_size: int = 0
    with_attention: bool = False

    @property
    def count(self) -> int:
        """Layers that keep it."""
        return len(self.layers)


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
    matrices
        Every matrix and vector; `parameters` is their sum by part.
    state_layers
        Layers that keep a state per sequence instead of a cache per token.
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
    matrices: tuple[Matrix, ...] = field(default=())
    state_layers: tuple[StateLayers, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    def __hash__(self) -> int:
        """Cheap, as shapes are keys of caches; equality still compares everything."""
        return hash((self.id, self.architecture, self.hidden_size, self.num_layers, self.native_weight_dtype))

    @property
    def is_moe(self) -> bool:
        """Whether the model has routed experts."""
        return self.num_experts > 0
