"""How a checkpoint stores its weights, from ``quantization_config`` or ModelOpt's companion file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.catalog.hf_fields import Fields, is_whole, shown


@dataclass(frozen=True)
class StoredWeights:
    """Storage of the quantised matrices.

    ``dtype`` is a deployable format (``bf16``, ``fp8``, ``int4-awq``, ``int4-gptq``, ``mxfp4``) or
    ``unsupported: <method>`` for one whose bytes are not modelled.
    """

    dtype: str = "bf16"
    block: tuple[int, int] | None = None
    group_size: int | None = None
    kv_fp8: bool = False
    """The checkpoint declares an fp8 KV cache."""
    attention_kept: bool = False
    """Attention projections stay at 16 bits."""
    activation_order: bool = False
    """GPTQ quantised in order of activation (``desc_act``)."""
    notes: tuple[str, ...] = ()


MOST_GROUP = 2**16
"""Largest block side or group that a quantised checkpoint may state."""


def stored_weights(fields: Fields, companion: Mapping[str, Any] | None) -> StoredWeights:
    """Read the storage format; a format that is not modelled is named, never guessed."""
    config, text = fields.outer, fields.text
    stated = config.get("quantization_config") or text.get("quantization_config") or config.get("compression_config")
    if isinstance(stated, Mapping):
        return _from_config(fields, stated)
    if companion:
        inner = companion.get("quantization", companion)
        return _from_modelopt(inner if isinstance(inner, Mapping) else {})
    if config.get("use_fp8_e4m3"):
        return StoredWeights(notes=("use_fp8_e4m3 alone is not read by the engines: weights are loaded at 16 bits",))
    return StoredWeights()


def _from_config(fields: Fields, stated: Mapping[str, Any]) -> StoredWeights:
    method = str(stated.get("quant_method") or "").lower()
    if not method:
        return StoredWeights(notes=("quantization_config names no quant_method: weights are loaded at 16 bits",))
    if method in ("modelopt", "modelopt_fp4") or stated.get("moe_quant_algo"):
        return _from_modelopt(stated)
    if method == "fp8":
        return StoredWeights("fp8", block=_block(fields, stated.get("weight_block_size")))
    if method in ("awq", "gptq"):
        return _from_int4(fields, method, stated)
    if method == "mxfp4":
        return StoredWeights("mxfp4", group_size=32)
    return _from_compressed_tensors(fields, stated) if method == "compressed-tensors" else _unsupported(method)


def _block(fields: Fields, sides: Any) -> tuple[int, int] | None:
    if sides is None:
        return None
    if isinstance(sides, list | tuple) and len(sides) == 2:
        rows, columns = sides
        if is_whole(rows) and is_whole(columns) and 1 <= rows <= MOST_GROUP and 1 <= columns <= MOST_GROUP:
            return int(rows), int(columns)
    field = "quantization_config.weight_block_size"
    fields.note(field, f"is no pair of whole numbers from 1 to {MOST_GROUP:,} (got {shown(sides)})")
    return None


def _from_int4(fields: Fields, method: str, stated: Mapping[str, Any]) -> StoredWeights:
    bits = stated.get("bits", stated.get("w_bit", 4))
    group = stated.get("group_size", stated.get("q_group_size", 128))
    if bits != 4 or not isinstance(group, int) or not 0 < group <= MOST_GROUP:
        return _unsupported(f"{method} with {shown(bits)} bits and group {shown(group)}")
    ordered = stated.get("desc_act")
    if ordered is not None and not isinstance(ordered, bool):
        fields.note("quantization_config.desc_act", f"is neither true nor false (got {shown(ordered)})")
    return StoredWeights(f"int4-{method}", group_size=group, activation_order=ordered is True)


def _from_compressed_tensors(fields: Fields, stated: Mapping[str, Any]) -> StoredWeights:
    groups = stated.get("config_groups")
    tables = list(groups.values()) if isinstance(groups, Mapping) else []
    weights = [(table.get("weights") if isinstance(table, Mapping) else table) or {} for table in tables]
    if not all(isinstance(weight, Mapping) for weight in weights):
        fields.note("quantization_config.config_groups", "holds something else than objects with weights")
        return StoredWeights()
    if len(weights) == 1 and weights[0].get("type") == "float" and weights[0].get("num_bits") == 8:
        scheme, ignored = stated.get("kv_cache_scheme"), stated.get("ignore") or ()
        if not isinstance(ignored, list | tuple):
            fields.note("quantization_config.ignore", f"is no list (got {shown(ignored)})")
            ignored = ()
        kept = _keeps_attention(ignored)
        return StoredWeights(
            "fp8",
            kv_fp8=isinstance(scheme, Mapping) and scheme.get("num_bits") == 8,
            attention_kept=kept,
            notes=("the checkpoint keeps attention at 16 bits",) if kept else (),
        )
    return _unsupported(f"compressed-tensors {stated.get('format') or ''}".strip())


def _keeps_attention(ignored: Sequence[str]) -> bool:
    """Whether the list of modules left alone names the text model's attention projections."""
    text = [str(name) for name in ignored if "vision" not in str(name)]
    return any("self_attn" in name and name.rstrip("*.").endswith(("_proj", "self_attn")) for name in text)


def _from_modelopt(stated: Mapping[str, Any]) -> StoredWeights:
    algorithm = str(stated.get("quant_algo") or "").upper()
    scheme = stated.get("kv_cache_scheme")  # as text ("FP8") it is not read by the engine
    kv_fp8 = stated.get("kv_cache_quant_algo") == "FP8" or (isinstance(scheme, Mapping) and scheme.get("num_bits") == 8)
    if algorithm == "FP8":
        return StoredWeights("fp8", kv_fp8=kv_fp8)
    return _unsupported(f"modelopt {algorithm}".strip(), kv_fp8=kv_fp8)


def _unsupported(method: str, *, kv_fp8: bool = False) -> StoredWeights:
    return StoredWeights(
        f"unsupported: {method}",
        kv_fp8=kv_fp8,
        notes=(f"weights are stored as {method}, whose bytes are not modelled: give the weights in GiB",),
    )
