"""Checkpoints of ModelOpt: one algorithm with modules excluded, or one per module (``modelopt.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache

from planner.catalog.hf.fields import Fields, shown
from planner.catalog.matrix import Stored
from planner.catalog.quant import stored_formats as formats
from planner.catalog.quant.rules import Names, Rule, Rules, names_below_root
from planner.catalog.quant.values import (
    MOST_GROUP,
    Stated,
    StoredWeights,
    group_of,
    names_under,
    table_under,
    unsupported,
)


def from_modelopt(fields: Fields, stated: Stated) -> StoredWeights:
    """``modelopt.py``: one algorithm with modules excluded, or ``MIXED_PRECISION`` with an algorithm per module."""
    algorithm = str(stated.get("quant_algo") or "").upper()
    scheme = stated.get("kv_cache_scheme")  # as text ("FP8") it is not read by the engine
    kv_fp8 = stated.get("kv_cache_quant_algo") == "FP8" or (isinstance(scheme, Mapping) and scheme.get("num_bits") == 8)
    group = group_of(fields, stated.get("group_size", formats.NVFP4_GROUP)) or formats.NVFP4_GROUP
    excluded = names_under(fields, stated, "ignore", "exclude_modules")
    kept, draft_16bit = Rule(_excluded(excluded), None), _excludes_draft(fields, excluded)
    if algorithm == "MIXED_PRECISION":
        return StoredWeights("mixed", Rules((kept, *_mixed(fields, stated))), kv_fp8=kv_fp8, draft_16bit=draft_16bit)
    found = _modelopt_format(algorithm, group)
    if found is None:
        return unsupported(f"modelopt {algorithm}".strip(), kv_fp8=kv_fp8)
    dtype, stored = found
    return StoredWeights(
        dtype,
        Rules((kept, Rule(None, stored))),
        kv_fp8=kv_fp8,
        draft_16bit=draft_16bit,
    )


DRAFT_MODULES = ("self_attn.o_proj", "mlp.experts.0.down_proj")


def _excludes_draft(fields: Fields, excluded: Iterable[str]) -> bool:
    """Whether patterns keep the layer of multi-token prediction: ``mtp*``, or ``model.layers.78*`` after 78 layers.

    A layer of which only parts are named (projection, norms, attention) is quantised as the others are.
    """
    patterns = tuple(excluded)
    return any(
        all(any(fnmatchcase(layer + module, pattern) for pattern in patterns) for module in DRAFT_MODULES)
        for layer in ("mtp.layers.0.", f"model.layers.{fields.layers}.")
    )


def _modelopt_format(algorithm: str, group: int) -> tuple[str, Stored] | None:
    return {
        "FP8": ("fp8", formats.fp8_tensor(static=True)),
        "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", formats.fp8_channel()),
        "FP8_PB_WO": ("fp8", formats.fp8_block(128, 128)),
        "FP8_BLOCK_SCALES": ("fp8", formats.fp8_block(128, 128)),
        "NVFP4": ("nvfp4", formats.nvfp4(group)),
        "W4A16_NVFP4": ("nvfp4", formats.nvfp4(group)),
        "MXFP8": ("mxfp8", formats.mxfp8()),
    }.get(algorithm)


def _excluded(names: Iterable[str]) -> Names:
    """``is_layer_excluded``: a name counts where it occurs in a module's, or as a shell pattern of the whole.

    ``tree*`` means the module ``tree`` and all below it.
    """
    parts: list[str] = []
    wildcards: list[str] = []
    for name in names_below_root(names):
        if name.endswith("*") and not name.endswith(".*") and len(name) > 1:
            parts.append(name[:-1])
        elif "*" in name:
            wildcards.append(name)
        else:
            parts.append(name)
    plain = [part for part in parts if "*" not in part]
    wildcards += [pattern for part in parts if "*" in part for pattern in (part, f"{part}.*")]
    return Names(exact=frozenset(plain), parts=tuple(plain), wildcards=tuple(wildcards))


def _mixed(fields: Fields, stated: Stated) -> tuple[Rule, ...]:
    """An algorithm per module; a module of which no part is named keeps 16 bits."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, entry in table_under(fields, stated, "quantized_layers").items():
        settings = entry if isinstance(entry, dict) else {}
        named.setdefault((str(settings.get("quant_algo")), str(settings.get("group_size"))), []).append(name)
    rules: tuple[Rule, ...] = ()
    for (text, size), names in named.items():
        algorithm, group = text.upper(), int(size) if size.isdecimal() and 0 < int(size) <= MOST_GROUP else 0
        found = _modelopt_format(algorithm, group or formats.NVFP4_GROUP)
        if found is None:
            field = "quantization_config.quantized_layers"
            fields.note(field, f"names an algorithm that is not modelled ({shown(text)})")
            return ()
        rules += (Rule(_modules(tuple(names)), replace(found[1], name=algorithm)),)
    return (*rules, Rule(None, None))


@lru_cache(maxsize=64)
def _modules(names: tuple[str, ...]) -> Names:
    """Modules named one by one, of which a checkpoint may list every expert."""
    sets = (text for name in names if ".moe." in name for text in _expert_set(name))
    return Names(exact=frozenset(names_below_root((*names, *sets))))


def _expert_set(name: str) -> tuple[str, ...]:
    """A projection named as ``moe.gate_proj`` stands for the experts beside it (``_resolve_quant_algo``)."""
    parent, _, projection = name.rpartition(".")
    return (f"{parent}.experts",) if parent.endswith(".moe") and projection else ()
