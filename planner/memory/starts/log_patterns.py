"""Wordings of start-up logs: which figure each states.

Read in vllm/worker/worker.py (0.4 to 0.10), vllm/v1/worker/gpu_worker.py, worker/gpu_model_runner.py,
core/kv_cache_utils.py and utils/mem_utils.py (0.8 to 0.33), and in sglang/srt/model_executor/model_runner.py,
mem_cache/memory_pool.py, mem_cache/swa_memory_pool.py and managers/scheduler.py (0.4 to 0.5.23). Both engines print
GiB; SGLang and old vLLM call it GB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIGURE = r"(?<![\d,.])(-?\d[\d,]{0,17}(?:\.\d{1,6})?)"


@dataclass(frozen=True)
class Wording:
    """A phrase and the names of the figures in it, in order."""

    phrase: re.Pattern[str]
    names: tuple[str, ...]


def _wording(phrase: str, *names: str) -> Wording:
    """``<n>`` stands for a figure."""
    return Wording(re.compile(phrase.replace("<n>", _FIGURE), re.IGNORECASE), names)


OF_WORKER = (
    _wording(r"Loading model weights took <n> G", "weights"),
    _wording(r"Model loading took <n> Gi?B", "weights"),
    _wording(r"total_gpu_memory \(<n>GiB\) x gpu_memory_utilization \(<n>\)", "total", "utilization"),
    _wording(r"model weights take <n>GiB", "weights"),
    _wording(r"non_torch_memory takes <n>GiB", "non_torch"),
    _wording(r"activation peak memory takes <n>GiB", "activation"),
    _wording(r"reserved for KV Cache is <n>GiB", "available"),
    _wording(
        r"total_gpu_memory=<n>GiB .{0,200}?non_torch_memory=<n>GiB kv_cache_size=<n>GiB",
        "total",
        "non_torch",
        "available",
        "total",
        "non_torch",
        "available",
    ),
    _wording(r"torch peak memory increase: <n>GiB", "activation"),
    _wording(r"non-torch forward increase memory: <n>GiB", "non_torch"),
    _wording(r"Available KV cache memory: <n> GiB", "available"),
    _wording(r"reserved <n> ?GiB memory for KV Cache as specified", "reserved"),
    _wording(r"Graph capturing finished in [\d.]+ secs?, took <n> GiB", "graphs_actual"),
    _wording(r"Estimated CUDA graph memory: <n> GiB", "graphs_estimate"),
    _wording(r"CUDA graph pool memory: <n> GiB \(actual\), <n> GiB \(estimated\)", "graphs_actual", "graphs_estimate"),
    _wording(r"Free memory on device [\w: ]{0,20}\(<n>/<n> GiB\)", "free", "total"),
    _wording(r"Desired GPU memory utilization is \(<n>, <n> GiB\)", "utilization", "budget"),
    _wording(r"Actual usage is <n> GiB for weight", "weights"),
    _wording(r"Actual usage is <n> GiB for consumed memory", "consumed"),
    _wording(r"<n> GiB for peak activation", "activation"),
    _wording(r"<n> GiB for non-torch memory", "non_torch"),
    _wording(r"<n> GiB for CUDAGraph memory", "graphs_actual"),
    _wording(r"Current kv cache memory in use is <n> GiB", "available"),
    _wording(r"Load weight begin\. avail mem=<n> GB", "free_before"),
    _wording(r"Load weight end\..{0,400}?avail mem=<n> GB", "free_after"),
    _wording(r"Load weight end\..{0,400}?mem usage=<n> GB", "weights"),
    _wording(r"KV Cache is allocated\..{0,400}?K size: <n> GB, V size: <n> GB", "k_size", "v_size"),
    _wording(r"KV Cache is allocated\..{0,400}?KV size: <n> GB", "kv_size"),
    _wording(r"SWAKVPool mem usage: <n> GB, swa size: <n>", "kv_size", "sliding_tokens"),
    _wording(
        r"max_mamba_cache_size: <n>, conv_state size: <n> ?GB, ssm_state size: <n> ?GB", "state_slots", "conv", "ssm"
    ),
    _wording(r"Capture .{0,80}?graph end\..{0,400}?mem usage=<n> GB", "graphs_actual"),
)
"""What a worker prints of itself. SGLang prints ``Load weight`` for a draft model after the model's own."""

OF_ENGINE = (
    _wording(r"# \w+ blocks: <n>, # CPU blocks", "blocks"),
    _wording(r"num_gpu_blocks is: ?<n>", "blocks"),
    _wording(r"KV cache size: <n> tokens", "kv_tokens"),
    _wording(r"max_total_num_tokens=<n>", "kv_tokens"),
    _wording(r"Maximum concurrency for <n> tokens per request: <n>x", "max_model_len", "max_concurrency"),
    _wording(r"max_running_requests=<n>", "max_running_requests"),
    _wording(r"context_len=<n>", "max_model_len"),
    _wording(r"Using max model len <n>", "max_model_len"),
    _wording(r"Chunked prefill is enabled with max_num_batched_tokens=<n>", "max_num_batched_tokens"),
    _wording(r"Setting attention block size to <n> tokens", "attention_block"),
)
"""What the engine prints of the whole."""

VERSIONS = {
    "vllm": re.compile(r"(?:LLM engine \(v|vLLM API server version |\] +version )(\d[\w.+]{1,40})", re.IGNORECASE),
    "sglang": re.compile(r"sglang(?:==|:v| version:? v?)(\d[\w.+]{1,40})", re.IGNORECASE),
}
MARKS = {
    "vllm": re.compile(r"vLLM|EngineCore|GPU KV cache size|# \w+ blocks: \d", re.IGNORECASE),
    "sglang": re.compile(r"server_args=|max_total_num_tokens=|Load weight (?:begin|end)|KV Cache is allocated"),
}
"""What only one engine prints."""

HINT = re.compile(
    r"Gi?B|tokens|blocks|engine|args|version|Error|Exception|device|NVIDIA|startup|rank|max_|model len|20\d\d-|"
    r"FlashInfer"
)
"""What every record that is read has; all others are passed over."""
FLASHINFER_SAMPLES = re.compile(
    r"(Using FlashInfer) for top-p|FlashInfer is (?:not available|available, but it is not enabled)\. Falling back"
)
"""Which sampler the first model runner takes."""
FLASHINFER_SAMPLER = "flashinfer_sampler"
"""Name under which it is kept among the settings, ``True`` or ``False``."""
STARTED = re.compile(r"Application startup complete|fired up and ready|init engine \(profile")
FAILED = re.compile(r"\b(\w*(?:Error|Exception)): (.{1,600})")
BEGINS = re.compile(r"Initializing (?:a V\d |an )?LLM engine|server_args=ServerArgs")
"""The line with which an engine begins; it states how it was started."""
STATES = re.compile(r"LLM engine \(v|server_args=|non-default args|\bargs: Namespace")
"""Lines that state settings."""

SETTINGS = (
    "model",
    "model_path",
    "dtype",
    "max_seq_len",
    "max_model_len",
    "context_length",
    "max_num_seqs",
    "max_running_requests",
    "max_num_batched_tokens",
    "chunked_prefill_size",
    "gpu_memory_utilization",
    "mem_fraction_static",
    "tensor_parallel_size",
    "tp_size",
    "pipeline_parallel_size",
    "pp_size",
    "decode_context_parallel_size",
    "data_parallel_size",
    "dp_size",
    "enable_dp_attention",
    "enable_expert_parallel",
    "quantization",
    "kv_cache_dtype",
    "enforce_eager",
    "enable_prefix_caching",
    "disable_radix_cache",
    "disable_cuda_graph",
    "disable_overlap_schedule",
    "cuda_graph_max_bs",
    "cuda_graph_max_bs_decode",
    "block_size",
    "page_size",
    "max_total_tokens",
    "swa_full_tokens_ratio",
    "mamba_full_memory_ratio",
    "mamba_ssm_dtype",
    "attention_backend",
    "language_model_only",
    "speculative_algorithm",
    "speculative_num_steps",
)
"""Settings that are read, by the engines' names."""
SETTING = re.compile(rf"(?<![\w'])['\"]?({'|'.join(SETTINGS)})['\"]?(?:=|: )('[^']*'|\"[^\"]*\"|[^,\s)}}\]]+)")

GPU_NAMES = (
    re.compile(r"device_name=(NVIDIA[\w-]+?)(?:,|\.json|\])"),
    re.compile(r"\| +\d+ +(NVIDIA [\w -]+?) {2,}"),
    re.compile(r"(?:GPU name|device name|GPU)[:=] *'?(NVIDIA [\w -]+)", re.IGNORECASE),
)

VLLM_WORKER = re.compile(r"\((\w*(?:Worker|EngineCore)[\w ]*?)(?: rank=(\d+))? pid=(\d+)(?:, ip=([\d.]+))?\)")
SGLANG_RANK = re.compile(r"\[[\d: -]{8,19}((?: [A-Z_]+\d+)+)\]")
TP_RANK = re.compile(r"\bTP(\d+)|_TP(\d+)")
EP_RANK = re.compile(r"_EP\d")
"""Workers have a rank among experts only where those are divided."""
RECORD = re.compile(
    r"^(?:[\w.-]+ *\| )?(?:\d{4}-\d\d-\d\d[T ][\d:.]+Z?[ |]+)?"
    r"(?:\(|\[|INFO|WARNING|ERROR|DEBUG|CRITICAL|Loading|Capturing|Traceback|\w*Error:|\|)"
)
"""How a record begins; a line that does not is the rest of the one before, wrapped."""
