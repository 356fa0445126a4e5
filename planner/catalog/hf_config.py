"""Read a Hugging Face ``config.json`` into a `ModelShape`.

The model type picks a `Traits` entry: which function reads the layers' windows, attention and feed-forward part, and
which small vectors (norms, biases) the architecture has. A type without an entry is refused by name: no figure is
better than a wrong one. A new family is a new reader function and a new entry in `REGISTRY`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog import hf_attention, hf_mlp, hf_windows
from planner.catalog.hf_attention import Attention
from planner.catalog.hf_check import check_form
from planner.catalog.hf_fields import CHECK_FILE, MOST, Fields, is_whole, shown
from planner.catalog.hf_mlp import FeedForward
from planner.catalog.hf_quant import StoredWeights, stored_weights
from planner.catalog.hf_vision import encoder_size, vision_parameters
from planner.catalog.hf_windows import Windows
from planner.catalog.model_shape import AttentionFamily, CacheKind, ModelShape, ParameterCounts
from planner.errors import InputError, Problem

Bias = bool | str
"""A fact of the architecture, or the config key that says it."""


@dataclass(frozen=True)
class Traits:
    """How one model type is put together.

    Attributes
    ----------
    attention
        Reader of a family that is not plain grouped-query attention.
    norms
        Norm vectors of hidden size per layer.
    final_norm, embedding_norm
        Whether norms follow the last layer and the embedding.
    norm_bias
        Whether norms are LayerNorm with a bias.
    positions
        Extra rows of a learned position table (``None``: no table).
    """

    windows: Callable[[Fields], Windows] = hf_windows.all_full
    attention: Callable[[Fields, Windows], Attention] | None = None
    mlp: Callable[[Fields, bool], FeedForward] = hf_mlp.gated
    qkv_bias: Bias = False
    output_bias: Bias = False
    mlp_bias: Bias = False
    qk_norm: str = ""
    qk_norm_if: str = ""
    sinks: bool = False
    norms: int = 2
    norm_bias: bool = False
    head_bias: bool = False
    router_32bit: bool = False
    final_norm: bool = True
    embedding_norm: bool = False
    positions: int | None = None
    note: str = ""


def _llama_like(**changes: Any) -> Traits:
    return Traits(qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias", **changes)


def _gpt_like(**changes: Any) -> Traits:
    settings: dict[str, Any] = {"qkv_bias": True, "output_bias": True, "mlp_bias": True, "norm_bias": True}
    return Traits(mlp=hf_mlp.plain, **(settings | changes))


_QWEN2 = Traits(windows=hf_windows.qwen_window, qkv_bias=True)
_QWEN3 = Traits(windows=hf_windows.qwen_window, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head")
_QWEN3_MOE = replace(_QWEN3, mlp=hf_mlp.mixture)
_MISTRAL = Traits(windows=hf_windows.one_window)
_LATENT = Traits(attention=hf_attention.latent_if_ranked, mlp=hf_mlp.mixture)
_SPARSE_LATENT = Traits(attention=hf_attention.sparse_latent, mlp=hf_mlp.mixture)

REGISTRY: Mapping[str, Traits] = {
    "PanguEmbedded": Traits(qkv_bias="bias", output_bias="bias"),
    "baichuan": Traits(),
    "bloom": _gpt_like(embedding_norm=True),
    "chatglm": Traits(qkv_bias="add_qkv_bias"),
    "cohere": Traits(norms=1, qk_norm="full", qk_norm_if="use_qk_norm"),
    "cohere2": Traits(norms=1, windows=hf_windows.typed_layers(4)),
    "deepseek": Traits(mlp=hf_mlp.mixture),
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _SPARSE_LATENT,
    "kimi_k2": _LATENT,
    "ernie4_5": Traits(qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias"),
    "ernie4_5_moe": Traits(qkv_bias="use_bias", output_bias="use_bias", mlp=hf_mlp.mixture),
    "exaone": Traits(),
    "exaone4": Traits(windows=hf_windows.typed_layers(4), qk_norm="head"),
    "falcon": _gpt_like(qkv_bias="bias", output_bias="bias", mlp_bias="bias"),
    "gemma": Traits(),
    "gemma2": Traits(windows=hf_windows.typed_layers(2), norms=4),
    "gemma3_text": Traits(windows=hf_windows.typed_layers(6), norms=4, qk_norm="head"),
    "gemma4_text": Traits(
        windows=hf_windows.typed_layers(6), attention=hf_attention.gemma4, mlp=hf_mlp.beside_experts, norms=4
    ),
    "glm_moe_dsa": _SPARSE_LATENT,
    "glm4_moe": Traits(mlp=hf_mlp.mixture, qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"),
    "gpt2": _gpt_like(positions=0),
    "gpt_bigcode": _gpt_like(positions=0),
    "gpt_neox": _gpt_like(),
    "gpt_oss": Traits(
        windows=hf_windows.typed_layers(2),
        mlp=hf_mlp.mixture,
        mlp_bias=True,
        qkv_bias=True,
        output_bias=True,
        sinks=True,
    ),
    "gptj": _gpt_like(qkv_bias=False, output_bias=False, norms=1, head_bias=True),
    "granite": _llama_like(),
    "granitemoe": Traits(mlp=hf_mlp.mixture),
    "internlm": Traits(qkv_bias="bias", output_bias="bias"),
    "internlm2": Traits(),
    "llama": _llama_like(),
    "llama4_text": Traits(windows=hf_windows.chunks, attention=hf_attention.chunked_query, mlp=hf_mlp.mixture),
    "mimo_v2_flash": Traits(attention=hf_attention.mimo_v2, mlp=hf_mlp.mixture),
    "mimo": Traits(qkv_bias=True, windows=hf_windows.qwen_window),
    "minicpm": Traits(),
    "minicpm3": Traits(attention=hf_attention.expanded_latent),
    "minimax_m2": Traits(mlp=hf_mlp.mixture, router_32bit=True, qk_norm="full", qk_norm_if="use_qk_norm"),
    "ministral3": _MISTRAL,
    "mistral": _MISTRAL,
    "mixtral": replace(_MISTRAL, mlp=hf_mlp.mixture),
    "olmo": Traits(norms=0, final_norm=False),
    "olmo2": Traits(qk_norm="full"),
    "olmo3": Traits(windows=hf_windows.typed_layers(4), qk_norm="full"),
    "olmoe": Traits(mlp=hf_mlp.mixture, qk_norm="full"),
    "opt": _gpt_like(positions=2),
    "orion": Traits(norm_bias=True),
    "phi": _gpt_like(norms=1, head_bias=True),
    "phi-msft": _gpt_like(norms=1, head_bias=True),
    "phi3": _MISTRAL,
    "phi3_v": _MISTRAL,
    "phi3small": Traits(qkv_bias=True, output_bias=True, mlp_bias=True, norm_bias=True),
    "phimoe": Traits(
        windows=hf_windows.one_window,
        mlp=hf_mlp.mixture,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        norm_bias=True,
        head_bias=True,
    ),
    "qwen": Traits(qkv_bias=True),
    "qwen2": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": replace(_QWEN2, mlp=hf_mlp.mixture),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": Traits(qkv_bias="attention_bias", output_bias="attention_out_bias"),
    "smollm3": _llama_like(),
    "stablelm": Traits(qkv_bias="use_qkv_bias", norm_bias=True),
    "starcoder2": _gpt_like(windows=hf_windows.one_window),
}

NOT_YET: Mapping[str, str] = {
    "bert": "an encoder keeps no KV cache",
    "t5": "an encoder-decoder keeps a second, cross-attention cache",
    "whisper": "an encoder-decoder keeps a second, cross-attention cache",
    "deepseek_ref": "DeepSeek-V4 keeps compressed states beside a window",
    "deepseek_v4": "DeepSeek-V4 keeps compressed states beside a window",
    "falcon_h1": "attention and Mamba run side by side in every layer",
    "falcon_mamba": "Mamba keeps a state per sequence, not a cache per token",
    "gemma3n_text": "the last layers share another layer's cache",
    "granitemoehybrid": "Mamba layers keep a state per sequence",
    "jamba": "Mamba layers keep a state per sequence",
    "kimi_linear": "linear-attention layers keep a state per sequence",
    "lfm2": "short-convolution layers keep a state per sequence",
    "longcat_flash": "each layer holds two attentions",
    "minimax_m1": "lightning-attention layers keep a state per sequence",
    "minimax_m3": "sparse attention keeps an index cache",
    "minimax_m3_vl": "sparse attention keeps an index cache",
    "mllama_text_model": "cross-attention layers cache image tokens",
    "nemotron-nas": "every block has its own heads or none",
    "nemotron_h": "Mamba layers keep a state per sequence",
    "qwen3_5_moe_text": "linear-attention layers keep a state per sequence",
    "qwen3_5_text": "linear-attention layers keep a state per sequence",
    "qwen3_next": "linear-attention layers keep a state per sequence",
    "rwkv5": "RWKV keeps a state per sequence, not a cache per token",
    "step3p7": "its layers' head counts and experts are not modelled",
    "zamba2": "Mamba layers keep a state per sequence",
}
"""Model types that are known and refused, with the reason."""


def read_model_shape(
    config: Mapping[str, Any],
    model_id: str,
    *,
    quant_config: Mapping[str, Any] | None = None,
    class_defaults: Mapping[str, Any] | None = None,
) -> ModelShape:
    """A config as the engine sees it.

    Parameters
    ----------
    config
        The parsed ``config.json``.
    model_id
        Hugging Face id, for messages.
    quant_config
        The parsed ``hf_quant_config.json`` where the repository has one.
    class_defaults
        Defaults of transformers config classes by model type (with or without the enclosing ``defaults`` key).

    Raises
    ------
    InputError
        If the model type is not supported; else listing every value that is unusable, or missing without a default.
    """
    defaults = class_defaults or {}
    fields = Fields(config, model_id, defaults.get("defaults", defaults))
    traits = _traits(fields)
    check_form(fields)
    shape = fields.problems.attempt(lambda: _read(fields, traits, quant_config))
    fields.problems.raise_if_any()
    assert shape is not None
    return shape


def _read(fields: Fields, traits: Traits, quant_config: Mapping[str, Any] | None) -> ModelShape | None:
    """The shape; ``None`` where reading fails over a value that is noted already."""
    try:
        return _shape(fields, traits, quant_config)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        if fields.problems.found:
            return None
        message = f"does not have the form of model type {fields.model_type!r} ({error})"
        raise InputError(Problem(fields.place, message, CHECK_FILE)) from error


def _shape(fields: Fields, traits: Traits, quant_config: Mapping[str, Any] | None) -> ModelShape:
    attention = _attention(fields, traits)
    mlp = traits.mlp(fields, _is(fields, traits.mlp_bias))
    stored = stored_weights(fields, quant_config)
    parameters = _parameters(fields, traits, attention, mlp)
    architectures = fields.outer.get("architectures") or fields.text.get("architectures") or ["unknown"]
    return ModelShape(
        id=fields.model_id,
        architecture=str(architectures[0]),
        model_type=fields.model_type,
        family=attention.family,
        cache_layers=attention.cache_layers,
        parameters=parameters,
        num_layers=fields.layers,
        num_moe_layers=mlp.moe_layers,
        hidden_size=fields.hidden,
        vocab_size=fields.vocabulary,
        attention_heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        intermediate_size=fields.feed_forward,
        max_position_embeddings=longest(fields),
        num_experts=mlp.num_experts,
        experts_per_token=mlp.experts_per_token,
        moe_intermediate_size=mlp.moe_intermediate,
        shared_expert_intermediate_size=mlp.shared_intermediate,
        native_weight_dtype=stored.dtype,
        weight_block=stored.block,
        group_size=stored.group_size,
        declares_fp8_kv=stored.kv_fp8,
        attention_kept_16bit=stored.attention_kept,
        router_32bit=traits.router_32bit,
        gptq_activation_order=stored.activation_order,
        longrope_original_length=_longrope_original(fields),
        active_parameters=_active(parameters, mlp),
        vision_encoder=encoder_size(fields),
        tied_embeddings=fields.tied,
        notes=_notes(fields, traits, attention, stored),
    )


def supported_model_types() -> tuple[str, ...]:
    """Model types with a reader."""
    return tuple(sorted(REGISTRY))


def longest(fields: Fields) -> int:
    """Longest context that the engine accepts, as vLLM derives it (``_get_and_verify_max_len``).

    The smallest of the keys that state a length, except that ``model_max_length`` replaces them; times the rope
    factor, unless the rope type already counts it in (longrope, llama3, yarn, mrope) or the model is Gemma-3.
    """
    names = (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "max_sequence_length",
        "max_seq_length",
        "seq_len",
    )
    stated = [value for name in names if fields.states(name) and (value := fields.optional_integer(name))]
    override = fields.optional_integer("model_max_length")
    if override:
        stated = [override]
    length = min(stated) if stated else fields.optional_integer("max_position_embeddings", default=0)
    if not length:
        fields.note("max_position_embeddings", "states no longest context", "Add it")
    longest = length * _rope_factor(fields)
    if longest > MOST:
        fields.note("rope_scaling", f"stretches the longest context to {longest:.3g} tokens")
    return int(min(longest, MOST))


def _rope_factor(fields: Fields) -> float:
    scaling = _rope_scaling(fields)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if not isinstance(kind, str):
        fields.note("rope_scaling.rope_type", f"is no name (got {shown(kind)})")
    if kind not in ("linear", "dynamic") or fields.model_type.startswith("gemma3"):
        return 1.0
    factor = scaling.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= MOST:
        fields.note("rope_scaling.factor", f"is no number above 0 (got {shown(factor)})")
        return 1.0
    return float(factor)


def _rope_scaling(fields: Fields) -> Mapping[str, Any]:
    """The rope settings; empty where there are none, or where they are noted as no object."""
    for key in ("rope_scaling", "rope_parameters"):
        stated = fields.text.get(key)
        if stated and isinstance(stated, Mapping):
            return stated
    return {}


def _longrope_original(fields: Fields) -> int | None:
    """``original_max_position_embeddings`` of a LongRoPE model."""
    scaling = _rope_scaling(fields)
    if str(scaling.get("rope_type") or scaling.get("type")) not in ("longrope", "su"):
        return None
    key = "original_max_position_embeddings"
    stated = scaling.get(key, fields.get(key))
    if stated is not None and not (is_whole(stated) and 0 < stated <= MOST):
        fields.note(key, f"is no whole number from 1 to {MOST:,} (got {shown(stated)})")
        return None
    return None if stated is None else int(stated)


def _traits(fields: Fields) -> Traits:
    traits = REGISTRY.get(fields.model_type)
    if traits is not None:
        return traits
    reason = NOT_YET.get(fields.model_type)
    known = ", ".join(supported_model_types())
    raise InputError(
        Problem(
            fields.model_id,
            f"model type {fields.model_type!r} is not supported" + (f": {reason}" if reason else ""),
            f"Choose a model of a supported type ({known})",
            field="model_type",
        )
    )


def _attention(fields: Fields, traits: Traits) -> Attention:
    windows = traits.windows(fields)
    if traits.attention is not None:
        return traits.attention(fields, windows)
    return hf_attention.grouped_query(
        fields,
        windows,
        qkv_bias=_is(fields, traits.qkv_bias),
        output_bias=_is(fields, traits.output_bias),
        qk_norm=traits.qk_norm if not traits.qk_norm_if or fields.flag(traits.qk_norm_if) else "",
        sinks=traits.sinks,
    )


def _is(fields: Fields, fact: Bias) -> bool:
    return fact if isinstance(fact, bool) else fields.flag(fact)


def _parameters(fields: Fields, traits: Traits, attention: Attention, mlp: FeedForward) -> ParameterCounts:
    hidden, vocabulary = fields.hidden, fields.vocabulary
    norm = hidden * (2 if traits.norm_bias else 1)
    norms_per_layer = 1 if _one_norm(fields) else traits.norms
    other = (
        attention.small
        + mlp.small
        + (fields.layers * norms_per_layer + traits.final_norm + traits.embedding_norm) * norm
    )
    if traits.positions is not None:
        other += (longest(fields) + traits.positions) * hidden
    if traits.head_bias:
        other += vocabulary
    return ParameterCounts(
        embedding=vocabulary * hidden,
        lm_head=0 if fields.tied else vocabulary * hidden,
        attention=attention.projections,
        kv_projection=attention.kv,
        mlp=mlp.dense,
        experts=mlp.experts,
        router=mlp.router,
        other=other,
        vision=vision_parameters(fields) or 0,
        attention_replicated=attention.replicated,
        expert_biases=mlp.small if mlp.num_experts else 0,
    )


def _one_norm(fields: Fields) -> bool:
    """Falcon's older layout normalises once for the parallel attention and MLP."""
    return (
        fields.model_type == "falcon"
        and fields.flag("parallel_attn", default=True)
        and not fields.flag("new_decoder_architecture")
    )


def _active(parameters: ParameterCounts, mlp: FeedForward) -> int:
    """Parameters one token multiplies with: everything but the embedding lookup and the experts not chosen."""
    share = mlp.experts_per_token / mlp.num_experts if mlp.num_experts else 0.0
    head = parameters.lm_head or parameters.embedding
    return round(
        head + parameters.attention + parameters.mlp + parameters.router + parameters.other + parameters.experts * share
    )


def _notes(fields: Fields, traits: Traits, attention: Attention, stored: StoredWeights) -> tuple[str, ...]:
    notes = list(stored.notes)
    if stored.kv_fp8:
        notes.append("the checkpoint declares an fp8 KV cache")
    if attention.family is not AttentionFamily.MLA and attention.head_dim * attention.heads != fields.hidden:
        notes.append(
            f"head_dim {attention.head_dim} is stated and differs from hidden/heads {fields.hidden / attention.heads:g}"
        )
    if attention.family is AttentionFamily.MLA:
        notes.append("latent cache: one vector a token and layer, the same on every rank")
    windows = sorted(
        {w.window_tokens for w in attention.cache_layers if w.kind is CacheKind.SLIDING and w.window_tokens}
    )
    if windows:
        count = sum(layer.count for layer in attention.cache_layers if layer.kind is CacheKind.SLIDING)
        notes.append(
            f"{count} of {fields.layers} layers keep a window of {', '.join(f'{w:,}' for w in windows)} tokens"
        )
    if fields.nested_in:
        notes.append(f"language model read from {fields.nested_in}")
    vision = vision_parameters(fields)
    if vision is None:
        notes.append(f"the vision tower of {fields.outer_type} is not counted: weights are too low by it")
    elif vision:
        notes.append(f"a vision tower of {vision:,} parameters is loaded; what profiling images adds is not predicted")
    if fields.defaults_used:
        notes.append(f"class defaults of {fields.model_type} used for {', '.join(sorted(fields.defaults_used))}")
    if fields.optional_integer("num_nextn_predict_layers", "num_mtp_modules"):
        notes.append("multi-token-prediction layers are not loaded without speculative decoding, and not counted")
    return tuple(notes)
