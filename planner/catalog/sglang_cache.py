"""Whether SGLang takes an fp8 KV cache from a checkpoint that is served with ``--kv-cache-dtype auto``.

vLLM reads the same files by other rules (`planner.catalog.hf.quantisation`). Source: model_loader/weight_utils.py
(``get_quant_config``), layers/quantization/modelopt_quant.py, compressed_tensors.py, mem_cache/kv_cache_dtype.py
(SGLang 0.5.16 and 0.5.23).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.catalog.hf.fields import Fields

MIXED = "MIXED_PRECISION"
EIGHT_BIT = 8
EIGHT_BIT_NAMES = ("FP8", "FLOAT8")


def declares_fp8_cache(fields: Fields, companion: Mapping[str, Any] | None) -> bool:
    """From the config where it has a quantisation, else from ``hf_quant_config.json``.

    A mixed checkpoint whose config names no layers, or no cache format, is read from the companion all the same.
    """
    config, text = fields.outer, fields.text
    stated = config.get("quantization_config") or text.get("quantization_config") or config.get("compression_config")
    if not isinstance(stated, Mapping):
        return companion is not None and _in_companion(companion)
    method = str(stated.get("quant_method") or "").lower().replace("_", "-")
    if method == "compressed-tensors":
        return _in_scheme(stated.get("kv_cache_scheme"))
    if not method.startswith("modelopt"):
        return False
    open_cache = "kv_cache_quant_algo" not in stated and "kv_cache_scheme" not in stated
    if companion and _algorithm(stated) == MIXED and ("quantized_layers" not in stated or open_cache):
        return _in_companion(companion)
    return _in_modelopt(stated)


def _algorithm(stated: Mapping[str, Any]) -> str:
    return str(stated.get("quant_algo") or "").upper()


def _in_modelopt(stated: Mapping[str, Any]) -> bool:
    """``kv_cache_scheme`` goes first; as a text it counts for 4-bit weights only."""
    scheme = stated.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return scheme.get("type") == "float" and scheme.get("num_bits") == EIGHT_BIT
    if isinstance(scheme, str) and "FP4" in _algorithm(stated):
        return scheme.strip().upper() in EIGHT_BIT_NAMES
    return stated.get("kv_cache_quant_algo") == "FP8"


def _in_companion(companion: Mapping[str, Any]) -> bool:
    """4-bit weights need a group size, without which the file is not understood and the cache stays at 16 bits."""
    inner = companion.get("quantization")
    stated = inner if isinstance(inner, Mapping) else companion
    four_bit = "FP4" in _algorithm(stated)
    if four_bit and not isinstance(stated.get("group_size", companion.get("group_size")), int):
        return False
    return stated.get("kv_cache_quant_algo") == "FP8"


def _in_scheme(scheme: object) -> bool:
    """``is_supported_scheme``: static, symmetric, per tensor."""
    if not isinstance(scheme, Mapping):
        return False
    eight_bit = scheme.get("type") == "float" and scheme.get("num_bits") == EIGHT_BIT
    whole = scheme.get("strategy") == "tensor" and bool(scheme.get("symmetric", True))
    return eight_bit and whole and not scheme.get("dynamic", False)
