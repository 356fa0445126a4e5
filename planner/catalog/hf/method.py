"""The quantisation method of a checkpoint, by the name under which the engines register it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.catalog.hf.fields import Fields

MODELOPT_METHODS = {"FP8": "modelopt", "NVFP4": "modelopt_fp4", "MXFP8": "modelopt_mxfp8"}
"""ModelOpt's ``quant_algo`` and the method that serves it; what mixes several is ``modelopt_mixed``."""
RENAMED = {"auto-round": "inc", "auto_round": "inc", "compressed_tensors": "compressed-tensors"}
"""Other spellings that the engines accept."""


def quant_method(fields: Fields, companion: Mapping[str, Any] | None) -> str:
    """``quant_method`` as the engine resolves it; empty for a checkpoint at 16 bits.

    ModelOpt states an algorithm, in ``quantization_config`` or in its companion file, and each has a method of its own
    (vllm/model_executor/layers/quantization/modelopt.py).
    """
    config, text = fields.outer, fields.text
    stated = config.get("quantization_config") or text.get("quantization_config") or config.get("compression_config")
    if isinstance(stated, Mapping):
        method = str(stated.get("quant_method") or "").lower()
        return _modelopt(stated) if method.startswith("modelopt") else RENAMED.get(method, method)
    if isinstance(companion, Mapping):
        inner = companion.get("quantization", companion)
        return _modelopt(inner) if isinstance(inner, Mapping) else ""
    return ""


def _modelopt(stated: Mapping[str, Any]) -> str:
    algorithm = str(stated.get("quant_algo") or "").upper()
    if not algorithm:
        return ""
    return MODELOPT_METHODS.get(algorithm, "modelopt_mixed" if "MIXED" in algorithm else "modelopt")
