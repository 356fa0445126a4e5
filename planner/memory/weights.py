"""Weight bytes of one rank: the model's inventory, divided as the engine divides it and stored as its format says.

    parameters = Σ matrices  layers of the stage x tensors of the matrix on the rank
    loaded     = what PyTorch's allocator holds once every tensor is there (`planner.memory.allocator`)

Sources: ``create_weights`` of the layers and quantisation methods of vLLM 0.11.0, 0.19.0 and 0.33.0 (``linear.py``,
``vocab_parallel_embedding.py``, ``fused_moe``), ``get_pp_indices`` of vLLM and SGLang; what is logged as loaded is
``torch.cuda.memory_allocated`` (vLLM, ``DeviceMemoryProfiler``) or the fall of free memory (SGLang, ``ModelRunner``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal

from planner.catalog.matrix import Matrix, Part, Split, Stored
from planner.catalog.model_shape import ModelShape
from planner.catalog.quant import stored_formats as formats
from planner.memory.allocator import occupy
from planner.memory.loading import Loading
from planner.memory.tensors import BYTES_16BIT, Tensors, matrix_tensors, on_rank, padded_bias
from planner.memory.types import WeightBytes, WeightDtype

INT4_GROUP = 128
"""Group of an int4 format chosen for planning."""


@lru_cache(maxsize=4096)
def weight_bytes(shape: ModelShape, dtype: WeightDtype, loading: Loading) -> WeightBytes:
    """Bytes of the rank that holds most.

    The checkpoint's own format is priced matrix by matrix as it is stored; another one as if every matrix that a
    quantiser converts had been converted (mxfp4: routed experts only). ``total`` is what loading occupies, a little
    more than the parts. A companion file that vLLM passes over leaves its parameters at 16 bits, as constructed.
    """
    if loading.constructed and shape.modelopt_unnamed:
        dtype = WeightDtype.BF16
    stages = pipeline_stages(shape.num_layers, loading.pp, loading.extra_layers)
    ends = [(index == 0, index == len(stages) - 1) for index in range(len(stages))]
    loaded = (_stage_bytes(shape, dtype, loading, _Stage(*ends[i], layers)) for i, layers in enumerate(stages))
    return max(loaded, key=lambda stage: stage.total)


def pipeline_stages(layers: int, pp: int, extra: Literal["before the last", "last"]) -> tuple[range, ...]:
    """Layers of each pipeline stage (``get_pp_indices``); of stages beyond the layers, which are empty, two."""
    pp = min(pp, layers + 2)
    counts = [layers // pp] * pp
    for index in range(layers % pp):
        counts[-(index + 2) if extra == "before the last" else -(index + 1)] += 1
    starts = [sum(counts[:stage]) for stage in range(pp)]
    return tuple(range(start, start + count) for start, count in zip(starts, counts, strict=True))


@dataclass(frozen=True)
class _Stage:
    """One pipeline stage: whether it embeds, whether it holds the head, and its layers."""

    first: bool
    last: bool
    layers: range


@dataclass(frozen=True)
class _Held:
    """A matrix as one stage holds it, in ``count`` layers."""

    matrix: Matrix
    stored: Stored | None
    count: int
    tensors: Tensors


def _stage_bytes(shape: ModelShape, dtype: WeightDtype, loading: Loading, stage: _Stage) -> WeightBytes:
    held = tuple(_held(shape, dtype, loading, stage))
    parts: Counter[Part] = Counter()
    for item in held:
        parts[read_with(item.matrix)] += item.count * item.tensors.total
    total = parts.total() if loading.constructed else _occupied(shape, held, stage.layers, loading)
    table = parts[Part.EMBEDDING]
    head = _tied_head(shape, held) if shape.tied_embeddings else parts[Part.LM_HEAD]
    apart = table + parts[Part.LM_HEAD] + parts[Part.EXPERTS] + parts[Part.VISION]
    return WeightBytes(
        embedding=float(table),
        lm_head=float(head),
        dense=float(parts.total() - apart),
        experts=float(parts[Part.EXPERTS]),
        vision=float(parts[Part.VISION]),
        parameters=float(parts.total()),
        total=float(total),
    )


def _tied_head(shape: ModelShape, held: tuple[_Held, ...]) -> int:
    """The token table that the head reads, without tables of other widths beside it (per-layer embeddings)."""
    tables = (item for item in held if item.matrix.part is Part.EMBEDDING)
    return sum(item.tensors.total for item in tables if item.matrix.in_features == shape.hidden_size)


def read_with(matrix: Matrix) -> Part:
    """The part whose bytes a matrix is counted with: biases of ``down``, whole on every rank, with the dense layers."""
    whole_bias = matrix.part is Part.EXPERTS and not matrix.linear and matrix.split is Split.WHOLE
    return Part.OTHER if whole_bias else matrix.part


def _held(shape: ModelShape, dtype: WeightDtype, loading: Loading, stage: _Stage) -> Iterator[_Held]:
    native = shape.native_weight_dtype
    packed = formats.mxfp4()
    mxfp4 = dtype is WeightDtype.MXFP4 or (dtype == native and any(m.stored == packed for m in shape.matrices))
    for matrix in shape.matrices:
        count = _copies_in_stage(matrix, stage, tied=shape.tied_embeddings)
        if not count or (matrix.part is Part.VISION and not loading.vision):
            continue
        if matrix.shared_cache and not loading.shared_keys:
            continue
        stored = stored_as(matrix, dtype, native)
        if mxfp4 and matrix.part is Part.EXPERTS and not matrix.linear:
            yield _Held(matrix, None, count, Tensors(padded_bias(matrix, loading)))
        else:
            yield _Held(matrix, stored, count, matrix_tensors(matrix, stored, loading))


def _copies_in_stage(matrix: Matrix, stage: _Stage, *, tied: bool) -> int:
    """Layers of the stage that hold the matrix; outside the layers, whether the stage holds it.

    The first stage embeds; the last one holds the head, which is a second copy of a tied table. Towers are built on
    every stage.
    """
    if matrix.layers:
        return sum(map(stage.layers.__contains__, matrix.layers))
    if matrix.part is Part.VISION:
        return 1
    if matrix.part is Part.EMBEDDING:
        return int(stage.first or (stage.last and tied))
    return int(stage.first if matrix.module.startswith("embed") else stage.last)


def stored_as(matrix: Matrix, dtype: WeightDtype, native: str) -> Stored | None:
    """The format of a matrix: as stored, or as a quantiser that converts every linear matrix would leave it."""
    if dtype == native:
        return matrix.stored
    if not matrix.linear or dtype in (WeightDtype.BF16, WeightDtype.MIXED):
        return None
    experts = matrix.part is Part.EXPERTS
    if dtype is WeightDtype.MXFP4 and not experts:
        return None
    return _PLANNED[dtype, experts]


_PLANNED = {
    (dtype, experts): stored
    for experts in (False, True)
    for dtype, stored in {
        WeightDtype.FP8: formats.fp8_tensor(),
        WeightDtype.INT4_AWQ: formats.awq(4, INT4_GROUP),
        WeightDtype.INT4_GPTQ: formats.gptq(4, INT4_GROUP, ordered=False, experts=experts),
        WeightDtype.MXFP4: formats.mxfp4(),
        WeightDtype.NVFP4: formats.nvfp4(),
        WeightDtype.MXFP8: formats.mxfp8(),
        WeightDtype.INT8: formats.int8_channel(),
        WeightDtype.INT8_GPTQ: formats.gptq(8, INT4_GROUP, ordered=False, experts=experts),
        WeightDtype.W4A16: formats.packed_int(4, INT4_GROUP, symmetric=True, index_bytes=0, experts=experts),
        WeightDtype.W8A16: formats.packed_int(8, 0, symmetric=True, index_bytes=0, experts=experts),
        WeightDtype.BNB_4BIT: formats.bnb_4bit(),
        WeightDtype.BNB_INT8: formats.int8_channel(),
    }.items()
}
"""Formats chosen for planning, each with its usual group, for linear layers and for routed experts."""


# What loading occupies


def _occupied(shape: ModelShape, held: tuple[_Held, ...], layers: range, loading: Loading) -> int:
    """Bytes after loading: what the engine's measure shows of the allocator."""
    copies = [copy for item in held for copy in (latent_copy(item.matrix, item.stored, loading),) * item.count if copy]
    found = occupy((*tensor_sizes(held, layers), shape.rotary_bytes, *copies))
    return found.reserved if loading.measure == "reserved" else found.allocated


def tensor_sizes(held: tuple[_Held, ...], layers: range) -> Iterator[int]:
    """Sizes of the tensors in the order of construction: the tables, then layer by layer, then the rest.

    Matrices of one fused module are one tensor; their scales, zero points and indexes are tensors of their own.
    """
    by_layer: dict[int, list[int]] = {layer: [] for layer in layers}
    first: list[int] = []
    rest: list[int] = []
    for index, item in enumerate(held):
        for layer in item.matrix.layers:
            if layer in by_layer:
                by_layer[layer].append(index)
        if not item.matrix.layers:
            (first if item.matrix.part is Part.EMBEDDING else rest).append(index)
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    sizes: list[tuple[int, ...]] = []
    for indexes in (first, *by_layer.values(), rest):
        alike = tuple(indexes)
        if alike not in known:
            known[alike] = tuple(_sizes_in_layer(held[index] for index in alike))
        sizes.append(known[alike])
    return chain.from_iterable(sizes)


def _sizes_in_layer(items: Iterable[_Held]) -> Iterator[int]:
    fused: dict[tuple[str, bool, bool], list[Tensors]] = {}
    for item in items:
        fused.setdefault(_tensor_of(item.matrix), []).append(item.tensors)
    for tensors in fused.values():
        for sizes in zip(*(piece.sizes for piece in tensors), strict=True):
            if any(sizes):
                yield sum(sizes)


def _tensor_of(matrix: Matrix) -> tuple[str, bool, bool]:
    """The tensor of a matrix: of its fused module; experts have one for gate and up, and one for down."""
    down = matrix.part is Part.EXPERTS and matrix.module.endswith(DOWN)
    return matrix.fused or matrix.module, down, matrix.in_features == 1


DOWN = (".down_proj", ".w2", ".down_proj.bias", ".w2.bias")
"""Names of experts' matrices that the engine keeps as ``w2``."""


def latent_copy(matrix: Matrix, stored: Stored | None, loading: Loading) -> int:
    """16-bit copy of an up-projection from a latent, for attention in the latent space.

    vLLM dequantises ``kv_b_proj`` into ``W_UK_T`` and ``W_UV`` and keeps both (``mla_attention.py``); of a matrix at 16
    bits they are views. SGLang copies either (``w_kc``, ``w_vc``).
    """
    if not matrix.module.endswith(".kv_b_proj") or (stored is None and not loading.latents_copied):
        return 0
    copies, rows, columns = on_rank(matrix, loading)
    return copies * rows * columns * BYTES_16BIT
