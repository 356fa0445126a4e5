"""What each exporter calls its metrics, with ``_`` for ``:``.

Read in the sources: vLLM 0.33.0 ``vllm/v1/metrics/loggers.py`` (and the names of earlier releases), SGLang 0.5.23
``sglang/srt/observability/metrics_collector.py``, TGI ``router/src/server.rs`` (prompts are counted when they are
validated, outputs when they are done), the Dynamo frontend's ``prometheus_names``, and ``gen_ai.client.token.usage`` of
the OpenTelemetry conventions as its Prometheus exporter writes it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """The names of one exporter; of several names of one thing the first that has samples counts."""

    engine: str
    prompt: tuple[str, ...]
    output: tuple[str, ...]
    model_labels: tuple[str, ...] = ("model_name",)
    token_labels: tuple[str, ...] = ()
    """Where both lengths share one histogram, the label that tells them apart."""
    prompt_values: frozenset[str] = frozenset()
    output_values: frozenset[str] = frozenset()
    at_arrival: bool = False
    """Whether prompts are counted as they arrive, before it is known whether they succeed."""
    hits: tuple[str, ...] = ()
    """Prompt tokens found in the prefix cache."""
    queries: tuple[str, ...] = ()
    """Prompt tokens looked up there."""
    prompt_total: tuple[str, ...] = ()
    """All prompt tokens, those of aborted requests included."""
    live: tuple[str, ...] = ()
    """Gauge of the tokens in the KV cache."""
    usage: tuple[str, ...] = ()
    """Gauge of the used share of the KV cache."""
    pool: str = ""
    """Gauge whose labels give the KV cache's blocks and their size."""
    context: str = ""
    """Gauge of the longest context."""


VOCABULARIES: tuple[Vocabulary, ...] = (
    Vocabulary(
        engine="vllm",
        prompt=("vllm_request_prompt_tokens",),
        output=("vllm_request_generation_tokens",),
        hits=("vllm_prefix_cache_hits_total", "vllm_gpu_prefix_cache_hits_total"),
        queries=("vllm_prefix_cache_queries_total", "vllm_gpu_prefix_cache_queries_total"),
        prompt_total=("vllm_prompt_tokens_total",),
        usage=("vllm_kv_cache_usage_perc", "vllm_gpu_cache_usage_perc"),
        pool="vllm_cache_config_info",
    ),
    Vocabulary(
        engine="sglang",
        prompt=("sglang_prompt_tokens_histogram",),
        output=("sglang_generation_tokens_histogram",),
        hits=("sglang_cached_tokens_total",),
        queries=("sglang_prompt_tokens_total",),
        prompt_total=("sglang_prompt_tokens_total",),
        live=("sglang_num_used_tokens",),
    ),
    Vocabulary(
        engine="tgi",
        prompt=("tgi_request_input_length",),
        output=("tgi_request_generated_tokens",),
        model_labels=("model_name", "model_id", "model"),
        at_arrival=True,
    ),
    Vocabulary(
        engine="dynamo",
        prompt=("dynamo_frontend_input_sequence_tokens",),
        output=("dynamo_frontend_output_sequence_tokens",),
        model_labels=("model",),
        context="dynamo_frontend_model_context_length",
    ),
    Vocabulary(
        engine="otel",
        prompt=("gen_ai_client_token_usage", "agentgateway_gen_ai_client_token_usage"),
        output=("gen_ai_client_token_usage", "agentgateway_gen_ai_client_token_usage"),
        model_labels=("gen_ai_response_model", "gen_ai_request_model"),
        token_labels=("gen_ai_token_type", "token_type"),
        prompt_values=frozenset({"input"}),
        output_values=frozenset({"output", "completion"}),
    ),
)
"""In the order in which they are believed where several are there: an engine before the gateway in front of it."""

_HISTOGRAMS = frozenset(name for one in VOCABULARIES for name in (*one.prompt, *one.output))
_OTHERS = frozenset(
    name
    for one in VOCABULARIES
    for name in (*one.hits, *one.queries, *one.prompt_total, *one.live, *one.usage, one.pool, one.context)
) | {"process_start_time_seconds"}


def is_read(name: str) -> bool:
    """Whether anything is made of a metric, given by its plain name."""
    return name in _OTHERS or name.rpartition("_")[0] in _HISTOGRAMS
