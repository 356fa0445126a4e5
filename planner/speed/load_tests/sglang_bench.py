"""Results of ``python -m sglang.bench_serving --output-file`` (sglang/benchmark/serving.py, SGLang 0.5.23).

JSON lines, one run each. Times are in milliseconds, the latency is spelt ``e2e_latency``. ``concurrency`` is measured:
the sum of all latencies over the duration, from the moment a request is sent; ``max_concurrency`` is the cap.
``request_rate`` may be the token ``Infinity``. ``accept_length`` is the server's mean over its life, null without
speculative decoding. Recent files carry ``server_info``, the server's own arguments, from which model, parallelism and
formats are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner.speed.load_tests.collect import collect, kind_of, share, unusable
from planner.speed.load_tests.document import json_objects
from planner.speed.load_tests.fields import Fields
from planner.speed.load_tests.types import Findings, Format, Head, InFlight, Run
from planner.speed.load_tests.vllm_bench import request_rate

NAME = "sglang"
_ENGINES = {"sglang": "sglang", "vllm": "vllm", "trt": "trtllm", "lmdeploy": "lmdeploy"}
_STATED = {
    "model": ("model_path",),
    "version": ("version",),
    "tp": ("tp_size",),
    "pp": ("pp_size",),
    "ep": ("ep_size",),
    "weights": ("quantization",),
    "kv": ("kv_cache_dtype",),
}


def matches(head: Head) -> bool:
    """Whether the keys are those of a run: the latency is spelt as nobody else does."""
    return {"mean_e2e_latency_ms", "request_throughput"} <= head.keys


def read(path: Path) -> Findings:
    """The runs of a file."""
    return collect(json_objects(path), _parse)


def _parse(data: Mapping[str, object], place: str) -> Run:
    fields = Fields(data)
    rate = request_rate(fields, data.get("request_rate"))
    cap = fields.positive("max_concurrency")
    completed = fields.number("completed")
    server = fields.part("server_info")
    cache = fields.part("cache_report")
    return Run(
        place=place,
        tool=NAME,
        kind=kind_of(rate, cap),
        stated=_stated(fields.text("backend"), server),
        input_tokens=share(fields.number("total_input_tokens"), completed),
        output_tokens=share(fields.number("total_output_tokens"), completed),
        asked_per_s=rate,
        done_per_s=fields.positive("request_throughput"),
        e2e_mean_ms=fields.positive("mean_e2e_latency_ms"),
        output_tok_s=fields.positive("output_throughput"),
        total_tok_s=fields.positive("total_throughput"),
        ttft=fields.spread("mean_ttft_ms", "median_ttft_ms", "p90_ttft_ms", "p99_ttft_ms"),
        tpot=fields.spread("mean_tpot_ms", "median_tpot_ms", "p90_tpot_ms", "p99_tpot_ms"),
        in_flight=InFlight(measured=fields.positive("concurrency"), cap=cap),
        asked=_asked(data),
        completed=completed,
        failed=_failed(data),
        cached_share=share(cache.number("total_cached_tokens"), cache.number("total_prompt_tokens")),
        acceptance=fields.positive("accept_length"),
        speculative=server.text("speculative_algorithm"),
        unusable=unusable(fields),
    )


def _stated(backend: str, server: Fields) -> dict[str, str]:
    stated = {name: server.text(*keys) for name, keys in _STATED.items()}
    words = ("sglang" if backend.startswith("sglang") else backend).removesuffix("-chat")
    stated["engine"] = _ENGINES.get(words, "")
    dp = server.text("dp_size")
    if dp not in ("", "1"):
        stated["attention_dp" if server.text("enable_dp_attention") == "True" else "replicas"] = dp
    return {name: value for name, value in stated.items() if value}


def _asked(data: Mapping[str, object]) -> float | None:
    """Requests that were sent: not recorded, but ``--output-details`` lists an error for each."""
    errors = data.get("errors")
    return float(len(errors)) if isinstance(errors, list) else None


def _failed(data: Mapping[str, object]) -> float | None:
    errors = data.get("errors")
    return float(sum(bool(error) for error in errors)) if isinstance(errors, list) else None


FORMAT = Format(NAME, matches, read)
