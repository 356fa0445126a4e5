"""Matrices of the usual layers: small constructors that a reader puts together to a model's inventory.

Names are those of the checkpoint below the decoder layer. `linear`, `vector`, `norms` and `table` without layers are
held once, outside them; the constructors of whole blocks give nothing without layers. A bias carries the part and the
split of its matrix and is no ``linear``; a norm belongs to `Part.OTHER`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from planner.catalog.matrix import Matrix, Part, Split
from planner.catalog.model_shape import ParameterCounts

Layers = tuple[int, ...]
"""Indexes of decoder layers; empty for what is held once, outside them."""
Matrices = tuple[Matrix, ...]

NUMBERED = ("w1", "w3", "w2")
"""Gate, up and down of checkpoints that number them."""
FLOAT32 = 4
"""Bytes of an element that the engines keep at 32 bits."""


def linear(
    module: str,
    inputs: int,
    outputs: int,
    layers: Layers,
    part: Part,
    split: Split = Split.WHOLE,
    *,
    heads: int = 0,
    fused: str = "",
    bias: bool = False,
    quantised: bool = True,
    copies: int = 1,
) -> Matrices:
    """A matrix and, with ``bias``, its vector: split like the rows, whole where the columns are split."""
    weight = Matrix(module, part, outputs, inputs, layers, copies, split, heads, fused, linear=quantised)
    return (weight, bias_of(weight)) if bias else (weight,)


def bias_of(weight: Matrix) -> Matrix:
    """The bias of a matrix; after a split of the columns every rank holds it whole."""
    split = Split.WHOLE if weight.split is Split.ROW else weight.split
    return replace(weight, module=f"{weight.module}.bias", in_features=1, split=split, linear=False)


def vector(
    module: str,
    size: int,
    layers: Layers = (),
    part: Part = Part.OTHER,
    split: Split = Split.WHOLE,
    *,
    copies: int = 1,
    heads: int = 0,
    bytes_per_element: int | None = None,
) -> Matrix:
    """A vector that no quantiser touches: a norm, a scale, sinks."""
    return Matrix(
        module, part, size, 1, layers, copies, split, heads, linear=False, bytes_per_element=bytes_per_element
    )


def table(
    module: str, rows: int, columns: int, layers: Layers = (), part: Part = Part.OTHER, split: Split = Split.WHOLE
) -> Matrix:
    """A matrix that no quantiser touches: learned positions, a convolution (``rows`` channels of ``columns`` taps)."""
    return Matrix(module, part, rows, columns, layers, 1, split, linear=False)


def norms(modules: Iterable[str], size: int, layers: Layers = (), *, bias: bool = False) -> Matrices:
    """Norms of one size, each with a scale and, with ``bias``, a shift."""
    scales = tuple(vector(module, size, layers) for module in modules)
    return scales + tuple(replace(scale, module=f"{scale.module}.bias") for scale in scales if bias)


def embedding(vocabulary: int, hidden: int, module: str = "embed_tokens") -> Matrix:
    """The token embedding: rows divided among the ranks."""
    return Matrix(module, Part.EMBEDDING, vocabulary, hidden, split=Split.VOCABULARY, linear=False)


def output_head(vocabulary: int, hidden: int, *, bias: bool = False, module: str = "lm_head") -> Matrices:
    """The output head of a model that does not share the embedding's table."""
    head = Matrix(module, Part.LM_HEAD, vocabulary, hidden, split=Split.VOCABULARY, linear=False)
    return (head, replace(bias_of(head), part=Part.OTHER)) if bias else (head,)


def grouped_query(
    layers: Layers,
    hidden: int,
    heads: int,
    kv_heads: int,
    key_dim: int,
    value_dim: int | None = None,
    *,
    prefix: str = "self_attn",
    fused: str = "qkv_proj",
    output: str = "o_proj",
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: str = "",
    sinks: bool = False,
    query_gate: bool = False,
    inputs: int | None = None,
) -> Matrices:
    """Queries, keys, values and output of multi-head, multi-query and grouped-query attention.

    Parameters
    ----------
    value_dim
        Where values are of another size than keys.
    qk_norm
        ``""``, ``"head"`` (one vector per head dimension for queries and for keys), ``"full"`` (a scale per head and
        dimension, whole on every rank), ``"split"`` (the same, divided like the heads).
    query_gate
        Queries come with a gate of the same size (Qwen3-Next).
    inputs
        Width that queries, keys and values are made from, where it is not ``hidden`` (Zamba2).
    """
    if not layers:
        return ()
    values, width = value_dim or key_dim, inputs or hidden
    engine = f"{prefix}.{fused}" if fused else ""

    def project(name: str, outputs: int, split: Split, count: int = 0) -> Matrices:
        module = f"{prefix}.{name}"
        return linear(module, width, outputs, layers, Part.ATTENTION, split, heads=count, fused=engine, bias=qkv_bias)

    matrices = project("q_proj", heads * key_dim * (2 if query_gate else 1), Split.COLUMN)
    matrices += project("k_proj", kv_heads * key_dim, Split.KV_HEADS, kv_heads)
    matrices += project("v_proj", kv_heads * values, Split.KV_HEADS, kv_heads)
    o_proj = f"{prefix}.{output}"
    matrices += linear(o_proj, heads * values, hidden, layers, Part.ATTENTION, Split.ROW, bias=output_bias)
    if qk_norm:
        matrices += _qk_norm(prefix, layers, heads, kv_heads, key_dim, qk_norm)
    if sinks:
        matrices += (vector(f"{prefix}.sinks", heads, layers, split=Split.COLUMN),)
    return matrices


def _qk_norm(prefix: str, layers: Layers, heads: int, kv_heads: int, dim: int, kind: str) -> Matrices:
    if kind == "head":
        return (vector(f"{prefix}.q_norm", dim, layers), vector(f"{prefix}.k_norm", dim, layers))
    query, key = (Split.COLUMN, Split.KV_HEADS) if kind == "split" else (Split.WHOLE, Split.WHOLE)
    return (
        vector(f"{prefix}.q_norm", dim * heads, layers, split=query),
        vector(f"{prefix}.k_norm", dim * kv_heads, layers, split=key, heads=kv_heads),
    )


def latent(
    layers: Layers,
    hidden: int,
    heads: int,
    *,
    query_rank: int,
    kv_rank: int,
    nope: int,
    rope: int,
    value: int,
    prefix: str = "self_attn",
    fused: str = "fused_qkv_a_proj",
) -> Matrices:
    """Multi-head latent attention: down-projections whole on every rank, up-projections and output split by heads.

    Without a ``query_rank`` (0) queries are made from the hidden state, and the down-projection is not fused.
    """
    if not layers:
        return ()

    def part(name: str, inputs: int, outputs: int, split: Split, engine: str = "") -> Matrices:
        return linear(f"{prefix}.{name}", inputs, outputs, layers, Part.ATTENTION, split, fused=engine)

    engine = f"{prefix}.{fused}" if fused and query_rank else ""
    matrices = part("kv_a_proj_with_mqa", hidden, kv_rank + rope, Split.WHOLE, engine)
    matrices += (vector(f"{prefix}.kv_a_layernorm", kv_rank, layers),)
    if query_rank:
        matrices += part("q_a_proj", hidden, query_rank, Split.WHOLE, engine)
        matrices += (vector(f"{prefix}.q_a_layernorm", query_rank, layers),)
        matrices += part("q_b_proj", query_rank, heads * (nope + rope), Split.COLUMN)
    else:
        matrices += part("q_proj", hidden, heads * (nope + rope), Split.COLUMN)
    matrices += part("kv_b_proj", kv_rank, heads * (nope + value), Split.COLUMN)
    return matrices + part("o_proj", heads * value, hidden, Split.ROW)


def indexer(
    layers: Layers, hidden: int, query_rank: int, heads: int, dim: int, prefix: str = "self_attn.indexer"
) -> Matrices:
    """Indexer of sparse attention, whole on every rank: query heads, one key, the heads' weights, the key's norm."""
    if not layers:
        return ()
    matrices = linear(f"{prefix}.wq_b", query_rank, heads * dim, layers, Part.ATTENTION)
    matrices += linear(f"{prefix}.wk", hidden, dim, layers, Part.ATTENTION)
    matrices += linear(f"{prefix}.weights_proj", hidden, heads, layers, Part.ATTENTION, quantised=False)
    wide = tuple(
        replace(norm, bytes_per_element=FLOAT32) for norm in norms((f"{prefix}.k_norm",), dim, layers, bias=True)
    )
    return matrices + wide


def gated_mlp(
    layers: Layers,
    hidden: int,
    width: int,
    *,
    prefix: str = "mlp",
    part: Part = Part.MLP,
    bias: bool = False,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    fused: str = "gate_up_proj",
) -> Matrices:
    """Gate, up and down: ``3 x hidden x width`` (SwiGLU and the like)."""
    if not layers:
        return ()
    gate, up, down = names
    engine = f"{prefix}.{fused}" if fused else ""
    matrices: Matrices = ()
    for name in (gate, up):
        matrices += linear(f"{prefix}.{name}", hidden, width, layers, part, Split.COLUMN, fused=engine, bias=bias)
    return matrices + linear(f"{prefix}.{down}", width, hidden, layers, part, Split.ROW, bias=bias)


def plain_mlp(
    layers: Layers,
    hidden: int,
    width: int,
    *,
    prefix: str = "mlp",
    part: Part = Part.MLP,
    bias: bool = False,
    names: tuple[str, str] = ("up_proj", "down_proj"),
) -> Matrices:
    """Up and down: ``2 x hidden x width``."""
    if not layers:
        return ()
    up, down = names
    matrices = linear(f"{prefix}.{up}", hidden, width, layers, part, Split.COLUMN, bias=bias)
    return matrices + linear(f"{prefix}.{down}", width, hidden, layers, part, Split.ROW, bias=bias)


def routed_experts(
    layers: Layers,
    hidden: int,
    width: int,
    experts: int,
    *,
    prefix: str = "mlp.experts",
    bias: bool = False,
    gated: bool = True,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Matrices:
    """Routed experts, each gated or plain: the engine holds gate and up as ``w13``, down as ``w2``."""
    if not layers:
        return ()
    gate, up, down = (f"{prefix}.*.{name}" for name in names)
    matrices: Matrices = ()
    for name in (gate, up) if gated else (up,):
        matrices += linear(
            name, hidden, width, layers, Part.EXPERTS, Split.COLUMN, fused=prefix, bias=bias, copies=experts
        )
    return matrices + linear(
        down, width, hidden, layers, Part.EXPERTS, Split.ROW, fused=prefix, bias=bias, copies=experts
    )


def shared_experts(
    layers: Layers, hidden: int, width: int, *, prefix: str = "mlp.shared_experts", gated: bool = True
) -> Matrices:
    """Shared experts, together ``width`` wide."""
    build = gated_mlp if gated else plain_mlp
    return build(layers, hidden, width, prefix=prefix, part=Part.SHARED_EXPERTS)


def router(
    layers: Layers,
    hidden: int,
    experts: int,
    *,
    module: str = "mlp.gate",
    bias: bool = False,
    correction: bool = False,
    bytes_per_element: int | None = None,
) -> Matrices:
    """The router, whole on every rank: one row per expert; ``correction`` adds a float32 term per expert."""
    if not layers:
        return ()
    gate = Matrix(module, Part.ROUTER, experts, hidden, layers, linear=False, bytes_per_element=bytes_per_element)
    matrices: Matrices = (gate, bias_of(gate)) if bias else (gate,)
    if correction:
        name = f"{module}.e_score_correction_bias"
        matrices += (vector(name, experts, layers, Part.ROUTER, bytes_per_element=FLOAT32),)
    return matrices


def latent_projections(
    layers: Layers, hidden: int, latent: int, down: str, up: str, *, quantised: bool = True
) -> Matrices:
    """Into and out of the latent that routed experts work on, whole on every rank."""
    matrices = linear(down, hidden, latent, layers, Part.SHARED_EXPERTS, quantised=quantised)
    return matrices + linear(up, latent, hidden, layers, Part.SHARED_EXPERTS, quantised=quantised)


def wide_routers(matrices: Matrices) -> Matrices:
    """The inventory with its routers at 32 bits."""
    return tuple(
        replace(matrix, bytes_per_element=FLOAT32) if matrix.part is Part.ROUTER else matrix for matrix in matrices
    )


def parameter_counts(matrices: Matrices) -> ParameterCounts:
    """The inventory summed by part.

    What a quantiser leaves alone counts as ``other`` unless it is an embedding, a head, a router or a vision tower.
    """
    apart = (Part.EMBEDDING, Part.LM_HEAD, Part.ROUTER, Part.VISION)
    attention = [m for m in matrices if m.part in (Part.ATTENTION, Part.STATE) and m.linear]

    def total(chosen: Iterable[Matrix]) -> int:
        return sum(matrix.elements for matrix in chosen)

    def of(*parts: Part) -> int:
        return total(m for m in matrices if m.part in parts and (m.linear or m.part in apart))

    return ParameterCounts(
        embedding=of(Part.EMBEDDING),
        lm_head=of(Part.LM_HEAD),
        attention=total(attention),
        mlp=of(Part.MLP, Part.SHARED_EXPERTS),
        experts=of(Part.EXPERTS),
        router=of(Part.ROUTER),
        other=total(m for m in matrices if not m.linear and m.part not in apart),
        vision=of(Part.VISION),
    )
