"""What an SGLang server makes of its flags, for one model on one GPU: graphs, workers, request limits.

The order of the steps matters and is the engine's: the memory fraction is derived from the flags as they are typed,
before a model or an attention backend changes them.

Source: python/sglang/srt/arg_groups/pipeline.py and the hooks that it calls (0.5.23), server_args.py (0.5.16).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.catalog.engine_rules.sglang import SglangRules, SglangTier
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape, StateKind
from planner.memory.sglang.backends import (
    Generation,
    attention_backend,
    cache_dtype,
    generation_of,
    has_latent,
    is_sparse,
    page_tokens,
    prefix_off,
)
from planner.memory.types import Deployment

UNCHUNKED = -1
"""What a server takes for the chunk where prefill is not chunked."""
PREFILL_GRAPHS = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256))
"""Captured prefill sizes: first, last, step."""
LARGE_PREFILL_GRAPHS = (4608, 512)
"""The first of the sizes beyond those, and their step."""


@dataclass(frozen=True)
class Server:
    """A server's resolved settings.

    Attributes
    ----------
    workers
        Workers of data-parallel attention; every figure of a pool is one worker's.
    attention_tp
        Ranks that share one worker's attention.
    latent, sparse, compressed
        How the engine takes the cache: a latent per token, with an indexer, in compressed pools (DeepSeek-V4).
    multimodal
        Whether images are served.
    reduced_for_images
        Whether the memory fraction is lowered for them.
    chunk_tokens
        Prefill chunk that the fraction is derived from; `UNCHUNKED` without.
    worker_chunk_tokens
        The same of one worker.
    decode_graph_batch
        Sequences of the largest decode graph; reserved for data-parallel attention even without graphs.
    prefill_graphs, prefill_graph_tokens
        Whether prefill is captured, and the tokens of the largest capture.
    max_running
        Running requests over all workers that a flag or a default of the model asks for.
    kv_dtype
        The engine's name of the cache format.
    overlap
        The overlap scheduler is on.
    state_slots_per_request
        Slots of the state pool that a running request takes.
    """

    generation: Generation
    workers: int
    attention_tp: int
    latent: bool
    sparse: bool
    compressed: bool
    multimodal: bool
    reduced_for_images: bool
    chunk_tokens: int
    worker_chunk_tokens: int
    decode_graph_batch: int
    decode_graphs: bool
    prefill_graphs: bool
    prefill_graph_tokens: int
    max_running: int | None
    backend: str
    kv_dtype: str
    page_tokens: int
    overlap: bool
    state_slots_per_request: int


def resolve(rules: SglangRules, shape: ModelShape, gpu: Gpu, deployment: Deployment, driver_mib: float) -> Server:
    """The server that a deployment starts."""
    flags, generation = deployment.sglang, generation_of(gpu)
    latent = has_latent(rules, shape)
    multimodal = is_multimodal(rules, shape, deployment)
    chunk = chunk_of(rules, deployment, driver_mib)
    kv_dtype = cache_dtype(rules, shape, deployment, generation)
    backend = attention_backend(rules, shape, deployment, generation, kv_dtype)
    compressed = shape.architecture in rules.compressed.architectures
    overlap, slots = state_slots(rules, shape, deployment)
    return Server(
        generation=generation,
        workers=deployment.attention_dp,
        attention_tp=max(1, deployment.tp // deployment.attention_dp),
        latent=latent,
        sparse=is_sparse(rules, shape),
        compressed=compressed,
        multimodal=multimodal,
        reduced_for_images=multimodal and not flags.language_only,
        chunk_tokens=chunk,
        worker_chunk_tokens=worker_chunk(rules, shape, deployment, chunk, multimodal=multimodal),
        decode_graph_batch=decode_graph_batch(
            rules, deployment, driver_mib, vision=on_large_hopper(rules, shape, generation, driver_mib, multimodal)
        ),
        decode_graphs=not deployment.enforce_eager,
        prefill_graphs=captures_prefill(rules, shape, deployment, latent=latent, multimodal=multimodal),
        prefill_graph_tokens=prefill_graph_tokens(rules, shape, deployment, chunk),
        max_running=requests_asked(rules, shape, deployment),
        backend="triton" if backend == "fa3" and kv_dtype == "fp8_e5m2" else backend,
        kv_dtype=kv_dtype,
        page_tokens=page_tokens(rules, shape, deployment, generation, backend, kv_dtype),
        overlap=overlap,
        state_slots_per_request=slots,
    )


def tier_of(rules: SglangRules, driver_mib: float) -> SglangTier:
    """Defaults for a GPU by its nvidia-smi total; the largest tier for one beyond all of them."""
    return next((tier for tier in rules.tiers if driver_mib < tier.below_mib), rules.tiers[-1])


def chunk_of(rules: SglangRules, deployment: Deployment, driver_mib: float) -> int:
    """Tokens of a prefill chunk: the flag, or the tier's default."""
    if not deployment.sglang.chunked_prefill:
        return UNCHUNKED
    return deployment.max_num_batched_tokens or tier_of(rules, driver_mib).chunked_prefill_tokens


def worker_chunk(rules: SglangRules, shape: ModelShape, deployment: Deployment, chunk: int, *, multimodal: bool) -> int:
    """One worker's share of the chunk; some multimodal models turn chunks off, after the fraction is derived."""
    if multimodal and shape.architecture in rules.unchunked_architectures:
        return UNCHUNKED
    return chunk // deployment.attention_dp


def is_multimodal(rules: SglangRules, shape: ModelShape, deployment: Deployment) -> bool:
    """Whether the server takes images: a listed architecture, or a config with a tower, unless served as text only.

    configs/model_config.py: ``enable_multimodal and (listed or nested text config)``.
    """
    if shape.architecture in rules.text_only_architectures and not deployment.sglang.enable_multimodal:
        return False
    return shape.architecture in rules.multimodal_architectures or shape.vision_encoder is not None


def requests_asked(rules: SglangRules, shape: ModelShape, deployment: Deployment) -> int | None:
    """Running requests over all workers that are asked for.

    The flag; else 256 for compressed attention and 48 with speculative decoding, set after the fraction is derived.
    """
    if deployment.max_num_seqs is not None:
        return deployment.max_num_seqs
    if shape.architecture in rules.compressed.architectures:
        return rules.compressed.max_running
    return rules.speculative_running if deployment.speculative is not None else None


def on_large_hopper(
    rules: SglangRules, shape: ModelShape, generation: Generation, driver_mib: float, multimodal: bool
) -> bool:
    """Whether the defaults of some multimodal models on large Hopper GPUs hold (model_overrides/qwen3_vl.py)."""
    listed = multimodal and shape.architecture in rules.hopper_vision_architectures
    return listed and generation is Generation.HOPPER and driver_mib >= rules.large_gpu_mib


def decode_graph_batch(rules: SglangRules, deployment: Deployment, driver_mib: float, *, vision: bool) -> int:
    """Sequences of the largest decode graph.

    The flag; else the tier's default, at most the running requests that are typed (0.5.23); with ``vision`` widened to
    them where they are at most 512.
    """
    flags, tier, asked = deployment.sglang, tier_of(rules, driver_mib), deployment.max_num_seqs
    if flags.cuda_graph_max_batch is not None:
        return flags.cuda_graph_max_batch
    batch = tier.graph_max_batch if deployment.tp < 4 else tier.graph_max_batch_tp4
    if asked is None or not rules.graphs_follow_requests:
        return batch
    return asked if vision and asked <= rules.hopper_graph_requests else min(batch, asked)


def prefill_graph_sizes(largest_tokens: int) -> int:
    """How many prefill sizes are captured up to the largest one."""
    first, step = LARGE_PREFILL_GRAPHS
    ranges = (*PREFILL_GRAPHS, (first, largest_tokens, step))
    return sum(len(range(start, min(last, largest_tokens) + 1, gap)) for start, last, gap in ranges)


def prefill_graph_tokens(rules: SglangRules, shape: ModelShape, deployment: Deployment, chunk: int) -> int:
    """Tokens of the largest prefill that would be captured."""
    limits = [chunk]
    if deployment.sglang.max_total_tokens is not None:
        limits.append(deployment.sglang.max_total_tokens)
    if rules.prefill_graphs_within_context and deployment.max_model_len is not None:
        limits.append(deployment.max_model_len)
    limits.extend(cap.tokens for cap in rules.prefill_graph_caps if cap.name in shape.id.lower())
    return max(0, min(limits))


def captures_prefill(
    rules: SglangRules, shape: ModelShape, deployment: Deployment, *, latent: bool, multimodal: bool
) -> bool:
    """Whether prefill runs in CUDA graphs (``disable_breakable_cudagraph_if_incompatible``)."""
    architecture = shape.architecture
    delta = any(layers.kind is StateKind.KIMI_DELTA for layers in shape.state_layers)
    obstacles = (
        not rules.prefill_graphs,
        deployment.enforce_eager,
        deployment.dcp > 1,
        deployment.pp > 1 and not rules.prefill_graphs_with_pp,
        deployment.attention_dp > 1 and not rules.prefill_graphs_with_dp,
        latent and not rules.latent_prefill_graphs and architecture not in rules.latent_graph_architectures,
        multimodal and architecture not in rules.multimodal_graph_architectures,
        delta and architecture not in rules.prefill_graphs_kept_architectures,
        architecture in rules.prefill_graphs_off_architectures,
    )
    return not any(obstacles)


def state_slots(rules: SglangRules, shape: ModelShape, deployment: Deployment) -> tuple[bool, int]:
    """Whether the overlap scheduler stays on, and how many state slots a running request takes.

    arg_groups/overrides.py, ``_mamba_radix_cache_resolution``; mem_cache/kv_cache_configurator.py,
    ``_calculate_mamba_ratio``: 1 without prefix caching; else 3, with an extra buffer 2 more (1 without overlap).
    """
    policy, flags = rules.state_policy, deployment.sglang
    overlap = not flags.disable_overlap_schedule and deployment.pp == 1
    if not keeps_states(rules, shape) or prefix_off(deployment):
        return overlap, 1
    if shape.architecture not in rules.state_prefix_architectures:
        return overlap, policy.slots_per_request
    paged = flags.page_size_tokens is not None and flags.page_size_tokens > 1
    buffered = shape.architecture in rules.state_buffer_architectures
    if not buffered or (flags.disable_overlap_schedule and not paged):
        return False, policy.slots_per_request
    return overlap, policy.slots_per_request + (policy.buffer_slots if not flags.disable_overlap_schedule else 1)


def keeps_states(rules: SglangRules, shape: ModelShape) -> bool:
    """Whether the engine gives the model a pool of states."""
    return bool(shape.state_layers) and shape.architecture in rules.state_architectures
