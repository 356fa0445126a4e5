"""Which layers of a model keep every token and which keep a window: one function per way of writing it down."""

from __future__ import annotations

from collections.abc import Callable

from planner.catalog.hf.fields import Fields

Windows = list[int | None]
"""Window in tokens per layer; ``None`` keeps every token."""


def all_full(fields: Fields) -> Windows:
    """Every layer keeps every token."""
    return [None] * fields.layers


def one_window(fields: Fields) -> Windows:
    """A single ``sliding_window`` for all layers; absent means the class default, ``null`` means none (Mistral)."""
    window = fields.optional_integer("sliding_window")
    return [window or None] * fields.layers


def qwen_window(fields: Fields) -> Windows:
    """``sliding_window`` counts only with ``use_sliding_window``; the first ``max_window_layers`` stay full."""
    if fields.flag("use_sliding_window"):
        window = fields.optional_integer("sliding_window") or None
        full = fields.optional_integer("max_window_layers")
        return [None if layer < full else window for layer in range(fields.layers)]
    return all_full(fields)


def typed_layers(period: int) -> Callable[[Fields], Windows]:
    """``layer_types`` where stated; otherwise one full layer every ``period``, the last of each.

    ``sliding_window_pattern`` as a number replaces the period; as text (``LLLG``) it is repeated.
    """

    def windows(fields: Fields) -> Windows:
        window = fields.optional_integer("sliding_window") or None
        types = fields.per_layer("layer_types")
        if types:
            return [window if str(kind).startswith("sliding") else None for kind in types]
        pattern = fields.get("sliding_window_pattern", "_sliding_window_pattern")
        if isinstance(pattern, str) and pattern:
            if set(pattern) - {"L", "G"}:
                fields.note("sliding_window_pattern", f"is no pattern of L and G (got {pattern!r:.40})")
            cycle = [window if letter == "L" else None for letter in pattern]
            return [cycle[layer % len(cycle)] for layer in range(fields.layers)]
        every = fields.optional_integer("sliding_window_pattern", "_sliding_window_pattern", least=1) or period
        return [None if (layer + 1) % every == 0 else window for layer in range(fields.layers)]

    return windows


def chunks(fields: Fields) -> Windows:
    """Llama-4: ``no_rope_layers`` marks layers without rotary positions by 0; they keep everything, as every fourth."""
    chunk = fields.optional_integer("attention_chunk_size") or None
    marks = fields.per_layer("no_rope_layers")
    if marks:
        return [chunk if mark else None for mark in marks]
    every = fields.optional_integer("no_rope_layer_interval", default=4, least=1)
    return [None if (layer + 1) % every == 0 else chunk for layer in range(fields.layers)]
