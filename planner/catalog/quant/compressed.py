"""Checkpoints of compressed-tensors: groups of targets, each with a format (``compressed_tensors.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.catalog.hf.fields import Fields, is_whole
from planner.catalog.matrix import Stored
from planner.catalog.quant import stored_formats as formats
from planner.catalog.quant.rules import Names, Rule, Rules, names_below_root
from planner.catalog.quant.values import (
    Block,
    Stated,
    StoredWeights,
    block_of,
    expressions_of,
    names_under,
    table_under,
    unsupported,
)


def from_compressed_tensors(fields: Fields, stated: Stated) -> StoredWeights:
    """``compressed_tensors.py``: groups of targets, each with the layout of its weights; ``ignore`` comes first."""
    field = "quantization_config.config_groups"
    tables = list(table_under(fields, stated, "config_groups").values())
    if not all(isinstance(table, Mapping) and isinstance(table.get("weights") or {}, Mapping) for table in tables):
        fields.note(field, "holds something else than objects with weights")
        return StoredWeights()
    tables = [table for table in tables if not _targets_attention(table)]
    rules: tuple[Rule, ...] = (Rule(_compressed_names(fields, "ignore", names_under(fields, stated, "ignore")), None),)
    named: tuple[Rule, ...] = ()
    general: tuple[Rule, ...] = ()
    dtypes = []
    for table in tables:
        weights = table.get("weights")
        if not weights:
            continue
        block = block_of(fields, weights.get("block_structure"))
        for experts in (True, False):
            found = _compressed_format(weights, block, table, str(stated.get("format") or ""), experts=experts)
            if found is None:
                return unsupported(f"compressed-tensors {stated.get('format') or ''}".strip())
            dtype, stored = found
            targets = [str(target) for target in table.get("targets") or ("Linear",)]
            classes = [target for target in targets if target in ("Linear", "RoutedExperts", "FusedMoE")]
            modules = [target for target in targets if target not in classes]
            if modules:
                named += (Rule(_compressed_names(fields, "config_groups", modules), stored, experts),)
            if classes:
                general += (Rule(None, stored, experts),)
        dtypes.append(dtype)
    scheme = stated.get("kv_cache_scheme")
    return StoredWeights(
        dtypes[0] if len(set(dtypes)) == 1 else "mixed" if dtypes else "bf16",
        Rules(rules + named + general),
        kv_fp8=isinstance(scheme, Mapping) and scheme.get("num_bits") == 8,
    )


def _targets_attention(table: Mapping[str, Any]) -> bool:
    """A group that only quantises the cache (``LlamaAttention`` and the like)."""
    targets: list[Any] = list(table.get("targets") or ())
    return len(targets) == 1 and str(targets[0]).endswith("Attention")


def _compressed_format(
    weights: Mapping[str, Any], block: Block | None, table: Mapping[str, Any], outer: str, *, experts: bool
) -> tuple[str, Stored] | None:
    """Format of one group: ``_get_scheme_from_parts`` and the scheme's ``create_weights``."""
    bits, kind, stated = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    group = int(stated) if is_whole(stated) and stated and stated > 0 else 0
    if kind == "float" and bits == 8:
        static = (table.get("input_activations") or {}).get("dynamic") is False
        return _compressed_fp8(weights.get("strategy"), block, group, static=static)
    if kind == "float" and bits == 4:
        return ("mxfp4", formats.mxfp4()) if group == formats.MXFP_GROUP else ("nvfp4", formats.nvfp4(group or 16))
    if kind == "int" and bits == 8 and str(table.get("format") or outer) == "int-quantized":
        return "int8", formats.int8_channel()
    if kind == "int" and bits in PACKED_BITS:
        symmetric, ordered = weights.get("symmetric", True) is not False, weights.get("actorder") == "group"
        index = (8 if experts else 4) if ordered else 0
        stored = formats.packed_int(bits, group, symmetric=symmetric, index_bytes=index, experts=experts)
        return PACKED_BITS[bits], stored
    return None


def _compressed_fp8(strategy: object, block: Block | None, group: int, *, static: bool) -> tuple[str, Stored]:
    if group == formats.MXFP_GROUP:
        return "mxfp8", formats.mxfp8()
    if strategy == "block" and block:
        return "fp8", formats.fp8_block(*block)
    return "fp8", formats.fp8_channel() if strategy == "channel" else formats.fp8_tensor(static=static)


PACKED_BITS = {2: "mixed", 3: "mixed", 4: "w4a16", 8: "w8a16"}
"""Packed integers of compressed-tensors, and the format's name."""


def _compressed_names(fields: Fields, key: str, names: Iterable[str]) -> Names:
    """Names as compressed-tensors writes them: whole, or ``re:`` and an expression matched from the beginning."""
    listed = list(names)
    return Names(
        exact=frozenset(names_below_root(name for name in listed if not name.startswith("re:"))),
        expressions=expressions_of(
            fields, key, [name.removeprefix("re:") for name in listed if name.startswith("re:")]
        ),
    )
