"""What sizings of one replica share changes no figure of any of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from planner.catalog.load import load_catalog
from planner.memory.calibration import calibrated_size
from planner.memory.size import size
from planner.memory.types import Deployment, GivenTerms, KvDtype, WeightDtype
from planner.memory.vllm.replica import Replica

CATALOG = load_catalog()
MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",  # every layer keeps everything
    "google/gemma-3-27b-it",  # windows and images
    "openai/gpt-oss-120b",  # windows, experts
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",  # recurrent states, whose blocks depend on the length
    "deepseek-ai/DeepSeek-V3",  # latents, whose context is set aside by length and sequences
)
CAPS = tuple(product((1024, 8192, 131_072), (16, 256, 2048)))


@pytest.mark.parametrize("version", ["0.9.2", "0.19.0", "0.33.0"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("gpu", "tp"), [("H100-SXM", 8), ("L4", 1)])
def test_a_sizing_is_the_same_with_what_another_one_has_found_out(version, model, gpu, tp):
    """Also refused ones, and also when the first one had other caps."""
    shape, chip, facts = CATALOG.model_shape(model), CATALOG.gpu(gpu), CATALOG.engine("vllm", version)
    weights = WeightDtype(shape.native_weight_dtype)
    first = Deployment(tp, weights, KvDtype.BF16, max_model_len=4096, max_num_seqs=64)
    shared = Replica(shape, chip, facts, first, GivenTerms())
    seen = set()
    for length, sequences in CAPS:
        deployment = replace(first, max_model_len=length, max_num_seqs=sequences)
        alone = size(shape, chip, facts, deployment)
        assert size(shape, chip, facts, deployment, replica=shared) == alone
        assert calibrated_size(shape, chip, facts, deployment, replica=shared) == alone
        seen.add((alone.num_blocks, alone.terms))
    assert len(seen) > 1, "caps that change nothing would show nothing"
