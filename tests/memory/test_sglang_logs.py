"""What SGLang logged when it started: tokens from the memory that it logged for them.

SGLang logs K and V in GB of 2**30 with two digits each, so the sum is known to a hundredth. Logs whose model is not
known, or whose pool a flag cut, are left out; a GLM-5 log on AMD (61,463 B a token) is of a release before 0.5.16, and
one with a draft model does not say which.
"""

from __future__ import annotations

import pytest

from planner import units
from planner.catalog.load import Catalog
from planner.memory.size import size
from planner.memory.types import Deployment, GivenTerms, KvDtype, SglangFlags, WeightDtype

from .conftest import rows

ROUNDING_GB = 0.01


@pytest.mark.parametrize("row", tuple(rows("sglang_logs.csv")), ids=lambda row: row["id"])
def test_logged_tokens(catalog: Catalog, row: dict[str, str]) -> None:
    shape, tokens, memory_gib = catalog.model_shape(row["hf_id"]), int(row["logged_tokens"]), float(row["logged_kv_gb"])
    gpu = catalog.gpu("H100-SXM").model_copy(update={"compute_capability": row["capability"]})
    deployment = Deployment(int(row["tp"]), WeightDtype.BF16, KvDtype.BF16, sglang=SglangFlags())
    sizing = size(
        shape, gpu, catalog.engine("sglang", "0.5.23"), deployment, GivenTerms(available_gib=memory_gib, weights_gib=1)
    )
    assert sizing.block_size_tokens == int(row["page_size"])
    held_gib = units.bytes_to_gib(tokens * sizing.bytes_per_token)
    assert abs(held_gib - memory_gib) <= ROUNDING_GB
    assert sizing.logged_tokens == pytest.approx(tokens, rel=max(1e-3, ROUNDING_GB / memory_gib))


def test_weights_that_leave_nothing_are_refused_with_the_least_fraction(catalog: Catalog) -> None:
    """DeepSeek-V4-Pro on eight H200: 125.65 GB of weights, 12.25 left, refused at 0.88; the least is 0.9113.

    https://github.com/SemiAnalysisAI/InferenceX/issues/2128 (minimum .9113, refused at 0.88).
    """
    given = GivenTerms(free_before_weights_gib=125.65 + 12.25, free_after_weights_gib=12.25, weights_gib=125.65)
    deployment = Deployment(8, WeightDtype.FP8, KvDtype.FP8, gpu_memory_utilization=0.88)
    shape, gpu = catalog.model_shape("sgl-project/DeepSeek-V4-Pro-FP8"), catalog.gpu("H200-SXM")
    sizing = size(shape, gpu, catalog.engine("sglang", "0.5.23"), deployment, given)
    messages = " ".join(refusal.message for refusal in sizing.refusals)
    assert "Loaded weights leave no GPU memory" in messages
    assert "0.9112" in messages
