"""Small cases that can be counted by hand, and pools that vLLM logged for hybrids."""

from __future__ import annotations

import dataclasses

import pytest

from planner.catalog.load import Catalog
from planner.catalog.model_shape import CacheKind, CacheLayers
from planner.memory.blocks import (
    LayoutRules,
    group_size,
    layout,
    longest_request,
    pages_can_be_equal,
    request_blocks,
    request_bytes,
)
from planner.memory.kv import bytes_per_token, heads_per_rank, sliding_bytes_per_token
from planner.memory.types import Deployment, KvDtype, WeightDtype
from planner.memory.vllm import pool_of

NEW = LayoutRules("fewest-or-most", "scale", chunks_kept_apart=True)
OLD = LayoutRules("fewest", "refuse", chunks_kept_apart=False)


def full(count: int, kv_heads: int = 8, dim: int = 128) -> CacheLayers:
    return CacheLayers(CacheKind.FULL, count, kv_heads, dim, dim)


def sliding(count: int, window: int, kv_heads: int = 8, dim: int = 128) -> CacheLayers:
    return CacheLayers(CacheKind.SLIDING, count, kv_heads, dim, dim, window)


def test_one_kind_of_layer_is_one_group() -> None:
    pool = layout((full(32),), 1, KvDtype.BF16, 16, NEW)
    assert (len(pool.groups), pool.bytes_per_block) == (1, 32 * 16 * 4096)
    assert request_blocks(pool, 8192, in_flight_tokens=0) == 512


def test_groups_are_balanced_and_padded() -> None:
    """10 full and 52 sliding layers: 7 groups of room for 10; 60 - 52 = 8 layers of padding."""
    pool = layout((full(10), sliding(52, 1024)), 1, KvDtype.BF16, 16, NEW)
    assert [group.layers for group in pool.groups] == [10, 9, 9, 9, 9, 8, 8]
    assert pool.bytes_per_block == 10 * 16 * 4096


@pytest.mark.parametrize(
    ("counts", "rule", "expected"),
    [([10, 52], "fewest-or-most", 10), ([10, 14], "fewest-or-most", 14), ([10, 14], "fewest", 10)],
)
def test_group_size(counts: list[int], rule: str, expected: int) -> None:
    assert group_size(counts, rule) == expected


def test_smaller_layers_get_larger_blocks() -> None:
    pool = layout((full(10, kv_heads=4), sliding(10, 1024, kv_heads=16)), 1, KvDtype.BF16, 16, NEW)
    assert [group.block_tokens for group in pool.groups] == [64, 16]
    assert len({group.page_bytes for group in pool.groups}) == 1
    assert pool.block_tokens == 16


def test_pages_that_cannot_be_made_equal_are_refused(catalog: Catalog) -> None:
    """Gemma-4 before versions that raise block sizes."""
    assert pages_can_be_equal((full(10, kv_heads=4), sliding(10, 64)), 1, KvDtype.BF16, NEW)
    assert not pages_can_be_equal((full(10, kv_heads=4), sliding(10, 64)), 1, KvDtype.BF16, OLD)
    assert not pages_can_be_equal((full(10, kv_heads=3), sliding(10, 64)), 1, KvDtype.BF16, NEW)
    assert pages_can_be_equal((full(10), full(10, kv_heads=3)), 1, KvDtype.BF16, OLD)
    shape, gpu = catalog.model_shape("google/gemma-4-31B-it"), catalog.gpu("H100-SXM")
    deployment = Deployment(1, WeightDtype.BF16, KvDtype.BF16)
    _, refusals = pool_of(shape, gpu, catalog.engine("vllm", "0.11.0"), deployment, 20 * 2**30, 4096, 8192)
    assert [refusal.rule for refusal in refusals] == ["page sizes"]


def test_sliding_layers_hold_window_and_tokens_in_flight() -> None:
    """ceil((128 - 1 + 2048) / 16) + 1 = 137, beside 1,024 full blocks at 16,384."""
    pool = layout((full(18), sliding(18, 128)), 1, KvDtype.BF16, 16, OLD)
    assert request_blocks(pool, 16_384, in_flight_tokens=2048) == 1024 + 137
    assert request_blocks(pool, 100, in_flight_tokens=2048) == 7 + 7 + 1


def test_chunked_layers_apart_or_as_full_ones() -> None:
    chunked = dataclasses.replace(sliding(36, 8192), chunked=True)
    apart = layout((full(12), chunked), 1, KvDtype.BF16, 16, NEW)
    assert len(apart.groups) == 4
    assert request_blocks(apart, 32_768, in_flight_tokens=8192) == 2048 + 3 * 1024
    together = layout((full(12), chunked), 1, KvDtype.BF16, 16, OLD)
    assert (len(together.groups), together.groups[0].layers) == (1, 48)
    assert request_blocks(together, 32_768, in_flight_tokens=8192) == 2048
    need = request_bytes(together, 32_768, 8192, "layers")
    assert need == (12 * 2048 + 36 * 1024) * 16 * 4096


def test_longest_request_is_the_largest_that_fits() -> None:
    pool = layout((full(32),), 1, KvDtype.BF16, 16, NEW)
    room = 100 * pool.bytes_per_block + 1
    assert longest_request(pool, room, 8192, "groups", 131_072) == 1600
    assert longest_request(pool, pool.bytes_per_block - 1, 8192, "groups", 131_072) == 0


def test_heads_split_then_replicate() -> None:
    assert [heads_per_rank(8, tp) for tp in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]


def test_a_latent_and_its_indexer_share_a_table(catalog: Catalog) -> None:
    """GLM-5: 78 x (576 x 2 + 132) B a token at 16 bits, 78 x (656 + 132) in fp8; the indexer's keys stay fp8."""
    shape = catalog.model_shape("zai-org/GLM-5-FP8")
    assert bytes_per_token(shape, 8) == 78 * (576 * 2 + 132)
    assert bytes_per_token(shape, 8, KvDtype.FP8) == 78 * (656 + 132)
    pool = layout(shape.cache_layers, 8, KvDtype.BF16, 64, NEW)
    assert (len(pool.groups), pool.bytes_per_block) == (1, 6_409_728)


def test_keys_and_values_may_differ(catalog: Catalog) -> None:
    """MiMo-V2-Flash: 23,040 B a token of full layers, 199,680 of sliding ones."""
    shape = catalog.model_shape("XiaomiMiMo/MiMo-V2-Flash")
    assert (bytes_per_token(shape), sliding_bytes_per_token(shape)) == (23_040, 199_680)


def test_gpt_oss_120b_on_four_a100_as_logged(catalog: Catalog) -> None:
    """vLLM 0.10.1.1: 330,018 blocks, 2,640,144 tokens, 284.25x (dennislee22/vLLM-benchmarking)."""
    shape, gpu = catalog.model_shape("openai/gpt-oss-120b"), catalog.gpu("A100-80GB-SXM")
    deployment = Deployment(4, WeightDtype.MXFP4, KvDtype.BF16, max_model_len=16_384)
    facts = catalog.engine("vllm", "0.11.0")
    pool, refusals = pool_of(shape, gpu, facts, deployment, 330_018 * 18 * 16 * 512, 16_384, 2048)
    assert (pool.num_blocks, pool.logged_tokens) == (330_018, 2_640_144)
    assert f"{pool.max_concurrency:.2f}" == "284.25"
    assert not refusals


def test_two_token_figures_of_one_pool(catalog: Catalog) -> None:
    """gpt-oss-20b, 20 GiB: the older figure is blocks, the newer follows concurrency and max_model_len."""
    shape, gpu = catalog.model_shape("openai/gpt-oss-20b"), catalog.gpu("H100-SXM")
    deployment = Deployment(1, WeightDtype.MXFP4, KvDtype.BF16)
    logged = {}
    for version in ("0.11.0", "0.19.0", "0.33.0"):
        facts = catalog.engine("vllm", version)
        pool, _ = pool_of(shape, gpu, facts, deployment, 20 * 2**30, 32_768, 8192)
        logged[version] = (pool.logged_tokens, round(pool.max_concurrency, 4))
    assert logged == {"0.11.0": (436_896, 21.2585), "0.19.0": (436_896, 21.2585), "0.33.0": (580_836, 17.7257)}
