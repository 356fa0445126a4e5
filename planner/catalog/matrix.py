"""Matrices of a model: what each is, how tensor parallelism divides it, and how a checkpoint stores it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Part(StrEnum):
    """What a matrix belongs to: how a decode step reads it, and what a quantiser does with it."""

    EMBEDDING = "embedding"
    LM_HEAD = "output head"
    ATTENTION = "attention"
    STATE = "state layers"
    MLP = "dense MLP"
    SHARED_EXPERTS = "shared experts"
    EXPERTS = "routed experts"
    ROUTER = "router"
    OTHER = "norms, biases, positions"
    VISION = "vision tower"


class Split(StrEnum):
    """How tensor parallelism divides a matrix."""

    WHOLE = "whole"
    """On every rank."""
    COLUMN = "column"
    """``out_features / tp``."""
    ROW = "row"
    """``in_features / tp``."""
    KV_HEADS = "KV heads"
    """``out_features`` by ``heads``: ``max(1, heads // tp)`` of them on a rank."""
    VOCABULARY = "vocabulary"
    """``out_features`` rows, padded, then divided."""


@dataclass(frozen=True)
class Stored:
    """How a quantised matrix lies in memory: elements, scales and what else comes with them.

    Attributes
    ----------
    bits
        Of an element.
    scale_bytes
        Of one scale; 0 without scales.
    scale_rows, scale_columns
        Rows (outputs) and columns (inputs) that share a scale; 0 means all of them.
    zero_point_bits
        Of the zero point that accompanies each scale.
    index_bytes
        Per column: where a permutation of the columns is kept (GPTQ's ``g_idx``).
    scalar_bytes
        Per matrix: global scales, activation scales, stored shapes.
    scales_repeated
        Every rank keeps the scales of all columns although it holds a share of them (GPTQ in order of activation).
    name
        Of the format, where a release may treat it in its own way (an algorithm of ModelOpt, ``pack-quantized``).
    """

    bits: int
    scale_bytes: int = 0
    scale_rows: int = 1
    scale_columns: int = 0
    zero_point_bits: int = 0
    index_bytes: int = 0
    scalar_bytes: int = 0
    scales_repeated: bool = False
    name: str = ""


@dataclass(frozen=True)
class Matrix:
    """``copies`` equal matrices in each of ``layers``, named as the checkpoint names them.

    The inventory of a model is a tuple of these: parameters, bytes by format, ignore lists and the limits of split and
    group sizes all come from it.

    Attributes
    ----------
    module
        Name below the layer, such as ``self_attn.q_proj`` or ``mlp.experts.*.gate_proj``; below the model where
        ``layers`` is empty (``embed_tokens``, ``lm_head``).
    out_features, in_features
        Rows and columns of one copy of the whole model; a vector has ``in_features = 1``.
    layers
        Decoder layers that hold it; empty for a matrix outside the layers (then held once).
    copies
        Matrices per layer (experts).
    heads
        With `Split.KV_HEADS`: heads that the rows are made of.
    fused
        Name of the module that the engine fuses it into (``self_attn.qkv_proj``, ``mlp.gate_up_proj``); empty if none.
    linear
        Whether a quantiser converts it unless told otherwise; never true for vectors, embeddings, norms, convolutions.
    bytes_per_element
        Where it is kept in another precision than the model's 16 bits (4 for a float32 router); ``None`` otherwise.
    stored
        How the checkpoint's quantiser left it; ``None`` where it did not touch it.
    shared_cache
        Makes keys or values in a layer that reads another layer's cache: stored, but built by some releases only.
    """

    module: str
    part: Part
    out_features: int
    in_features: int
    layers: tuple[int, ...] = ()
    copies: int = 1
    split: Split = Split.WHOLE
    heads: int = 0
    fused: str = ""
    linear: bool = True
    bytes_per_element: int | None = None
    stored: Stored | None = None
    shared_cache: bool = False

    @property
    def count(self) -> int:
        """Matrices in the whole model."""
        return self.copies * (len(self.layers) or 1)

    @property
    def elements(self) -> int:
        """Parameters in the whole model."""
        return self.count * self.out_features * self.in_features
