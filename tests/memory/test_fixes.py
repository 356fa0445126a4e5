from __future__ import annotations

import pytest

from planner.catalog.load import Catalog
from planner.memory.fixes import fixes
from planner.memory.size import size
from planner.memory.types import Deployment, GivenTerms, KvDtype, WeightDtype

BF16 = WeightDtype.BF16
LLAMA_8B = "meta-llama/Meta-Llama-3.1-8B"


def test_every_fix_starts_and_the_length_is_the_longest_that_does(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B"), catalog.gpu("RTX4090")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, WeightDtype.BF16, KvDtype.BF16)
    refused = size(shape, gpu, facts, deployment)
    found = fixes(shape, gpu, facts, deployment, GivenTerms(), refused)
    assert found
    assert all(fix.sizing.starts for fix in found)
    capped = found[0].sizing
    longer = Deployment(1, WeightDtype.BF16, KvDtype.BF16, max_model_len=capped.max_model_len + 1)
    assert not size(shape, gpu, facts, longer).starts


def test_typed_weights_hold_only_for_their_format(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Llama-3.1-70B-Instruct"), catalog.gpu("H100-SXM")
    facts, given = catalog.engine("vllm", "0.33.0"), GivenTerms(weights_gib=131.4)
    deployment = Deployment(1, WeightDtype.BF16, KvDtype.BF16, max_model_len=4096)
    refused = size(shape, gpu, facts, deployment, given)
    found = {fix.change: fix.sizing for fix in fixes(shape, gpu, facts, deployment, given, refused)}
    assert found["int4 (AWQ) weights"].terms[0].gib < 40
    assert not any(change.startswith("fp8 KV cache") for change in found)


@pytest.mark.parametrize(
    ("model", "gpu", "deployment", "change"),
    [
        (LLAMA_8B, "H100-SXM", Deployment(1, BF16, KvDtype.BF16, 8192, 512, 256), "max_num_seqs 256"),
        ("Qwen/Qwen2.5-7B-Instruct", "H100-SXM", Deployment(8, BF16, KvDtype.BF16, 8192), "4 GPUs (TP 4)"),
        (LLAMA_8B, "A100-80GB-SXM", Deployment(1, BF16, KvDtype.FP8, 8192), "16-bit KV cache"),
        ("Qwen/Qwen3-1.7B", "V100-32GB", Deployment(1, WeightDtype.FP8, KvDtype.BF16, 8192), "16-bit weights"),
        (LLAMA_8B, "H100-SXM", Deployment(1, BF16, KvDtype.BF16, 999_999), "cap max_model_len at 131,072"),
    ],
)
def test_a_setting_that_is_wrong_is_changed_first(
    catalog: Catalog, model: str, gpu: str, deployment: Deployment, change: str
) -> None:
    shape, facts = catalog.model_shape(model), catalog.engine("vllm", "0.33.0")
    refused = size(shape, catalog.gpu(gpu), facts, deployment)
    found = fixes(shape, catalog.gpu(gpu), facts, deployment, GivenTerms(), refused)
    assert found[0].change == change
    assert found[0].sizing.starts


def test_no_fix_needs_more_gpus_than_a_machine_has(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-405B"), catalog.gpu("GB300")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, BF16, KvDtype.BF16, 999_999)
    found = fixes(shape, gpu, facts, deployment, GivenTerms(), size(shape, gpu, facts, deployment))
    assert found
    assert max(fix.sizing.deployment.tp for fix in found) <= gpu.max_gpus_per_node


def test_a_model_that_no_single_change_saves_has_no_fix(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("deepseek-ai/DeepSeek-V3"), catalog.gpu("T4")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, WeightDtype.FP8, KvDtype.BF16)
    refused = size(shape, gpu, facts, deployment)
    assert fixes(shape, gpu, facts, deployment, GivenTerms(), refused) == ()
