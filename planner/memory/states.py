"""Bytes of the state that a recurrent layer keeps for a sequence, on one rank.

A state has up to two parts. The convolution part holds the last inputs of a causal convolution; the recurrent part is
what the recurrence carries on. Neither grows with the sequence.

Shapes on one rank of ``tp`` (vLLM 0.11.0 to 0.33.0, ``model_executor/layers/mamba/mamba_utils.py``; SGLang 0.5.23,
``srt/configs/mamba_utils.py``), with ``taps = conv_kernel - 1 + speculative tokens``:

========================  ===================================================  ============================================
kind                      convolution                                          recurrence
========================  ===================================================  ============================================
Mamba                     ``taps x channels / tp``                             ``intermediate / tp x state``
Mamba-2                   ``taps x (channels + 2 x extra x state) / tp``       ``heads / tp x head_dim x state``
gated delta net           ``taps x channels / tp`` (SGLang: as Mamba-2)        ``value heads / tp x value dim x key dim``
Kimi delta attention      ``taps x channels / tp``                             ``heads / tp x head_dim x head_dim``
lightning attention       none                                                 ``heads / tp x head_dim x head_dim``
short convolution         ``taps x channels / tp``                             none
========================  ===================================================  ============================================

``extra`` are the groups that are added so that every rank has the group its heads need.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.model_shape import StateKind, StateLayers

STATE_DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
"""Names that the engines' state-dtype options take."""


@dataclass(frozen=True)
class StateRules:
    """How an engine release lays states out.

    Attributes
    ----------
    recurrent_bytes
        Precision of recurrent states where neither a flag nor the config asks for one; ``None``: the model's.
    fixed_recurrent
        Kinds whose recurrent state has a precision of its own, whatever is asked: kind and bytes, or kind and ``None``
        for the model's.
    speculative_convolutions
        Kinds whose convolution state holds the speculative tokens too.
    delta_groups_extended
        Key heads of delta nets are extended like groups of Mamba-2 where they do not divide over the ranks.
    """

    recurrent_bytes: int | None = None
    fixed_recurrent: tuple[tuple[StateKind, int | None], ...] = ()
    speculative_convolutions: frozenset[StateKind] = frozenset()
    delta_groups_extended: bool = False


VLLM_STATES = StateRules(
    fixed_recurrent=((StateKind.KIMI_DELTA, 4), (StateKind.LIGHTNING, None)),
    speculative_convolutions=frozenset(
        {StateKind.MAMBA2, StateKind.GATED_DELTA, StateKind.KIMI_DELTA, StateKind.SHORT_CONVOLUTION}
    ),
)
"""vLLM 0.30.0 and later."""

SGLANG_STATES = StateRules(recurrent_bytes=4, delta_groups_extended=True)
"""SGLang 0.5.23: recurrent states at 32 bits unless asked otherwise; speculative tokens have buffers of their own."""

MODEL_BYTES = 2
"""bf16 or fp16: the precision of activations, and of convolution states."""


def state_bytes(
    layers: StateLayers,
    tp: int,
    rules: StateRules = VLLM_STATES,
    *,
    recurrent_bytes: int | None = None,
    speculative_tokens: int = 0,
) -> int:
    """Bytes of the state of one sequence in one layer on one rank.

    Parameters
    ----------
    layers
        The layers' sizes; ``tp`` must divide them (`undivided`).
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
    rules: StateRules = VLLM_STATES,
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
    for kind, fixed in rules.fixed_recurrent:
        if kind is layers.kind:
            return fixed or MODEL_BYTES
    return asked_bytes or layers.state_bytes_per_element or rules.recurrent_bytes or MODEL_BYTES


def extra_groups(groups: int, tp: int) -> int:
    """Groups added so that a rank holds whole ones (``extra_groups_for_head_shards``): ``tp - groups``, or none."""
    return tp - groups if groups % tp else 0


def undivided(state_layers: Iterable[StateLayers], tp: int, rules: StateRules = VLLM_STATES) -> str:
    """What ``tp`` does not divide, where engines stop with an assertion; empty if it divides everything."""
    for layers in state_layers:
        if layers.heads % tp:
            return f"{layers.heads} {layers.kind} heads are not divisible by {tp}"
        grouped = layers.kind is StateKind.MAMBA2 or (
            layers.kind is StateKind.GATED_DELTA and rules.delta_groups_extended
        )
        extra = extra_groups(layers.groups, tp) if grouped else 0
        channels = layers.conv_channels + 2 * extra * layers.state_size
        if channels % tp:
            return f"{channels} convolution channels ({layers.kind}) are not divisible by {tp}"
    return ""
