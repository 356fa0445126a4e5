"""Bytes of the state that a recurrent layer keeps for a sequence, on one rank.

A state has up to two parts. The convolution part holds the last inputs of a causal convolution; the recurrent part is
what the recurrence carries on. Neither grows with the sequence.

Shapes on one rank of ``tp`` (vLLM 0.11.0 to 0.33.0, ``model_executor/layers/mamba/mamba_utils.py``; SGLang 0.5.23,
``srt/configs/mamba_utils.py``), with ``taps = conv_kernel - 1 + speculative tokens``:

=====================  ===============================================  ===================================
kind                   convolution                                      recurrence
=====================  ===============================================  ===================================
Mamba                  ``taps x channels / tp``                         ``intermediate / tp x state``
Mamba-2                ``taps x (channels + 2 x extra x state) / tp``   ``heads / tp x head_dim x state``
gated delta net        ``taps x channels / tp`` (SGLang: as Mamba-2)    ``heads / tp x value dim x key dim``
Kimi delta attention   ``taps x channels / tp``                         ``heads / tp x head_dim x head_dim``
lightning attention    none                                             ``heads / tp x head_dim x head_dim``
short convolution      ``taps x channels / tp``                         none
=====================  ===============================================  ===================================

``extra`` are the groups that are added so that every rank has the group its heads need.
"""

from __future__ import annotations

from functools import lru_cache

from planner.catalog.engine_rules.shared import StateRules
from planner.catalog.model_shape import StateKind, StateLayers

STATE_DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
"""Names that the engines' state-dtype options take."""


VLLM_STATES = StateRules(fixed_recurrent_bytes=((StateKind.KIMI_DELTA, 4), (StateKind.LIGHTNING, 2)))
"""vLLM 0.17.0 and later without speculative tokens, for a caller that has no facts of a release."""
SGLANG_STATES = StateRules(recurrent_bytes=4, delta_groups_extended=True)
"""SGLang, for a caller that has no facts of a release."""

MODEL_BYTES = 2
"""bf16 or fp16: the precision of activations, and of convolution states."""


def state_bytes(
    layers: StateLayers,
    tp: int,
    rules: StateRules,
    *,
    recurrent_bytes: int | None = None,
    speculative_tokens: int = 0,
) -> int:
    """Bytes of the state of one sequence in one layer on one rank.

    Parameters
    ----------
    layers
        The layers' sizes; ``tp`` must divide them (`planner.memory.rules.split_rules.states_divide`).
    rules
        ``rules.states`` of the engine release.
    recurrent_bytes
        Bytes per element that a flag asks for (``--mamba-ssm-cache-dtype``, ``--mamba-ssm-dtype``).
    speculative_tokens
        Draft tokens verified at once.
    """
    convolution = convolution_elements(layers, tp, rules, speculative_tokens) * MODEL_BYTES
    recurrence = recurrent_elements(layers, tp) * recurrent_precision(layers, rules, recurrent_bytes)
    return convolution + recurrence


@lru_cache(maxsize=4096)
def states_bytes(
    state_layers: tuple[StateLayers, ...],
    tp: int,
    rules: StateRules,
    *,
    recurrent_bytes: int | None = None,
    speculative_tokens: int = 0,
) -> int:
    """Bytes of all states of one sequence on one rank: `state_bytes` over the layers."""
    return sum(
        layers.count
        * state_bytes(layers, tp, rules, recurrent_bytes=recurrent_bytes, speculative_tokens=speculative_tokens)
        for layers in state_layers
    )


def convolution_elements(layers: StateLayers, tp: int, rules: StateRules, speculative_tokens: int = 0) -> int:
    """Elements of the convolution state: ``taps x channels on this rank``."""
    if not layers.conv_kernel:
        return 0
    grouped = layers.kind is StateKind.MAMBA2 or (layers.kind is StateKind.GATED_DELTA and rules.delta_groups_extended)
    extra = extra_groups(layers.groups, tp) if grouped else 0
    channels = (layers.conv_channels + 2 * extra * layers.state_size) // tp
    speculative = speculative_tokens if layers.kind in rules.speculative_convolutions else 0
    return (layers.conv_kernel - 1 + speculative) * channels


def recurrent_elements(layers: StateLayers, tp: int) -> int:
    """Elements of the recurrent state: ``heads / tp x head_dim x state_size``."""
    return layers.heads // tp * layers.head_dim * layers.state_size


def recurrent_precision(layers: StateLayers, rules: StateRules, asked_bytes: int | None = None) -> int:
    """Bytes per element of the recurrent state.

    A kind with a precision of its own; else the flag; else the config; else the release's default; else the model's.
    """
    fixed = dict(rules.fixed_recurrent_bytes).get(layers.kind)
    config_bytes = layers.state_bytes_per_element if rules.config_precision_followed else None
    return fixed or asked_bytes or config_bytes or rules.recurrent_bytes or MODEL_BYTES


def extra_groups(groups: int, tp: int) -> int:
    """Groups added so that a rank holds whole ones (``extra_groups_for_head_shards``): ``tp - groups``, or none."""
    return tp - groups if groups % tp else 0
