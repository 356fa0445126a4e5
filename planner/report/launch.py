"""The command that starts a replica as it was sized: every flag that the plan decided is written out.

Names of flags are those of the engine's version, read in the argument parsers of vLLM 0.9.2 to 0.33.0
(vllm/engine/arg_utils.py) and of SGLang 0.5.16 and 0.5.23 (srt/server_args.py, srt/arg_groups/fields); lists of all
flags by version are in ``catalogs/engines/flags``.
"""

from __future__ import annotations

import json
import shlex
from pathlib import PurePath

from planner.catalog.versions import version_key
from planner.memory.types import Deployment, KvDtype, Sizing, Speculative, WeightDtype

QUANTISED_ON_LOADING = frozenset({WeightDtype.FP8})
"""Formats that an engine makes from a 16-bit checkpoint while loading it."""
Words = list[str]
VLLM_NODES = ("--distributed-executor-backend", "ray")


def launch_command(sizing: Sizing, nodes: int = 1) -> str:
    """Shell command for one replica.

    A replica on several ``nodes``: vLLM is started once, on the head of a Ray cluster over them
    (https://docs.vllm.ai/en/v0.5.1/serving/distributed_serving.html); SGLang on each, with its rank
    (https://docs.sglang.io/references/multi_node_deployment/multi_node.html), both read 2026-11-30.

    fp8 weights of a 16-bit checkpoint are made on loading; another format that differs from the checkpoint's needs a
    checkpoint in that format, which the command names as a placeholder, as it does an EAGLE head.
    """
    sglang = sizing.engine == "sglang"
    command = _sglang(sizing) if sglang else _vllm(sizing)
    return shlex.join(command if nodes == 1 else [*command, *(_sglang_nodes(nodes) if sglang else VLLM_NODES)])


def _since(sizing: Sizing, version: str) -> bool:
    return version_key(sizing.engine_version) >= version_key(version)


def _vllm(sizing: Sizing) -> Words:
    command = ["vllm", "serve", _checkpoint(sizing)]
    deployment, flags = sizing.deployment, sizing.deployment.vllm
    command += ["--tensor-parallel-size", str(deployment.tp)]
    command += ["--max-model-len", str(sizing.max_model_len)]
    command += ["--gpu-memory-utilization", _number(sizing.utilization)]
    command += ["--max-num-seqs", str(sizing.max_num_seqs)]
    command += ["--max-num-batched-tokens", str(sizing.max_num_batched_tokens)]
    command += _quantization(sizing, "fp8_per_tensor" if _since(sizing, "0.33.0") else "fp8")
    command += _kv_cache(sizing, fp8="fp8")
    command += _vllm_parallel(deployment)
    command += _vllm_cache(sizing)
    if deployment.enforce_eager:
        command.append("--enforce-eager")
    if flags.language_model_only:
        no_images = ["--limit-mm-per-prompt", '{"image": 0, "video": 0}']
        command += ["--language-model-only"] if _since(sizing, "0.17.0") else no_images
    if flags.async_scheduling is not None:
        command.append("--async-scheduling" if flags.async_scheduling else "--no-async-scheduling")
    if flags.attention_backend and _since(sizing, "0.15.0"):
        command += ["--attention-backend", flags.attention_backend]
    if flags.dtype:
        command += ["--dtype", flags.dtype]
    if deployment.lora is not None:
        command += ["--enable-lora", "--max-loras", str(deployment.lora.max_loras)]
        command += ["--max-lora-rank", str(deployment.lora.max_rank)]
    if deployment.speculative is not None:
        command += ["--speculative-config", json.dumps(_vllm_draft(sizing, deployment.speculative))]
    if flags.attention_backend and not _since(sizing, "0.15.0"):
        return ["env", f"VLLM_ATTENTION_BACKEND={flags.attention_backend}", *command]
    return command


def _vllm_parallel(deployment: Deployment) -> Words:
    words: Words = []
    if deployment.pp > 1:
        words += ["--pipeline-parallel-size", str(deployment.pp)]
    if deployment.expert_parallel:
        words.append("--enable-expert-parallel")
    if deployment.dcp > 1:
        words += ["--decode-context-parallel-size", str(deployment.dcp)]
    return words


def _vllm_cache(sizing: Sizing) -> Words:
    """Blocks, states, prefix caching and what is kept in host memory."""
    deployment, flags, words = sizing.deployment, sizing.deployment.vllm, Words()
    if deployment.prefix_caching is not None:
        words.append("--enable-prefix-caching" if deployment.prefix_caching else "--no-enable-prefix-caching")
    if flags.block_size_tokens is not None:
        words += ["--block-size", str(flags.block_size_tokens)]
    if flags.mamba_cache_mode is not None and _since(sizing, "0.15.0"):
        words += ["--mamba-cache-mode", flags.mamba_cache_mode]
    if flags.mamba_ssm_cache_dtype is not None:
        words += ["--mamba-ssm-cache-dtype", flags.mamba_ssm_cache_dtype]
    if not flags.hybrid_kv_cache_manager:
        words.append("--disable-hybrid-kv-cache-manager")
    if flags.cpu_offload_gib:
        words += ["--cpu-offload-gb", _number(flags.cpu_offload_gib)]
    if flags.kv_offload_gib and _since(sizing, "0.15.0"):
        words += ["--kv-offloading-size", _number(flags.kv_offload_gib)]
    if flags.swap_space_gib is not None and not _since(sizing, "0.18.0"):
        words += ["--swap-space", _number(flags.swap_space_gib)]
    return words


def _vllm_draft(sizing: Sizing, speculative: Speculative) -> dict[str, str | int]:
    tokens = {"num_speculative_tokens": speculative.num_tokens}
    if speculative.method == "mtp":
        return {"method": "mtp", **tokens}
    model = _draft_checkpoint(sizing, speculative)
    return {"method": "eagle" if speculative.method == "eagle" else "draft_model", "model": model, **tokens}


def _sglang(sizing: Sizing) -> Words:
    command = ["python", "-m", "sglang.launch_server", "--model-path", _checkpoint(sizing)]
    deployment, flags = sizing.deployment, sizing.deployment.sglang
    chunk = sizing.max_num_batched_tokens * sizing.workers if flags.chunked_prefill else -1
    command += ["--tp-size", str(deployment.tp)]
    command += ["--context-length", str(sizing.max_model_len)]
    command += ["--mem-fraction-static", _number(sizing.utilization)]
    command += ["--max-running-requests", str(sizing.max_num_seqs * sizing.workers)]
    command += ["--chunked-prefill-size", str(chunk)]
    command += _quantization(sizing, "fp8")
    command += _kv_cache(sizing, fp8="fp8_e4m3")
    command += _sglang_parallel(sizing)
    for name, value in (
        ("--page-size", flags.page_size_tokens),
        (
            "--cuda-graph-max-bs-decode" if _since(sizing, "0.5.14") else "--cuda-graph-max-bs",
            flags.cuda_graph_max_batch,
        ),
        ("--max-total-tokens", flags.max_total_tokens),
        ("--swa-full-tokens-ratio", flags.swa_full_tokens_ratio),
        ("--mamba-full-memory-ratio", flags.mamba_full_memory_ratio),
        ("--mamba-ssm-dtype", flags.mamba_ssm_dtype),
        ("--max-mamba-cache-size", flags.max_mamba_cache_size),
        ("--attention-backend", flags.attention_backend or None),
    ):
        if value is not None:
            command += [name, _number(value) if isinstance(value, float) else str(value)]
    command += _sglang_switches(deployment)
    if deployment.lora is not None:
        command += ["--enable-lora", "--max-loras-per-batch", str(deployment.lora.max_loras)]
        command += ["--max-lora-rank", str(deployment.lora.max_rank), "--lora-target-modules", "all"]
    return command + _sglang_draft(sizing)


def _sglang_parallel(sizing: Sizing) -> Words:
    deployment, words = sizing.deployment, Words()
    if deployment.pp > 1:
        words += ["--pp-size", str(deployment.pp)]
    if deployment.expert_parallel:
        words += ["--ep-size", str(deployment.tp)]
    if deployment.dcp > 1:
        words += ["--dcp-size", str(deployment.dcp)]
    if deployment.attention_dp > 1 and _since(sizing, "0.5.23"):
        words += ["--attn-dp-size", str(deployment.attention_dp)]
    elif deployment.attention_dp > 1:
        words += ["--enable-dp-attention", "--dp-size", str(deployment.attention_dp)]
    return words


def _sglang_switches(deployment: Deployment) -> Words:
    flags = deployment.sglang
    switches = (
        ("--disable-cuda-graph", deployment.enforce_eager),
        ("--disable-radix-cache", deployment.prefix_caching is False),
        ("--disable-overlap-schedule", flags.disable_overlap_schedule),
        ("--enable-multimodal", flags.enable_multimodal),
        ("--language-only", flags.language_only),
        ("--enable-unified-memory", flags.unified_memory),
    )
    return [name for name, on in switches if on]


def _sglang_nodes(nodes: int) -> Words:
    rank = f"<rank of the node, 0 to {nodes - 1}>"
    return ["--nnodes", str(nodes), "--node-rank", rank, "--dist-init-addr", "<address of node 0>:20000"]


SGLANG_METHODS = {"mtp": "NEXTN", "eagle": "EAGLE", "draft": "STANDALONE"}


def _sglang_draft(sizing: Sizing) -> Words:
    """Drafts of a chain: ``num_tokens`` are verified at once, the last of which the model itself gave."""
    speculative = sizing.deployment.speculative
    if speculative is None:
        return []
    words = ["--speculative-algorithm", SGLANG_METHODS.get(speculative.method, "EAGLE")]
    words += ["--speculative-num-steps", str(max(1, speculative.num_tokens - 1)), "--speculative-eagle-topk", "1"]
    words += ["--speculative-num-draft-tokens", str(speculative.num_tokens)]
    if speculative.method != "mtp":
        words += ["--speculative-draft-model-path", _draft_checkpoint(sizing, speculative)]
    return words


def _draft_checkpoint(sizing: Sizing, speculative: Speculative) -> str:
    if speculative.draft is not None:
        return _path(speculative.draft.id)
    kind = "EAGLE head" if speculative.method == "eagle" else "draft model"
    return f"<{kind} of {_path(sizing.model_id)}>"


def _path(model_id: str) -> str:
    """The id, or the folder of a config file."""
    path = PurePath(model_id)
    return str(path.parent) if path.name == "config.json" else model_id


def _checkpoint(sizing: Sizing) -> str:
    """Model to load: the id, the folder of a config file, or a placeholder for a checkpoint that must be found."""
    name, wanted = _path(sizing.model_id), sizing.deployment.weight_dtype
    if wanted == sizing.native_weight_dtype or sizing.native_weight_dtype.startswith("unsupported"):
        return name
    if sizing.native_weight_dtype == WeightDtype.BF16 and wanted in QUANTISED_ON_LOADING:
        return name
    return f"<{wanted} checkpoint of {name}>"


def _quantization(sizing: Sizing, fp8: str) -> Words:
    """``--quantization`` where the engine converts a 16-bit checkpoint; a stored format is recognised by itself."""
    wanted = sizing.deployment.weight_dtype
    converted = sizing.native_weight_dtype == WeightDtype.BF16 and wanted in QUANTISED_ON_LOADING
    return ["--quantization", fp8] if converted else []


def _kv_cache(sizing: Sizing, *, fp8: str) -> Words:
    """``--kv-cache-dtype`` where the cache is not the model's own format; ``fp8`` is the engine's name for it."""
    named = sizing.deployment.kv_cache_dtype_name
    if named and named != "auto":
        return ["--kv-cache-dtype", named]
    if sizing.deployment.kv_dtype is KvDtype.FP8:
        return ["--kv-cache-dtype", fp8]
    # What SGLang takes by itself depends on the model and the GPU (sparse latents on Blackwell: fp8).
    return ["--kv-cache-dtype", "bfloat16"] if sizing.declares_fp8_kv or sizing.engine == "sglang" else []


def _number(value: float) -> str:
    return f"{value:g}"
