from __future__ import annotations

from planner.catalog.load import Catalog
from planner.memory.fixes import fixes
from planner.memory.size import size
from planner.memory.types import Deployment, GivenTerms, KvDtype, WeightDtype


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


def test_a_model_that_no_single_change_saves_has_no_fix(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("deepseek-ai/DeepSeek-V3"), catalog.gpu("T4")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, WeightDtype.FP8, KvDtype.BF16)
    refused = size(shape, gpu, facts, deployment)
    assert fixes(shape, gpu, facts, deployment, GivenTerms(), refused) == ()
