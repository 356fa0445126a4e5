"""One matrix on one rank: its share, and the tensors it is kept in.

elements = ⌈rows x columns x bits / 8⌉, with scales, zero points, indexes and scalars as its format says
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from planner.catalog.matrix import Matrix, Part, Split, Stored
from planner.catalog.quant import stored_formats as formats
from planner.memory.kv import heads_per_rank
from planner.memory.loading import Loading
from planner.memory.vllm.groups import ceil_div

BYTES_16BIT = 2
VOCABULARY_PADDING = 64
"""Rows of embedding and head are padded to a multiple of 64 (``DEFAULT_VOCAB_PADDING_SIZE``, vLLM and SGLang)."""


@dataclass(frozen=True)
class Tensors:
    """Bytes of all copies of a matrix in one layer of one rank."""

    elements: int
    scales: int = 0
    zero_points: int = 0
    indexes: int = 0
    scalars: int = 0

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Each kind, which is a tensor of its own."""
        return self.elements, self.scales, self.zero_points, self.indexes, self.scalars

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.sizes)


@lru_cache(maxsize=65536)
def matrix_tensors(matrix: Matrix, stored: Stored | None, loading: Loading) -> Tensors:
    """The tensors of a matrix, with what is dropped after loading unless parameters are counted as constructed.

    GPTQ's kernels keep neither zero points of a symmetric format nor indexes that order nothing
    (``process_weights_after_loading``).
    """
    copies, rows, columns = on_rank(matrix, loading)
    if stored is None or stored.name in loading.unread or matrix.module in loading.kept:
        return Tensors(copies * rows * columns * (matrix.bytes_per_element or BYTES_16BIT))
    index_bytes, laid_out = stored.index_bytes, rows * columns
    if matrix.part is Part.EXPERTS:
        rows, columns, laid_out = _expert_sizes(matrix, stored, rows, columns, loading)
        stored = refined(stored, matrix, loading)
        index_bytes = index_bytes or _unordered_index(matrix, stored, loading)
    if loading.nested_scales and stored == formats.bnb_4bit():
        stored = replace(stored, scale_bytes=1)
    scaled = matrix.in_features if stored.scales_repeated and matrix.split is Split.ROW else columns
    scales = ceil_div(rows, stored.scale_rows or rows) * ceil_div(scaled, stored.scale_columns or scaled)
    repacked = stored.name in (formats.GPTQ, formats.GPTQ_UNLISTED) and not loading.constructed
    return Tensors(
        elements=copies * ceil_div(laid_out * stored.bits, 8),
        scales=copies * scales * stored.scale_bytes,
        zero_points=0 if repacked else copies * ceil_div(scales * stored.zero_point_bits, 8),
        indexes=0 if repacked else copies * columns * index_bytes,
        scalars=copies * stored.scalar_bytes,
    )


def on_rank(matrix: Matrix, loading: Loading) -> tuple[int, int, int]:
    """Copies, rows and columns of a matrix on one rank.

    Columns of ``down`` and rows of ``up`` are divided by tp (``ColumnParallelLinear``, ``RowParallelLinear``); key and
    value heads are divided and then replicated (``QKVParallelLinear``); vocabulary rows are padded first.
    """
    rows, columns, copies = matrix.out_features, matrix.in_features, matrix.copies
    tp = _split_degree(matrix.part, loading)
    if matrix.part is Part.EXPERTS and loading.expert_parallel:
        return ceil_div(copies, tp), rows, columns
    match matrix.split:
        case Split.COLUMN:
            rows = ceil_div(rows, tp)
        case Split.ROW:
            columns = ceil_div(columns, tp)
        case Split.KV_HEADS:
            rows = rows // matrix.heads * heads_per_rank(matrix.heads, tp)
        case Split.VOCABULARY:
            rows = ceil_div(padded(rows, VOCABULARY_PADDING), tp)
        case Split.WHOLE:
            pass
    return copies, rows, columns


def _split_degree(part: Part, loading: Loading) -> int:
    """Ranks that a part is divided among."""
    if part in (Part.ATTENTION, Part.STATE):
        return max(1, loading.tp // loading.attention_dp)
    if part is Part.EMBEDDING and loading.attention_dp > 1:
        return 1
    return loading.tp


def _expert_sizes(matrix: Matrix, stored: Stored, rows: int, columns: int, loading: Loading) -> tuple[int, int, int]:
    """Rows and columns of an expert, and the elements of its weights, padded where the format is mxfp4.

    Its width (on this rank) and the hidden size are padded (``maybe_roundup_sizes``); a kernel's layout may pad the
    hidden size of the weights further, not of their scales.
    """
    if stored != formats.mxfp4():
        return rows, columns, rows * columns
    width, hidden, layout = loading.mxfp4_width_multiple, loading.mxfp4_hidden_multiple, loading.mxfp4_layout_multiple
    if matrix.split is Split.ROW:
        rows, columns = padded(rows, hidden), padded(columns, width)
        return rows, columns, padded(rows, layout) * columns
    rows, columns = padded(rows, width), padded(columns, hidden)
    return rows, columns, rows * padded(columns, layout)


def padded_bias(matrix: Matrix, loading: Loading) -> int:
    """Bytes of the biases of mxfp4 experts, which are as long as the padded rows."""
    copies, rows, _ = on_rank(matrix, loading)
    hidden = matrix.split is Split.WHOLE
    multiple = loading.mxfp4_hidden_multiple if hidden else loading.mxfp4_width_multiple
    return copies * padded(rows, multiple) * BYTES_16BIT


def _unordered_index(matrix: Matrix, stored: Stored, loading: Loading) -> int:
    """Bytes per column of indexes that order nothing; gate and up share theirs."""
    if not (loading.expert_indexes and stored.name == formats.PACK_QUANTIZED):
        return 0
    return 8 if matrix.split is Split.ROW else 4


def refined(stored: Stored, matrix: Matrix, loading: Loading) -> Stored:
    """Experts' fp8 blocks, made smaller where a rank's width cuts them (``refine_fp8_moe_block_shape``).

    The new side is the greatest common divisor of the block, the rank's width and the hidden size.
    """
    rows, columns = stored.scale_rows, stored.scale_columns
    if not loading.fp8_least_block or rows <= 1 or columns <= 1 or loading.expert_parallel:
        return stored
    down = matrix.split is Split.ROW
    whole, hidden = (matrix.in_features, matrix.out_features) if down else (matrix.out_features, matrix.in_features)
    width = whole // loading.tp
    if width % rows == 0 and (loading.tp == 1 or width % columns == 0):
        return stored
    side = math.gcd(rows, columns, width, hidden)
    return stored if side < loading.fp8_least_block else replace(stored, scale_rows=side, scale_columns=side)


def padded(size: int, multiple: int) -> int:
    """The next multiple."""
    return ceil_div(size, multiple) * multiple
