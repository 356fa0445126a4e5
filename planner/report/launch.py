"""The command that starts a replica as it was sized: every flag that the plan decided is written out."""

from __future__ import annotations

import shlex
from pathlib import PurePath

from planner.memory.types import KvDtype, Sizing, WeightDtype

QUANTISED_ON_LOADING = {WeightDtype.FP8: "fp8"}
"""Formats that an engine makes from a 16-bit checkpoint while loading it."""


def launch_command(sizing: Sizing) -> str:
    """Shell command for one replica.

    fp8 weights of a 16-bit checkpoint are made on loading; another format that differs from the checkpoint's needs a
    checkpoint in that format, which the command names as a placeholder.
    """
    return shlex.join(_sglang(sizing) if sizing.engine == "sglang" else _vllm(sizing))


def _vllm(sizing: Sizing) -> list[str]:
    command = ["vllm", "serve", _checkpoint(sizing)]
    command += ["--tensor-parallel-size", str(sizing.deployment.tp)]
    command += ["--max-model-len", str(sizing.max_model_len)]
    command += ["--gpu-memory-utilization", _number(sizing.utilization)]
    command += ["--max-num-seqs", str(sizing.max_num_seqs)]
    command += ["--max-num-batched-tokens", str(sizing.max_num_batched_tokens)]
    return [*command, *_quantization(sizing), *_kv_cache(sizing, fp8="fp8")]


def _sglang(sizing: Sizing) -> list[str]:
    command = ["python", "-m", "sglang.launch_server", "--model-path", _checkpoint(sizing)]
    command += ["--tp-size", str(sizing.deployment.tp)]
    command += ["--context-length", str(sizing.max_model_len)]
    command += ["--mem-fraction-static", _number(sizing.utilization)]
    command += ["--max-running-requests", str(sizing.max_num_seqs)]
    command += ["--chunked-prefill-size", str(sizing.max_num_batched_tokens)]
    return [*command, *_quantization(sizing), *_kv_cache(sizing, fp8="fp8_e4m3")]


def _checkpoint(sizing: Sizing) -> str:
    """Model to load: the id, the folder of a config file, or a placeholder for a checkpoint that must be found."""
    path = PurePath(sizing.model_id)
    name = str(path.parent) if path.name == "config.json" else sizing.model_id
    wanted = sizing.deployment.weight_dtype
    if wanted == sizing.native_weight_dtype or sizing.native_weight_dtype.startswith("unsupported"):
        return name
    if sizing.native_weight_dtype == WeightDtype.BF16 and wanted in QUANTISED_ON_LOADING:
        return name
    return f"<{wanted} checkpoint of {name}>"


def _quantization(sizing: Sizing) -> list[str]:
    """``--quantization`` where the engine converts a 16-bit checkpoint; a stored format is recognised by itself."""
    wanted = sizing.deployment.weight_dtype
    if sizing.native_weight_dtype == WeightDtype.BF16 and wanted in QUANTISED_ON_LOADING:
        return ["--quantization", QUANTISED_ON_LOADING[wanted]]
    return []


def _kv_cache(sizing: Sizing, *, fp8: str) -> list[str]:
    """``--kv-cache-dtype`` where the cache is not the model's own format; ``fp8`` is the engine's name for it."""
    if sizing.deployment.kv_dtype is KvDtype.FP8:
        return ["--kv-cache-dtype", fp8]
    return ["--kv-cache-dtype", "bfloat16"] if sizing.declares_fp8_kv else []


def _number(value: float) -> str:
    return f"{value:g}"
