"""Checkpoints for tests: files of weights with real headers, and tensors that are holes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from planner.catalog.model_shape import ModelShape
from planner.catalog.safetensors import BITS

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""A small model, whose figures can be computed by hand."""
LLAMA_PARAMETERS = 2 * 1000 * 256 + 2 * (256 * 256 * 2 + 2 * 64 * 256 + 3 * 256 * 512 + 2 * 256) + 256
"""Embedding and head; of a layer q and o, k and v, gate, up and down, two norms; the last norm."""


def header_of(tensors: dict[str, tuple[str, list[int]]], extra: dict[str, Any] | None = None) -> tuple[bytes, int]:
    """The header of tensors that lie one after the other, and the bytes of their data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return json.dumps({**header, **(extra or {})}).encode(), at


def write_weights(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> int:
    """A file of weights whose data are a hole; returns the bytes of the tensors."""
    header, size = header_of(tensors)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    return size


def tensors_of(shape: ModelShape, dtype: str = "BF16") -> dict[str, tuple[str, list[int]]]:
    """The tensors of a 16-bit model as its inventory lists them."""
    return {
        f"{matrix.module}.{layer}.{copy}": (dtype, [matrix.out_features, matrix.in_features])
        for matrix in shape.matrices
        for layer in matrix.layers or (0,)
        for copy in range(matrix.copies)
    }


def write_checkpoint(folder: Path, config: dict[str, Any], **companions: Any) -> Path:
    """A folder with a config, and companions by file stem."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name, content in companions.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder
