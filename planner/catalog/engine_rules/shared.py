"""Kinds of facts that both engines have."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.model_shape import StateKind


class Frozen(BaseModel):
    """Immutable, and strict about keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MethodCapability(Frozen):
    """Least CUDA compute capability of a quantisation method, or of one scheme of it (``compressed-tensors fp8``)."""

    method: str = Field(min_length=1)
    capability: tuple[int, int]


class StateRules(Frozen):
    """How a release lays out the states of recurrent layers (`planner.memory.states`)."""

    recurrent_bytes: int | None = None
    """Precision of recurrent states where neither a flag nor the config asks for one; without it the model's."""
    fixed_recurrent_bytes: tuple[tuple[StateKind, int], ...] = ()
    """Kinds whose recurrent state has this precision whatever is asked."""
    config_precision_followed: bool = True
    """Whether the precision that a config asks for is taken."""
    speculative_convolutions: tuple[StateKind, ...] = ()
    """Kinds whose convolution state holds the speculative tokens too."""
    delta_groups_extended: bool = False
    """Key heads of delta nets are extended like groups of Mamba-2 where they do not divide over the ranks."""
