"""Small cases that can be counted by hand, and pools that vLLM logged for hybrids."""

from __future__ import annotations

import dataclasses

import pytest

from planner.catalog.load import Catalog
from planner.memory.kv import bytes_per_token, heads_per_rank, sliding_bytes_per_token
from planner.memory.types import Deployment, KvDtype, WeightDtype
from planner.memory.vllm.blocks import (
    LayoutRules,
    equal_pages,
    group_size,
    layout,
    layout_rules,
    logged_tokens,
    longest_request,
    on_fullest_stage,
    request_blocks,
    request_bytes,
)
from planner.memory.vllm.groups import Group
from planner.memory.vllm.packing import least_padding, packed_groups
from planner.memory.vllm.replica import layout_of
from planner.memory.vllm.sizing import in_flight_tokens, live_bytes, pool_of

NEW = LayoutRules("fewest-or-most", "scale-or-pad")
MIDDLE = LayoutRules("fewest-or-most", "scale")
OLD = LayoutRules("fewest", "refuse")
TOKEN = 2 * 8 * 128 * 2
"""Bytes of a token in a layer of 8 heads of 128."""


def full(layers: int, token_bytes: int = TOKEN, block: int = 16) -> Group:
    return Group(layers, block, block * token_bytes)


def sliding(layers: int, window: int, token_bytes: int = TOKEN, block: int = 16) -> Group:
    return Group(layers, block, block * token_bytes, window)


def states(layers: int, page: int, held: int | None = 1, block: int = 4096) -> Group:
    return Group(layers, block, page, recurrent=True, held_blocks=held)


def test_one_kind_of_layer_is_one_group() -> None:
    pool = layout((full(32),), NEW)
    assert (len(pool.groups), pool.bytes_per_block) == (1, 32 * 16 * TOKEN)
    assert request_blocks(pool, 8192, in_flight_tokens=0) == 512


def test_kinds_that_differ_in_number_only_are_one() -> None:
    assert layout((full(3), full(29)), OLD) == layout((full(32),), OLD)


def test_groups_are_balanced_and_padded() -> None:
    """10 full and 52 sliding layers: 7 groups of room for 10; 60 - 52 = 8 layers of padding."""
    pool = layout((full(10), sliding(52, 1024)), NEW)
    assert [group.layers for group in pool.groups] == [10, 9, 9, 9, 9, 8, 8]
    assert pool.bytes_per_block == 10 * 16 * TOKEN


@pytest.mark.parametrize(
    ("counts", "rule", "expected"),
    [
        ([10, 52], "fewest-or-most", 10),
        ([10, 14], "fewest-or-most", 14),
        ([10, 15], "fewest-or-most", 10),
        ([10, 12], "fewest-or-most-below-1.25", 12),
        ([10, 14], "fewest-or-most-below-1.25", 10),
        ([10, 12], "fewest", 10),
    ],
)
def test_group_size(counts: list[int], rule: str, expected: int) -> None:
    assert group_size(counts, rule) == expected


def test_smaller_layers_get_larger_blocks() -> None:
    pool = layout((full(10, TOKEN // 2), sliding(10, 1024, 2 * TOKEN)), MIDDLE)
    assert [group.block_tokens for group in pool.groups] == [64, 16]
    assert len({group.page_bytes for group in pool.groups}) == 1
    assert (pool.block_tokens, pool.refusal) == (16, "")


def test_pages_that_cannot_be_made_equal_are_padded_or_refused() -> None:
    """3/8 of a page: refused until versions that pad, and never padded where rows are indexed (a latent)."""
    small = full(10, 3 * TOKEN // 8)
    assert layout((full(10), sliding(10, 64)), OLD).refusal == ""
    assert layout((full(10, TOKEN // 2), sliding(10, 64)), OLD).refusal
    assert layout((small, sliding(10, 64)), MIDDLE).refusal
    padded = layout((small, sliding(10, 64)), NEW)
    assert (padded.refusal, padded.groups[0].block_tokens, padded.groups[0].page_bytes) == ("", 16, 16 * TOKEN)
    assert layout((dataclasses.replace(small, latent=True), sliding(10, 64)), NEW).refusal


def test_gemma_4_before_versions_that_raise_block_sizes(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("google/gemma-4-31B-it"), catalog.gpu("H100-SXM")
    deployment = Deployment(1, WeightDtype.BF16, KvDtype.BF16)
    _, refusals = pool_of(shape, gpu, catalog.engine("vllm", "0.11.0"), deployment, 20 * 2**30, 4096, 8192)
    assert [refusal.rule for refusal in refusals] == ["page sizes"]


def test_pages_of_states_are_padded_by_every_version() -> None:
    kinds, possible = equal_pages((states(3, 1000), full(1)), MIDDLE)
    assert ([kind.page_bytes for kind in kinds], possible) == ([16 * TOKEN, 16 * TOKEN], True)
    assert [kind.block_tokens for kind in kinds] == [4096, 16]


def test_sliding_layers_hold_window_and_tokens_in_flight() -> None:
    """ceil((128 - 1 + 2048) / 16) + 1 = 137, beside 1,024 full blocks at 16,384."""
    pool = layout((full(18), sliding(18, 128)), OLD)
    assert request_blocks(pool, 16_384, in_flight_tokens=2048) == 1024 + 137
    assert request_blocks(pool, 100, in_flight_tokens=2048) == 7 + 7 + 1


def test_recurrent_layers_hold_states_however_long_the_request() -> None:
    """36 recurrent and 12 full layers: 3 groups of 12 with one state each, and one of ceil(32768 / 544) = 61 blocks."""
    page = 544 * 2048
    pool = layout((states(36, page, held=1), full(12, 2048, block=544)), NEW)
    assert (len(pool.groups), pool.bytes_per_block) == (4, 12 * page)
    assert request_blocks(pool, 32_768, in_flight_tokens=8192) == 3 + 61
    live = live_bytes(pool, 32_768, 8192)
    assert (live.state, live.keep) == (3 * 12 * page, 12 * 2048)
    assert pool.largest_block_tokens == 544


def test_states_at_every_block_follow_the_tokens() -> None:
    pool = layout((states(12, 512 * 4096, held=None, block=512), full(12, 4096, block=512)), NEW)
    assert request_blocks(pool, 5000, in_flight_tokens=0) == 2 * 10
    assert live_bytes(pool, 5000, 0).state == 0


def test_chunked_layers_apart_or_as_full_ones(catalog: Catalog) -> None:
    """Chunks of 8,192 beside 12 full layers; without groups of their own everything is allocated at full length."""
    kinds = (full(12), dataclasses.replace(sliding(36, 8192), chunked=True))
    apart = layout(kinds, NEW)
    assert len(apart.groups) == 4
    assert request_blocks(apart, 32_768, in_flight_tokens=8192) == 2048 + 3 * 1024
    old = layout_rules(catalog.engine("vllm", "0.11.0").vllm, kinds, hybrid_manager=True, compressed=False)
    together = layout(kinds, old)
    assert (len(together.groups), together.groups[0].layers) == (1, 48)
    assert request_blocks(together, 32_768, in_flight_tokens=8192) == 2048
    assert request_bytes(together, 32_768, 8192, "layers") == (12 * 2048 + 36 * 1024) * 16 * TOKEN


def test_without_the_hybrid_manager_windows_are_allocated_whole() -> None:
    off = dataclasses.replace(NEW, local_kept_apart=False)
    pool = layout((full(10), sliding(52, 1024)), off)
    assert (len(pool.groups), request_blocks(pool, 32_768, 8192), pool.refusal) == (1, 2048, "")
    assert layout((states(36, 16 * TOKEN), full(12)), off).refusal
    assert layout((full(3), sliding(5, 128), sliding(24, 1024)), off).refusal, "windows of two lengths"
    assert layout((sliding(5, 128), sliding(24, 1024)), off).refusal, "no layer that keeps everything"


def test_windows_beside_latents_of_no_common_page_are_kept_whole() -> None:
    """Pages of 64 x 1,152 and 64 x 4,096 bytes: newer versions allocate everything in one table."""
    newest = dataclasses.replace(NEW, uneven_pages="scale-pad-or-keep-whole")
    latents = dataclasses.replace(full(5, 1152, 64), latent=True)
    draft = sliding(2, 2048, 4096, 64)
    assert layout((latents, draft), NEW).refusal
    pool = layout((latents, draft), newest)
    assert (pool.refusal, len(pool.groups), pool.bytes_per_block) == ("", 1, 64 * (5 * 1152 + 2 * 4096))
    assert request_blocks(pool, 32_768, 8192) == 512
    assert layout((latents, dataclasses.replace(draft, chunked=True)), newest).refusal


def test_the_check_of_single_layers_counts_blocks_as_they_were() -> None:
    """Sliding layers of half the page: blocks of 32 in the pool, of 16 in the check: ceil((64 - 1 + 40) / 16) + 1."""
    pool = layout((full(2), sliding(2, 64, TOKEN // 2)), MIDDLE)
    assert [group.block_tokens for group in pool.groups] == [16, 32]
    assert request_blocks(pool, 1600, 40) == 100 + 5
    assert request_bytes(pool, 1600, 40, "layers") == 2 * 16 * TOKEN * 100 + 2 * 16 * TOKEN // 2 * 8


def test_the_check_of_the_first_group_alone() -> None:
    """gpt-oss begins with a sliding layer: a request of any length passes if its window fits."""
    pool = layout((sliding(18, 128), full(18)), NEW)
    assert request_bytes(pool, 131_072, 2048, "first-group") == 137 * pool.bytes_per_block
    assert request_bytes(pool, 131_072, 2048, "groups") == (137 + 8192) * pool.bytes_per_block


def test_layers_of_unequal_size_that_keep_everything_share_a_table() -> None:
    """A latent of 1,152 B and its indexer of 132 B a token: one group, whatever the page sizes."""
    pool = layout((full(61, 1152, 64), full(61, 132, 64)), OLD)
    assert (len(pool.groups), pool.bytes_per_block) == (1, 61 * 64 * (1152 + 132))


def test_windows_of_different_length_do_not_share_a_table() -> None:
    assert len(layout((sliding(10, 512), sliding(10, 1024)), NEW).groups) == 2


COMPRESSED = (
    Group(43, 64, 37_440, 128),
    Group(21, 256, 37_440),
    Group(21, 256, 8_640),
    Group(20, 256, 1_728),
    Group(21, 4, 32_832, 8),
    Group(21, 4, 8_640, 8),
    Group(20, 8, 32_832, 128),
)
"""DeepSeek-V4-Flash: windows, latents at 1/4 with their indexers and at 1/128, and the compressors' states."""


def test_slots_of_compressed_latents() -> None:
    """Before 0.27: slots of 37,440 (22 windows at most), 8,640 (21) and 1,728 B (20), or 22 of each.

    Pages of 32,832 B are padded to 37,440. Blocks of a request of 4,096 tokens are weighed by the pages in them.
    """
    equal = layout(COMPRESSED, dataclasses.replace(NEW, side_by_side="equal-slots"))
    slots = layout(COMPRESSED, dataclasses.replace(NEW, side_by_side="slots"))
    assert equal.bytes_per_block == 22 * (37_440 + 8_640 + 1_728) == 1_051_776
    assert slots.bytes_per_block == 22 * 37_440 + 21 * 8_640 + 20 * 1_728 == 1_039_680
    assert [group.page_bytes for group in slots.groups] == [1_002_240, 823_680, 786_240, 967_680, 748_800]
    held = 16 * 1_002_240 + 65 * (823_680 + 786_240) + 1025 * 967_680 + 513 * 748_800
    assert request_blocks(slots, 4096, 16_384) == -(-held // 1_002_240) == 1494
    assert request_bytes(slots, 4096, 16_384, "groups") == (16 + 2 * 65 + 1025 + 513) * 1_051_776


def test_overlaid_groups_of_compressed_latents() -> None:
    """0.27 and 0.28: the latents' 21 x (37,440 + 8,640) + 20 x 1,728 B are the widest group; the check counts slots."""
    overlaid = layout(COMPRESSED, dataclasses.replace(NEW, side_by_side="overlaid"))
    assert overlaid.bytes_per_block == 21 * 46_080 + 20 * 1_728 == 1_002_240
    assert [group.page_bytes for group in overlaid.groups] == [1_002_240, 823_680, 786_240, 870_912, 656_640]
    assert request_blocks(overlaid, 4096, 16_384) == 16 + 2 * 65 + 1025 + 513
    assert request_bytes(overlaid, 4096, 16_384, "groups") == (16 + 2 * 65 + 1025 + 513) * 1_051_776


def test_packed_groups_of_compressed_latents() -> None:
    """43 windows of 128 split by the 21 repeats of the compressors' pattern; the latents whole."""
    groups = packed_groups(COMPRESSED)
    assert [group.page_bytes for group in groups] == [823_680, 786_240, 1_002_240, 870_912, 656_640]
    pool = layout(COMPRESSED, dataclasses.replace(NEW, side_by_side="dense"))
    assert (pool.bytes_per_block, pool.block_tokens) == (1_002_240, 4)
    assert request_blocks(pool, 4096, 16_384) == 65 + 65 + 16 + 1025 + 513


def test_least_padding_prefers_the_larger_of_equals() -> None:
    assert least_padding([43, 21, 20], 21) == 22
    assert least_padding([4, 8], 2) == 4
    assert least_padding([5], 5) == 5


def test_longest_request_is_the_largest_that_fits() -> None:
    pool = layout((full(32),), NEW)
    room = 100 * pool.bytes_per_block + 1
    assert longest_request(pool, room, 8192, "groups", 131_072) == 1600
    assert longest_request(pool, pool.bytes_per_block - 1, 8192, "groups", 131_072) == 0


def test_ranks_that_share_tokens_hold_a_part_each(catalog: Catalog) -> None:
    """DCP 8: ceil(ceil(1000 / 8) / 64) = 2 blocks a request, and the logged figure counts all ranks."""
    pool = layout((dataclasses.replace(full(61, 1152, 64), ranks=8),), NEW)
    assert request_blocks(pool, 1000, 0) == 2
    assert live_bytes(pool, 1000, 0).keep == 61 * 1152 / 8
    assert logged_tokens(catalog.engine("vllm", "0.19.0").vllm, pool, 100, 50.0, 1000) == 100 * 64 * 8


def test_a_pipeline_stage_holds_its_share_of_each_group() -> None:
    """61 layers over 2 stages: 31 on the fullest."""
    pool = on_fullest_stage(layout((full(61),), NEW), 61, 2)
    assert (pool.groups[0].layers, pool.bytes_per_block) == (31, 31 * 16 * TOKEN)
    hybrid = on_fullest_stage(layout((full(12), sliding(36, 128)), NEW), 48, 4)
    assert ([group.layers for group in hybrid.groups], hybrid.bytes_per_block) == ([3, 3, 3, 3], 3 * 16 * TOKEN)
    table = on_fullest_stage(layout((full(60, 1152), full(60, 132)), NEW), 60, 2)
    assert table.bytes_per_block == 30 * 16 * (1152 + 132)


def test_versions_that_check_one_stage_for_the_whole_model(catalog: Catalog) -> None:
    """Llama-3.1-8B over 2 stages: 16 layers a stage; 0.14 to 0.16 ask each for room for 32."""
    shape, gpu = catalog.model_shape("meta-llama/Llama-3.1-8B-Instruct"), catalog.gpu("H100-SXM")
    staged = Deployment(1, WeightDtype.BF16, KvDtype.BF16, pp=2)
    of_stage = 16 * 4096 * 4096
    refused = {}
    for version in ("0.13.0", "0.15.1", "0.17.1"):
        facts = catalog.engine("vllm", version)
        pool, refusals = pool_of(shape, gpu, facts, staged, 2 * of_stage - 1, 4096, 2048)
        refused[version] = len(refusals)
        assert pool.num_blocks == 511
    assert refused == {"0.13.0": 0, "0.15.1": 1, "0.17.1": 0}


def test_batches_in_flight(catalog: Catalog) -> None:
    """One before 0.26; then one per stage and one more unless scheduling is synchronous."""
    plain = Deployment(1, WeightDtype.BF16, KvDtype.BF16)
    staged = dataclasses.replace(plain, pp=4)
    in_order = dataclasses.replace(plain, vllm=dataclasses.replace(plain.vllm, async_scheduling=False))
    old, new = catalog.engine("vllm", "0.19.0").vllm, catalog.engine("vllm", "0.33.0").vllm
    assert [in_flight_tokens(old, deployment, 2048) for deployment in (plain, staged, in_order)] == [2048] * 3
    assert [in_flight_tokens(new, deployment, 2048) for deployment in (plain, staged, in_order)] == [4096, 10_240, 2048]


def test_heads_split_then_replicate() -> None:
    assert [heads_per_rank(8, tp) for tp in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]


def test_a_latent_and_its_indexer_share_a_table(catalog: Catalog) -> None:
    """GLM-5: 78 x (576 x 2 + 132) B a token at 16 bits, 78 x (656 + 132) in fp8; the indexer's keys stay fp8."""
    shape = catalog.model_shape("zai-org/GLM-5-FP8")
    assert bytes_per_token(shape, 8) == 78 * (576 * 2 + 132)
    assert bytes_per_token(shape, 8, KvDtype.FP8) == 78 * (656 + 132)
    deployment = Deployment(8, WeightDtype.FP8, KvDtype.BF16)
    pool = layout_of(shape, catalog.gpu("H100-SXM"), catalog.engine("vllm", "0.33.0"), deployment, 4096)
    assert (len(pool.groups), pool.bytes_per_block, pool.block_tokens) == (1, 6_409_728, 64)


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
    for version in ("0.11.0", "0.19.0", "0.20.0", "0.20.1", "0.33.0"):
        facts = catalog.engine("vllm", version)
        pool, _ = pool_of(shape, gpu, facts, deployment, 20 * 2**30, 32_768, 8192)
        logged[version] = (pool.logged_tokens, round(pool.max_concurrency, 4))
    assert logged == {
        **dict.fromkeys(("0.11.0", "0.19.0", "0.20.0"), (436_896, 21.2585)),
        "0.20.1": (696_597, 21.2585),  # 54,613 blocks / (2,048 full + 521 sliding) x 32,768
        "0.33.0": (580_836, 17.7257),
    }
