"""What a quantisation config says: typed values, noted where they cannot be used, and what reading ends in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from planner.catalog.hf.fields import Fields, is_whole, shown
from planner.catalog.quant.rules import NO_RULES, Rules

Stated = Mapping[str, Any]
"""A ``quantization_config``."""
Block = tuple[int, int]
"""Rows and columns that share a scale."""


@dataclass(frozen=True)
class StoredWeights:
    """Storage of the checkpoint.

    ``dtype`` is a name of `planner.memory.types.WeightDtype`, or ``unsupported: <method>`` for one whose bytes are not
    modelled.
    """

    dtype: str = "bf16"
    rules: Rules = NO_RULES
    kv_fp8: bool = False
    """The checkpoint declares an fp8 KV cache."""
    without_producer: bool = False
    """Declared by a companion file without ModelOpt as its producer, which vLLM passes over."""
    activation_order: bool = False
    """GPTQ quantised in order of activation (``desc_act``)."""
    draft_16bit: bool = False
    """Layers of multi-token prediction are left out of the quantisation."""
    notes: tuple[str, ...] = ()


MOST_GROUP = 2**16
"""Largest block side or group that a quantised checkpoint may state."""


def names_under(fields: Fields, stated: Stated, *keys: str) -> tuple[str, ...]:
    """A list of names under the first key that holds one."""
    for key in keys:
        value = stated.get(key)
        if value is None:
            continue
        if not isinstance(value, list | tuple):
            fields.note(f"quantization_config.{key}", f"is no list (got {shown(value)})")
            return ()
        if value:
            return tuple(str(name) for name in value)
    return ()


def table_under(fields: Fields, stated: Stated, key: str) -> Mapping[str, Any]:
    """An object; empty where there is none."""
    value = stated.get(key)
    if value is None or isinstance(value, Mapping):
        return value or {}
    fields.note(f"quantization_config.{key}", f"is no object (got {shown(value)})")
    return {}


def expressions_of(fields: Fields, key: str, texts: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Regular expressions."""
    found = []
    for text in texts:
        try:
            found.append(re.compile(text))
        except re.error:
            fields.note(f"quantization_config.{key}", f"holds no regular expression (got {shown(text)})")
    return tuple(found)


def group_of(fields: Fields, value: Any) -> int:
    """Group size; 0 where the whole column shares a scale (-1)."""
    if value is None or value == -1:
        return 0
    if is_whole(value) and 0 < value <= MOST_GROUP:
        return int(value)
    fields.note("quantization_config.group_size", f"is no whole number from 1 to {MOST_GROUP:,} (got {shown(value)})")
    return 0


def block_of(fields: Fields, sides: Any) -> Block | None:
    """Rows and columns of a block; ``None`` where there are no blocks."""
    if sides is None:
        return None
    if isinstance(sides, list | tuple) and len(sides) == 2:
        rows, columns = sides
        if is_whole(rows) and is_whole(columns) and 1 <= rows <= MOST_GROUP and 1 <= columns <= MOST_GROUP:
            return int(rows), int(columns)
    field = "quantization_config.weight_block_size"
    fields.note(field, f"is no pair of whole numbers from 1 to {MOST_GROUP:,} (got {shown(sides)})")
    return None


def unsupported(method: str, *, kv_fp8: bool = False) -> StoredWeights:
    """A checkpoint whose bytes are not modelled, with the note that says so."""
    return StoredWeights(
        f"unsupported: {method}",
        kv_fp8=kv_fp8,
        notes=(f"weights are stored as {method}, whose bytes are not modelled: give the weights in GiB",),
    )
