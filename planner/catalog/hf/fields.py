"""The text part of a Hugging Face config, read as the engine sees it: nested configs, aliases, class defaults.

Three rules decide a value: a key with a value wins; a key that is explicitly ``null`` means "none" and beats the
class default; an absent key means the default of the transformers config class. Sizes without which there is no model
(`Fields.integer`) are an exception: transformers writes them into every ``config.json`` and leaves only nested configs
short (as differences from their class), so only there their class default is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import Problems

NESTED_TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")

HIDDEN = ("hidden_size", "n_embed", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = (
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
HEAD_DIM = ("head_dim", "hidden_size_per_head", "kv_channels")
FEED_FORWARD = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "ff_intermediate_size", "block_ff_dim")
VOCABULARY = ("vocab_size", "padded_vocab_size")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "moe_k", "top_k_experts")

FOUR_TIMES_HIDDEN = frozenset({"bloom", "falcon", "gpt2", "gpt_bigcode", "gptj", "phi-msft"})
"""Model types whose MLP is four times the hidden size unless stated."""
EXPERTS_ONLY = frozenset(
    {"deepseek_ref", "deepseek_v4", "longcat_flash", "qwen3_5_moe_text", "qwen3_next", "solar_open"}
)
"""Model types that may have no dense MLP, and then state the width of the experts only."""

ESSENTIAL = frozenset((*HIDDEN, *LAYERS, *HEADS, *VOCABULARY))
"""Keys of every language model."""
MOST = 2**31 - 1
"""Largest whole number that any key may hold: what the engines' own 32-bit sizes hold."""
MOST_LAYERS = 10_000
DEEPEST_NESTING = 4
CHECK_FILE = "Check the file against the model's repository"


class Fields:
    """Values of one text config. What cannot be used is noted, and a harmless value read instead.

    A caller that has read everything it needs ends with ``problems.raise_if_any()``: all bad keys in one message.

    Parameters
    ----------
    config
        The whole ``config.json``.
    model_id
        For messages.
    class_defaults
        Static defaults of transformers config classes by ``model_type``.
    """

    def __init__(self, config: Mapping[str, Any], model_id: str, class_defaults: Mapping[str, Any]) -> None:
        self.model_id = model_id
        self.place = model_id if model_id.endswith(".json") else f"{model_id} config.json"
        self.outer = config
        self.text, self.nested_in = text_config(config)
        self.model_type = str(self.text.get("model_type") or config.get("model_type") or "")
        self.outer_type = str(config.get("model_type") or "")
        self.defaults: Mapping[str, Any] = class_defaults.get(self.model_type) or {}
        self.outer_defaults: Mapping[str, Any] = class_defaults.get(self.outer_type) or {}
        self.defaults_used: set[str] = set()
        self.problems = Problems()

    def note(self, field: str, message: str, fix: str = CHECK_FILE) -> None:
        """Note what is wrong with a key, once."""
        if not self.noted(field):
            self.problems.add(self.place, message, fix, field=field)

    def noted(self, *fields: str) -> bool:
        """Whether something is wrong with one of the keys."""
        return any(problem.field in fields for problem in self.problems.found)

    def get(self, *names: str, default: Any = None, class_default: bool = True) -> Any:
        """First of ``names`` that the config states; then the class default; then ``default``.

        An explicit ``null`` stops the class default of that name from applying.
        """
        null = False
        for name in names:
            if name in self.text:
                if self.text[name] is not None:
                    return self.text[name]
                null = True
        if null or not class_default:
            return default
        for name in names:
            if self.defaults.get(name) is not None:
                self.defaults_used.add(name)
                return self.defaults[name]
        return default

    def states(self, name: str) -> bool:
        """Whether the config itself holds the key, even as ``null``."""
        return name in self.text

    def integer(self, *names: str) -> int:
        """A whole number above 0 that must be there; 1 where it is noted as missing or unusable."""
        return self._whole(names, self.get(*names, class_default=bool(self.nested_in)), least=1) or 1

    def optional_integer(self, *names: str, default: int = 0, least: int = 0) -> int:
        """A whole number of at least ``least``; ``default`` where the config is silent or the value unusable."""
        value = self.get(*names)
        whole = None if value is None else self._whole(names, value, least)
        return default if whole is None else whole

    def _whole(self, names: tuple[str, ...], value: Any, least: int) -> int | None:
        stated = next((name for name in names if self.text.get(name) is not None), names[0])
        if value is None:
            if not (self.nested_in and self.noted(self.nested_in)):
                self.note(stated, "is missing", f"Add one of: {', '.join(names)}")
            return None
        most = MOST_LAYERS if LAYERS[0] in names else MOST
        if not is_whole(value) or not least <= value <= most:
            self.note(stated, f"is no whole number from {least} to {most:,} (got {shown(value)})")
            return None
        return int(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        return self._truth(name, self.get(name, default=default), default)

    def _truth(self, name: str, value: Any, default: bool) -> bool:
        if isinstance(value, bool):
            return value
        self.note(name, f"is neither true nor false (got {shown(value)})")
        return default

    def items(self, *names: str) -> Sequence[Any]:
        """A list; empty where the config is silent."""
        value = self.get(*names)
        if value is not None and not isinstance(value, list | tuple):
            self.note(names[0], f"is no list (got {shown(value)})")
        return value if isinstance(value, list | tuple) else ()

    def per_layer(self, *names: str) -> Sequence[Any]:
        """A list with one entry per layer; empty where the config is silent."""
        found = self.items(*names)
        if found and len(found) != self.layers:
            self.note(names[0], f"has {len(found)} entries for {self.layers} layers")
        return found

    def table(self, *names: str) -> Mapping[str, Any]:
        """An object; empty where the config is silent."""
        value = self.get(*names)
        if value is not None and not isinstance(value, Mapping):
            self.note(names[0], f"is no object (got {shown(value)})")
        return value if isinstance(value, Mapping) else {}

    def nested_integer(self, table: str, key: str) -> int:
        """A whole number above 0 that an object must hold; 1 where it is noted as missing or unusable."""
        value: Any = self.table(table).get(key)
        if is_whole(value) and 0 < value <= MOST:
            return int(value)
        self.note(f"{table}.{key}", f"is no whole number from 1 to {MOST:,} (got {shown(value)})")
        return 1

    @property
    def hidden(self) -> int:
        """Hidden size."""
        return self.integer(*HIDDEN)

    @property
    def layers(self) -> int:
        """Decoder layers; as many as there are block types where only those are stated (Nemotron-3 Ultra)."""
        blocks = self.text.get("layers_block_type")
        if isinstance(blocks, list) and blocks and not any(self.states(name) for name in LAYERS):
            return len(blocks)
        return self.integer(*LAYERS)

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.integer(*HEADS)

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding table."""
        return self.integer(*(VOCABULARY if self.text.get("padded_vocab_size") is None else reversed(VOCABULARY)))

    @property
    def feed_forward(self) -> int:
        """Width of the dense MLP; 4 x hidden where the config of an older architecture leaves it out.

        A model of routed experts alone states only theirs, which is then taken.
        """
        if self.model_type in FOUR_TIMES_HIDDEN:
            return self.optional_integer(*FEED_FORWARD) or 4 * self.hidden
        if self.model_type in EXPERTS_ONLY and all(self.text.get(name) is None for name in FEED_FORWARD):
            return self.integer("moe_intermediate_size")
        return self.integer(*FEED_FORWARD)

    @property
    def tied(self) -> bool:
        """Whether the output head is the embedding table.

        A nested config that is silent falls back to the outer config's statement, then to the classes' defaults.
        """
        name = "tie_word_embeddings"
        for stated in (self.text, self.outer):
            if stated.get(name) is not None:
                return self._truth(name, stated[name], True)
        return bool(self.defaults.get(name, self.outer_defaults.get(name, True)))


def is_whole(value: Any) -> bool:
    """Whether a JSON value is a whole number."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def shown(value: Any) -> str:
    """The value as it is printed in a message, not longer than a few words."""
    if isinstance(value, list | tuple | Mapping):
        return "an object" if isinstance(value, Mapping) else "a list"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def text_config(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The config of the language model and the key it was nested in (empty when it is the config itself)."""
    inner, outermost = config, ""
    for _ in range(DEEPEST_NESTING):
        key = next((key for key in NESTED_TEXT_CONFIGS if isinstance(inner.get(key), Mapping)), "")
        if not key:
            break
        inner, outermost = inner[key], outermost or key
    return inner, outermost
