"""Requests of many models, made of what is real: weights, prices, lengths, bursts and weeks; seeded.

Which model serves which log at which rate is drawn. Logs and weeks are read once and shared. Targets follow the lengths
of a log: a prompt of 100,000 tokens cannot be answered within 2 s.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.catalog.load import Catalog
from planner.catalog.model_shape import ModelShape
from planner.catalog.offer import Offer
from planner.inputs import Inputs, ModelInputs
from planner.optimise.supply.offers import AllowedOffers
from planner.request import PlanRequest, TimeChoice, TrafficSource
from planner.traffic.demand import demand_of
from planner.traffic.season import WEEK_SLOTS
from planner.traffic.source import load_traffic
from planner.traffic.types import Traffic
from planner.traffic.week import WeekShape, week_of

DAY = dt.date(2026, 11, 30)
LOGS = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"


@dataclass(frozen=True)
class Size:
    """How large an instance is, and the gap that is asked for."""

    models: int
    offers: int
    bands: int
    periods: int
    gap: float


SIZES = {
    "small": Size(20, 12, 6, 6, 1e-3),
    "medium": Size(60, 20, 6, 12, 5e-3),
    "large": Size(200, 25, 8, 12, 1e-2),
}

OFFERS = (
    "verda/h100-sxm/any/on_demand", "lambda/8x-H100-SXM/any/on_demand", "aws/p5.48xlarge/us-east-1/commit_3y",
    "verda/h200-sxm/any/on_demand", "coreweave/HGX-H200/north-america/on_demand",
    "coreweave/HGX-B200/north-america/on_demand", "lambda/4x-B200-SXM6/any/on_demand",
    "verda/a100-sxm-80gb/any/on_demand", "aws/p4de.24xlarge/us-east-1/commit_3y", "aws/g6e.xlarge/us-east-1/on_demand",
    "aws/g6e.12xlarge/us-east-1/on_demand", "gcp/g2-standard-4/us-central1/on_demand",
    "gcp/a2-highgpu-1g/us-central1/commit_1y", "aws/p4d.24xlarge/us-east-1/on_demand",
    "hyperstack/RTXPRO6000-Server/any/on_demand", "aws/g7e.24xlarge/us-east-1/on_demand",
    "aws/g5.xlarge/us-east-1/on_demand", "aws/g5.12xlarge/us-east-1/on_demand", "verda/b300-sxm/any/on_demand",
    "aws/p6-b200.48xlarge/us-east-1/commit_3y", "lambda/4x-A6000/any/on_demand",
    "runpod/4x-H100-NVL-Secure/any/on_demand", "hyperstack/A100-80GB-PCIe/any/on_demand",
    "gcp/g2-standard-96/us-central1/on_demand", "aws/p5en.48xlarge/us-east-1/commit_3y",
)  # fmt: skip
"""Offers of the catalogue; an instance takes the first so many. No two are of one GPU type, size and term."""

WEIGHTS = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-32B-Instruct", "meta-llama/Llama-3.1-70B-Instruct",
    "Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen2.5-7B", "openai/gpt-oss-120b", "google/gemma-3-27b-it",
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503", "Qwen/Qwen2.5-72B-Instruct", "meta-llama/Llama-3.2-3B-Instruct",
    "zai-org/GLM-4.5-Air", "google/gemma-3-12b-it", "openai/gpt-oss-20b", "Qwen/Qwen2.5-14B-Instruct",
    "mistralai/Devstral-Small-2507", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "mistralai/Mistral-Nemo-Instruct-2407", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "microsoft/Phi-4-mini-instruct", "Qwen/Qwen3.5-27B",
    "google/gemma-3-4b-it", "Qwen/Qwen2-7B-Instruct", "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-VL-8B-Instruct",
    "Qwen/Qwen3-VL-32B-Instruct", "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.5-122B-A10B",
    "google/gemma-4-26B-A4B", "google/gemma-4-31B-it", "mistralai/Mistral-Large-Instruct-2407",
    "mistralai/Ministral-3-3B-2512", "microsoft/Phi-3.5-MoE-instruct", "zai-org/GLM-4.7-Flash",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    "CohereForAI/c4ai-command-r-08-2024", "LGAI-EXAONE/EXAONE-4.0-32B", "ibm-granite/granite-3.1-8b-instruct",
    "baidu/ERNIE-4.5-21B-A3B-PT", "ByteDance-Seed/Seed-OSS-36B-Instruct", "ai21labs/AI21-Jamba-1.5-Mini",
    "mistralai/Devstral-2-123B-Instruct-2512", "Qwen/Qwen3-VL-4B-Instruct", "moonshotai/Kimi-Linear-48B-A3B-Instruct",
    "Qwen/Qwen3-VL-235B-A22B-Instruct",
)  # fmt: skip
"""Weights of the catalogue that read 131,072 tokens; an instance goes through them in this order, again and again."""


@dataclass(frozen=True)
class Log:
    """A log, the target that its lengths allow, and the rates that are drawn for it."""

    path: str
    format: str
    ttft_ms: float
    rates_per_s: tuple[float, float]
    """For a model of 8 billion active parameters; one with more gets less."""
    options: Mapping[str, str | int | float]


def _servegen(name: str, hour: int, ttft_ms: float, rates: tuple[float, float]) -> Log:
    return Log(name, "servegen", ttft_ms, rates, {"seed": 7, "window_start_s": hour * 3600, "window_s": 3600})


SOURCES = (
    Log("AzureLLMInferenceTrace_conv.csv", "azure", 4000, (5.0, 120.0), {}),
    Log("AzureLLMInferenceTrace_code.csv", "azure", 4000, (5.0, 120.0), {}),
    Log("mooncake_conversation_head2500.jsonl", "mooncake", 30000, (0.5, 8.0), {}),
    _servegen("servegen-m-small", 190, 4000, (20.0, 600.0)),
    _servegen("servegen-m-mid", 40, 8000, (5.0, 120.0)),
    _servegen("servegen-deepseek-r1", 8, 8000, (1.0, 20.0)),
)
WEEKS = ("servegen-m-small", "servegen-m-mid", "servegen-deepseek-r1")
SHIFTS_H = (0, 8, 16)
"""Every published week is also taken some hours later, as users elsewhere would make it: peaks do not all meet."""


@dataclass(frozen=True)
class Library:
    """Logs and weeks, read once."""

    logs: tuple[Traffic, ...]
    weeks: tuple[WeekShape, ...]


def library() -> Library:
    """Read every log and every week."""
    logs = tuple(
        load_traffic(
            LOGS / s.path, log_format=s.format, model="", options=dict(s.options), name=s.path, prompt_bursts=True
        )
        for s in SOURCES
    )
    weeks = []
    for name in WEEKS:
        source = TrafficSource(path=name, format="servegen", options={"seed": 7}, week="log")
        week = week_of(source, logs[0], TimeChoice(), LOGS)
        weeks += [shifted(week, hours) for hours in SHIFTS_H]
    return Library(logs, tuple(weeks))


def shifted(week: WeekShape, hours: int) -> WeekShape:
    """A week some hours later; hours of holidays stay."""
    slots = np.arange(len(week.mean))
    slots[:WEEK_SLOTS] = np.roll(slots[:WEEK_SLOTS], hours)
    return replace(week, mean=week.mean[slots], peak=week.peak[slots])


def instance(size: Size, seed: int, catalog: Catalog, read: Library) -> Inputs:
    """What would be read from a request of this size."""
    rng = np.random.default_rng(seed)
    names = [WEIGHTS[number % len(WEIGHTS)] for number in range(size.models)]
    shapes = {name: catalog.model_shape(name) for name in dict.fromkeys(names)}
    drawn = [_model(number, shapes[name], rng) for number, name in enumerate(names)]
    request = PlanRequest.model_validate(
        {
            "quarter": {"title": "benchmark", "start": dt.date(2027, 1, 1), "end": dt.date(2027, 4, 1), "owner": "x"},
            "engine": {"name": "vllm", "version": "0.33.0"},
            "policy": {"max_price_age_days": 400},
            "solver": {"gap": size.gap, "threads": 2, "time_limit_s": 600.0},
            "routing": {"bands": size.bands},
            "time": {"week_periods": size.periods // 3, "by_month": True},
            "model": [model for model, _ in drawn],
        }
    )
    models = []
    for model, (_, log) in zip(request.model, drawn, strict=True):
        rates = demand_of(model.traffic, read.logs[log], request.quarter.start, request.quarter.end)
        week = read.weeks[int(rng.integers(len(read.weeks)))]
        models.append(ModelInputs(model, shapes[model.weights], read.logs[log], {}, rates, week))
    facts = catalog.engine("vllm", "0.33.0")
    offers = AllowedOffers(_offers(catalog.offers, size.offers), ())
    return Inputs(request, Path("benchmark"), DAY, catalog, facts, offers, tuple(models))


def _offers(offers: Sequence[Offer], count: int) -> tuple[Offer, ...]:
    by_id = {offer.id: offer for offer in offers}
    return tuple(sorted((by_id[name] for name in OFFERS[:count]), key=lambda offer: offer.id))


def _model(number: int, shape: ModelShape, rng: np.random.Generator) -> tuple[dict[str, object], int]:
    """A model of the request, and the number of its log."""
    log = int(rng.integers(len(SOURCES)))
    source = SOURCES[log]
    billions = shape.active_parameters / 1e9
    low, high = np.log(source.rates_per_s)
    rate = float(np.exp(rng.uniform(low, high))) / max(1.0, billions / 8.0)
    native = str(shape.native_weight_dtype)
    return {
        "name": f"model-{number:03d}",
        "weights": shape.id,
        "weight_dtypes": ["bf16", "fp8"] if native == "bf16" else [native],
        "kv_dtypes": ["bf16", "fp8"] if rng.random() < 0.5 else ["bf16"],
        "tail_budget": 0.001,
        "max_pools": 2 + number % 2,
        "targets": {"tpot_ms": 40 if billions < 12 else 80, "ttft_ms": source.ttft_ms, "ttft_percentile": 0.95},
        "traffic": {
            "path": source.path,
            "rate_per_s": round(rate, 2),
            "source": "drawn",
            "source_date": DAY,
            "growth_per_quarter": round(float(rng.uniform(0.02, 0.2)), 2),
        },
    }, log
