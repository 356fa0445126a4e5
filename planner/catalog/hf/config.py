"""Read a Hugging Face ``config.json`` into a `ModelShape`.

The model type picks a `Traits` entry (`planner.catalog.hf.families`), which says by which functions the config is
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.catalog.hf import matrices as build
from planner.catalog.hf.attention import Attention, grouped_query
from planner.catalog.hf.check import check_form
from planner.catalog.hf.context import context_unstated, longest, longrope_original
from planner.catalog.hf.families import Bias, Traits, traits_of
from planner.catalog.hf.fields import CHECK_FILE, Fields
from planner.catalog.hf.images import largest_image
from planner.catalog.hf.matrices import Matrices
from planner.catalog.hf.method import quant_method
from planner.catalog.hf.mlp import FeedForward
from planner.catalog.hf.notes import notes_of
from planner.catalog.hf.quantisation import stored_weights
from planner.catalog.hf.rotary import rotary_bytes
from planner.catalog.hf.vision import encoder_size, vision_matrices
from planner.catalog.matrix import Split
from planner.catalog.model_shape import ModelShape, ParameterCounts
from planner.catalog.quant import rules
from planner.catalog.sglang_cache import declares_fp8_cache
from planner.errors import InputError, Problem


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
    traits = traits_of(fields)
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
    matrices = rules.apply(stored.rules, _matrices(fields, traits, attention, mlp))
    parameters = build.parameter_counts(matrices)
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
        intermediate_size=mlp.dense_intermediate or fields.feed_forward,
        max_position_embeddings=longest(fields),
        num_experts=mlp.num_experts,
        experts_per_token=mlp.experts_per_token,
        moe_intermediate_size=mlp.moe_intermediate,
        shared_expert_intermediate_size=mlp.shared_intermediate,
        native_weight_dtype=stored.dtype,
        declares_fp8_kv=stored.kv_fp8,
        sglang_fp8_kv=declares_fp8_cache(fields, quant_config),
        context_unstated=context_unstated(fields),
        modelopt_unnamed=stored.without_producer,
        gptq_activation_order=stored.activation_order,
        draft_16bit=stored.draft_16bit,
        quant_method=quant_method(fields, quant_config),
        longrope_original_length=longrope_original(fields),
        active_parameters=_active(fields, parameters, mlp),
        vision_encoder=encoder_size(fields),
        image=largest_image(fields),
        tied_embeddings=fields.tied,
        matrices=matrices,
        rotary_bytes=rotary_bytes(fields, longest(fields), attention.head_dim),
        state_layers=attention.state_layers,
        notes=notes_of(fields, attention, stored),
    )


def _attention(fields: Fields, traits: Traits) -> Attention:
    windows = traits.windows(fields)
    if traits.attention is not None:
        return traits.attention(fields, windows)
    return grouped_query(
        fields,
        windows,
        qkv_bias=_is(fields, traits.qkv_bias),
        output_bias=_is(fields, traits.output_bias),
        qk_norm=traits.qk_norm if not traits.qk_norm_if or fields.flag(traits.qk_norm_if) else "",
        sinks=traits.sinks,
    )


def _is(fields: Fields, fact: Bias) -> bool:
    return fact if isinstance(fact, bool) else fields.flag(fact)


def _matrices(fields: Fields, traits: Traits, attention: Attention, mlp: FeedForward) -> Matrices:
    """The inventory: tables, every layer's attention and feed-forward part, norms, the vision tower."""
    hidden, vocabulary, layers = fields.hidden, fields.vocabulary, tuple(range(fields.layers))
    names = LAYER_NORMS[: 1 if _one_norm(fields) else traits.norms]
    outside = ("norm",) * traits.final_norm + ("embed_norm",) * traits.embedding_norm
    matrices: Matrices = (build.embedding(vocabulary, hidden),)
    if traits.positions is not None:
        matrices += (build.table("embed_positions", longest(fields) + traits.positions, hidden),)
    matrices += attention.matrices + mlp.matrices
    matrices += build.norms(names, hidden, layers, bias=traits.norm_bias)
    matrices += build.norms(outside, hidden, bias=traits.norm_bias)
    if not fields.tied:
        matrices += build.output_head(vocabulary, hidden, bias=traits.head_bias)
    elif traits.head_bias:
        matrices += (build.vector("lm_head.bias", vocabulary, split=Split.VOCABULARY),)
    if traits.router_32bit:
        matrices = build.wide_routers(matrices)
    return matrices + vision_matrices(fields)


LAYER_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
"""Norms of a decoder layer, by how many it has."""


def _one_norm(fields: Fields) -> bool:
    """Falcon's older layout normalises once for the parallel attention and MLP."""
    return (
        fields.model_type == "falcon"
        and fields.flag("parallel_attn", default=True)
        and not fields.flag("new_decoder_architecture")
    )


def _active(fields: Fields, parameters: ParameterCounts, mlp: FeedForward) -> int:
    """Parameters one token multiplies with: everything but the embedding lookup and the experts not chosen."""
    share = mlp.experts_per_token / mlp.num_experts if mlp.num_experts else 0.0
    head = parameters.lm_head or fields.vocabulary * fields.hidden
    return round(
        head + parameters.attention + parameters.mlp + parameters.router + parameters.other + parameters.experts * share
    )
