"""Rules of SGLang, each against a case worked by hand from its source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import units
from planner.catalog.engine_rules.sglang import SglangRules
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.model_shape import CacheKind, CacheLayers, CacheRole, ModelShape, StateKind, StateLayers
from planner.memory.sglang.backends import Generation, generation_of
from planner.memory.sglang.plan import FreeMemory, Plan, plan_sglang
from planner.memory.sglang.server import prefill_graph_sizes, resolve, tier_of
from planner.memory.size import size
from planner.memory.types import Deployment, GivenTerms, KvDtype, SglangFlags, Sizing, Speculative, WeightDtype
from planner.origin import Origin

LLAMA, DEEPSEEK, GPT_OSS = "meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b"
QWEN_VL = "Qwen/Qwen3-VL-8B-Instruct"
H100_MIB, H200_MIB = 81_559, 143_771
GENERATIONS = {"7.5": "T4", "8.0": "A100", "9.0": "H100", "10.0": "B200", "12.0": "RTX", "gfx942": "MI300X"}


def gpu_of(catalog: Catalog, mib: int = H100_MIB, capability: str = "9.0") -> Gpu:
    return catalog.gpu("H100-SXM").model_copy(update={"memory_driver_mib": mib, "compute_capability": capability})


def started(tp: int = 1, flags: SglangFlags | None = None, **settings: object) -> Deployment:
    return Deployment(tp, WeightDtype.BF16, KvDtype.BF16, sglang=flags or SglangFlags(), **settings)  # type: ignore[arg-type]


def plan(
    catalog: Catalog,
    model: str | ModelShape,
    deployment: Deployment,
    *,
    version: str = "0.5.23",
    mib: int = H100_MIB,
    capability: str = "9.0",
    rest_gib: float | None = 40.0,
) -> Plan:
    shape = catalog.model_shape(model) if isinstance(model, str) else model
    gpu, free = gpu_of(catalog, mib, capability), FreeMemory(78.5, 60.0)
    return plan_sglang(shape, catalog.engine("sglang", version), gpu, deployment, mib, rest_gib, free)


@pytest.fixture
def rules(catalog: Catalog) -> SglangRules:
    return catalog.engine("sglang", "0.5.23").sglang


def with_states(shape: ModelShape, architecture: str = "Qwen3NextForCausalLM") -> ModelShape:
    """24 delta-net layers: conv 3 x 8,192 x 2 B and a state of 32 x 128 x 128 x 4 B each = 2,146,304 B a layer."""
    delta = StateLayers(
        kind=StateKind.GATED_DELTA,
        layers=tuple(range(24)),
        heads=32,
        head_dim=128,
        state_size=128,
        groups=16,
        conv_kernel=4,
        conv_channels=8_192,
    )
    return replace(shape, architecture=architecture, state_layers=(delta,))


SLOT_BYTES = 24 * (3 * 8_192 * 2 + 32 * 128 * 128 * 4)


@pytest.mark.parametrize(("chunk", "sizes"), [(256, 22), (512, 30), (1024, 38), (2048, 42), (4096, 50), (8192, 58)])
def test_captured_prefill_sizes(chunk: int, sizes: int) -> None:
    assert prefill_graph_sizes(chunk) == sizes


def test_captured_prefill_sizes_are_counted_without_listing_them() -> None:
    assert [prefill_graph_sizes(chunk) for chunk in (-1, 0, 1, 4, 40, 4608)] == [0, 0, 0, 1, 8, 51]
    assert prefill_graph_sizes(2**31 - 1) == 50 + (2**31 - 1 - 4608) // 512 + 1


def test_a_gpu_beyond_every_tier_takes_the_largest(rules: SglangRules) -> None:
    assert tier_of(rules, 1e9) is tier_of(rules, 200_000)
    assert [tier_of(rules, mib).chunked_prefill_tokens for mib in (16_380, 24_564, 46_068, 81_559, 183_359)] == [
        2048,
        4096,
        4096,
        8192,
        16384,
    ]


@pytest.mark.parametrize(
    ("version", "mib", "model", "fractions"),
    [
        ("0.5.23", H100_MIB, LLAMA, (0.830, 0.828, 0.819, 0.812)),
        ("0.5.23", H200_MIB, LLAMA, (0.903, 0.902, 0.897, 0.893)),
        ("0.5.23", H100_MIB, DEEPSEEK, (0.816, 0.815, 0.805, 0.799)),
        ("0.5.23", 24_564, LLAMA, (0.704, 0.698, 0.679, 0.658)),
        ("0.5.23", 16_380, LLAMA, (0.752, 0.744, 0.728, 0.697)),
        ("0.5.16", H100_MIB, LLAMA, (0.830, 0.828, 0.819, 0.812)),
        ("0.5.16", H100_MIB, DEEPSEEK, (0.835, 0.834, 0.824, 0.818)),
        ("0.5.0", H100_MIB, LLAMA, (0.835, 0.834, 0.824, 0.818)),
    ],
)
def test_fraction_by_version_memory_and_tp(
    catalog: Catalog, version: str, mib: int, model: str, fractions: tuple[float, ...]
) -> None:
    got = tuple(plan(catalog, model, started(tp), version=version, mib=mib).fraction for tp in (1, 2, 4, 8))
    assert got == fractions


@pytest.mark.parametrize(
    ("deployment", "reserved_mb"),
    [
        (started(), 512 + 1.5 * 8192 + 128 + 2 * 256 + 8 * 58),
        (started(8), 512 + 1.5 * 8192 + 1024 + 2 * 512 + 8 * 58),
        (started(2, pp=2), 512 + 1.5 * 8192 + 4 * 128 + 2 * 256),
        (started(enforce_eager=True), 512 + 1.5 * 8192 + 128),
        (started(flags=SglangFlags(chunked_prefill=False)), 512 + 1.5 * 16_384 + 128 + 2 * 256),
        (started(max_num_batched_tokens=2048), 10_240),
        (started(max_num_seqs=64), 512 + 1.5 * 8192 + 128 + 2 * 64 + 8 * 58),
        (started(flags=SglangFlags(cuda_graph_max_batch=64)), 512 + 1.5 * 8192 + 128 + 2 * 64 + 8 * 58),
        (started(flags=SglangFlags(max_total_tokens=1024)), 512 + 1.5 * 8192 + 128 + 2 * 256 + 8 * 38),
        (started(8, attention_dp=8), 512 + 1.5 * 8192 + 1024 + 2 * 512 + 8 * 512 * 4.5 + 8 * 58),
        (started(2, attention_dp=2), 512 + 1.5 * 8192 + 256 + 2 * 256 + 2 * 256 * 3 + 8 * 58),
        (started(dcp=2), 512 + 1.5 * 8192 + 128 + 2 * 256),
    ],
)
def test_what_the_fraction_leaves_out(catalog: Catalog, deployment: Deployment, reserved_mb: float) -> None:
    """Llama-3.1-8B on an H100: metadata, chunk, ranks, decode graphs, prefill graphs; 10 GiB at least."""
    fraction = round((H100_MIB - reserved_mb) / H100_MIB, 3)
    assert plan(catalog, LLAMA, deployment).fraction == fraction


def test_data_parallel_attention_takes_most_of_the_fraction(catalog: Catalog) -> None:
    for model, fraction in ((LLAMA, 0.586), (DEEPSEEK, 0.573)):
        assert plan(catalog, model, started(8, attention_dp=8)).fraction == fraction


def test_a_release_before_captured_neither_with_workers_nor_beyond_a_typed_context(catalog: Catalog) -> None:
    old = {"version": "0.5.16"}
    with_graphs = 512 + 1.5 * 8192 + 1024 + 2 * 512 + 8 * 512 * 4.5
    assert plan(catalog, LLAMA, started(8, attention_dp=8), **old).fraction == round(1 - with_graphs / H100_MIB, 3)  # type: ignore[arg-type]
    short = 512 + 1.5 * 8192 + 128 + 2 * 256 + 8 * 42
    assert plan(catalog, LLAMA, started(max_model_len=2048), **old).fraction == round(1 - short / H100_MIB, 3)  # type: ignore[arg-type]
    assert plan(catalog, LLAMA, started(max_num_seqs=8), **old).fraction == 0.830  # type: ignore[arg-type]


def test_llama_2_captures_prefill_up_to_4096(catalog: Catalog) -> None:
    reserved = 512 + 1.5 * 8192 + 128 + 2 * 256 + 8 * 50
    assert plan(catalog, "meta-llama/Llama-2-70b-hf", started()).fraction == round(1 - reserved / H100_MIB, 3)


def test_images_lower_the_fraction_and_keep_memory_back(catalog: Catalog) -> None:
    """Qwen3-VL's tower: 27 blocks under another name, so 24 x 1,152²; size 1.2656, share 0.95 x 0.97344."""
    plain = round(1 - (512 + 1.5 * 8192 + 128 + 512) / H100_MIB, 3)
    server = plan(catalog, QWEN_VL, started())
    assert server.fraction == pytest.approx(plain * 0.95 * (1 - 0.1 * (1152**2 / 1024**2 - 1)))
    text = plan(catalog, QWEN_VL, started(flags=SglangFlags(language_only=True)))
    assert text.fraction == plain
    left = units.gib_to_bytes(60.0 - 78.5 * (1 - server.fraction) - 1.0)
    assert plan(catalog, QWEN_VL, started(), rest_gib=None).rest_bytes == int(left)
    ada = plan(catalog, QWEN_VL, started(), capability="8.9", rest_gib=None)
    assert ada.rest_bytes == int(units.gib_to_bytes(60.0 - 78.5 * (1 - server.fraction) - 100 / 1024))
    busy = plan(catalog, QWEN_VL, started(max_num_seqs=400), rest_gib=None)
    assert busy.server.decode_graph_batch == 400
    assert busy.rest_bytes == int(units.gib_to_bytes(60.0 - 78.5 * (1 - busy.fraction) - 3.0))


def test_models_that_are_served_as_text_unless_asked_for_more(catalog: Catalog) -> None:
    gemma = "google/gemma-3-27b-it"
    assert not plan(catalog, gemma, started()).server.multimodal
    assert plan(catalog, gemma, started(flags=SglangFlags(enable_multimodal=True))).server.multimodal
    llama4 = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
    asked = plan(catalog, llama4, started(flags=SglangFlags(enable_multimodal=True)))
    assert asked.fraction == pytest.approx(0.835 * 0.95 * (1 - 0.1 * (34 * 768**2 / (24 * 1024**2) - 1)))


@pytest.mark.parametrize(("page", "tokens"), [(None, 428_569), (16, 428_560)])
def test_tokens_of_the_published_example(catalog: Catalog, page: int | None, tokens: int) -> None:
    """52.31566 GiB over 131,072 B."""
    got = plan(catalog, LLAMA, started(flags=SglangFlags(page_size_tokens=page)), rest_gib=52.31566)
    assert (got.cells.cell, got.pools.tokens) == (131_072, tokens)


@pytest.mark.parametrize(
    ("model", "name", "capability", "cell"),
    [
        (LLAMA, "", "9.0", 32 * 8 * 256 * 2),
        (LLAMA, "fp8_e5m2", "9.0", 32 * 8 * 256),
        (LLAMA, "mxfp8", "10.0", 32 * (8 * 256 + 8 * 256 // 32)),
        (LLAMA, "nvfp4", "10.0", 32 * (8 * 128 + 8 * 16)),
        (LLAMA, "nvfp4", "12.0", 32 * (8 * 128 + 8 * 16) + 8 * 256),
        (DEEPSEEK, "", "9.0", 61 * 576 * 2),
        (DEEPSEEK, "fp8_e4m3", "9.0", 61 * 576),
        ("zai-org/GLM-5-FP8", "", "9.0", 78 * (576 * 2 + 132)),
        ("zai-org/GLM-5-FP8", "auto", "10.0", 78 * (576 + 132)),
        ("zai-org/GLM-5-FP8", "fp8_e4m3", "9.0", 78 * (656 + 132)),
        ("zai-org/GLM-5-FP8", "fp8_e4m3", "12.0", 78 * (656 + 132)),
        ("deepseek-ai/DeepSeek-V3.2", "fp8_e4m3", "12.0", 61 * (576 + 132)),
        ("zai-org/GLM-5.2", "", "9.0", 78 * 576 * 2 + 21 * 132),
        ("google/gemma-3-27b-it", "", "9.0", 62 * 16 * 256 * 2),
    ],
)
def test_bytes_of_a_token(catalog: Catalog, model: str, name: str, capability: str, cell: int) -> None:
    deployment = started(kv_cache_dtype_name=name)
    assert plan(catalog, model, deployment, capability=capability).cells.cell == cell


def test_an_architecture_with_latents_may_come_without(catalog: Catalog) -> None:
    """DeepSeek-VL2-tiny turns latents off: 12 layers x 10 heads x 256 x 2 B, and an image tower."""
    plain = plan(catalog, "deepseek-ai/deepseek-vl2-tiny", started())
    assert (plain.server.latent, plain.cells.cell) == (False, 61_440)
    assert plain.fraction == pytest.approx(0.835 * 0.95)


def test_workers_share_neither_heads_nor_tokens(catalog: Catalog) -> None:
    """TP 8 in two workers: four ranks each, so 2 of 8 KV heads a rank."""
    got = plan(catalog, LLAMA, started(8, attention_dp=2, max_num_seqs=100))
    assert (got.server.workers, got.server.attention_tp) == (2, 4)
    assert got.cells.cell == 131_072 / 4
    assert got.max_running == 50
    assert got.server.worker_chunk_tokens == 4096


def test_sliding_layers_have_a_pool_by_architecture(catalog: Catalog) -> None:
    """gpt-oss-20b: 12 + 12 layers of 2,048 B; a window of 128 that counts the token itself."""
    got = plan(catalog, GPT_OSS, started(), rest_gib=1.0)
    assert got.cells.cell == pytest.approx(12 * 2048 + 0.8 * 12 * 2048)
    assert (got.cells.window_tokens, got.pools.full_tokens) == (127, int(2**30 // got.cells.cell))
    assert got.pools.sliding_tokens == int(got.pools.tokens * 0.8)
    assert plan(catalog, "google/gemma-2-27b-it", started()).pools.sliding_tokens is None


def test_the_sliding_pool_must_hold_a_window_and_a_page(catalog: Catalog) -> None:
    ratio = SglangFlags(max_total_tokens=1000, swa_full_tokens_ratio=0.128)
    got = plan(catalog, GPT_OSS, started(flags=ratio))
    assert got.pools.sliding_tokens == 128
    assert "cannot hold even one request" in got.refusals[0].message
    assert plan(catalog, GPT_OSS, started(flags=replace(ratio, swa_full_tokens_ratio=0.129))).refusals == ()


def test_without_prefix_caching_the_sliding_pool_follows_the_requests(catalog: Catalog) -> None:
    """(127 + 128 + 2 x 1) tokens for each of 128 requests, two chunks of 8,192 in flight and a page."""
    uncached = started(prefix_caching=False, max_num_seqs=128)
    got = plan(catalog, GPT_OSS, uncached, rest_gib=4.0)
    sliding = 257 * 128 + 2 * 8192 + 1
    assert got.pools.sliding_tokens == sliding
    assert got.pools.full_tokens == (4 * 2**30 - sliding * 12 * 2048) // (12 * 2048)
    one = replace(uncached, sglang=SglangFlags(disable_overlap_schedule=True))
    assert plan(catalog, GPT_OSS, one).pools.sliding_tokens == sliding - 8192
    small = plan(catalog, GPT_OSS, uncached, rest_gib=1.0)
    assert "leaves no room for the full KV pool" in small.refusals[0].message
    unchunked = replace(uncached, sglang=SglangFlags(chunked_prefill=False))
    ratio = plan(catalog, GPT_OSS, unchunked)
    assert ratio.pools.sliding_tokens == int(ratio.pools.tokens * 0.8)


def test_an_older_release_sizes_unified_memory_like_two_pools(catalog: Catalog) -> None:
    flags = SglangFlags(unified_memory=True, attention_backend="triton")
    unified = plan(catalog, GPT_OSS, started(flags=flags), version="0.5.16").pools
    assert unified == plan(catalog, GPT_OSS, started(), version="0.5.16").pools


def test_unified_memory_is_cut_into_whole_pages_of_both(catalog: Catalog) -> None:
    flags = SglangFlags(unified_memory=True)
    for rest in (1.0, 1.2345, 17.0):
        got = plan(catalog, GPT_OSS, started(flags=flags), rest_gib=rest)
        full, layer = got.pools.tokens, 12 * 2048
        used = [tokens * layer + int(tokens * 0.8) * layer for tokens in (full, full + 1)]
        assert used[0] <= int(rest * 2**30) < used[1]


@pytest.mark.parametrize(
    ("tokens", "context", "asked", "running"),
    [
        (1_000_000, 131_072, None, 3906),
        (100_000, 131_072, None, 2048),
        (10**8, 8192, None, 4096),
        (3000, 8192, None, 1500),
        (10**6, 8192, 64, 64),
        (100, 8192, 64, 50),
    ],
)
def test_running_requests(catalog: Catalog, tokens: int, context: int, asked: int | None, running: int) -> None:
    flags = SglangFlags(max_total_tokens=tokens)
    deployment = started(flags=flags, max_num_seqs=asked, max_model_len=context)
    got = plan(catalog, LLAMA, deployment, rest_gib=float(tokens))
    assert (got.pools.tokens, got.max_running) == (tokens, running)


def test_no_memory_no_pool(catalog: Catalog) -> None:
    got = plan(catalog, LLAMA, started(), rest_gib=0.0)
    assert got.refusals[0].message.startswith("Loaded weights leave no GPU memory for the KV cache")
    tiny = plan(catalog, LLAMA, started(), rest_gib=1e-6)
    assert tiny.refusals[0].message.startswith("Not enough memory")
    assert plan(catalog, LLAMA, started(), rest_gib=1.0).refusals == ()


def test_states_take_their_share_first(catalog: Catalog) -> None:
    """K = (rest x 0.9 / 1.9 − S) // S, and K + 1 slots are allocated; five a request with the overlap scheduler."""
    shape = with_states(catalog.model_shape(LLAMA))
    got = plan(catalog, shape, started(), rest_gib=None)
    left = 60.0 - 78.5 * (1 - got.fraction)
    slots = int((left * 0.9 / 1.9 * 2**30 - SLOT_BYTES) // SLOT_BYTES)
    assert got.states is not None
    assert (got.states.slots, got.states.bytes_per_slot) == (slots, SLOT_BYTES)
    assert got.rest_bytes == pytest.approx(left * 2**30 - (slots + 1) * SLOT_BYTES, abs=2)
    assert got.max_running == slots // 5
    older = plan(catalog, shape, started(), rest_gib=None, version="0.5.16").states
    assert older is not None
    assert older.slots == int(left * 0.9 / 1.9 * 2**30 // SLOT_BYTES)


@pytest.mark.parametrize(
    ("architecture", "deployment", "per_request"),
    [
        ("Qwen3NextForCausalLM", started(), 5),
        ("Qwen3NextForCausalLM", started(flags=SglangFlags(disable_overlap_schedule=True)), 3),
        ("Qwen3NextForCausalLM", started(flags=SglangFlags(disable_overlap_schedule=True, page_size_tokens=64)), 4),
        ("Qwen3NextForCausalLM", started(prefix_caching=False), 1),
        ("Lfm2ForCausalLM", started(), 3),
        ("FalconMambaForCausalLM", started(), 3),
    ],
)
def test_slots_of_a_request(catalog: Catalog, architecture: str, deployment: Deployment, per_request: int) -> None:
    shape = with_states(catalog.model_shape(LLAMA), architecture)
    assert plan(catalog, shape, deployment).server.state_slots_per_request == per_request


def test_slots_by_flag(catalog: Catalog) -> None:
    shape = with_states(catalog.model_shape(LLAMA))
    typed = plan(catalog, shape, started(2, SglangFlags(max_mamba_cache_size=200), attention_dp=2)).states
    uncached = plan(catalog, shape, started(prefix_caching=False, max_num_seqs=12)).states
    half = plan(catalog, shape, started(flags=SglangFlags(mamba_ssm_dtype="bfloat16"))).states
    assert typed is not None
    assert uncached is not None
    assert half is not None
    assert (typed.slots, uncached.slots) == (100, 12)
    assert half.bytes_per_slot == 24 * (3 * 8_192 * 2 + 32 * 128 * 128 * 2)


def test_drafts_keep_states_of_their_own(catalog: Catalog) -> None:
    """Four drafts: 1 + 4 / 5 states a slot, five for the padding, and 48 running requests where no flag says more."""
    shape = with_states(catalog.model_shape(LLAMA))
    got = plan(catalog, shape, started(speculative=Speculative("eagle", 4)), rest_gib=None)
    left = 60.0 - 78.5 * (1 - got.fraction)
    slots = int((left * 0.9 / 1.9 * 2**30 - 5 * SLOT_BYTES) // (SLOT_BYTES * 1.8))
    assert got.states is not None
    assert got.states.slots == slots
    held = SLOT_BYTES * (min(48, slots // 5) + 1) * 4 + SLOT_BYTES * (slots + 1)
    assert got.rest_bytes == pytest.approx(left * 2**30 - held, abs=2)


def test_without_attention_every_rank_of_the_server_shares_the_states(catalog: Catalog) -> None:
    """Falcon-Mamba: 64 layers x (3 x 8,192 x 2 B + 8,192 x 16 x 4 B), over all 2 ranks, workers or not."""
    per_slot = 64 * (3 * 8_192 * 2 + 8_192 * 16 * 4)
    for workers in (1, 2):
        states = plan(catalog, "tiiuae/falcon-mamba-7b", started(2, attention_dp=workers)).states
        assert states is not None
        assert states.bytes_per_slot == per_slot // 2


def test_too_few_states(catalog: Catalog) -> None:
    shape = with_states(catalog.model_shape(LLAMA))
    assert "Not enough GPU memory for hybrid" in plan(catalog, shape, started(), rest_gib=0.05).refusals[0].message
    few = plan(catalog, shape, started(flags=SglangFlags(max_mamba_cache_size=4)))
    assert "too small to serve any requests" in few.refusals[0].message
    assert plan(catalog, shape, started(flags=SglangFlags(max_mamba_cache_size=5))).refusals == ()


def test_states_that_the_engine_does_not_know_count_as_attention(catalog: Catalog) -> None:
    """Jamba's config has no entry among the engine's state models: 32 layers are charged, not 4."""
    shape = replace(catalog.model_shape(LLAMA), cache_layers=(CacheLayers(CacheKind.FULL, 4, 8, 128, 128),))
    assert plan(catalog, with_states(shape, "JambaForCausalLM"), started()).cells.cell == 32 * 4096
    assert plan(catalog, with_states(shape), started()).cells.cell == 4 * 4096


def test_a_draft_layer_costs_what_one_of_the_model_does(catalog: Catalog) -> None:
    drafted = plan(catalog, DEEPSEEK, started(speculative=Speculative("eagle", 4)))
    assert drafted.cells.cell == 62 * 576 * 2
    assert drafted.max_running == 48
    glm = plan(catalog, "zai-org/GLM-5-FP8", started(speculative=Speculative("mtp", 4)))
    assert glm.cells.cell == 79 * (576 * 2 + 132)
    oss = plan(catalog, GPT_OSS, started(speculative=Speculative("eagle", 4)))
    assert oss.cells.cell == pytest.approx(13 * 2048 + 0.8 * 12 * 2048)


def compressed_shape(shape: ModelShape) -> ModelShape:
    """DeepSeek-V4-Flash: 43 layers with a window, 21 of ratio 4 with an index, 20 of ratio 128."""
    row = CacheLayers(CacheKind.FULL, 21, 1, 512, 0, fixed_bytes_per_token=584)
    return replace(
        shape,
        id="deepseek-ai/DeepSeek-V4-Flash",
        architecture="DeepseekV4ForCausalLM",
        num_layers=43,
        max_position_embeddings=1_048_576,
        cache_layers=(
            replace(row, kind=CacheKind.SLIDING, count=43, window_tokens=128),
            replace(row, tokens_per_state=4),
            replace(row, count=20, tokens_per_state=128),
            CacheLayers(
                CacheKind.FULL, 21, 1, 128, 0, fixed_bytes_per_token=132, tokens_per_state=4, role=CacheRole.INDEX
            ),
        ),
    )


@pytest.mark.parametrize(
    ("deployment", "rest", "cell", "tokens", "running", "sliding"),
    [
        (started(), 34_410_741_104, 7086.75, 4_472_320, 256, 447_232),
        (started(max_num_seqs=64), 34_832_184_770, 7086.75, 4_815_872, 64, 481_536),
        (
            started(flags=SglangFlags(swa_full_tokens_ratio=1.0)),
            34_410_741_104,
            35_774.25,
            885_760,
            256,
            885_760,
        ),
        (
            started(flags=SglangFlags(max_total_tokens=100_000)),
            34_410_741_104,
            7086.75,
            99_840,
            256,
            9_984,
        ),
        (
            started(speculative=Speculative("eagle", 4)),
            34_410_741_104,
            7086.75 * 44 / 43 + 0.1 * 6720 * 44 / 43,
            3_651_328,
            256,
            365_056,
        ),
    ],
)
def test_compressed_pools(
    catalog: Catalog, deployment: Deployment, rest: int, cell: float, tokens: int, running: int, sliding: int
) -> None:
    """21 x (585 + 132) / 4 + 20 x 864 / 128 + 0.1 x (43 x 585 + 21 x 320); rings of 8 or 16 rows."""
    shape = compressed_shape(catalog.model_shape(LLAMA))
    got = plan(catalog, shape, deployment, rest_gib=units.bytes_to_gib(rest))
    assert got.cells.cell == pytest.approx(cell)
    assert (got.pools.tokens, got.max_running, got.server.page_tokens) == (tokens, running, 256)
    assert got.pools.sliding_tokens == sliding


def test_an_older_release_pads_no_compressed_page_and_has_a_ring_a_window(catalog: Catalog) -> None:
    """21 x (584 + 132) / 4 + 20 x 584 / 128 + 0.1 x (43 x 584 + 21 x 640)."""
    got = plan(catalog, compressed_shape(catalog.model_shape(LLAMA)), started(), version="0.5.16")
    assert got.cells.cell == pytest.approx(21 * 179 + 20 * 584 / 128 + 0.1 * (43 * 584 + 21 * 640))


def test_an_older_release_charges_every_layer_for_an_indexer_and_no_scales(catalog: Catalog) -> None:
    fp8 = started(kv_cache_dtype_name="fp8_e4m3")
    assert plan(catalog, "zai-org/GLM-5.2", fp8, version="0.5.16").cells.cell == 78 * (576 + 132)
    assert plan(catalog, "zai-org/GLM-5.2", fp8).cells.cell == 78 * 656 + 21 * 132


@pytest.mark.parametrize(
    ("model", "capability", "flags", "backend", "page"),
    [
        (LLAMA, "9.0", SglangFlags(), "fa3", 1),
        (LLAMA, "8.0", SglangFlags(), "flashinfer", 1),
        (LLAMA, "10.0", SglangFlags(), "trtllm_mha", 64),
        (LLAMA, "10.0", SglangFlags(page_size_tokens=16), "trtllm_mha", 16),
        (LLAMA, "10.0", SglangFlags(page_size_tokens=8), "trtllm_mha", 64),
        (LLAMA, "10.0", SglangFlags(attention_backend="fa4"), "fa4", 128),
        (LLAMA, "10.0", SglangFlags(attention_backend="triton"), "triton", 1),
        (LLAMA, "12.0", SglangFlags(), "flashinfer", 1),
        (LLAMA, "gfx942", SglangFlags(), "aiter", 1),
        (DEEPSEEK, "9.0", SglangFlags(), "fa3", 1),
        (DEEPSEEK, "9.0", SglangFlags(attention_backend="flashmla"), "flashmla", 64),
        (DEEPSEEK, "10.0", SglangFlags(), "trtllm_mla", 64),
        (DEEPSEEK, "8.9", SglangFlags(), "triton", 1),
        (GPT_OSS, "8.9", SglangFlags(), "triton", 1),
        ("google/gemma-4-31B-it", "9.0", SglangFlags(), "triton", 1),
        ("XiaomiMiMo/MiMo-V2-Flash", "10.0", SglangFlags(), "fa4", 128),
        ("zai-org/GLM-5-FP8", "9.0", SglangFlags(page_size_tokens=1), "dsa", 64),
    ],
)
def test_backend_and_page(
    catalog: Catalog, rules: SglangRules, model: str, capability: str, flags: SglangFlags, backend: str, page: int
) -> None:
    shape = catalog.model_shape(model)
    server = resolve(rules, shape, gpu_of(catalog, capability=capability), started(flags=flags), H100_MIB)
    assert (server.backend, server.page_tokens) == (backend, page)


def test_gated_hybrids_on_data_centre_blackwell(catalog: Catalog, rules: SglangRules) -> None:
    shape, gpu = with_states(catalog.model_shape(LLAMA)), gpu_of(catalog, capability="10.0")
    cached = resolve(rules, shape, gpu, started(), H100_MIB)
    paged = SglangFlags(page_size_tokens=128)
    uncached = resolve(rules, shape, gpu, started(flags=paged, prefix_caching=False), H100_MIB)
    assert (cached.backend, cached.page_tokens) == ("triton", 1)
    assert (uncached.backend, uncached.page_tokens) == ("trtllm_mha", 64)


@pytest.mark.parametrize(("version", "backend", "page"), [("0.5.16", "flashinfer", 1), ("0.5.23", "trtllm_mha", 64)])
def test_an_older_release_runs_nemotron_h_on_flashinfer(
    catalog: Catalog, version: str, backend: str, page: int
) -> None:
    model = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"
    server = plan(catalog, model, started(), version=version, capability="10.0").server
    assert (server.backend, server.page_tokens) == (backend, page)


@pytest.mark.parametrize(("version", "page"), [("0.5.16", 64), ("0.5.23", 128)])
def test_an_older_release_has_no_pages_of_128_on_blackwell(catalog: Catalog, version: str, page: int) -> None:
    flags = SglangFlags(page_size_tokens=128)
    assert plan(catalog, LLAMA, started(flags=flags), version=version, capability="10.0").server.page_tokens == page


@pytest.mark.parametrize(("version", "pooled"), [("0.5.16", False), ("0.5.23", True)])
def test_an_older_release_has_no_states_for_qwen_as_text(catalog: Catalog, version: str, pooled: bool) -> None:
    assert (plan(catalog, "Qwen/Qwen3.8-27B", started(), version=version).states is not None) is pooled


def test_a_mixed_checkpoint_takes_its_cache_from_the_companion(catalog: Catalog) -> None:
    """Only hf_quant_config.json declares fp8: 10 layers x 2 heads x (256 + 256) x 1 B."""
    asked = plan(catalog, "nvidia/Qwen3.6-35B-A3B-NVFP4", started(kv_cache_dtype_name="auto"))
    assert (asked.server.kv_dtype, asked.cells.cell) == ("fp8_e4m3", 10_240)


def test_an_nvfp4_cache_is_decoded_in_pages_of_64(catalog: Catalog) -> None:
    deployment = started(flags=SglangFlags(attention_backend="flashinfer"), kv_cache_dtype_name="nvfp4")
    assert plan(catalog, LLAMA, deployment, capability="12.0").server.page_tokens == 64


@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        (SglangFlags(), False),
        (SglangFlags(attention_backend="flashinfer"), False),
        (SglangFlags(attention_backend="triton"), True),
        (SglangFlags(unified_memory=True), True),
    ],
)
def test_what_reads_an_nvfp4_cache(catalog: Catalog, flags: SglangFlags, refused: bool) -> None:
    facts = catalog.engine("sglang", "0.5.23")
    deployment = started(flags=flags, kv_cache_dtype_name="nvfp4")
    sizing = size(catalog.model_shape(LLAMA), catalog.gpu("B200"), facts, deployment)
    assert bool(sizing.refusals) is refused


@pytest.mark.parametrize(("version", "refused"), [("0.5.16", True), ("0.5.23", False)])
def test_unified_memory_needs_a_backend_of_its_own(catalog: Catalog, version: str, refused: bool) -> None:
    """0.5.16 has it for Triton alone, and a Hopper GPU takes fa3 of itself."""
    deployment = started(flags=SglangFlags(unified_memory=True))
    sizing = size(catalog.model_shape(LLAMA), catalog.gpu("H100-SXM"), catalog.engine("sglang", version), deployment)
    assert any("page-major" in refusal.message for refusal in sizing.refusals) is refused


def test_fa3_leaves_an_e5m2_cache_to_triton(catalog: Catalog, rules: SglangRules) -> None:
    shape, gpu = catalog.model_shape(LLAMA), gpu_of(catalog)
    for name, backend in (("fp8_e4m3", "fa3"), ("fp8_e5m2", "triton")):
        assert resolve(rules, shape, gpu, started(kv_cache_dtype_name=name), H100_MIB).backend == backend


def test_generations(catalog: Catalog) -> None:
    names = [generation_of(gpu_of(catalog, capability=capability)) for capability in GENERATIONS]
    assert names == [
        Generation.OLDER,
        Generation.AMPERE,
        Generation.HOPPER,
        Generation.BLACKWELL,
        Generation.BLACKWELL_CONSUMER,
        Generation.ROCM,
    ]


def test_long_contexts_on_rocm_leave_less(catalog: Catalog) -> None:
    whole = plan(catalog, LLAMA, started(max_model_len=8192), capability="gfx942").fraction
    assert plan(catalog, LLAMA, started(max_model_len=8193), capability="gfx942").fraction == whole * 0.85


def sized(catalog: Catalog, deployment: Deployment, given: GivenTerms | None = None, model: str = LLAMA) -> Sizing:
    return size(
        catalog.model_shape(model), catalog.gpu("H100-SXM"), catalog.engine("sglang", "0.5.23"), deployment, given
    )


def test_given_memory_replaces_the_prediction(catalog: Catalog) -> None:
    """72 GiB after weights of 78.5 before: 72 − 78.5 x 0.17."""
    given = GivenTerms(free_before_weights_gib=78.5, free_after_weights_gib=72.0)
    sizing = sized(catalog, started(), given)
    assert sizing.pool_tokens == int(int((72.0 - 78.5 * (1 - 0.83)) * 2**30) // 131_072)
    assert sized(catalog, started(), GivenTerms(available_gib=52.31566)).pool_tokens == 428_569


def test_terms_close(catalog: Catalog) -> None:
    for model in (LLAMA, QWEN_VL, GPT_OSS):
        sizing = sized(catalog, started(), model=model)
        left = sizing.budget.gib - sum(term.gib for term in sizing.terms)
        assert left == pytest.approx(sizing.available_kv_gib, abs=1e-6)


def test_two_pools_told_as_one(catalog: Catalog) -> None:
    """Short requests fill the sliding pool first, and the sizing says so."""
    sizing = sized(catalog, started(), model=GPT_OSS)
    assert sizing.sliding_pool_tokens is not None
    short = sizing.pool_tokens * sizing.bytes_per_token / (sizing.bytes_per_token + sizing.sliding_bytes_per_token)
    assert short == pytest.approx(sizing.sliding_pool_tokens, rel=1e-4)


def test_a_model_of_states_alone_has_their_pool_for_its_only_one(catalog: Catalog) -> None:
    """Falcon-Mamba: 64 layers of 3 x 8,192 x 2 B and 8,192 x 16 x 4 B; three slots a request."""
    sizing = sized(catalog, started(), GivenTerms(available_gib=10.0), model="tiiuae/falcon-mamba-7b")
    slot = 64 * (3 * 8192 * 2 + 8192 * 16 * 4)
    assert (sizing.bytes_per_token, sizing.bytes_per_block) == (0.0, slot)
    assert sizing.pool_state_bytes_per_request == 3 * slot
    assert sizing.state_slots == sizing.num_blocks
    assert sizing.max_num_seqs == sizing.num_blocks // 3


def test_a_sizing_is_one_worker(catalog: Catalog) -> None:
    one, two = sized(catalog, started(4)), sized(catalog, started(8, attention_dp=2))
    assert (one.workers, two.workers) == (1, 2)
    assert two.bytes_per_token == one.bytes_per_token


def test_an_unknown_driver_total_is_a_labelled_guess(catalog: Catalog) -> None:
    gpu = next(gpu for gpu in catalog.gpus.values() if gpu.memory_driver_mib is None)
    shape, facts = catalog.model_shape("Qwen/Qwen3-1.7B"), catalog.engine("sglang", "0.5.23")
    budget = size(shape, gpu, facts, started()).budget
    assert budget.origin is Origin.GUESS
    assert "not known" in budget.source
