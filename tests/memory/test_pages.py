"""Block sizes and pages of each kind of layer, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.catalog.engine_rules.vllm import VllmRules
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.model_shape import CacheKind, CacheLayers, CacheRole, ModelShape, StateKind, StateLayers
from planner.memory.types import Deployment, KvDtype, Speculative, VllmFlags, WeightDtype
from planner.memory.vllm.groups import Group
from planner.memory.vllm.pages import block_tokens, kinds_of, kv_dtype_in_use, state_mode
from planner.memory.vllm.sizing import pool_of

PLAIN = Deployment(1, WeightDtype.BF16, KvDtype.BF16)
CACHING = replace(PLAIN, prefix_caching=True)
ATTENTION = CacheLayers(CacheKind.FULL, 12, 2, 256, 256)
LATENT = CacheLayers(CacheKind.FULL, 24, 1, 576, 0)
INDEX = CacheLayers(CacheKind.FULL, 24, 1, 128, 0, fixed_bytes_per_token=132, role=CacheRole.INDEX)
DELTA = StateLayers(StateKind.GATED_DELTA, tuple(range(36)), 32, 128, 128, 16, 4, 8192)
"""Convolution 3 x 8,192 x 2 B and state 32 x 128 x 128 x 2 B: 1,097,728 B."""
MAMBA2 = StateLayers(StateKind.MAMBA2, tuple(range(36)), 32, 128, 128, 8, 4, 8192, chunk_size=128)
KIMI = StateLayers(StateKind.KIMI_DELTA, tuple(range(69)), 96, 128, 128, 0, 4, 36_864)


@pytest.fixture(scope="module")
def h100(catalog: Catalog) -> Gpu:
    return catalog.gpu("H100-SXM")


def rules(catalog: Catalog, version: str) -> VllmRules:
    return catalog.engine("vllm", version).vllm


def shape_of(catalog: Catalog, *cache: CacheLayers, states: tuple[StateLayers, ...] = ()) -> ModelShape:
    known = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B")
    return replace(known, id="a model", cache_layers=cache, state_layers=states, num_layers=48)


@pytest.mark.parametrize(
    ("version", "gpu", "kv", "expected"),
    [
        ("0.11.0", "H100-SXM", KvDtype.BF16, 64),
        ("0.17.0", "H100-SXM", KvDtype.BF16, 64),
        ("0.18.0", "H100-SXM", KvDtype.BF16, 16),
        ("0.33.0", "H100-SXM", KvDtype.FP8, 64),
        ("0.33.0", "A100-80GB-SXM", KvDtype.BF16, 16),
        ("0.11.0", "B200", KvDtype.BF16, 128),
        ("0.15.1", "B200", KvDtype.FP8, 64),
        ("0.33.0", "B200", KvDtype.BF16, 32),
        ("0.33.0", "RTXPRO6000-Server", KvDtype.BF16, 16),
    ],
)
def test_blocks_of_latents_follow_the_backend(
    catalog: Catalog, version: str, gpu: str, kv: KvDtype, expected: int
) -> None:
    assert block_tokens(rules(catalog, version), catalog.gpu(gpu), shape_of(catalog, LATENT), PLAIN, kv) == expected


def test_blocks_of_other_caches(catalog: Catalog, h100: Gpu) -> None:
    newest, l40s = rules(catalog, "0.33.0"), catalog.gpu("L40S")
    wide = replace(ATTENTION, key_dim=512, value_dim=512)
    compressed = replace(LATENT, tokens_per_state=4)

    def block(*cache: CacheLayers, gpu: Gpu = h100, kv: KvDtype = KvDtype.BF16) -> int:
        return block_tokens(newest, gpu, shape_of(catalog, *cache), PLAIN, kv)

    assert block(ATTENTION) == 16
    assert (block(LATENT, INDEX), block(ATTENTION, INDEX), block(compressed)) == (64, 128, 256)
    assert (block(wide, kv=KvDtype.FP8), block(wide), block(wide, gpu=l40s, kv=KvDtype.FP8)) == (64, 16, 16)
    typed = replace(PLAIN, vllm=VllmFlags(block_size_tokens=32))
    assert block_tokens(newest, h100, shape_of(catalog, ATTENTION), typed, KvDtype.BF16) == 32


def hybrid(catalog: Catalog, version: str, gpu: Gpu, deployment: Deployment, kv: KvDtype) -> list[tuple[object, ...]]:
    shape = shape_of(catalog, ATTENTION, states=(DELTA,))
    kinds = kinds_of(shape, gpu, rules(catalog, version), deployment, kv, 32_768)
    return [(kind.layers, kind.block_tokens, kind.page_bytes, kind.held_blocks) for kind in kinds]


def test_attention_blocks_grow_until_they_hold_a_state(catalog: Catalog, h100: Gpu) -> None:
    """1,097,728 / 2,048 B a token = 536 tokens: 34 x 16 = 544; without prefix caching one state of any length."""
    page = 544 * 2048
    assert hybrid(catalog, "0.19.0", h100, PLAIN, KvDtype.BF16) == [(36, 32_768, page, 1), (12, 544, page, None)]
    assert hybrid(catalog, "0.19.0", h100, PLAIN, KvDtype.FP8)[1][:2] == (12, 1072)


def test_blocks_of_hybrids_align_as_the_version_wants(catalog: Catalog, h100: Gpu) -> None:
    """Heads of 256 on Blackwell: 34 x 32 in 0.12 to 0.17, else 67 x 16; a typed block of 64 counts from 0.20 on."""
    b200, typed = catalog.gpu("B200"), replace(PLAIN, vllm=VllmFlags(block_size_tokens=64))
    fp8 = {v: hybrid(catalog, v, b200, PLAIN, KvDtype.FP8)[1][1] for v in ("0.11.0", "0.12.0", "0.17.0", "0.18.0")}
    assert fp8 == {"0.11.0": 1072, "0.12.0": 1088, "0.17.0": 1088, "0.18.0": 1072}
    blocks = {v: hybrid(catalog, v, h100, typed, KvDtype.BF16)[1][1] for v in ("0.19.0", "0.20.0")}
    assert blocks == {"0.19.0": 544, "0.20.0": 576}


def test_exported_states_align_blocks_and_are_held(catalog: Catalog, h100: Gpu) -> None:
    """0.33.0 keeps prefixes by default: two states, and on Hopper one more, in blocks that are multiples of 64."""
    page = 576 * 2048
    assert hybrid(catalog, "0.33.0", h100, PLAIN, KvDtype.BF16) == [(36, 576, page, 3), (12, 576, page, None)]
    l40s = catalog.gpu("L40S")
    assert [kind[1::2] for kind in hybrid(catalog, "0.33.0", l40s, PLAIN, KvDtype.BF16)] == [(544, 2), (544, None)]
    assert [kind[1::2] for kind in hybrid(catalog, "0.31.0", h100, PLAIN, KvDtype.BF16)] == [(544, 2), (544, None)]
    off = replace(PLAIN, prefix_caching=False)
    assert [kind[1::2] for kind in hybrid(catalog, "0.33.0", h100, off, KvDtype.BF16)] == [(32_768, 1), (544, None)]


@pytest.mark.parametrize(
    ("version", "kind", "asked", "expected"),
    [
        ("0.11.0", StateKind.MAMBA2, True, "none"),
        ("0.14.0", StateKind.MAMBA2, True, "all"),
        ("0.14.0", StateKind.GATED_DELTA, True, "none"),
        ("0.19.0", StateKind.MAMBA1, True, "all"),
        ("0.19.0", StateKind.GATED_DELTA, True, "align"),
        ("0.19.0", StateKind.GATED_DELTA, None, "none"),
        ("0.26.0", StateKind.MAMBA2, None, "all"),
        ("0.28.0", StateKind.MAMBA2, None, "align"),
        ("0.33.0", StateKind.MAMBA2, False, "none"),
    ],
)
def test_states_that_prefix_caching_keeps(
    catalog: Catalog, version: str, kind: StateKind, asked: bool | None, expected: str
) -> None:
    shape = shape_of(catalog, ATTENTION, states=(replace(DELTA, kind=kind),))
    deployment = replace(PLAIN, prefix_caching=asked)
    assert state_mode(shape, rules(catalog, version), deployment) == expected


def test_no_prefix_is_kept_by_default_without_attention(catalog: Catalog) -> None:
    shape = shape_of(catalog, states=(DELTA,))
    assert state_mode(shape, rules(catalog, "0.33.0"), PLAIN) == "none"


def test_a_state_at_every_block_makes_blocks_of_whole_chunks(catalog: Catalog, h100: Gpu) -> None:
    """Mode ``all``: chunks of 128 on blocks of 16; 1,097,728 / 2,048 = 536 tokens -> 5 x 128 = 640."""
    shape = shape_of(catalog, ATTENTION, states=(MAMBA2,))
    states, attention = kinds_of(shape, h100, rules(catalog, "0.19.0"), CACHING, KvDtype.BF16, 32_768)
    assert (states.block_tokens, states.held_blocks, states.recurrent) == (640, None, True)
    assert (attention.block_tokens, attention.page_bytes) == (640, states.page_bytes)
    aligned = replace(CACHING, vllm=VllmFlags(mamba_cache_mode="align"))
    states, _ = kinds_of(shape, h100, rules(catalog, "0.19.0"), aligned, KvDtype.BF16, 32_768)
    assert (states.block_tokens, states.held_blocks) == (544, 2)


def test_latents_beside_states_have_an_alignment_of_their_own(catalog: Catalog, h100: Gpu) -> None:
    """3 x 36,864 x 2 + 96 x 128 x 128 x 4 B = 6,512,640 B over 1,152 B a token: 5,653.3 tokens in multiples of 128."""
    shape = shape_of(catalog, LATENT, states=(KIMI,))

    def block(version: str, kv: KvDtype = KvDtype.BF16) -> int:
        return kinds_of(shape, h100, rules(catalog, version), PLAIN, kv, 32_768)[-1].block_tokens

    assert block("0.33.0") == 45 * 128
    assert block("0.33.0", KvDtype.FP8) == 89 * 128
    assert block("0.25.0") == 354 * 16
    assert block("0.15.1") == 89 * 64


def test_only_bounded_gates_export_states(catalog: Catalog, h100: Gpu) -> None:
    for bounded, held in ((True, 3), (False, 2)):
        shape = shape_of(catalog, LATENT, states=(replace(KIMI, bounded_gate=bounded),))
        assert kinds_of(shape, h100, rules(catalog, "0.33.0"), PLAIN, KvDtype.BF16, 4096)[0].held_blocks == held


def test_a_model_without_attention_pages_its_states_alone(catalog: Catalog, h100: Gpu) -> None:
    kinds = kinds_of(shape_of(catalog, states=(DELTA,)), h100, rules(catalog, "0.33.0"), PLAIN, KvDtype.BF16, 8192)
    assert kinds == (Group(36, 8192, 1_097_728, recurrent=True, held_blocks=1),)


@pytest.mark.parametrize("version", ["0.11.0", "0.19.0", "0.33.0"])
def test_a_pool_of_states_alone_holds_requests(catalog: Catalog, h100: Gpu, version: str) -> None:
    """falcon-mamba-7b, 20 GiB: 64 layers x (3 x 8,192 + 8,192 x 16) x 2 B = 19,922,944 B a request: 1,077 of them."""
    shape = catalog.model_shape("tiiuae/falcon-mamba-7b")
    pool, refusals = pool_of(shape, h100, catalog.engine("vllm", version), PLAIN, 20 * 2**30, 2048, 2048)
    assert (pool.num_blocks, pool.bytes_per_block, pool.max_concurrency) == (1077, 19_922_944, 1077)
    assert (pool.pool_tokens, pool.bytes_per_token, pool.state_bytes_per_request) == (1077 * 2048, 0, 19_922_944)
    assert not refusals


def test_precision_of_states_by_flag(catalog: Catalog, h100: Gpu) -> None:
    """float32 states: 49,152 + 2,097,152 B over 2,048 B a token = 1,048 tokens, 66 x 16."""
    wide = replace(PLAIN, vllm=VllmFlags(mamba_ssm_cache_dtype="float32"))
    assert hybrid(catalog, "0.19.0", h100, wide, KvDtype.BF16)[1][1] == 1056


def test_speculative_tokens_lengthen_states_and_their_number(catalog: Catalog, h100: Gpu) -> None:
    """3 draft tokens: 3 x 8,192 x 2 B more of convolution, 3 states more, and one layer more of attention."""
    deployment = replace(PLAIN, speculative=Speculative("mtp", 3))
    states, attention = hybrid(catalog, "0.19.0", h100, deployment, KvDtype.BF16)
    assert (states[3], attention[0]) == (4, 13)
    assert attention[1] == 16 * -(-(1_097_728 + 3 * 8192 * 2) // (16 * 2048)) == 560
    oldest = hybrid(catalog, "0.11.0", h100, deployment, KvDtype.BF16)
    assert oldest[0][3] == 1


def test_another_model_as_draft_brings_its_own_cache(catalog: Catalog, h100: Gpu) -> None:
    """Llama-3.2-1B beside 12 layers: 16 layers of 8 heads of 64 more."""
    draft = Speculative("draft", 3, draft=catalog.model_shape("meta-llama/Llama-3.2-1B-Instruct"))
    deployment = replace(PLAIN, speculative=draft)
    kinds = kinds_of(shape_of(catalog, ATTENTION), h100, rules(catalog, "0.33.0"), deployment, KvDtype.BF16, 4096)
    assert [(kind.layers, kind.page_bytes) for kind in kinds] == [(12, 16 * 2048), (16, 16 * 2 * 8 * 64 * 2)]


def test_a_draft_layer_beside_compressed_latents_keeps_a_window(catalog: Catalog, h100: Gpu) -> None:
    shape = catalog.model_shape("deepseek-ai/DeepSeek-V4-Flash")
    deployment = replace(PLAIN, speculative=Speculative("mtp", 1))

    def layers(asked: Deployment) -> list[int]:
        return [kind.layers for kind in kinds_of(shape, h100, rules(catalog, "0.33.0"), asked, KvDtype.FP8, 4096)]

    assert (layers(PLAIN), layers(deployment)) == ([43, 21, 21, 20, 21, 21, 20], [44, 21, 21, 20, 21, 21, 20])


def test_a_draft_layer_of_sparse_latents_has_an_indexer(catalog: Catalog, h100: Gpu) -> None:
    shape = shape_of(catalog, LATENT, INDEX)
    deployment = replace(PLAIN, speculative=Speculative("mtp", 1))
    kinds = kinds_of(shape, h100, rules(catalog, "0.33.0"), deployment, KvDtype.BF16, 4096)
    assert [kind.layers for kind in kinds] == [25, 25]


def test_sparse_latents_in_fp8_by_default_and_without_scales(catalog: Catalog, h100: Gpu) -> None:
    """Packed 656 B a token on Hopper, 576 B on Blackwell; ``auto`` is fp8 for GLM on Blackwell from 0.32 on."""
    shape = replace(
        shape_of(catalog, replace(LATENT, fp8_bytes_per_token=656), INDEX), architecture="GlmMoeDsaForCausalLM"
    )
    b200, workstation = catalog.gpu("B200"), catalog.gpu("RTXPRO6000-Server")

    def in_use(version: str, gpu: Gpu) -> KvDtype:
        return kv_dtype_in_use(shape, gpu, rules(catalog, version), KvDtype.BF16)

    assert [in_use(version, b200) for version in ("0.17.0", "0.31.0", "0.33.0")] == ["fp8", "bf16", "fp8"]
    assert [in_use("0.33.0", gpu) for gpu in (h100, workstation)] == ["bf16", "fp8"]
    for gpu, token in ((h100, 656), (b200, 576), (workstation, 656)):
        kinds = kinds_of(shape, gpu, rules(catalog, "0.33.0"), PLAIN, KvDtype.FP8, 4096)
        assert [kind.page_bytes for kind in kinds] == [64 * token, 64 * 132]


def test_compressed_entries_are_padded_to_their_alignment(catalog: Catalog, h100: Gpu) -> None:
    """64 entries of 584 B in a block of 256 tokens at 1/4: 37,376 B, rounded up to 65 x 576."""
    entries = CacheLayers(
        CacheKind.FULL, 21, 1, 512, 0, fixed_bytes_per_token=584, tokens_per_state=4, page_alignment=576
    )
    window = replace(entries, kind=CacheKind.SLIDING, window_tokens=128, tokens_per_state=1, block_tokens=64)
    shape = shape_of(catalog, entries, window)
    kinds = kinds_of(shape, h100, rules(catalog, "0.33.0"), PLAIN, KvDtype.FP8, 4096)
    assert [(kind.block_tokens, kind.page_bytes) for kind in kinds] == [(256, 37_440), (64, 37_440)]


def test_ranks_that_share_tokens_share_full_caches_only(catalog: Catalog, h100: Gpu) -> None:
    window = replace(ATTENTION, kind=CacheKind.SLIDING, window_tokens=512)
    deployment = replace(PLAIN, dcp=4)
    shape = shape_of(catalog, ATTENTION, window)
    kinds = kinds_of(shape, h100, rules(catalog, "0.33.0"), deployment, KvDtype.BF16, 4096)
    assert [kind.ranks for kind in kinds] == [4, 1]
