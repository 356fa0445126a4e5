"""Vision towers by family: their matrices as vLLM builds them, never quantised.

Attention and MLP are split over the ranks as in the language model; patches, positions and norms are whole
(``vllm/model_executor/models`` and ``vllm/models``, 0.11.0 and 0.33.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from planner.catalog.hf import matrices as build
from planner.catalog.hf.fields import Fields
from planner.catalog.hf.matrices import Matrices
from planner.catalog.matrix import Matrix, Part, Split

Vision = Mapping[str, Any]
Tower = Callable[[Fields, Vision], Matrices]


# Pieces


def _matrix(
    name: str, inputs: int, outputs: int, split: Split = Split.WHOLE, *, bias: bool = True, copies: int = 1
) -> Matrices:
    module = f"visual.{name}"
    return build.linear(module, inputs, outputs, (), Part.VISION, split, bias=bias, quantised=False, copies=copies)


def _vector(name: str, size: int, copies: int = 1) -> Matrix:
    return build.vector(f"visual.{name}", size, part=Part.VISION, copies=copies)


def _blocks(
    depth: int,
    hidden: int,
    width: int,
    *,
    gated: bool = False,
    bias: bool = True,
    norm_bias: bool = True,
    inner: int | None = None,
    norms: int = 2,
    whole: bool = False,
) -> Matrices:
    """Encoder layers: queries, keys and values; output; an MLP; norms. ``inner``: width of all heads together."""
    inner = inner or hidden
    column, row = (Split.WHOLE, Split.WHOLE) if whole else (Split.COLUMN, Split.ROW)
    matrices = _matrix("qkv", hidden, 3 * inner, column, bias=bias, copies=depth)
    matrices += _matrix("proj", inner, hidden, row, bias=bias, copies=depth)
    matrices += _matrix("mlp.up", hidden, (2 if gated else 1) * width, column, bias=bias, copies=depth)
    matrices += _matrix("mlp.down", width, hidden, row, bias=bias, copies=depth)
    return (*matrices, _vector("norms", norms * hidden * (2 if norm_bias else 1), depth))


def _merger(name: str, merged: int, outputs: int, norm: int, copies: int = 1) -> Matrices:
    """A norm and two matrices, from merged patches to the text's hidden size."""
    matrices: Matrices = (_vector(f"{name}.norm", norm, copies),)
    matrices += _matrix(f"{name}.fc1", merged, merged, Split.COLUMN, copies=copies)
    return matrices + _matrix(f"{name}.fc2", merged, outputs, Split.ROW, copies=copies)


# Families


def _qwen2_vl(_: Fields, vision: Vision) -> Matrices:
    """Plain MLP of ``mlp_ratio``, merger of 2 x 2 patches into the text's hidden size (``qwen2_vl.py``)."""
    hidden, merged = vision["embed_dim"], vision["embed_dim"] * vision["spatial_merge_size"] ** 2
    pixels = vision["in_chans"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    matrices = _matrix("patch_embed", pixels, hidden, bias=False)
    matrices += _blocks(vision["depth"], hidden, int(hidden * vision["mlp_ratio"]))
    return matrices + _merger("merger", merged, vision["hidden_size"], 2 * hidden)


def _qwen2_5_vl(_: Fields, vision: Vision) -> Matrices:
    """Gated MLP with biases, RMS norms (``qwen2_5_vl.py``)."""
    hidden, merged = vision["hidden_size"], vision["hidden_size"] * vision["spatial_merge_size"] ** 2
    pixels = vision["in_chans"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    matrices = _matrix("patch_embed", pixels, hidden, bias=False)
    matrices += _blocks(vision["depth"], hidden, vision["intermediate_size"], gated=True, norm_bias=False)
    return matrices + _merger("merger", merged, vision["out_hidden_size"], hidden)


def _qwen3_vl(_: Fields, vision: Vision) -> Matrices:
    """Plain MLP, a position table, and one more merger for each layer that feeds the text model deeper."""
    hidden, merged = vision["hidden_size"], vision["hidden_size"] * vision["spatial_merge_size"] ** 2
    pixels = vision["in_channels"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    matrices = (*_matrix("patch_embed", pixels, hidden), _vector("pos", vision["num_position_embeddings"] * hidden))
    matrices += _blocks(vision["depth"], hidden, vision["intermediate_size"])
    matrices += _merger("merger", merged, vision["out_hidden_size"], 2 * hidden)
    deep = len(vision.get("deepstack_visual_indexes") or ())
    return matrices + (_merger("deepstack", merged, vision["out_hidden_size"], 2 * merged, deep) if deep else ())


def _siglip(fields: Fields, vision: Vision) -> Matrices:
    """SigLIP, whose positions are divided like a vocabulary, with Gemma-3's projector: a norm and one matrix."""
    hidden, side = vision["hidden_size"], vision["image_size"] // vision["patch_size"]
    matrices = _matrix("patch_embed", vision.get("num_channels", 3) * vision["patch_size"] ** 2, hidden)
    matrices += _matrix("pos", hidden, side**2, Split.VOCABULARY, bias=False)
    matrices += _blocks(vision["num_hidden_layers"], hidden, vision["intermediate_size"])
    matrices += (_vector("post_norm", 2 * hidden), _vector("projector.norm", hidden))
    return matrices + _matrix("projector", hidden, fields.hidden, bias=False)


def _clip(fields: Fields, vision: Vision) -> Matrices:
    """CLIP up to the layer that LLaVA reads, with a two-matrix projector."""
    hidden, side = vision["hidden_size"], vision["image_size"] // vision["patch_size"]
    layers = vision["num_hidden_layers"] + 1 + int(fields.outer.get("vision_feature_layer", -2))
    pixels = vision.get("num_channels", 3) * vision["patch_size"] ** 2
    matrices = _clip_encoder(layers, hidden, vision["intermediate_size"], side**2, pixels)
    matrices += _matrix("projector.1", hidden, fields.hidden, Split.COLUMN)
    return matrices + _matrix("projector.2", fields.hidden, fields.hidden, Split.ROW)


def _clip_encoder(layers: int, hidden: int, width: int, patches: int, pixels: int) -> Matrices:
    matrices = _matrix("patch_embed", pixels, hidden, bias=False)
    matrices += (_vector("pos", (patches + 2) * hidden), _vector("pre_norm", 2 * hidden))
    return matrices + _blocks(layers, hidden, width)


def _pixtral(fields: Fields, vision: Vision) -> Matrices:
    """Pixtral: gated MLP, no biases; patches merged before a two-matrix projector."""
    hidden, merge = vision["hidden_size"], int(fields.outer.get("spatial_merge_size", 2))
    matrices = _matrix("patch_embed", vision.get("num_channels", 3) * vision["patch_size"] ** 2, hidden, bias=False)
    matrices += (_vector("pre_norm", hidden), _vector("projector.norm", hidden))
    matrices += _blocks(
        vision["num_hidden_layers"], hidden, vision["intermediate_size"], gated=True, bias=False, norm_bias=False
    )
    matrices += _matrix("merging", merge**2 * hidden, hidden, bias=False)
    matrices += _matrix("projector.1", hidden, fields.hidden, Split.COLUMN, bias=False)
    return matrices + _matrix("projector.2", fields.hidden, fields.hidden, Split.ROW, bias=False)


def _llama4(fields: Fields, vision: Vision) -> Matrices:
    """Llama-4 (``mllama4.py``); values that the config leaves out are those of transformers' class."""
    get = partial(_stated, vision)
    hidden, patch = get("hidden_size", 768), get("patch_size", 14)
    matrices = _matrix("patch_embed", 3 * patch**2, hidden, Split.COLUMN, bias=False)
    matrices += (_vector("pos", ((get("image_size", 448) // patch) ** 2 + 2) * hidden), _vector("ends", 4 * hidden))
    matrices += _blocks(get("num_hidden_layers", 34), hidden, get("intermediate_size", 5632))
    inner, outputs = get("projector_input_dim", 4096), get("projector_output_dim", 4096)
    matrices += _matrix("adapter.fc1", get("intermediate_size", 5632), inner, Split.COLUMN, bias=False)
    matrices += _matrix("adapter.fc2", inner, outputs, Split.ROW, bias=False)
    return matrices + _matrix("projector", get("vision_output_dim", 7680), fields.hidden, Split.COLUMN, bias=False)


def _gemma4(fields: Fields, vision: Vision) -> Matrices:
    """Gemma-4: transformers' own tower, whole on every rank, and a projector of one matrix (``gemma4_mm.py``)."""
    hidden, patch = vision["hidden_size"], vision["patch_size"]
    inner = vision["num_attention_heads"] * vision["head_dim"]
    depth = vision["num_hidden_layers"]
    matrices = _matrix("patch_embed", 3 * patch**2, hidden, bias=False)
    matrices += (_vector("pos", 2 * vision["position_embedding_size"] * hidden),)
    matrices += _blocks(
        depth,
        hidden,
        vision["intermediate_size"],
        gated=True,
        bias=False,
        norm_bias=False,
        inner=inner,
        norms=4,
        whole=True,
    )
    matrices += (_vector("qk_norm", 2 * vision["head_dim"], depth),)
    return matrices + _matrix("projector", hidden, fields.hidden, bias=False)


def _moonvit(_: Fields, vision: Vision) -> Matrices:
    """MoonViT of Kimi (``kimi_k25_vit.py``): a position table over the grid, and a projector whole on every rank."""
    hidden, text = vision["vt_hidden_size"], vision["text_hidden_size"]
    rms, bias = vision.get("norm_type") == "rmsnorm", vision.get("linear_bias", True)
    height, width = vision["merge_kernel_size"]
    merged = hidden * height * width
    grid = vision["init_pos_emb_height"] * vision["init_pos_emb_width"]
    patch_bias = vision.get("patch_embed_proj_bias", True)
    matrices = _matrix("patch_embed", 3 * vision["patch_size"] ** 2, hidden, bias=patch_bias)
    matrices += (_vector("pos", grid * hidden), _vector("final_norm", hidden * (1 if rms else 2)))
    matrices += _blocks(
        vision["vt_num_hidden_layers"],
        hidden,
        vision["vt_intermediate_size"],
        bias=bias,
        norm_bias=not rms,
        inner=vision.get("qkv_hidden_size"),
    )
    second = vision.get("mm_projector_type") == "patchmergerv2"
    matrices += _matrix("projector.1", merged, merged, bias=not second)
    matrices += _matrix("projector.2", merged, text, bias=not second)
    return (*matrices, _vector("projector.norm", text if second else 2 * hidden))


def _mllama(fields: Fields, vision: Vision) -> Matrices:
    """Llama-3.2-Vision (transformers' ``MllamaVisionModel``): local and gated global layers, positions by tile."""
    hidden, width, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    tiles, ratios = vision["max_num_tiles"], len(vision["supported_aspect_ratios"]) + 1
    patches = (vision["image_size"] // patch) ** 2 + 1
    local, gated = vision["num_hidden_layers"], vision["num_global_layers"]
    matrices = _matrix("patch_embed", vision.get("num_channels", 3) * patch**2, hidden, bias=False)
    matrices += (_vector("pos", hidden + 1 + patches * hidden * (1 + ratios * tiles)), _vector("ends", 4 * hidden))
    matrices += (_vector("tile_pos", 2 * (ratios * tiles * hidden + 1)), _vector("gates", 2 * gated))
    for depth in (local, gated):
        matrices += _matrix("qkv", hidden, 3 * hidden, Split.COLUMN, bias=False, copies=depth)
        matrices += _matrix("proj", hidden, hidden, Split.ROW, bias=False, copies=depth)
        matrices += _matrix("mlp.up", hidden, width, Split.COLUMN, copies=depth)
        matrices += _matrix("mlp.down", width, hidden, Split.ROW, copies=depth)
        matrices += (_vector("norms", 4 * hidden, depth),)
    return matrices + _matrix("projector", vision["vision_output_dim"], fields.hidden, Split.COLUMN)


def _stated(vision: Vision, key: str, default: int) -> int:
    value = vision.get(key)
    return default if value is None else int(value)


def _phi3_v(fields: Fields, _: Vision) -> Matrices:
    """Phi-3-vision (``phi3v.py``): CLIP ViT-L/14-336 up to the last layer but one, four patches to one, separators."""
    merged = 4 * CLIP_HIDDEN
    matrices = _clip_encoder(CLIP_LAYERS - 1, CLIP_HIDDEN, 4 * CLIP_HIDDEN, (336 // 14) ** 2, 3 * 14**2)
    matrices += (_vector("separators", 2 * merged),)
    matrices += _matrix("projector.1", merged, fields.hidden)
    return matrices + _matrix("projector.2", fields.hidden, fields.hidden)


CLIP_LAYERS, CLIP_HIDDEN = 24, 1024


def _deepseek_vl_v2(fields: Fields, vision: Vision) -> Matrices:
    """DeepSeek-VL2 (``deepseek_vl2.py``): SigLIP of the timm library, whole on every rank, and a projector of two."""
    hidden, depth, patch = vision["width"], vision["layers"], vision.get("patch_size", 16)
    matrices = _matrix("patch_embed", 3 * patch**2, hidden)
    matrices += (_vector("pos", (vision.get("image_size", 384) // patch) ** 2 * hidden), _vector("norm", 2 * hidden))
    matrices += _blocks(depth, hidden, int(hidden * vision.get("mlp_ratio", 4)), whole=True)
    projector = fields.outer.get("projector_config") or {}
    outputs, ratio = projector.get("n_embed", 2048), projector.get("downsample_ratio", 2)
    matrices += _matrix("projector.1", hidden * ratio**2, outputs)
    return (*matrices, *_matrix("projector.2", outputs, outputs), _vector("separators", 2 * outputs))


def _minimax_m3(fields: Fields, vision: Vision) -> Matrices:
    """MiniMax-M3 (``minimax_m3/common/vision_tower.py``): a projector, then patches merged by a second one."""
    hidden, compression = vision["hidden_size"], vision["img_token_compression_config"]
    merge, frames = compression.get("spatial_merge_size", 2), compression.get("temporal_patch_size", 2)
    pixels = vision.get("num_channels", 3) * frames * vision["patch_size"] ** 2
    middle, text = vision.get("projection_dim") or fields.hidden, fields.hidden
    matrices = (*_matrix("patch_embed", pixels, hidden, bias=False), _vector("pre_norm", 2 * hidden))
    matrices += _blocks(vision["num_hidden_layers"], hidden, vision["intermediate_size"])
    for name, inputs in (("projector", hidden), ("merger", text * merge**2)):
        matrices += _matrix(f"{name}.1", inputs, middle, Split.COLUMN)
        matrices += _matrix(f"{name}.2", middle, text, Split.ROW)
    return matrices


WITH_DEFAULTS = frozenset({"llama4", "phi3_v"})
"""Model types whose tower is built from defaults where the config has no ``vision_config``."""
TOWERS: Mapping[str, Tower] = {
    "deepseek_vl_v2": _deepseek_vl_v2,
    "gemma3": _siglip,
    "gemma4": _gemma4,
    "kimi_k25": _moonvit,
    "kimi_k3": _moonvit,
    "llama4": _llama4,
    "llava": _clip,
    "mllama": _mllama,
    "minimax_m3_vl": _minimax_m3,
    "ministral3": _pixtral,
    "mistral3": _pixtral,
    "phi3_v": _phi3_v,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
}
