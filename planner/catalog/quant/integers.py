"""Checkpoints stored as integers or by bitsandbytes: AWQ, GPTQ and what is written like it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.catalog.hf.fields import Fields, shown
from planner.catalog.quant import stored_formats as formats
from planner.catalog.quant.rules import Names, Rule, Rules, names_below_root
from planner.catalog.quant.values import (
    Stated,
    StoredWeights,
    expressions_of,
    group_of,
    names_under,
    table_under,
    unsupported,
)

DEFAULT_INT4_GROUP = 128


def from_awq(fields: Fields, stated: Stated) -> StoredWeights:
    """``auto_awq.py``: 4 bits; listed modules are matched by any part of their name."""
    bits = stated.get("bits", stated.get("w_bit", 4))
    group = group_of(fields, stated.get("group_size", stated.get("q_group_size", DEFAULT_INT4_GROUP)))
    if bits not in (4, 8):
        return unsupported(f"awq with {shown(bits)} bits")
    kept = Names(parts=names_below_root(names_under(fields, stated, "modules_to_not_convert")))
    rules = (Rule(kept, None), Rule(None, formats.awq(bits, group)))
    return StoredWeights("int4-awq" if bits == 4 else "w8a16", Rules(rules))


@dataclass(frozen=True)
class _Gptq:
    """Settings of a GPTQ checkpoint, which a rule may change for some modules."""

    bits: int
    group: int
    ordered: bool
    listed: bool

    def rules(self, names: Names | None) -> tuple[Rule, ...]:
        """One rule for routed experts and one for everything else."""
        return tuple(
            Rule(names, formats.gptq(self.bits, self.group, ordered=self.ordered, experts=e, listed=self.listed), e)
            for e in (True, False)
        )


GPTQ_BITS = {2: "mixed", 3: "mixed", 4: "int4-gptq", 8: "int8-gptq"}
"""Bits that GPTQ stores, and the format's name."""


def from_gptq(fields: Fields, stated: Stated) -> StoredWeights:
    """``auto_gptq.py``: one setting, with exceptions by module, and lists of what is quantised at all."""
    bits, group = stated.get("bits", 4), group_of(fields, stated.get("group_size", DEFAULT_INT4_GROUP))
    if bits not in GPTQ_BITS:
        return unsupported(f"gptq with {shown(bits)} bits")
    ordered = stated.get("desc_act")
    if ordered is not None and not isinstance(ordered, bool):
        fields.note("quantization_config.desc_act", f"is neither true nor false (got {shown(ordered)})")
    listed = _outside_gptq(stated)
    setting = _Gptq(int(bits), group, ordered is True, bool(listed))
    rules = _dynamic_gptq(fields, stated, setting)
    if stated.get("lm_head") is True:
        rules += setting.rules(Names(exact=frozenset({"lm_head"})))
    return StoredWeights(
        GPTQ_BITS[bits],
        Rules(rules + listed + setting.rules(None)),
        activation_order=setting.ordered,
    )


def _dynamic_gptq(fields: Fields, stated: Stated, setting: _Gptq) -> tuple[Rule, ...]:
    """``dynamic``: regular expressions, ``-:`` for modules left alone, ``+:`` or nothing for those set otherwise."""
    rules: tuple[Rule, ...] = ()
    for text, override in table_under(fields, stated, "dynamic").items():
        names = Names(expressions=expressions_of(fields, "dynamic", [str(text).removeprefix("-:").removeprefix("+:")]))
        if str(text).startswith("-:"):
            rules += (Rule(names, None),)
        elif isinstance(override, Mapping):
            bits = override.get("bits", setting.bits)
            changed = replace(
                setting,
                bits=bits if bits in GPTQ_BITS else setting.bits,
                group=group_of(fields, override.get("group_size", setting.group)),
                ordered=override.get("desc_act", setting.ordered) is True,
            )
            rules += changed.rules(names)
    return rules


def _outside_gptq(stated: Stated) -> tuple[Rule, ...]:
    """Where ``modules_in_block_to_quantize`` lists what is quantised, everything else is left alone."""
    listed = stated.get("modules_in_block_to_quantize") or ()
    names = [name for entry in listed for name in (entry if isinstance(entry, list | tuple) else (entry,))]
    if not names:
        return ()
    return (Rule(Names(parts=names_below_root(str(name) for name in names)), None, experts=False, outside=True),)


def from_bitsandbytes(fields: Fields, stated: Stated) -> StoredWeights:
    """``bitsandbytes.py``: a listed module is left alone where it is a component of the name."""
    skipped = [re.escape(name) for name in names_below_root(names_under(fields, stated, "llm_int8_skip_modules"))]
    kept = Names(expressions=tuple(re.compile(rf"(?:.*\.)?{name}(?:\.|$)") for name in skipped))
    four = stated.get("load_in_4bit") is True or stated.get("_load_in_4bit") is True
    if not four and stated.get("load_in_8bit") is not True:
        return unsupported("bitsandbytes with neither 4 nor 8 bits")
    stored = formats.bnb_4bit() if four else formats.int8_channel()
    return StoredWeights("bnb-4bit" if four else "bnb-int8", Rules((Rule(kept, None), Rule(None, stored))))


def from_experts_int8(fields: Fields, stated: Stated) -> StoredWeights:
    """``experts_int8.py``: routed experts in int8 with a scale per row."""
    return StoredWeights("int8", Rules((Rule(None, formats.int8_channel(), experts=True),)))


SPECIAL = frozenset("*+?^$()[]{}|\\")
"""Characters that make a key of ``extra_config`` an expression."""


def from_auto_round(fields: Fields, stated: Stated) -> StoredWeights:
    """``inc``: packed like GPTQ or AWQ; ``extra_config`` sets bits by module, by name or by expression (16: kept)."""
    bits, group = stated.get("bits", 4), group_of(fields, stated.get("group_size", DEFAULT_INT4_GROUP))
    if bits not in GPTQ_BITS or str(stated.get("data_type", "int")) != "int":
        return unsupported(f"auto-round with {shown(bits)} bits of {shown(stated.get('data_type'))}")
    setting = _Gptq(int(bits), group, ordered=False, listed=True)
    awq = "awq" in f"{stated.get('packing_format')} {stated.get('backend')}"
    general = (Rule(None, formats.awq(int(bits), group)),) if awq else setting.rules(None)
    rules: tuple[Rule, ...] = ()
    for text, override in table_under(fields, stated, "extra_config").items():
        own = override.get("bits", bits) if isinstance(override, Mapping) else bits
        written = (str(text),)
        if SPECIAL.isdisjoint(text):
            names = Names(exact=frozenset(names_below_root(written)))
        else:
            anywhere = (text if str(text).startswith("^") else f".*(?:{text})",)
            names = Names(expressions=expressions_of(fields, "extra_config", anywhere))
        if own in GPTQ_BITS:
            rules += replace(setting, bits=int(own)).rules(names)
        else:
            rules += (Rule(names, None),)
    dtype = "int4-awq" if awq and bits == 4 else GPTQ_BITS[bits]
    return StoredWeights(dtype, Rules(rules + general))
