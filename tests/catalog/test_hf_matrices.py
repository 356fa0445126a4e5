"""The inventory of a model: blocks of matrices, counted by hand."""

from __future__ import annotations

import pytest

from planner.catalog.hf import matrices as build
from planner.catalog.load import load_catalog
from planner.catalog.matrix import Matrix, Part, Split

LAYERS = (0, 1, 2)
HIDDEN = 64


def elements(matrices: build.Matrices) -> int:
    return sum(matrix.elements for matrix in matrices)


def named(matrices: build.Matrices, module: str) -> Matrix:
    return next(matrix for matrix in matrices if matrix.module == module)


def test_grouped_queries() -> None:
    """8 query heads and 2 key/value heads of 16, with biases and norms per head, in three layers."""
    matrices = build.grouped_query(
        LAYERS, HIDDEN, 8, 2, 16, qkv_bias=True, output_bias=True, qk_norm="head", sinks=True
    )
    projections = 64 * 128 + 2 * 64 * 32 + 128 * 64
    vectors = (128 + 2 * 32) + 64 + 2 * 16 + 8
    assert elements(matrices) == 3 * (projections + vectors)
    key = named(matrices, "self_attn.k_proj")
    assert (key.split, key.heads, key.fused) == (Split.KV_HEADS, 2, "self_attn.qkv_proj")
    assert named(matrices, "self_attn.o_proj.bias").split is Split.WHOLE
    assert named(matrices, "self_attn.q_proj.bias").split is Split.COLUMN


def test_keys_and_values_of_different_sizes() -> None:
    matrices = build.grouped_query(LAYERS, HIDDEN, 4, 4, 24, 16, fused="")
    assert elements(matrices) == 3 * 64 * (2 * 4 * 24 + 2 * 4 * 16)
    assert named(matrices, "self_attn.o_proj").in_features == 4 * 16


@pytest.mark.parametrize(("kind", "split"), [("full", Split.WHOLE), ("split", Split.COLUMN)])
def test_norms_over_all_heads(kind: str, split: Split) -> None:
    matrices = build.grouped_query(LAYERS, HIDDEN, 8, 2, 16, qk_norm=kind)
    assert named(matrices, "self_attn.q_norm").split is split
    assert named(matrices, "self_attn.k_norm").out_features == 32


@pytest.mark.parametrize(("query_rank", "query"), [(24, 64 * 24 + 24 + 24 * 4 * 24), (0, 64 * 4 * 24)])
def test_latents(query_rank: int, query: int) -> None:
    """4 heads: 16 + 8 for keys, 16 for values, from a latent of 32; the down-projections are whole."""
    matrices = build.latent(LAYERS, HIDDEN, 4, query_rank=query_rank, kv_rank=32, nope=16, rope=8, value=16)
    keys_values = 64 * (32 + 8) + 32 + 32 * 4 * (16 + 16)
    assert elements(matrices) == 3 * (query + keys_values + 4 * 16 * 64)
    down = named(matrices, "self_attn.kv_a_proj_with_mqa")
    assert down.split is Split.WHOLE
    assert bool(down.fused) is bool(query_rank)


def test_experts_and_what_is_beside_them() -> None:
    experts = build.routed_experts(LAYERS, HIDDEN, 32, 4, bias=True)
    assert elements(experts) == 3 * 4 * (3 * 64 * 32 + 2 * 32 + 64)
    assert {m.copies for m in experts} == {4}
    assert elements(build.routed_experts(LAYERS, HIDDEN, 32, 4, gated=False)) == 3 * 4 * 2 * 64 * 32
    assert elements(build.router(LAYERS, HIDDEN, 4, correction=True)) == 3 * (4 * 64 + 4)
    assert {m.part for m in build.shared_experts(LAYERS, HIDDEN, 96)} == {Part.SHARED_EXPERTS}


def test_no_layers_no_block() -> None:
    """A vector without layers is held once; a block without layers is not there."""
    assert build.grouped_query((), HIDDEN, 8, 2, 16) == ()
    assert build.gated_mlp((), HIDDEN, 32) == build.plain_mlp((), HIDDEN, 32) == ()
    assert build.routed_experts((), HIDDEN, 32, 4) == build.router((), HIDDEN, 4) == ()
    assert build.latent((), HIDDEN, 4, query_rank=0, kv_rank=32, nope=16, rope=8, value=16) == ()
    assert build.vector("norm", HIDDEN).count == 1


def test_counts_by_part() -> None:
    matrices = (
        build.embedding(100, HIDDEN),
        *build.grouped_query(LAYERS, HIDDEN, 8, 2, 16, qkv_bias=True),
        *build.routed_experts(LAYERS, HIDDEN, 32, 4, bias=True),
        *build.router(LAYERS, HIDDEN, 4, bias=True),
        *build.output_head(100, HIDDEN, bias=True),
    )
    counts = build.parameter_counts(matrices)
    assert (counts.embedding, counts.lm_head) == (6400, 6400)
    assert counts.attention == 3 * (2 * 64 * 128 + 2 * 64 * 32)
    assert counts.experts == 3 * 4 * 3 * 64 * 32
    assert counts.router == 3 * (4 * 64 + 4)
    assert counts.other == 3 * 4 * (2 * 32 + 64) + 3 * (128 + 2 * 32) + 100
    assert counts.total == elements(matrices)


def test_wide_routers() -> None:
    wide = build.wide_routers(build.router(LAYERS, HIDDEN, 4))
    assert [matrix.bytes_per_element for matrix in wide] == [4]


def test_the_inventory_is_the_parameters_of_every_model() -> None:
    catalog = load_catalog()
    for model in ("deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "Qwen/Qwen3-Next-80B-A3B-Instruct"):
        shape = catalog.model_shape(model)
        assert elements(shape.matrices) == shape.parameters.total
