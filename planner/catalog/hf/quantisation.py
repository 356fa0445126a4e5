"""How a checkpoint stores its weights, from ``quantization_config`` or ModelOpt's companion file.

Each method becomes rules by module name (`planner.catalog.quant.rules`): what is left alone first, then what is
quantised. Sources: the methods under ``vllm/model_executor/layers/quantization`` (vLLM 0.33.0, with 0.11.0 and 0.19.0
compared), named where they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.catalog.hf.fields import Fields
from planner.catalog.quant.compressed import from_compressed_tensors
from planner.catalog.quant.floats import from_deepseek_v4, from_fbgemm, from_fp8, from_mxfp4, from_mxfp8
from planner.catalog.quant.integers import (
    from_auto_round,
    from_awq,
    from_bitsandbytes,
    from_experts_int8,
    from_gptq,
)
from planner.catalog.quant.modelopt import from_modelopt
from planner.catalog.quant.quark import from_quark
from planner.catalog.quant.values import Stated, StoredWeights, unsupported

__all__ = ["StoredWeights", "stored_weights"]


def stored_weights(fields: Fields, companion: Mapping[str, Any] | None) -> StoredWeights:
    """Read the storage format; a format that is not modelled is named, never guessed.

    A companion is read only where the config is silent (``get_config``), and by vLLM only where it names ModelOpt as
    its producer (``_normalize_quantization_config``).
    """
    config, text = fields.outer, fields.text
    stated = config.get("quantization_config") or text.get("quantization_config") or config.get("compression_config")
    if isinstance(stated, Mapping):
        return _from_config(fields, stated)
    if companion:
        return _from_companion(fields, companion)
    if config.get("use_fp8_e4m3"):
        return StoredWeights(notes=("use_fp8_e4m3 alone is not read by the engines: weights are loaded at 16 bits",))
    return StoredWeights()


def _from_companion(fields: Fields, companion: Mapping[str, Any]) -> StoredWeights:
    inner = companion.get("quantization")
    read = from_modelopt(fields, inner if isinstance(inner, Mapping) else companion)
    producer = companion.get("producer")
    if isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        return read
    if str(companion.get("quant_method", "")).startswith("modelopt"):
        return read
    note = "hf_quant_config.json does not name modelopt as its producer: vLLM passes it over, SGLang reads it"
    return replace(read, without_producer=True, notes=(*read.notes, note))


def _from_config(fields: Fields, stated: Stated) -> StoredWeights:
    method = str(stated.get("quant_method") or "").lower().replace("_", "-")
    if not method:
        return StoredWeights(notes=("quantization_config names no quant_method: weights are loaded at 16 bits",))
    if fields.model_type == "deepseek_v4" and method == "fp8":
        return from_deepseek_v4(fields, stated)
    if method.startswith("modelopt") or (stated.get("moe_quant_algo") and method != "fp8"):
        inner = stated.get("quantization")
        return from_modelopt(fields, inner if isinstance(inner, Mapping) else stated)
    reader = METHODS.get(method)
    return reader(fields, stated) if reader else unsupported(method)


METHODS: Mapping[str, Callable[[Fields, Stated], StoredWeights]] = {
    "auto-round": from_auto_round,
    "awq": from_awq,
    "awq-marlin": from_awq,
    "bitsandbytes": from_bitsandbytes,
    "compressed-tensors": from_compressed_tensors,
    "experts-int8": from_experts_int8,
    "fbgemm-fp8": from_fbgemm,
    "fp8": from_fp8,
    "gptq": from_gptq,
    "gptq-marlin": from_gptq,
    "inc": from_auto_round,
    "mxfp4": from_mxfp4,
    "mxfp8": from_mxfp8,
    "quark": from_quark,
}
"""Readers by ``quant_method``, with underscores written as hyphens; ModelOpt's methods all have one."""
