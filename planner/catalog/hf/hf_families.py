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

from planner.catalog.hf import hf_attention, hf_blocks, hf_hybrid, hf_mlp, hf_routed, hf_shared, hf_sparse, hf_windows
from planner.catalog.hf.hf_attention import Attention
from planner.catalog.hf.hf_fields import Fields
from planner.catalog.hf.hf_mlp import FeedForward
from planner.catalog.hf.hf_windows import Windows
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
_MAMBA = Traits(attention=hf_hybrid.mamba_only, mlp=hf_hybrid.no_mlp, norms=1)
_LIGHTNING = Traits(attention=hf_hybrid.minimax_lightning, mlp=hf_hybrid.minimax_mlp)
_COMPRESSED = Traits(attention=hf_sparse.deepseek_v4, mlp=hf_sparse.deepseek_v4_mlp)
_INDEXED = Traits(attention=hf_sparse.minimax_m3, mlp=hf_sparse.minimax_m3_mlp)
_STEP = Traits(windows=hf_windows.typed_layers(4), attention=hf_blocks.step3p5, mlp=hf_blocks.step3p5_mlp)
_LING = Traits(attention=hf_routed.bailing, mlp=hf_routed.bailing_mlp)

REGISTRY: Mapping[str, Traits] = {
    "PanguEmbedded": Traits(qkv_bias="bias", output_bias="bias"),
    "afmoe": Traits(
        windows=hf_windows.typed_layers(4), attention=hf_routed.afmoe, mlp=hf_routed.shared_of_equal_width, norms=4
    ),
    "apertus": Traits(mlp=hf_mlp.plain, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"),
    "aquila": Traits(),
    "arcee": Traits(mlp=hf_mlp.plain, qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias"),
    "axk1": _LATENT,
    "baichuan": Traits(),
    "bailing_hybrid": Traits(attention=hf_routed.bailing_hybrid, mlp=hf_routed.bailing_mlp),
    "bailing_moe": _LING,
    "bailing_moe_linear": Traits(attention=hf_routed.bailing_hybrid, mlp=hf_routed.bailing_mlp),
    "bailing_moe_v2": _LING,
    "bamba": Traits(attention=hf_hybrid.bamba, mlp_bias="mlp_bias"),
    "bloom": _gpt_like(embedding_norm=True),
    "chatglm": Traits(qkv_bias="add_qkv_bias"),
    "cohere": Traits(norms=1, qk_norm="split", qk_norm_if="use_qk_norm"),
    "cohere2": Traits(norms=1, windows=hf_windows.typed_layers(4)),
    "cwm": _llama_like(windows=hf_windows.typed_layers(4)),
    "dbrx": Traits(attention=hf_routed.dbrx, mlp=hf_routed.dbrx_mlp),
    "deepseek": Traits(mlp=hf_mlp.mixture),
    "deepseek_ref": _COMPRESSED,
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _SPARSE_LATENT,
    "deepseek_v4": _COMPRESSED,
    "dots1": Traits(mlp=hf_mlp.mixture, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"),
    "ernie4_5": Traits(qkv_bias="use_bias", output_bias="use_bias", mlp_bias="use_bias"),
    "ernie4_5_moe": Traits(qkv_bias="use_bias", output_bias="use_bias", mlp=hf_mlp.mixture, router_32bit=True),
    "exaone": Traits(),
    "exaone4": Traits(windows=hf_windows.typed_layers(4), qk_norm="head"),
    "exaone4_5_text": Traits(windows=hf_windows.typed_layers(4), qk_norm="head"),
    "exaone_moe": Traits(windows=hf_windows.typed_layers(4), mlp=hf_routed.shared_of_equal_width, qk_norm="head"),
    "falcon": _gpt_like(qkv_bias="bias", output_bias="bias", mlp_bias="bias"),
    "falcon_h1": Traits(attention=hf_hybrid.falcon_h1),
    "falcon_mamba": _MAMBA,
    "flex_olmo": Traits(mlp=hf_mlp.mixture, qk_norm="full"),
    "gemma": Traits(),
    "gemma2": Traits(windows=hf_windows.typed_layers(2), norms=4),
    "gemma3_text": Traits(windows=hf_windows.typed_layers(6), norms=4, qk_norm="head"),
    "gemma3n_text": Traits(
        windows=hf_windows.typed_layers(5), attention=hf_shared.gemma3n, mlp=hf_shared.gemma3n_mlp, norms=4
    ),
    "gemma4_text": Traits(
        windows=hf_windows.typed_layers(6), attention=hf_shared.gemma4, mlp=hf_shared.gemma4_mlp, norms=4
    ),
    "gemma4_unified_text": Traits(
        windows=hf_windows.typed_layers(6), attention=hf_shared.gemma4, mlp=hf_shared.gemma4_mlp, norms=4
    ),
    "glm": Traits(qkv_bias="attention_bias"),
    "glm4": Traits(qkv_bias="attention_bias", norms=4),
    "glm4_moe": Traits(
        mlp=hf_mlp.mixture, router_32bit=True, qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"
    ),
    "glm4_moe_lite": replace(_LATENT, router_32bit=True),
    "glm4v_moe_text": Traits(
        mlp=hf_mlp.mixture, router_32bit=True, qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"
    ),
    "glm4v_text": Traits(qkv_bias="attention_bias", norms=4),
    "glm_moe_dsa": _SPARSE_LATENT,
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
    "granite_swa": _llama_like(windows=hf_windows.typed_layers(4)),
    "granitemoe": Traits(mlp=hf_mlp.mixture),
    "granitemoe_swa": Traits(
        windows=hf_windows.typed_layers(4),
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        mlp=hf_hybrid.granite_mlp,
    ),
    "granitemoehybrid": Traits(attention=hf_hybrid.granite_hybrid, mlp=hf_hybrid.granite_mlp),
    "granitemoeshared": Traits(qkv_bias="attention_bias", output_bias="attention_bias", mlp=hf_hybrid.granite_mlp),
    "hunyuan": Traits(
        mlp=hf_routed.hunyuan_mlp,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
        qk_norm_if="use_qk_norm",
    ),
    "hunyuan_v1_dense": Traits(
        qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm"
    ),
    "hunyuan_v1_moe": Traits(
        mlp=hf_routed.hunyuan_mlp,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
        qk_norm_if="use_qk_norm",
    ),
    "hy_v3": Traits(mlp=hf_routed.hy_v3_mlp, qkv_bias="attention_bias", output_bias="attention_bias", qk_norm="head"),
    "hyperclovax": _llama_like(),
    "internlm": Traits(qkv_bias="bias", output_bias="bias"),
    "internlm2": Traits(),
    "internlm3": Traits(qkv_bias="qkv_bias", output_bias="bias", mlp_bias="bias"),
    "jais2": Traits(
        mlp=hf_mlp.plain, qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias", norm_bias=True
    ),
    "jamba": Traits(attention=hf_hybrid.jamba, mlp=hf_hybrid.jamba_mlp),
    "kimi_k2": _LATENT,
    "kimi_linear": Traits(attention=hf_hybrid.kimi, mlp=hf_hybrid.kimi_mlp),
    "lfm2": Traits(attention=hf_hybrid.lfm2, mlp=hf_hybrid.lfm2_mlp),
    "lfm2_moe": Traits(attention=hf_hybrid.lfm2, mlp=hf_hybrid.lfm2_moe_mlp),
    "llama": _llama_like(),
    "llama4_text": Traits(windows=hf_windows.chunks, attention=hf_attention.chunked_query, mlp=hf_mlp.mixture),
    "longcat_flash": Traits(attention=hf_blocks.longcat_flash, mlp=hf_blocks.longcat_mlp, norms=4),
    "mamba": _MAMBA,
    "mamba2": Traits(attention=hf_hybrid.mamba2_only, mlp=hf_hybrid.no_mlp, norms=1),
    "mellum": Traits(
        windows=hf_windows.typed_layers(4),
        mlp=hf_mlp.mixture,
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
    ),
    "mimo": Traits(qkv_bias=True, windows=hf_windows.qwen_window),
    "mimo_v2": Traits(attention=hf_attention.mimo_v2, mlp=hf_mlp.mixture),
    "mimo_v2_flash": Traits(attention=hf_attention.mimo_v2, mlp=hf_mlp.mixture, router_32bit=True),
    "minicpm": Traits(),
    "minicpm3": Traits(attention=hf_attention.expanded_latent),
    "minicpmv": Traits(attention=hf_routed.minicpmv),
    "minimax": _LIGHTNING,
    "minimax_m1": _LIGHTNING,
    "minimax_m2": Traits(mlp=hf_mlp.mixture, router_32bit=True, qk_norm="split", qk_norm_if="use_qk_norm"),
    "minimax_m3": _INDEXED,
    "minimax_m3_vl": _INDEXED,
    "minimax_text_01": _LIGHTNING,
    "ministral": Traits(windows=hf_windows.typed_layers(4)),
    "ministral3": _MISTRAL,
    "mistral": _MISTRAL,
    "mistral4": _LATENT,
    "mixtral": replace(_MISTRAL, mlp=hf_mlp.mixture),
    "mllama_text_model": Traits(attention=hf_blocks.mllama),
    "nemotron": Traits(
        mlp=hf_mlp.plain, qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias", norm_bias=True
    ),
    "nemotron-nas": Traits(
        attention=hf_blocks.nemotron_nas, mlp=hf_blocks.nemotron_nas_mlp, mlp_bias="mlp_bias", norms=0
    ),
    "nemotron_h": Traits(attention=hf_hybrid.nemotron_h, mlp=hf_hybrid.nemotron_mlp, mlp_bias="mlp_bias", norms=1),
    "olmo": Traits(norms=0, final_norm=False),
    "olmo2": Traits(qk_norm="full"),
    "olmo3": Traits(windows=hf_windows.typed_layers(4), qk_norm="full"),
    "olmo_hybrid": Traits(attention=hf_routed.olmo_hybrid),
    "olmoe": Traits(mlp=hf_mlp.mixture, qk_norm="full"),
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
        windows=hf_windows.one_window,
        mlp=hf_mlp.mixture,
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
    "qwen2_moe": replace(_QWEN2, mlp=hf_mlp.mixture),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_5_moe_text": Traits(attention=hf_hybrid.qwen_hybrid, mlp=hf_mlp.mixture),
    "qwen3_5_text": Traits(attention=hf_hybrid.qwen_hybrid),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_next": Traits(attention=hf_hybrid.qwen_hybrid, mlp=hf_mlp.mixture),
    "qwen3_omni_moe_text": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": Traits(qkv_bias="attention_bias", output_bias="attention_out_bias"),
    "smollm3": _llama_like(),
    "solar": _llama_like(),
    "solar_open": Traits(mlp=hf_mlp.mixture, qkv_bias="attention_bias", output_bias="attention_bias"),
    "stablelm": Traits(qkv_bias="use_qkv_bias", norm_bias=True),
    "starcoder2": _gpt_like(windows=hf_windows.one_window),
    "step3p5": _STEP,
    "step3p7": _STEP,
    "xverse": Traits(),
    "youtu": Traits(attention=hf_attention.latent_if_ranked),
    "zamba2": Traits(attention=hf_shared.zamba2, mlp=hf_shared.zamba2_mlp, norms=1),
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
