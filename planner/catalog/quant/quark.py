"""Checkpoints of AMD's Quark: a global scheme, schemes by layer name, and layers excluded (``quark/quark.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.catalog.hf.fields import Fields
from planner.catalog.matrix import Stored
from planner.catalog.quant import stored_formats as formats
from planner.catalog.quant.rules import Names, Rule, Rules, names_below_root
from planner.catalog.quant.values import (
    Stated,
    StoredWeights,
    expressions_of,
    names_under,
    table_under,
    unsupported,
)


def from_quark(fields: Fields, stated: Stated) -> StoredWeights:
    """Layers by name come before the global scheme; ``exclude`` is written as compressed-tensors writes ``ignore``."""
    found = _format(table_under(fields, stated, "global_quant_config"))
    if found is None:
        return unsupported("quark with a scheme of another kind")
    dtype, stored = found
    rules: tuple[Rule, ...] = (Rule(_names(fields, names_under(fields, stated, "exclude")), None),)
    others = set()
    for pattern, scheme in table_under(fields, stated, "layer_quant_config").items():
        own = _format(scheme if isinstance(scheme, Mapping) else {})
        if own is not None and own[1] != stored:
            others.add(own[0])
            rules += (Rule(Names(wildcards=names_below_root((str(pattern),))), own[1]),)
    cache = table_under(fields, stated, "export").get("kv_cache_group")
    return StoredWeights(
        "mixed" if others - {dtype} else dtype,
        Rules((*rules, Rule(None, stored))),
        kv_fp8=bool(cache) and dtype == "fp8",
    )


def _format(scheme: Mapping[str, Any]) -> tuple[str, Stored] | None:
    """Format of a scheme's weights: fp8 by tensor or row, int8 by row, MXFP4 and MXFP8 by 32."""
    weight = scheme.get("weight")
    weight = weight[0] if isinstance(weight, list) and weight else weight
    if not isinstance(weight, Mapping):
        return None
    kind, granularity, group = str(weight.get("dtype")), weight.get("qscheme"), weight.get("group_size")
    inputs = scheme.get("input_tensors")
    static = isinstance(inputs, Mapping) and inputs.get("is_dynamic") is False
    if granularity == "per_group" and group == formats.MXFP_GROUP:
        return {"fp4": ("mxfp4", formats.mxfp4()), "fp8_e4m3": ("mxfp8", formats.mxfp8())}.get(kind)
    if kind == "fp8_e4m3" and granularity in ("per_tensor", "per_channel"):
        return "fp8", formats.fp8_channel() if granularity == "per_channel" else formats.fp8_tensor(static=static)
    return ("int8", formats.int8_channel()) if kind == "int8" and granularity == "per_channel" else None


def _names(fields: Fields, names: Iterable[str]) -> Names:
    listed = list(names)
    return Names(
        exact=frozenset(names_below_root(name for name in listed if not name.startswith("re:"))),
        wildcards=names_below_root(name for name in listed if "*" in name and not name.startswith("re:")),
        expressions=expressions_of(
            fields, "exclude", [name.removeprefix("re:") for name in listed if name.startswith("re:")]
        ),
    )
