"""What a step reads and multiplies, counted by hand from the models' configs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest

from planner.catalog.load import Catalog
from planner.memory.types import KvDtype, Sizing, WeightDtype
from planner.speed.work import StepWork, picked_tokens, stack_work, work_of

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
QWEN_MOE = "Qwen/Qwen3-30B-A3B"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
GLM_5 = "zai-org/GLM-5-FP8"
GPT_OSS = "openai/gpt-oss-120b"
QWEN_HYBRID = "Qwen/Qwen3.5-397B-A17B"
GPU = "H200-SXM"

# Llama-3.1-8B: 6,979,321,856 linear + 266,240 norms + 525,336,576 head parameters are streamed (not the embedding).
LLAMA_LINEAR, LLAMA_NORMS, LLAMA_HEAD = 6_979_321_856, 266_240, 128_256 * 4096

Work = Callable[..., StepWork]


@pytest.fixture
def work(catalog: Catalog, sizing_of: Callable[..., Sizing]) -> Work:
    def build(model: str, **deployment: object) -> StepWork:
        shape = catalog.model_shape(model)
        return work_of(shape, sizing_of(shape, GPU, **deployment))

    return build


def test_dense_model_by_hand(work: Work) -> None:
    w = work(LLAMA_8B)
    assert w.dense_bytes == 2 * (LLAMA_LINEAR + LLAMA_NORMS + LLAMA_HEAD)
    assert w.expert_bytes == w.expert_hit_share == 0
    assert w.cache_bytes_per_token == 32 * 8 * 128 * 2 * 2  # layers x KV heads x head dim x (K, V) x bytes
    assert w.dense_flops_16bit == 2 * (LLAMA_LINEAR + LLAMA_NORMS)
    assert w.dense_flops_4bit == w.dense_flops_8bit == 0
    assert w.head_flops == 2 * LLAMA_HEAD
    assert w.attention_flops == 2 * 32 * 128 * 32  # heads x head dim x layers, causal
    assert (w.dense_layers, w.moe_layers, w.sparse_layers, w.linear_layers) == (32, 0, 0, 0)
    assert w.allreduces == w.allreduce_bytes == 0  # alone


def test_tensor_parallelism_by_hand(work: Work) -> None:
    w = work(LLAMA_8B, tp=4)
    assert w.dense_bytes == 2 * ((LLAMA_LINEAR + LLAMA_HEAD) / 4 + LLAMA_NORMS)
    assert w.cache_bytes_per_token == 131_072 / 4
    assert w.attention_flops == 2 * 32 * 128 * 32 / 4
    assert w.allreduces == 64
    assert w.allreduce_bytes == 64 * 4096 * 2 * (2 * 3 / 4)


def test_key_value_heads_are_repeated_beyond_their_number(work: Work) -> None:
    """Qwen3-30B has 4 KV heads: with tp 8 each is on two ranks."""
    four, eight = (work(QWEN_MOE, tp=tp) for tp in (4, 8))
    assert eight.cache_bytes_per_token == four.cache_bytes_per_token == 48 * 128 * 2 * 2
    assert four.cache_bytes_per_token == work(QWEN_MOE).cache_bytes_per_token / 4


def test_experts_by_hand(work: Work) -> None:
    """48 layers of 128 experts of three 768 x 2048 matrices, 8 for each token."""
    w = work(QWEN_MOE, tp=2)
    expert = 3 * 768 * 2048
    assert w.expert_bytes == 48 * 128 * expert * 2 / 2
    assert w.expert_flops_16bit == 2 * 48 * 8 * expert / 2
    assert w.expert_hit_share == 8 / 128
    assert (w.dense_layers, w.moe_layers) == (0, 48)


def test_latent_is_whole_on_every_rank(work: Work) -> None:
    one, eight = (work(DEEPSEEK, tp=tp, weight_dtype=WeightDtype.FP8) for tp in (1, 8))
    assert one.cache_bytes_per_token == eight.cache_bytes_per_token == 61 * (512 + 64) * 2
    assert one.window_bytes_per_token == one.sparse_layers == 0
    assert (one.dense_layers, one.moe_layers) == (3, 58)
    # 58 layers, 8 of 256 experts a token, three 2048 x 7168 matrices each, stored in 8 bits
    assert eight.expert_flops_8bit == 2 * 58 * 8 * 3 * 2048 * 7168 / 8


def test_indexer_reads_its_keys_in_full_and_picks_at_most_2048(work: Work) -> None:
    """GLM-5: 78 layers; an index key of 128 bytes and a 4-byte scale; a latent of 512 + 64."""
    w = work(GLM_5, tp=8, weight_dtype=WeightDtype.FP8)
    assert w.cache_bytes_per_token == 78 * 132
    assert w.window_bytes_per_token == 78 * 576 * 2
    assert w.window_tokens == 2048
    assert w.sparse_layers == 78
    # scores of 32 index heads of 128, causal, on every rank; attention of a rank's 8 heads over 2,048 latents
    assert w.attention_flops == 32 * 128 * 78
    assert w.window_flops == 4 * 8 * 576 * 78 * 2048


def test_indexer_where_the_engine_stores_the_latent_in_fewer_bytes(
    catalog: Catalog, sizing_of: Callable[..., Sizing]
) -> None:
    """vLLM keeps GLM-5's latent in 576 bytes on a B200 whatever it was asked for: the keys are read in full still."""
    shape = catalog.model_shape(GLM_5)
    sizing = replace(sizing_of(shape, GPU, tp=8, weight_dtype=WeightDtype.FP8), bytes_per_token=78 * (576 + 132))
    w = work_of(shape, sizing)
    assert w.cache_bytes_per_token == 78 * 132
    assert w.window_bytes_per_token == 78 * 576


def test_windows_by_hand(work: Work) -> None:
    """gpt-oss-120b: 18 layers of each kind, 8 KV heads of 64, a window of 128; MXFP4 experts."""
    w = work(GPT_OSS, weight_dtype=WeightDtype.MXFP4)
    assert w.cache_bytes_per_token == w.window_bytes_per_token == 18 * 8 * 64 * 2 * 2
    assert w.window_tokens == 128
    assert w.attention_flops == 2 * 64 * 64 * 18
    assert w.window_flops == 4 * 64 * 64 * 128 * 18
    assert w.expert_flops_4bit == 2 * 36 * 4 * 3 * 2880 * 2880
    assert w.dense_flops_4bit == 0  # the rest of the checkpoint is 16-bit


@pytest.mark.parametrize(("tp", "dp"), [(4, 1), (4, 4)])
def test_states_of_a_hybrid_are_read_and_written_back(work: Work, tp: int, dp: int) -> None:
    """Qwen3.5-397B: 45 of 60 layers keep 64 heads of 128 x 128 at 4 bytes and 3 taps of 12,288 channels at 2.

    With data-parallel attention a rank keeps whole states, of a quarter of the sequences.
    """
    w = work(QWEN_HYBRID, tp=tp, attention_dp=dp, weight_dtype=WeightDtype.FP8)
    assert w.state_bytes == 2 * 45 * (64 * 128 * 128 * 4 + 3 * 12_288 * 2) / 4
    assert w.linear_layers == 45
    assert w.cache_bytes_per_token == (15 * 1 * 256 * 2 * 2 if dp == 1 else 15 * 2 * 256 * 2 * 2 / 4)
    assert w.attention_flops == 2 * 32 * 256 * 15 / 4


def test_rank_of_data_parallel_attention_holds_its_own_share(work: Work) -> None:
    whole = work(GLM_5, tp=8, weight_dtype=WeightDtype.FP8)
    share = work(GLM_5, tp=8, weight_dtype=WeightDtype.FP8, attention_dp=8)
    for name in ("cache_bytes_per_token", "window_bytes_per_token", "attention_flops"):  # the indexer's FLOPs as well
        assert getattr(share, name) == getattr(whole, name) / 8
    assert share.window_flops == whole.window_flops  # an eighth of the heads of all, or all of an eighth
    assert share.dense_bytes > 3 * whole.dense_bytes  # attention weights are whole on each rank
    assert share.expert_bytes == whole.expert_bytes


def test_pipeline_reads_all_stages_and_multiplies_one(work: Work) -> None:
    one, two = work(QWEN_MOE), work(QWEN_MOE, pp=2)
    assert two.expert_bytes == one.expert_bytes
    head = 2 * 151_936 * 2048
    assert two.dense_bytes == pytest.approx(one.dense_bytes + head, rel=1e-4)  # each part waits for the last stage
    assert two.head_flops == one.head_flops == head
    for name in ("cache_bytes_per_token", "dense_flops_16bit", "expert_flops_16bit", "attention_flops"):
        assert getattr(two, name) == getattr(one, name) / 2, name
    # a part of B / 2 tokens misses an expert with (1 - k/E)^(B/2)
    assert (1 - two.expert_hit_share) ** 64 == pytest.approx((1 - 8 / 128) ** 32)
    assert two.moe_layers == one.moe_layers  # every layer is launched once for each part


def test_pipeline_exchanges_and_states_are_those_of_a_stage(work: Work) -> None:
    for name, model in (("allreduce_bytes", LLAMA_8B), ("state_bytes", QWEN_HYBRID)):
        one, two = (work(model, tp=2, pp=pp, weight_dtype=WeightDtype.FP8) for pp in (1, 2))
        assert getattr(two, name) == getattr(one, name) / 2
        assert two.allreduces == one.allreduces


def test_stacked_works_are_columns(work: Work) -> None:
    works = [work(LLAMA_8B), work(GLM_5, tp=8, weight_dtype=WeightDtype.FP8, kv_dtype=KvDtype.FP8)]
    both = stack_work(works)
    for item in fields(StepWork):
        np.testing.assert_array_equal(getattr(both, item.name), [float(getattr(w, item.name)) for w in works])


def test_picked_tokens_of_sparse_attention_only(catalog: Catalog) -> None:
    assert picked_tokens(catalog.model_shape("deepseek-ai/DeepSeek-V3.2")) == 2048
    assert picked_tokens(catalog.model_shape(DEEPSEEK)) is None
