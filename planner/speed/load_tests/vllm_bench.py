"""Results of ``vllm bench serve --save-result`` and ``--append-result`` (vllm/benchmarks/serve.py, vLLM 0.33.0).

Times are in milliseconds. ``e2el`` is measured from the moment a request is sent: the wait for a free place under
``--max-concurrency`` is apart, in ``client_queue_time``, so Little's law on ``e2el`` gives what the server holds. TPOT
is (e2el − TTFT) / (tokens − 1) of a request. Which of ``ttft``, ``tpot``, ``itl``, ``e2el`` and which percentiles are
there depends on ``--percentile-metrics`` and ``--metric-percentiles``. ``request_rate`` is the text ``inf`` without
limit. ``--metadata gpu=H100 tp=2`` puts texts beside the figures. ``backend`` is the client's protocol: ``vllm`` names
the engine, ``openai`` and its like do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner.speed.load_tests.collect import collect, kind_of, share, unusable
from planner.speed.load_tests.document import json_objects
from planner.speed.load_tests.fields import Fields
from planner.speed.load_tests.types import Findings, Format, Head, InFlight, Run

NAME = "vllm-bench"

STATED: Mapping[str, tuple[str, ...]] = {
    "model": ("served_model_path", "model_path", "model_id"),
    "gpu": ("gpu", "gpu_type", "gpu_name", "accelerator", "hardware"),
    "engine": ("engine",),
    "version": ("engine_version", "vllm_version", "version"),
    "tp": ("tp", "tensor_parallel_size", "tensor-parallel-size", "tp_size"),
    "pp": ("pp", "pipeline_parallel_size", "pipeline-parallel-size", "pp_size"),
    "ep": ("ep", "ep_size"),
    "attention_dp": ("attention_dp", "dp_attention"),
    "data_parallel": ("dp", "data_parallel_size", "data-parallel-size"),
    "expert_parallel": ("enable_expert_parallel", "enable-expert-parallel"),
    "replicas": ("replicas",),
    "weights": ("weight_dtype", "weights", "quantization"),
    "kv": ("kv_dtype", "kv_cache_dtype", "kv-cache-dtype"),
}
"""Names under which ``--metadata`` and the overrides of a sweep say what was served."""

UNKEPT = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "gpu_memory_utilization",
    "enable_prefix_caching",
    "enable_chunked_prefill",
    "enforce_eager",
    "block_size",
)
"""Arguments of the server that change its speed and have no column: a point that states them says so."""

_ENGINES = {"vllm": "vllm", "vllm-chat": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}


def matches(head: Head) -> bool:
    """Whether the keys are those of a result; a sweep adds ``run_number``."""
    return {"tokenizer_id", "model_id", "num_prompts"} <= head.keys and "run_number" not in head.keys


def read(path: Path) -> Findings:
    """The runs of a file."""
    return collect(json_objects(path), parse)


def parse(data: Mapping[str, object], place: str, tool: str = NAME) -> Run:
    """One result object."""
    fields = Fields(data)
    rate = request_rate(fields, data.get("request_rate"))
    cap = fields.positive("max_concurrency")
    completed, asked = fields.number("completed"), fields.number("num_prompts")
    prompt, output = _lengths(fields, completed)
    stated = {name: fields.text(*keys) for name, keys in STATED.items()}
    stated["engine"] = stated["engine"] or _ENGINES.get(fields.text("backend", "endpoint_type"), "")
    return Run(
        place=place,
        tool=tool,
        kind=kind_of(rate, cap),
        stated={name: value for name, value in stated.items() if value},
        input_tokens=prompt,
        output_tokens=output,
        asked_per_s=rate,
        done_per_s=fields.positive("request_throughput"),
        e2e_mean_ms=fields.positive("mean_e2el_ms"),
        output_tok_s=fields.positive("output_throughput"),
        total_tok_s=fields.positive("total_token_throughput"),
        ttft=fields.spread("mean_ttft_ms", "median_ttft_ms", "p90_ttft_ms", "p99_ttft_ms"),
        tpot=fields.spread("mean_tpot_ms", "median_tpot_ms", "p90_tpot_ms", "p99_tpot_ms"),
        in_flight=InFlight(cap=cap),
        asked=asked,
        completed=completed,
        failed=_failed(fields, asked, completed),
        acceptance=fields.positive("spec_decode_acceptance_length"),
        speculative="speculative_config" if _either("speculative_config", fields) else "",
        measured_on=_day(fields.text("date")),
        unusable=unusable(fields, _no_generation(fields)),
        notes=_unkept(fields),
    )


def _either(name: str, fields: Fields) -> str:
    """The spelling of a server's argument that is there, with ``_`` or ``-``; empty if neither is."""
    return next((spelling for spelling in (name, name.replace("_", "-")) if spelling in fields), "")


def _unkept(fields: Fields) -> tuple[str, ...]:
    found = [f"{name}={fields.text(spelling)}" for name in UNKEPT if (spelling := _either(name, fields))]
    return (f"served with {', '.join(found)}, which the points file does not keep",) if found else ()


def _failed(fields: Fields, asked: float | None, completed: float | None) -> float | None:
    """Releases before ``failed`` only say how many were sent and how many completed."""
    stated = fields.number("failed")
    if stated is not None or asked is None or completed is None:
        return stated
    return max(0.0, asked - completed)


def _lengths(fields: Fields, completed: float | None) -> tuple[float | None, float | None]:
    """Mean lengths from the totals; tables that leave them out still have tokens and requests per second."""
    rate, output_tok_s = fields.positive("request_throughput"), fields.positive("output_throughput")
    total_tok_s = fields.positive("total_token_throughput")
    input_tok_s = total_tok_s - output_tok_s if total_tok_s and output_tok_s else None
    prompt = share(fields.number("total_input_tokens"), completed) or share(input_tok_s, rate)
    output = share(fields.number("total_output_tokens"), completed) or share(output_tok_s, rate)
    return prompt or fields.positive("random_input_len", "random-input-len"), output


def request_rate(fields: Fields, value: object) -> float | None:
    """Requests per second that were asked for: ``inf``, ``Infinity`` and ``trace`` are no rate of arrivals."""
    if value is None or str(value).strip().lower() in ("inf", "infinity", "trace", ""):
        return None
    return fields.positive("request_rate")


def _no_generation(fields: Fields) -> str:
    return "measures requests that generate nothing" if "input_sequence_throughput" in fields else ""


def _day(date: str) -> str:
    """``20260110-101500`` as ``2026-01-10``."""
    digits = date[:8]
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:]}" if len(digits) == 8 and digits.isdigit() else date


FORMAT = Format(NAME, matches, read)
