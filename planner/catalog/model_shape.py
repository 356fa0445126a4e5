"""What a model is, for memory and speed: the layers that hold a cache and the parameters that hold weights.

A `ModelShape` is read from a Hugging Face ``config.json`` by `planner.catalog.hf.config.read_model_shape`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from planner.catalog.matrix import Matrix


class AttentionFamily(StrEnum):
    """How the model's attention shares keys and values."""

    MHA = "MHA"
    MQA = "MQA"
    GQA = "GQA"
    MLA = "MLA"
    HYBRID = "hybrid"
    NONE = "attention-free"


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
    bounded_gate
        The decay has a lower bound (``gate_lower_bound`` of Kimi-K3), which some kernels need.
    """

    kind: StateKind
    layers: tuple[int, ...]
    heads: int = 0
    head_dim: int = 0
    state_size: int = 0
    groups: int = 0
    conv_kernel: int = 0
    conv_channels: int = 0
    state_bytes_per_element: int | None = None
    chunk_size: int = 0
    bounded_gate: bool = False

    @property
    def count(self) -> int:
        """Layers that keep it."""
        return len(self.layers)


class CacheRole(StrEnum):
    """What a cache is for."""

    TOKENS = "tokens"
    INDEX = "index"
    """Keys of a sparse-attention indexer."""
    COMPRESSOR = "compressor"
    """Recent inputs from which the next compressed entry is made (DeepSeek-V4)."""


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
    block_tokens
        Tokens of a block, where the engine fixes them for these layers whatever it picks for the others.
    tokens_per_state
        Tokens that one stored entry stands for (compressed caches); the bytes above are then those of an entry.
    page_alignment
        Bytes that a page of these layers is rounded up to.
    sharing_layers
        Further layers that read this cache and hold none of their own (Gemma-3n, Gemma-4 E models).
    picked_tokens
        Tokens that a query attends to at most, picked by an indexer (``index_topk``); ``None`` where it attends to all.
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
    block_tokens: int | None = None
    tokens_per_state: int = 1
    page_alignment: int = 1
    role: CacheRole = CacheRole.TOKENS
    sharing_layers: int = 0
    picked_tokens: int | None = None


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters by how they are stored and split (whole model, not per rank).

    Attributes
    ----------
    embedding, lm_head
        Token embedding and output head; ``lm_head`` is 0 when tied. Kept at 16 bits by fp8/AWQ/GPTQ.
    attention
        Attention projections that a quantiser converts.
    mlp
        Dense MLP projections and shared experts that a quantiser converts.
    experts
        Routed experts, all of them.
    router, other
        Router gates, norms, biases, positional tables: kept at 16 bits.
    vision
        Vision tower and projector, kept at 16 bits (0 for text models).
    """

    embedding: int
    lm_head: int
    attention: int
    mlp: int
    experts: int
    router: int
    other: int
    vision: int = 0

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
class ImageInput:
    """The largest image that a multimodal model is profiled with.

    Attributes
    ----------
    tokens
        Places it takes in the prompt.
    patches
        Positions in the encoder, before they are merged or pooled.
    pixel_values
        Elements of the encoder's input.
    hidden_size, intermediate_size
        Of the encoder.
    outputs
        Rows of the text model's hidden size for each token (more than one where deep layers feed it too).
    gated
        The encoder's MLP has a gate.
    live_states
        Copies of the hidden states beside the MLP's tensors.
    masked
        Attention within an image adds a mask of patches x patches.
    in_prompt
        It takes places in the prompt; otherwise every sequence has one beside its prompt (cross-attention).
    most_frames
        As many such images as ``max_model_len`` holds, at most this many, make the largest video.
    """

    tokens: int
    patches: int
    pixel_values: int
    hidden_size: int
    intermediate_size: int
    outputs: int = 1
    gated: bool = False
    live_states: int = 4
    masked: bool = False
    in_prompt: bool = True
    most_frames: int = 1


@dataclass(frozen=True)
class ModelShape:
    """Everything that memory and speed need to know about a model.

    Attributes
    ----------
    id
        Hugging Face id.
    cache_layers
        Layers with a cache per token by kind, in order of the first layer of each.
    native_weight_dtype
        How the checkpoint is stored, a name of `planner.memory.types.WeightDtype`; ``unsupported: ...`` where its bytes
        are not modelled. Each matrix says more (`Matrix.stored`).
    declares_fp8_kv
        The checkpoint declares an fp8 KV cache; newer engines then use one unless told otherwise.
    sglang_fp8_kv
        The same as SGLang reads the checkpoint.
    context_unstated
        The config states no longest context: ``max_position_embeddings`` is the engine's default, and no limit.
    modelopt_unnamed
        The companion file that declares formats does not name ModelOpt as its producer: vLLM passes over it.
    gptq_activation_order
        GPTQ quantised in order of activation (``desc_act``), which newer engines refuse.
    draft_16bit
        The quantised checkpoint leaves its layers of multi-token prediction at 16 bits.
    quant_method
        Method that the checkpoint was quantised with, as the engines register it; empty at 16 bits.
    longrope_original_length
        The length before LongRoPE extends it: some engine versions serve only this unless asked for more.
    active_parameters
        Parameters that one token multiplies with (dense part plus the routed share), without embedding lookup.
    vision_encoder
        Layers and hidden size of the vision tower as its config states them (``None`` each where it does not), for a
        multimodal model.
    image
        The largest image of a multimodal model; ``None`` for a text model and where the processor is not known.
    matrices
        Every matrix and vector; `parameters` is their sum by part.
    rotary_bytes
        Tables of rotary positions that the engine keeps on every rank.
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
    declares_fp8_kv: bool = False
    sglang_fp8_kv: bool = False
    context_unstated: bool = False
    modelopt_unnamed: bool = False
    gptq_activation_order: bool = False
    draft_16bit: bool = False
    quant_method: str = ""
    longrope_original_length: int | None = None
    active_parameters: int = 0
    vision_encoder: tuple[int | None, int | None] | None = None
    image: ImageInput | None = None
    tied_embeddings: bool = False
    matrices: tuple[Matrix, ...] = field(default=())
    rotary_bytes: int = 0
    state_layers: tuple[StateLayers, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    def __hash__(self) -> int:
        """Cheap, as shapes are keys of caches; equality still compares everything."""
        return hash((self.id, self.architecture, self.hidden_size, self.num_layers, self.native_weight_dtype))

    @property
    def is_moe(self) -> bool:
        """Whether the model has routed experts."""
        return self.num_experts > 0

    @property
    def has_latent_cache(self) -> bool:
        """Whether some layers cache one latent a token (MLA), alone or beside recurrent layers."""
        return any(
            layers.role is CacheRole.TOKENS and layers.kv_heads == 1 and layers.value_dim == 0
            for layers in self.cache_layers
        )
