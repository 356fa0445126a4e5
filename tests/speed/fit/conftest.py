"""Points whose true coefficients are known: measured figures are predictions under facts that the fit is not told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from planner.catalog.load import Catalog
from planner.memory.types import KvDtype, Sizing, WeightDtype
from planner.speed.facts import SpeedFacts
from planner.speed.fit.parameters import Parameter
from planner.speed.fit.sample import FitPoint, Kind, Sample, sample_of
from planner.speed.points import Load, LoadKind, Point, Served
from planner.speed.work import work_of

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
QWEN_MOE = "Qwen/Qwen3-30B-A3B"
DEPLOYMENTS = (
    ("vllm", LLAMA_8B, "H100-SXM", 1),
    ("vllm", LLAMA_70B, "H100-SXM", 4),
    ("vllm", LLAMA_8B, "H200-SXM", 1),
    ("vllm", QWEN_MOE, "H200-SXM", 2),
    ("sglang", LLAMA_70B, "H200-SXM", 8),
    ("sglang", QWEN_MOE, "H100-SXM", 1),
)
LOADS = tuple((n, p, o) for n in (1, 8, 64) for p, o in ((256, 1024), (4096, 512)))

MakeSample = Callable[..., Sample]


@pytest.fixture(scope="session")
def sample_under(catalog: Catalog, sizing_of: Callable[..., Sizing]) -> MakeSample:
    """Closed loops of these deployments; TPOT and TTFT are what the given facts predict."""

    def build(truth: SpeedFacts, deployments: Sequence[tuple[str, str, str, int]] = DEPLOYMENTS) -> Sample:
        found = []
        for engine, model, gpu, tp in deployments:
            shape = catalog.model_shape(model)
            work = work_of(shape, sizing_of(shape, gpu, tp=tp, engine=engine))
            served = Served(engine, "0.19.1", model, gpu, tp, WeightDtype.BF16, KvDtype.BF16)
            kind = Kind(catalog.gpu(gpu), WeightDtype.BF16, engine, "0.19.1")
            for clients, prompt, output in LOADS:
                load = Load(LoadKind.CLOSED_LOOP, prompt, output, concurrency=clients)
                point = Point(f"{engine} {model} {gpu} {clients} {prompt}", served, load)
                found.append(FitPoint(point, kind, work, np.inf, shape.architecture))
        blank = sample_of(found)
        settled = blank.operating(truth)
        return replace(blank, tpot_s=settled.tpot_s, ttft_s=settled.ttft_s)

    return build


COMPUTE = tuple((table, form) for table in ("dense_compute", "expert_compute") for form in ("bf16", "fp8", "fp4"))


@pytest.fixture(scope="session")
def free(facts: SpeedFacts) -> Callable[..., tuple[Parameter, ...]]:
    """Parameters of which only the named ones may move far; compute stays at the catalogue's figure."""

    def build(*freed: tuple[tuple[str, ...], float], spread: float = 2.0) -> tuple[Parameter, ...]:
        compute = (Parameter(place, getattr(getattr(facts, place[0]), place[1]).value, 1e-6) for place in COMPUTE)
        return (*compute, *(Parameter(place, prior, spread) for place, prior in freed))

    return build
