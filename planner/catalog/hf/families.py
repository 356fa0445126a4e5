"""Families of models by ``model_type``: how each is put together, and which are refused with a reason.

A `Traits` entry says which function reads the layers' windows, attention and feed-forward part, and which small vectors
(norms, biases) the architecture has. A type without an entry is refused by name: no figure is better than a wrong one.
A new family is a new reader function and a new entry in `REGISTRY`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from planner.catalog.hf import attention, blocks, linear_attention, mamba, mlp, routed, shared, sparse, windows
from planner.catalog.hf.attention import Attention
from planner.catalog.hf.fields import Fields
from planner.catalog.hf.mlp import FeedForward, gated
from planner.catalog.hf.windows import Windows, all_full
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

    windows: Callable[[Fields], Windows] = all_full
    attention: Callable[[Fields, Windows], Attention] | None = None
    mlp: Callable[[Fields, bool], FeedForward] = gated
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
    return Traits(mlp=mlp.plain, **(settings | changes))


_QWEN2 = Traits(windows=windows.qwen_window, qkv_bias=True)
_QWEN3 = Traits(windows=windows.qwen_window, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head")
_QWEN3_MOE = replace(_QWEN3, mlp=mlp.mixture)
_MISTRAL = Traits(windows=windows.one_window)
_LATENT = Traits(attention=attention.latent_if_ranked, mlp=mlp.mixture)
_SPARSE_LATENT = Traits(attention=attention.sparse_latent, mlp=mlp.mixture)
_MAMBA = Traits(attention=mamba.mamba_only, mlp=mamba.no_mlp, norms=1)
_LIGHTNING = Traits(attention=linear_attention.minimax_lightning, mlp=linear_attention.minimax_mlp)
_COMPRESSED = Traits(attention=sparse.deepseek_v4, mlp=sparse.deepseek_v4_mlp)
_INDEXED = Traits(attention=sparse.minimax_m3, mlp=sparse.minimax_m3_mlp)
_STEP = Traits(windows=windows.typed_layers(4), attention=blocks.step3p5, mlp=blocks.step3p5_mlp)
_LING = Traits(attention=routed.bailing, mlp=routed.bailing_mlp)

REGISTRY: Mapping[str, Traits] = {
    "PanguEmbedded": Traits(qkv_bias="bias", output_bias="bias"),
    "afmoe": Traits(windows=windows.typed_layers(4), attention=routed.afmoe, mlp=routed.shared_of_equal_width, norms=4),
    "apertus": Traits(mlp=mlp.plain, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"),
    "aquila": Traits(),
    "arcee": Traits(mlp=mlp.plain, qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias"),
    "axk1": _LATENT,
    "baichuan": Traits(),
    "bailing_hybrid": Traits(attention=routed.bailing_hybrid, mlp=routed.bailing_mlp),
    "bailing_moe": _LING,
    "bailing_moe_linear": Traits(attention=routed.bailing_hybrid, mlp=routed.bailing_mlp),
    "bailing_moe_v2": _LING,
    "bamba": Traits(attention=mamba.bamba, mlp_bias="mlp_bias"),
    "bloom": _gpt_like(embedding_norm=True),
    "chatglm": Traits(qkv_bias="add_qkv_bias"),
    "cohere": Traits(norms=1, qk_norm="split", qk_norm_if="use_qk_norm"),
    "cohere2": Traits(norms=1, windows=windows.typed_layers(4)),
    "cwm": _llama_like(windows=windows.typed_layers(4)),
    "dbrx": Traits(attention=routed.dbrx, mlp=routed.dbrx_mlp),
    "deepseek": Traits(mlp=mlp.mixture),
    "deepseek_ref": _COMPRESSED,
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _SPARSE_LATENT,
    "deepseek_v4": _COMPRESSED,
    "dots1": Traits(mlp=mlp.mixture, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"),
    "ernie4_5": Traits(qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias"),
    "ernie4_5_moe": Traits(qkv_bias="use_bias", output_bias="use_bias", mlp=mlp.mixture, router_32bit=True),
    "exaone": Traits(),
    "exaone4": Traits(windows=windows.typed_layers(4), qk_norm="head"),
    "exaone4_5_text": Traits(windows=windows.typed_layers(4), qk_norm="head"),
    "exaone_moe": Traits(windows=windows.typed_layers(4), mlp=routed.shared_of_equal_width, qk_norm="head"),
    "falcon": _gpt_like(qkv_bias="bias", output_bias="bias", mlp_bias="bias"),
    "falcon_h1": Traits(attention=mamba.falcon_h1),
    "falcon_mamba": _MAMBA,
    "flex_olmo": Traits(mlp=mlp.mixture, qk_norm="full"),
    "gemma": Traits(),
    "gemma2": Traits(windows=windows.typed_layers(2), norms=4),
    "gemma3_text": Traits(windows=windows.typed_layers(6), norms=4, qk_norm="head"),
    "gemma3n_text": Traits(windows=windows.typed_layers(5), attention=shared.gemma3n, mlp=shared.gemma3n_mlp, norms=4),
    "gemma4_text": Traits(windows=windows.typed_layers(6), attention=shared.gemma4, mlp=shared.gemma4_mlp, norms=4),
    "gemma4_unified_text": Traits(
        windows=windows.typed_layers(6), attention=shared.gemma4, mlp=shared.gemma4_mlp, norms=4
    ),
    "glm": Traits(qkv_bias="attention_bias"),
    "glm4": Traits(qkv_bias="attention_bias", norms=4),
    "glm4_moe": Traits(
        mlp=mlp.mixture, router_32bit=True, qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"
    ),
    "glm4_moe_lite": replace(_LATENT, router_32bit=True),
    "glm4v_moe_text": Traits(
        mlp=mlp.mixture, router_32bit=True, qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"
    ),
    "glm4v_text": Traits(qkv_bias="attention_bias", norms=4),
    "glm_moe_dsa": _SPARSE_LATENT,
    "gpt2": _gpt_like(positions=0),
    "gpt_bigcode": _gpt_like(positions=0),
    "gpt_neox": _gpt_like(),
    "gpt_oss": Traits(
        windows=windows.typed_layers(2),
        mlp=mlp.mixture,
        mlp_bias=True,
        qkv_bias=True,
        output_bias=True,
        sinks=True,
    ),
    "gptj": _gpt_like(qkv_bias=False, output_bias=False, norms=1, head_bias=True),
    "granite": _llama_like(),
    "granite_swa": _llama_like(windows=windows.typed_layers(4)),
    "granitemoe": Traits(mlp=mlp.mixture),
    "granitemoe_swa": Traits(
        windows=windows.typed_layers(4),
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        mlp=mamba.granite_mlp,
    ),
    "granitemoehybrid": Traits(attention=mamba.granite_hybrid, mlp=mamba.granite_mlp),
    "granitemoeshared": Traits(qkv_bias="attention_bias", output_bias="attention_bias", mlp=mamba.granite_mlp),
    "hunyuan": Traits(
        mlp=routed.hunyuan_mlp,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
        qk_norm_if="use_qk_norm",
    ),
    "hunyuan_v1_dense": Traits(
        qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"
    ),
    "hunyuan_v1_moe": Traits(
        mlp=routed.hunyuan_mlp,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
        qk_norm_if="use_qk_norm",
    ),
    "hy_v3": Traits(mlp=routed.hy_v3_mlp, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"),
    "hyperclovax": _llama_like(),
    "internlm": Traits(qkv_bias="bias", output_bias="bias"),
    "internlm2": Traits(),
    "internlm3": Traits(qkv_bias="qkv_bias", output_bias="bias", mlp_bias="bias"),
    "jais2": Traits(
        mlp=mlp.plain, qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias", norm_bias=True
    ),
    "jamba": Traits(attention=mamba.jamba, mlp=mamba.jamba_mlp),
    "kimi_k2": _LATENT,
    "kimi_linear": Traits(attention=linear_attention.kimi, mlp=linear_attention.kimi_mlp),
    "lfm2": Traits(attention=linear_attention.lfm2, mlp=linear_attention.lfm2_mlp),
    "lfm2_moe": Traits(attention=linear_attention.lfm2, mlp=linear_attention.lfm2_moe_mlp),
    "llama": _llama_like(),
    "llama4_text": Traits(windows=windows.chunks, attention=attention.chunked_query, mlp=mlp.mixture),
    "longcat_flash": Traits(attention=blocks.longcat_flash, mlp=blocks.longcat_mlp, norms=4),
    "mamba": _MAMBA,
    "mamba2": Traits(attention=mamba.mamba2_only, mlp=mamba.no_mlp, norms=1),
    "mellum": Traits(
        windows=windows.typed_layers(4),
        mlp=mlp.mixture,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
    ),
    "mimo": Traits(qkv_bias=True, windows=windows.qwen_window),
    "mimo_v2": Traits(attention=attention.mimo_v2, mlp=mlp.mixture),
    "mimo_v2_flash": Traits(attention=attention.mimo_v2, mlp=mlp.mixture, router_32bit=True),
    "minicpm": Traits(),
    "minicpm3": Traits(attention=attention.expanded_latent),
    "minicpmv": Traits(attention=routed.minicpmv),
    "minimax": _LIGHTNING,
    "minimax_m1": _LIGHTNING,
    "minimax_m2": Traits(mlp=mlp.mixture, router_32bit=True, qk_norm="split", qk_norm_if="use_qk_norm"),
    "minimax_m3": _INDEXED,
    "minimax_m3_vl": _INDEXED,
    "minimax_text_01": _LIGHTNING,
    "ministral": Traits(windows=windows.typed_layers(4)),
    "ministral3": _MISTRAL,
    "mistral": _MISTRAL,
    "mistral4": _LATENT,
    "mixtral": replace(_MISTRAL, mlp=mlp.mixture),
    "mllama_text_model": Traits(attention=blocks.mllama),
    "nemotron": Traits(
        mlp=mlp.plain, qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias", norm_bias=True
    ),
    "nemotron-nas": Traits(attention=blocks.nemotron_nas, mlp=blocks.nemotron_nas_mlp, mlp_bias="mlp_bias", norms=0),
    "nemotron_h": Traits(attention=mamba.nemotron_h, mlp=mamba.nemotron_mlp, mlp_bias="mlp_bias", norms=1),
    "olmo": Traits(norms=0, final_norm=False),
    "olmo2": Traits(qk_norm="full"),
    "olmo3": Traits(windows=windows.typed_layers(4), qk_norm="full"),
    "olmo_hybrid": Traits(attention=routed.olmo_hybrid),
    "olmoe": Traits(mlp=mlp.mixture, qk_norm="full"),
    "opt": _gpt_like(positions=2),
    "orion": Traits(norm_bias=True),
    "phi": _gpt_like(norms=1, head_bias=True),
    "phi-msft": _gpt_like(norms=1, head_bias=True),
    "phi3": _MISTRAL,
    "phi3_v": _MISTRAL,
    "phi3small": Traits(qkv_bias=True, output_bias=True, mlp_bias=True, norm_bias=True),
    "phi4_multimodal": _MISTRAL,
    "phi4mm": _MISTRAL,
    "phimoe": Traits(
        windows=windows.one_window,
        mlp=mlp.mixture,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        norm_bias=True,
        head_bias=True,
    ),
    "qwen": Traits(qkv_bias=True),
    "qwen2": _QWEN2,
    "qwen2_5_omni_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": replace(_QWEN2, mlp=mlp.mixture),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_5_moe_text": Traits(attention=linear_attention.qwen_hybrid, mlp=mlp.mixture),
    "qwen3_5_text": Traits(attention=linear_attention.qwen_hybrid),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_next": Traits(attention=linear_attention.qwen_hybrid, mlp=mlp.mixture),
    "qwen3_omni_moe_text": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": Traits(qkv_bias="attention_bias", output_bias="attention_out_bias"),
    "smollm3": _llama_like(),
    "solar": _llama_like(),
    "solar_open": Traits(mlp=mlp.mixture, qkv_bias="attention_bias", output_bias="attention_bias"),
    "stablelm": Traits(qkv_bias="use_qkv_bias", norm_bias=True),
    "starcoder2": _gpt_like(windows=windows.one_window),
    "step3p5": _STEP,
    "step3p7": _STEP,
    "xverse": Traits(),
    "youtu": Traits(attention=attention.latent_if_ranked),
    "zamba2": Traits(attention=shared.zamba2, mlp=shared.zamba2_mlp, norms=1),
}

_ENCODER = "an encoder keeps no KV cache: it embeds or classifies, and is not sized by a pool"
_ENCODER_DECODER = "an encoder-decoder keeps a second, cross-attention cache"
_RWKV = "RWKV keeps a state per sequence, not a cache per token, and neither engine serves it"

_POOLED_INDEX = "its index pools keys and keeps a ring of raw ones beside them, which is not modelled"

NOT_YET: Mapping[str, str] = {
    "albert": _ENCODER,
    "bart": _ENCODER_DECODER,
    "bert": _ENCODER,
    "clip": _ENCODER,
    "deberta-v2": _ENCODER,
    "distilbert": _ENCODER,
    "electra": _ENCODER,
    "glm5_next_text": _POOLED_INDEX,
    "gte": _ENCODER,
    "m2m_100": _ENCODER_DECODER,
    "marian": _ENCODER_DECODER,
    "mbart": _ENCODER_DECODER,
    "modernbert": _ENCODER,
    "mpnet": _ENCODER,
    "mt5": _ENCODER_DECODER,
    "new": _ENCODER,
    "nomic_bert": _ENCODER,
    "pegasus": _ENCODER_DECODER,
    "qwen4_exp_text": "its indexed attention and n-gram tables are not modelled",
    "roberta": _ENCODER,
    "rwkv": _RWKV,
    "rwkv5": _RWKV,
    "rwkv6": _RWKV,
    "rwkv7": _RWKV,
    "t5": _ENCODER_DECODER,
    "t5gemma": _ENCODER_DECODER,
    "vit": _ENCODER,
    "whisper": _ENCODER_DECODER,
    "xlm-roberta": _ENCODER,
}
"""Model types that are known and refused, with the reason."""


def traits_of(fields: Fields) -> Traits:
    """How the model's family is put together.

    Raises
    ------
    InputError
        If the model type is not supported; with the reason where it is known.
    """
    traits = REGISTRY.get(fields.model_type)
    if traits is not None:
        return traits
    message, reason = f"model type {fields.model_type!r} is not supported", NOT_YET.get(fields.model_type)
    if reason:
        problem = Problem(fields.model_id, f"{message}: {reason}", "Choose another model", field="model_type")
    else:
        problem = Problem(fields.model_id, message, _closest(fields.model_type), field="model_type")
    raise InputError(problem)


def _closest(model_type: str) -> str:
    close = get_close_matches(model_type, REGISTRY, n=4, cutoff=0.5)
    likeness = f", among them {', '.join(close)}" if close else ""
    return f"Choose a model of one of the {len(REGISTRY)} supported types{likeness}"
