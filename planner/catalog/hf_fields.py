"""The text part of a Hugging Face config, read as the engine sees it: nested configs, aliases, class defaults.

Three rules decide a value: a key with a value wins; a key that is explicitly ``null`` means "none" and beats the
class default; an absent key means the default of the transformers config class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import InputError, Problem

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
FEED_FORWARD = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "ff_intermediate_size")
VOCABULARY = ("vocab_size", "padded_vocab_size")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "moe_k", "top_k_experts")

FOUR_TIMES_HIDDEN = frozenset({"bloom", "falcon", "gpt2", "gpt_bigcode", "gptj", "phi-msft"})
"""Model types whose MLP is four times the hidden size unless stated."""


class Fields:
    """Values of one text config.

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
        self.outer = config
        self.text, self.nested_in = text_config(config)
        self.model_type = str(self.text.get("model_type") or config.get("model_type") or "")
        self.outer_type = str(config.get("model_type") or "")
        self.defaults: Mapping[str, Any] = class_defaults.get(self.model_type) or {}
        self.outer_defaults: Mapping[str, Any] = class_defaults.get(self.outer_type) or {}
        self.defaults_used: set[str] = set()

    def get(self, *names: str, default: Any = None) -> Any:
        """First of ``names`` that the config states; then the class default; then ``default``.

        An explicit ``null`` stops the class default of that name from applying.
        """
        null = False
        for name in names:
            if name in self.text:
                if self.text[name] is not None:
                    return self.text[name]
                null = True
        if null:
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
        """A whole number above 0 that must be there.

        Raises
        ------
        InputError
            If neither the config nor the class default has it, or it is no whole number above 0.
        """
        value = self._whole(self.get(*names), names[0])
        if value is None or value < 1:
            raise InputError(self._unusable(names, self.get(*names)))
        return value

    def optional_integer(self, *names: str, default: int = 0) -> int:
        """A whole number, or ``default`` where the config is silent.

        Raises
        ------
        InputError
            If the config states something else than a whole number of at least 0.
        """
        value = self._whole(self.get(*names), names[0])
        if value is not None and value < 0:
            raise InputError(self._unusable(names, value))
        return default if value is None else value

    def check_required(self) -> None:
        """The sizes that every model needs, checked together.

        Raises
        ------
        InputError
            Listing every one that is missing or unusable.
        """
        problems: list[Problem] = []
        for names in (HIDDEN, LAYERS, HEADS, VOCABULARY):
            try:
                self.integer(*names)
            except InputError as error:
                problems.extend(error.problems)
        if problems:
            raise InputError(problems)

    def _whole(self, value: Any, name: str) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not float(value).is_integer():
            raise InputError(self._unusable((name,), value))
        return int(value)

    def _unusable(self, names: tuple[str, ...], value: Any) -> Problem:
        found = "is missing" if value is None else f"is no usable whole number (got {value!r:.40})"
        fix = f"Add one of: {', '.join(names)}" if value is None else "Check the file against the model's repository"
        stated = next((name for name in names if name in self.text), names[0])
        return Problem(self.model_id, f"config.json: {found}", fix, field=stated)

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        return bool(self.get(name, default=default))

    @property
    def hidden(self) -> int:
        """Hidden size."""
        return self.integer(*HIDDEN)

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return self.integer(*LAYERS)

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.integer(*HEADS)

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding table."""
        return self.integer(*reversed(VOCABULARY))

    @property
    def feed_forward(self) -> int:
        """Width of the dense MLP; 4 x hidden where the config of an older architecture leaves it out."""
        if self.model_type in FOUR_TIMES_HIDDEN:
            return self.optional_integer(*FEED_FORWARD) or 4 * self.hidden
        return self.integer(*FEED_FORWARD)

    @property
    def tied(self) -> bool:
        """Whether the output head is the embedding table.

        A nested config that is silent falls back to the outer config's statement, then to the classes' defaults.
        """
        for stated in (self.text, self.outer):
            if stated.get("tie_word_embeddings") is not None:
                return bool(stated["tie_word_embeddings"])
        return bool(self.defaults.get("tie_word_embeddings", self.outer_defaults.get("tie_word_embeddings", True)))


def text_config(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The config of the language model and the key it was nested in (empty when it is the config itself)."""
    for key in NESTED_TEXT_CONFIGS:
        nested = config.get(key)
        if isinstance(nested, Mapping):
            inner, _ = text_config(nested)
            return inner, key
    return config, ""
