"""A load on one replica, and what was measured or predicted there: the common record of tables, load tests and fits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from planner.memory.types import KvDtype, WeightDtype


class LoadKind(StrEnum):
    """How requests were sent."""

    CLOSED_LOOP = "closed loop"
    """So many clients, each sends its next request when the last one ends."""
    OPEN_LOOP = "open loop"
    """Requests arrive at a rate."""
    MAX_LOAD = "max load"
    """All requests queue at once: the replica runs as full as its cache and caps allow."""
    STATIC_BATCH = "static batch"
    """A batch is prefilled at once and decodes in lockstep."""


@dataclass(frozen=True)
class Load:
    """What a replica is asked to do.

    Attributes
    ----------
    input_tokens, output_tokens
        Mean prompt and output length of a request.
    concurrency
        Mean requests in the replica (closed loop), or the batch (static batch); ``None`` where it follows.
    rate_per_s
        Arrivals per second (open loop).
    cached_share
        Share of the prompt tokens that a prefix cache holds already.
    acceptance
        Tokens that a step yields per sequence: 1 without speculative decoding.
    longest_output_tokens
        Of a list of requests that ends (max load with a concurrency); ``None`` where all outputs are equally long.
    """

    kind: LoadKind
    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    rate_per_s: float | None = None
    cached_share: float = 0.0
    acceptance: float = 1.0
    longest_output_tokens: float | None = None


@dataclass(frozen=True)
class Served:
    """The deployment that a point was measured on, in the catalogue's names.

    Attributes
    ----------
    engine
        ``vllm``, ``sglang``, ``trtllm``; others are kept as they are written.
    version
        As the source writes it; empty where unknown.
    model, gpu
        Ids of the catalogue.
    replicas
        Equal replicas behind the figures: totals are divided by it.
    decode_only
        Prefill runs on other replicas (disaggregated serving): no prompt disturbs decoding.
    """

    engine: str
    version: str
    model: str
    gpu: str
    tp: int
    weight_dtype: WeightDtype
    kv_dtype: KvDtype
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1
    replicas: int = 1
    decode_only: bool = False


@dataclass(frozen=True)
class Figures:
    """Speeds of a replica at a load; ``None`` where not known. Medians unless a percentile is named."""

    tpot_ms: float | None = None
    ttft_ms: float | None = None
    output_tok_s: float | None = None
    total_tok_s: float | None = None
    tpot_p99_ms: float | None = None
    ttft_p99_ms: float | None = None


@dataclass(frozen=True)
class Point:
    """One row: a deployment, a load, and what was measured there, if anything."""

    id: str
    served: Served
    load: Load
    measured: Figures = Figures()
    source: str = ""
