"""Weights of a rank against the parameters that vLLM creates and against what it logs as loaded."""

from __future__ import annotations

import csv
import lzma
from collections import Counter
from dataclasses import replace

import pytest

from planner import units
from planner.catalog.load import Catalog
from planner.catalog.matrix import Matrix, Part, Split, Stored
from planner.catalog.model_shape import ModelShape
from planner.catalog.quant import stored_formats as formats
from planner.memory.allocator import occupy
from planner.memory.loading import Loading, as_constructed, loading_of
from planner.memory.tensors import matrix_tensors, on_rank, refined
from planner.memory.types import Deployment, KvDtype, SglangFlags, VllmFlags, WeightDtype
from planner.memory.weights import latent_copy, pipeline_stages, weight_bytes

from .conftest import DATA

LARGEST_ERROR = 0.003
"""Share of the rank's bytes."""
NOT_MODELLED = {
    ("BAAI/bge-large-en-v1.5", "0.33.0"): "an encoder: it keeps no cache, and is refused by name",
    ("meta-llama/Llama-3.2-11B-Vision-Instruct", "0.19.0"): (
        "built from Transformers' classes, which load the tower although only the language model is asked for"
    ),
}
LLAMA_8B, QWEN_06B = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-0.6B"
CONSTRUCTED = Loading(constructed=True)


def oracle_rows() -> list[dict[str, str]]:
    with lzma.open(DATA / "vllm_weights.csv.xz", "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def deployed(tp: int = 1, **settings: object) -> Deployment:
    return Deployment(tp, WeightDtype.BF16, KvDtype.BF16, **settings)  # type: ignore[arg-type]


def native(shape: ModelShape) -> WeightDtype:
    return WeightDtype(shape.native_weight_dtype)


def test_parameters_of_a_rank_equal_those_that_the_engine_creates(catalog: Catalog) -> None:
    """All 598 rows of vLLM 0.11.0, 0.19.0 and 0.33.0: within 0.3 %, and three quarters of them to the byte."""
    found, exact, wrong = Counter[str](), Counter[str](), []
    for row in oracle_rows():
        version, expected = row["vllm_version"], int(row["weight_bytes_per_rank"])
        if (row["hf_id"], version) in NOT_MODELLED:
            continue
        shape, facts = catalog.model_shape(row["hf_id"]), catalog.engine("vllm", version)
        text_only = deployed(int(row["tp"]), vllm=VllmFlags(language_model_only=True))
        total = weight_bytes(shape, native(shape), as_constructed(facts, loading_of(facts, text_only))).total
        found[version] += 1
        exact[version] += total == expected
        if abs(total / expected - 1) > LARGEST_ERROR:
            wrong.append((row["hf_id"], version, row["tp"], total / expected - 1))
    assert wrong == []
    assert found == {"0.33.0": 291, "0.19.0": 151, "0.11.0": 153}
    assert exact.total() >= 480


def test_rotary_tables_equal_the_buffers_of_the_engine(catalog: Catalog) -> None:
    """vLLM 0.33.0 at TP 1; what is left are scales and masks of a few MiB at most (Mamba layers 7, Kimi-K3 41)."""
    errors = []
    for row in oracle_rows():
        if row["tp"] == "1" and row["vllm_version"] == "0.33.0" and (row["hf_id"], "0.33.0") not in NOT_MODELLED:
            errors.append(catalog.model_shape(row["hf_id"]).rotary_bytes - int(row["buffer_bytes"]))
    assert len(errors) > 100
    assert sum(abs(error) > units.BYTES_PER_MIB for error in errors) <= 5
    assert max(errors) < units.BYTES_PER_MIB


LOGGED = [
    ("meta-llama/Llama-3.1-8B-Instruct", "0.11.0", "H100-SXM", 1, "bf16", 14.99),
    ("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", "H100-SXM", 2, "bf16", 7.51),
    ("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", "H100-SXM", 1, "fp8", 8.49),
    ("Qwen/Qwen2.5-7B-Instruct", "0.19.0", "H100-SXM", 1, "bf16", 14.25),
    ("Qwen/Qwen3-32B", "0.11.0", "H100-SXM", 2, "bf16", 30.59),
    ("Qwen/Qwen3-14B", "0.17.0", "H100-SXM", 1, "bf16", 27.52),
    (QWEN_06B, "0.11.0", "H100-SXM", 1, "bf16", 1.12),
    ("openai/gpt-oss-20b", "0.11.0", "H100-SXM", 1, "mxfp4", 13.47),
    ("openai/gpt-oss-120b", "0.11.0", "H100-SXM", 1, "mxfp4", 64.38),
    ("openai/gpt-oss-120b", "0.9.0", "A100-80GB-SXM", 4, "mxfp4", 17.2217),
    ("MiniMaxAI/MiniMax-M2.5", "0.15.1", "RTXPRO6000-Server", 4, "fp8", 53.75),
    ("google/gemma-4-26B-A4B", "0.19.0", "H100-SXM", 1, "bf16", 48.5),
    ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "0.15.1", "RTXPRO6000-Server", 1, "int4-awq", 37.09),
    ("zai-org/GLM-5-FP8", "0.20.0", "H200-SXM", 8, "fp8", 89.34),
]
"""What start-up logs print as loaded, GiB per GPU (a selection; every row is compared where all logs are)."""


@pytest.mark.parametrize(("model", "version", "gpu", "tp", "dtype", "gib"), LOGGED)
def test_loaded_bytes_are_those_of_start_up_logs(
    catalog: Catalog, model: str, version: str, gpu: str, tp: int, dtype: str, gib: float
) -> None:
    loading = loading_of(catalog.engine("vllm", version), deployed(tp), catalog.gpu(gpu))
    loaded = weight_bytes(catalog.model_shape(model), WeightDtype(dtype), loading)
    assert units.bytes_to_gib(loaded.total) == pytest.approx(gib, rel=0.004)


# Parts and dtypes


def test_parts_add_up_and_a_tied_head_is_counted_once(catalog: Catalog) -> None:
    untied = weight_bytes(catalog.model_shape(LLAMA_8B), WeightDtype.BF16, Loading(2, constructed=True))
    assert untied.total == untied.embedding + untied.lm_head + untied.dense
    tied = weight_bytes(catalog.model_shape("Qwen/Qwen3-1.7B"), WeightDtype.BF16, CONSTRUCTED)
    assert tied.total == tied.embedding + tied.dense
    assert tied.lm_head == tied.embedding
    per_layer = weight_bytes(catalog.model_shape("google/gemma-4-E4B-it"), WeightDtype.BF16, CONSTRUCTED)
    assert per_layer.lm_head == 262_144 * 2_560 * 2 < per_layer.embedding


def test_loading_occupies_little_more_than_the_parameters(catalog: Catalog) -> None:
    """Llama-3.1-8B: a table of positions of 32 MiB; every large tensor is a whole number of 2 MiB."""
    shape = catalog.model_shape(LLAMA_8B)
    parameters = weight_bytes(shape, WeightDtype.BF16, CONSTRUCTED)
    loaded = weight_bytes(shape, WeightDtype.BF16, Loading())
    assert loaded.total - parameters.total == pytest.approx(131_072 * 128 * 2, abs=200_000)
    assert loaded.dense == parameters.dense


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(WeightDtype.FP8, 8), (WeightDtype.INT4_AWQ, 4 + 20 / 128), (WeightDtype.NVFP4, 4.5), (WeightDtype.BNB_4BIT, 4.5)],
)
def test_a_chosen_format_converts_every_linear_matrix(catalog: Catalog, dtype: WeightDtype, bits: float) -> None:
    shape = catalog.model_shape(LLAMA_8B)
    linear = sum(matrix.elements for matrix in shape.matrices if matrix.linear)
    saved = weight_bytes(shape, WeightDtype.BF16, CONSTRUCTED).total - weight_bytes(shape, dtype, CONSTRUCTED).total
    assert saved == pytest.approx(linear * (16 - bits) / 8, rel=1e-4)


def test_mxfp4_is_chosen_for_experts_only(catalog: Catalog) -> None:
    dense = catalog.model_shape(LLAMA_8B)
    assert weight_bytes(dense, WeightDtype.MXFP4, CONSTRUCTED) == weight_bytes(dense, WeightDtype.BF16, CONSTRUCTED)


def test_int4_70b_is_39_8_gb(catalog: Catalog) -> None:
    """The published AWQ checkpoint of Llama-3-70B is 39.77 GB."""
    shape = catalog.model_shape("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4")
    assert weight_bytes(shape, WeightDtype.INT4_AWQ, CONSTRUCTED).total == pytest.approx(39.77e9, rel=0.001)


# Division among ranks


@pytest.mark.parametrize(
    ("split", "heads", "tp", "expected"),
    [
        (Split.WHOLE, 0, 4, (1, 1024, 512)),
        (Split.COLUMN, 0, 4, (1, 256, 512)),
        (Split.ROW, 0, 4, (1, 1024, 128)),
        (Split.KV_HEADS, 8, 4, (1, 256, 512)),
        (Split.KV_HEADS, 2, 8, (1, 512, 512)),
        (Split.VOCABULARY, 0, 4, (1, 256, 512)),
    ],
)
def test_share_of_a_matrix(split: Split, heads: int, tp: int, expected: tuple[int, int, int]) -> None:
    matrix = Matrix("q", Part.MLP, 1024, 512, (0,), split=split, heads=heads)
    assert on_rank(matrix, Loading(tp)) == expected


def test_vocabulary_is_padded_before_it_is_divided() -> None:
    """50,257 rows become 50,304; a rank of eight holds 6,288."""
    matrix = Matrix("embed_tokens", Part.EMBEDDING, 50_257, 768, split=Split.VOCABULARY, linear=False)
    assert on_rank(matrix, Loading(8)) == (1, 6_288, 768)


def test_expert_parallelism_keeps_experts_whole() -> None:
    up = Matrix("mlp.experts.*.up_proj", Part.EXPERTS, 768, 2048, (0,), copies=128, split=Split.COLUMN)
    assert on_rank(up, Loading(8)) == (128, 96, 2048)
    assert on_rank(up, Loading(8, expert_parallel=True)) == (16, 768, 2048)


def test_attention_data_parallelism_replicates_attention_and_embedding(catalog: Catalog) -> None:
    shape = catalog.model_shape(LLAMA_8B)
    whole, split = (
        weight_bytes(shape, WeightDtype.BF16, Loading(8, attention_dp=dp, constructed=True)) for dp in (8, 1)
    )
    attention = sum(matrix.elements for matrix in shape.matrices if matrix.part is Part.ATTENTION)
    assert whole.embedding == 8 * split.embedding
    assert whole.dense - split.dense == attention * 2 * 7 / 8
    assert whole.lm_head == split.lm_head


@pytest.mark.parametrize(
    ("layers", "pp", "vllm", "sglang"),
    [(32, 4, (8, 8, 8, 8), (8, 8, 8, 8)), (61, 4, (15, 15, 16, 15), (15, 15, 15, 16)), (7, 3, (2, 3, 2), (2, 2, 3))],
)
def test_pipeline_stages(layers: int, pp: int, vllm: tuple[int, ...], sglang: tuple[int, ...]) -> None:
    assert tuple(map(len, pipeline_stages(layers, pp, "before the last"))) == vllm
    assert tuple(map(len, pipeline_stages(layers, pp, "last"))) == sglang


def test_stages_without_layers_are_told_apart_only_twice() -> None:
    assert tuple(map(len, pipeline_stages(2, 3, "before the last"))) == (1, 1, 0)
    assert tuple(map(len, pipeline_stages(2, 2**31 - 1, "before the last"))) == (0, 1, 1, 0)


def test_the_fullest_pipeline_stage_counts(catalog: Catalog) -> None:
    """Llama-3.1-8B over two stages: the last has half the layers, the head and the final norm."""
    shape = catalog.model_shape(LLAMA_8B)
    one, two = (weight_bytes(shape, WeightDtype.BF16, Loading(pp=pp, constructed=True)) for pp in (1, 2))
    norm = 4096 * 2
    assert two.total == one.lm_head + (one.dense - norm) / 2 + norm
    tied = catalog.model_shape(QWEN_06B)
    last = weight_bytes(tied, WeightDtype.BF16, Loading(pp=2, constructed=True))
    assert last.embedding > 0, "the last stage holds its own copy of a tied table"


# Formats


@pytest.mark.parametrize(
    ("stored", "tp", "expected"),
    [
        (formats.fp8_tensor(static=True), 1, 512 * 256 + 4 + 4),
        (formats.fp8_channel(), 1, 512 * 256 + 512 * 4),
        (formats.fp8_block(128, 128), 1, 512 * 256 + 4 * 2 * 4),
        (formats.fp8_block(128, 128), 4, 512 * 64 + 4 * 1 * 4),
        (formats.awq(4, 128), 1, 512 * 256 // 2 + 512 * 2 * 2 + 512 * 2 // 2),
        (formats.nvfp4(), 1, 512 * 256 // 2 + 512 * 16 + 8),
        (formats.mxfp4(), 1, 512 * 256 // 2 + 512 * 8),
        (formats.mxfp8(), 1, 512 * 256 + 512 * 8),
        (formats.bnb_4bit(), 1, 512 * 256 // 2 + 512 * 4 * 4),
        (formats.packed_int(4, 32, symmetric=True, index_bytes=0, experts=False), 1, 512 * 256 // 2 + 512 * 8 * 2 + 16),
    ],
)
def test_bytes_of_a_stored_matrix(stored: Stored, tp: int, expected: int) -> None:
    """512 rows, 256 columns that are divided."""
    down = Matrix("mlp.down_proj", Part.MLP, 512, 256, (0,), split=Split.ROW, stored=stored)
    assert matrix_tensors(down, stored, Loading(tp, constructed=True)).total == expected


def test_gptq_in_order_of_activation_repeats_its_scales() -> None:
    down = Matrix("mlp.down_proj", Part.MLP, 512, 1024, (0,), split=Split.ROW)
    plain, ordered = (
        matrix_tensors(down, formats.gptq(4, 128, ordered=o, experts=False), Loading(4, constructed=True))
        for o in (False, True)
    )
    assert (plain.scales, ordered.scales) == (512 * 2 * 2, 512 * 8 * 2)
    assert ordered.indexes == 256 * 4


def test_gptq_drops_zero_points_and_indexes_once_it_is_loaded() -> None:
    down = Matrix("mlp.down_proj", Part.MLP, 512, 1024, (0,), split=Split.ROW)
    loaded = matrix_tensors(down, formats.gptq(4, 128, ordered=False, experts=False), Loading())
    assert (loaded.zero_points, loaded.indexes) == (0, 0)
    assert loaded.elements == 512 * 1024 // 2


def test_fp8_blocks_of_experts_are_refined_where_a_rank_cuts_them() -> None:
    """Width 1,536 over 8 ranks is 192: blocks of 128 become 64; older releases keep them (and refuse)."""
    up = Matrix("mlp.experts.*.up_proj", Part.EXPERTS, 1536, 3072, (0,), copies=256, split=Split.COLUMN)
    block = formats.fp8_block(128, 128)
    assert refined(block, up, Loading(8, fp8_least_block=32)).scale_rows == 64
    assert refined(block, up, Loading(4, fp8_least_block=32)) == block
    assert refined(block, up, Loading(8)) == block


def test_mxfp4_experts_are_padded(catalog: Catalog) -> None:
    """gpt-oss at TP 8: a width of 360 is padded to 384 (Hopper) or, with the hidden size, to 384 x 3,072 (Marlin)."""
    up = Matrix("mlp.experts.*.up_proj", Part.EXPERTS, 2880, 2880, (0,), copies=1, split=Split.COLUMN)
    hopper = matrix_tensors(up, formats.mxfp4(), Loading(8, mxfp4_width_multiple=64))
    marlin = matrix_tensors(up, formats.mxfp4(), Loading(8, mxfp4_width_multiple=128, mxfp4_hidden_multiple=256))
    laid_out = matrix_tensors(up, formats.mxfp4(), Loading(8, mxfp4_layout_multiple=256))
    assert hopper.elements == 384 * 2880 // 2
    assert marlin.elements == 384 * 3072 // 2
    assert (laid_out.elements, laid_out.scales) == (360 * 3072 // 2, 360 * 90)


def test_a_format_that_the_release_does_not_read_stays_at_16_bits() -> None:
    up = Matrix("mlp.up_proj", Part.MLP, 512, 256, (0,), split=Split.COLUMN)
    stored = replace(formats.nvfp4(), name="W4A16_NVFP4")
    assert matrix_tensors(up, stored, Loading(unread=("W4A16_NVFP4",))).total == 512 * 256 * 2
    assert matrix_tensors(up, stored, Loading(kept=("mlp.up_proj",))).total == 512 * 256 * 2
    assert matrix_tensors(up, stored, Loading()).total < 512 * 256


def test_scales_of_bitsandbytes_stay_bytes_in_old_releases(catalog: Catalog) -> None:
    """Logged for Llama-3.1-8B in 4 bits by a release of February 2025: 5.3541 GiB."""
    shape = catalog.model_shape(LLAMA_8B)
    old = weight_bytes(shape, WeightDtype.BNB_4BIT, loading_of(catalog.engine("vllm", "0.7.2"), deployed()))
    assert units.bytes_to_gib(old.total) == pytest.approx(5.3541, rel=0.003)
    new = weight_bytes(shape, WeightDtype.BNB_4BIT, loading_of(catalog.engine("vllm", "0.11.0"), deployed()))
    linear = sum(matrix.elements for matrix in shape.matrices if matrix.linear)
    assert new.dense - old.dense == linear / 64 * 3


def test_latents_are_kept_twice_where_they_are_dequantised() -> None:
    up = Matrix("self_attn.kv_b_proj", Part.ATTENTION, 32_768, 512, (0,), split=Split.COLUMN)
    assert latent_copy(up, None, Loading(8)) == 0
    assert latent_copy(up, formats.fp8_block(128, 128), Loading(8)) == 32_768 * 512 * 2 // 8
    assert latent_copy(up, None, Loading(8, latents_copied=True)) == 32_768 * 512 * 2 // 8


# Loading


def test_towers_are_left_out_only_by_releases_that_can(catalog: Catalog) -> None:
    text_only = deployed(vllm=VllmFlags(language_model_only=True))
    assert loading_of(catalog.engine("vllm", "0.11.0"), text_only).vision
    assert not loading_of(catalog.engine("vllm", "0.33.0"), text_only).vision
    assert not loading_of(catalog.engine("sglang", ""), deployed(sglang=SglangFlags(language_only=True))).vision
    shape = catalog.model_shape("Qwen/Qwen3-VL-8B-Instruct")
    with_tower, without = (weight_bytes(shape, WeightDtype.BF16, Loading(vision=vision)) for vision in (True, False))
    assert with_tower.vision > 1e9
    assert without.vision == 0.0


def test_the_measure_follows_engine_and_gpu(catalog: Catalog) -> None:
    amd, nvidia = catalog.gpu("MI300X"), catalog.gpu("H100-SXM")
    older, newer = catalog.engine("vllm", "0.19.0"), catalog.engine("vllm", "0.33.0")
    assert loading_of(older, deployed(), amd).measure == "reserved"
    assert loading_of(newer, deployed(), amd).measure == "allocated"
    assert loading_of(older, deployed(), nvidia).measure == "allocated"
    assert loading_of(catalog.engine("sglang", ""), deployed(), nvidia).measure == "reserved"


MIB = units.BYTES_PER_MIB


@pytest.mark.parametrize(
    ("sizes", "allocated", "reserved"),
    [
        ([1], 512, 2 * MIB),
        ([MIB, MIB], 2 * MIB, 2 * MIB),
        ([5 * MIB, 5 * MIB], 10 * MIB, 20 * MIB),
        ([31 * MIB], 32 * MIB, 32 * MIB),
        ([30 * MIB + MIB // 2], 30 * MIB + MIB // 2, 32 * MIB),
        ([30 * MIB + MIB // 2, MIB + MIB // 4], 32 * MIB, 32 * MIB),
        ([], 0, 0),
    ],
)
def test_allocator(sizes: list[int], allocated: int, reserved: int) -> None:
    """A remainder of up to 1 MiB belongs to the tensor; a larger one is given to the next that fits."""
    found = occupy(sizes)
    assert (found.allocated, found.reserved) == (allocated, reserved)
