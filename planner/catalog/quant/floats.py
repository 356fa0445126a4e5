"""Checkpoints stored as floats: fp8 of several granularities, MX formats, DeepSeek-V4's own mix."""

from __future__ import annotations

from planner.catalog.hf.fields import Fields, shown
from planner.catalog.matrix import Stored
from planner.catalog.quant import stored_formats as formats
from planner.catalog.quant.modelopt import from_modelopt
from planner.catalog.quant.rules import Names, Rule, Rules, names_below_root
from planner.catalog.quant.values import Block, Stated, StoredWeights, block_of, names_under


def from_fp8(fields: Fields, stated: Stated) -> StoredWeights:
    """``fp8.py``: per tensor, or by blocks; listed modules are matched whole."""
    block = block_of(fields, stated.get("weight_block_size"))
    experts = formats.mxfp4() if stated.get("store_dtype") == "mxfp4" else _fp8(stated, block)
    kept = names_under(fields, stated, "ignored_layers", "modules_to_not_convert")
    rules = (
        Rule(Names(exact=frozenset(names_below_root(kept))), None),
        Rule(None, experts, experts=True),
        Rule(None, _fp8(stated, block)),
    )
    return StoredWeights("fp8", Rules(rules))


def _fp8(stated: Stated, block: Block | None) -> Stored:
    if block:
        return formats.fp8_block(*block)
    return formats.fp8_tensor(static=stated.get("activation_scheme") == "static")


def from_fbgemm(fields: Fields, stated: Stated) -> StoredWeights:
    """``fbgemm_fp8.py``: fp8 with a scale per row."""
    kept = names_below_root(names_under(fields, stated, "modules_to_not_convert"))
    return StoredWeights("fp8", Rules((Rule(Names(exact=frozenset(kept)), None), Rule(None, formats.fp8_channel()))))


def from_deepseek_v4(fields: Fields, stated: Stated) -> StoredWeights:
    """``deepseek_v4/quant_config.py``: fp8 blocks, and experts in mxfp4, NVFP4 or fp8 as ``expert_dtype`` says.

    Block scales are 8-bit exponents where experts are fp4.
    """
    block = block_of(fields, stated.get("weight_block_size")) or (128, 128)
    experts = fields.get("expert_dtype", default="fp4")
    if experts not in ("fp4", "fp8"):
        fields.note("expert_dtype", f"is neither fp4 nor fp8 (got {shown(experts)})")
    four_bits = experts == "fp4"
    dense = formats.fp8_block(*block, scale_bytes=1 if four_bits else formats.FLOAT32_BYTES)
    kept = Names(
        exact=frozenset(names_below_root(names_under(fields, stated, "ignored_layers", "modules_to_not_convert")))
    )
    rules: tuple[Rule, ...] = (Rule(kept, None),)
    if four_bits and str(stated.get("moe_quant_algo") or "").upper() == "NVFP4":
        ignored = Names(wildcards=names_below_root(names_under(fields, stated, "ignore")))
        rules += (Rule(ignored, formats.mxfp4(), experts=True), Rule(None, formats.nvfp4(), experts=True))
    elif four_bits:
        rules += (Rule(None, formats.mxfp4(), experts=True),)
    return StoredWeights("mixed" if four_bits else "fp8", Rules((*rules, Rule(None, dense))))


def from_mxfp4(fields: Fields, stated: Stated) -> StoredWeights:
    """``mxfp4.py``: routed experts only; every linear layer keeps 16 bits."""
    return StoredWeights("mxfp4", Rules((Rule(None, formats.mxfp4(), experts=True),)))


def from_mxfp8(fields: Fields, stated: Stated) -> StoredWeights:
    """MiniMax's ``mxfp8``, read as ModelOpt's MXFP8."""
    return from_modelopt(fields, {**stated, "quant_algo": "MXFP8"})
