"""How a deployment is put to aiconfigurator: a bundled config with the model's dimensions, and names of formats.

Configs are handed over as folders, never as Hugging Face ids, so nothing is ever downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog.hf.config import read_model_shape
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError
from planner.memory.types import Deployment, KvDtype, WeightDtype

CONFIG_ENDING, QUANT_ENDING = "_config.json", "_hf_quant_config.json"

DIMENSIONS = (
    "architecture", "num_layers", "num_moe_layers", "hidden_size", "vocab_size", "attention_heads", "kv_heads",
    "head_dim", "intermediate_size", "num_experts", "experts_per_token", "moe_intermediate_size",
    "shared_expert_intermediate_size", "cache_layers", "state_layers",
)  # fmt: skip
"""What two models of equal speed share."""

EXPLICIT_MODES: dict[WeightDtype, tuple[tuple[str, str], ...]] = {
    WeightDtype.BF16: (("bfloat16", "bfloat16"),),
    WeightDtype.FP8: (("fp8", "fp8"), ("fp8_block", "fp8_block"), ("fp8_static", "fp8")),
    WeightDtype.MXFP4: (("bfloat16", "w4a16_mxfp4"), ("bfloat16", "w4a8_mxfp4_mxfp8")),
    WeightDtype.NVFP4: (("nvfp4", "nvfp4"), ("nvfp4_wo", "nvfp4_wo")),
    WeightDtype.INT4_AWQ: (("int4_wo", "int4_wo"),),
    WeightDtype.INT4_GPTQ: (("int4_wo", "int4_wo"),),
    WeightDtype.W4A16: (("int4_wo", "int4_wo"),),
    WeightDtype.INT8: (("sq", ""),),
    WeightDtype.INT8_GPTQ: (("int8_wo", ""),),
    WeightDtype.W8A16: (("int8_wo", ""),),
}
"""Names of the formats of matrices and of routed experts, in the order tried; empty: none."""
KV_MODES = {KvDtype.BF16: "bfloat16", KvDtype.FP8: "fp8"}
ATTENTION_MODES = ("", "bfloat16", "fp8")
"""Formats that attention multiplies in: as inferred, then those that the databases have."""


@dataclass(frozen=True)
class Bundled:
    """One config of the package."""

    id: str
    config: Path
    companion: Path | None
    shape: ModelShape

    def text(self, *, with_formats: bool) -> tuple[str, str | None]:
        """``config.json`` and its companion, without the formats of the checkpoint where others are asked for."""
        raw = _read(self.config)
        if not with_formats:
            raw.pop("quantization_config", None)
            return json.dumps(raw), None
        return json.dumps(raw), self.companion.read_text(encoding="utf-8") if self.companion else None


@dataclass(frozen=True)
class Ask:
    """One way to put a deployment: a config and names of formats; empty names are inferred from the config."""

    bundled: Bundled
    gemm: str
    moe: str
    attention: str
    kv: str

    @property
    def label(self) -> str:
        """For the reader of the plan."""
        modes = f"{self.gemm or 'own'} matrices" + (f", {self.moe} experts" if self.moe else "")
        attention = f", {self.attention} attention" if self.attention else ""
        return f"{self.bundled.id}, {modes}, {self.kv} cache{attention}"


def same_speed(folder: Path, shape: ModelShape) -> tuple[Bundled, ...]:
    """Bundled configs with the model's dimensions, those of its own id first."""
    found = [
        each
        for each in _bundled(folder, shape.architecture)
        if all(getattr(each.shape, name) == getattr(shape, name) for name in DIMENSIONS)
    ]
    return tuple(sorted(found, key=lambda each: (each.id != shape.id, each.id)))


def asks(candidates: tuple[Bundled, ...], deployment: Deployment) -> Iterator[Ask]:
    """Ways to put a deployment, best first: a config stored in the format that is served, then formats by name."""
    dtype, kv = deployment.weight_dtype, KV_MODES[deployment.kv_dtype]
    stored = [each for each in candidates if each.shape.native_weight_dtype == dtype]
    plain = [each for each in candidates if each.shape.native_weight_dtype == WeightDtype.BF16]
    for each in stored[:1]:
        for attention in ATTENTION_MODES:
            yield Ask(each, "", "", attention, kv)
    for gemm, moe in EXPLICIT_MODES.get(dtype, ()):
        for each in (plain or list(candidates))[:1]:
            if moe or not each.shape.is_moe:
                for attention in ATTENTION_MODES:
                    yield Ask(each, gemm, moe if each.shape.is_moe else "", attention, kv)


@cache
def _bundled(folder: Path, architecture: str) -> tuple[Bundled, ...]:
    """Configs of an architecture that the product can read."""
    return tuple(
        each
        for config in sorted(folder.glob(f"*{CONFIG_ENDING}"))
        if not config.name.endswith(QUANT_ENDING)
        for each in [_try_read(config, architecture)]
        if each is not None
    )


def _try_read(config: Path, architecture: str) -> Bundled | None:
    raw = _read(config)
    if architecture not in raw.get("architectures", ()):
        return None
    name = config.name.removesuffix(CONFIG_ENDING)
    companion = config.with_name(name + QUANT_ENDING)
    model_id = name.replace("--", "/", 1)
    there = companion.is_file()
    try:
        shape = read_model_shape(raw, model_id, quant_config=_read(companion) if there else None)
    except InputError:
        return None
    return Bundled(model_id, config, companion if there else None, shape)


def _read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}
