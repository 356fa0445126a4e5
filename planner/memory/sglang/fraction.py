"""``mem_fraction_static``: derived from flags before anything is measured, and lowered for images.

Source: python/sglang/srt/arg_groups/memory_hook.py (0.5.23), server_args.py (0.5.16).
"""

from __future__ import annotations

from planner import units
from planner.catalog.engine_rules.sglang import SglangRules
from planner.catalog.model_shape import ModelShape
from planner.memory.sglang.backends import Generation
from planner.memory.sglang.server import Server, on_large_hopper, prefill_graph_sizes
from planner.memory.types import Deployment

BASE_TOWER = (24, 1024)
"""Layers and hidden size of the vision tower (ViT-L/14) that the fraction is reduced for as it stands."""


def mem_fraction_static(
    rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment, driver_mib: float
) -> float:
    """Share of the free memory for weights and pools.

        (M − max(512 + 1.5 x chunk + 1024 x tp x pp / 8 + graphs, floor)) / M,  M in MiB, rounded to 3 digits

    reduced for images and then not rounded (`share_with_images`).
    """
    asked = deployment.gpu_memory_utilization
    if asked is None:
        fraction = round((driver_mib - reserved_mb(rules, server, deployment, driver_mib)) / driver_mib, 3)
        fraction *= share_with_images(rules, shape) if server.reduced_for_images else 1.0
    else:
        fraction = asked
    return fraction * rules.rocm_long_context_share if _aiter_long(rules, shape, server, deployment) else fraction


def _aiter_long(rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment) -> bool:
    """AMD's attention backend needs a workspace for long contexts (arg_groups/attention_hook.py)."""
    context = deployment.max_model_len or shape.max_position_embeddings
    return (
        server.generation is Generation.ROCM and server.backend == "aiter" and context > rules.rocm_long_context_tokens
    )


def reserved_mb(rules: SglangRules, server: Server, deployment: Deployment, driver_mib: float) -> float:
    """What is left out of the fraction: metadata, activations of a prefill chunk, ranks, graphs.

    At least 10 GiB on large GPUs.
    """
    chunk = server.chunk_tokens if server.chunk_tokens > 0 else rules.unchunked_prefill_tokens
    reserved = rules.metadata_mb + rules.mb_per_chunk_token * max(chunk, rules.min_chunk_tokens)
    reserved += rules.mb_per_rank * deployment.tp * deployment.pp
    reserved += graphs_mb(rules, server)
    return max(reserved, rules.large_gpu_floor_mb) if driver_mib > rules.large_gpu_mib else reserved


def graphs_mb(rules: SglangRules, server: Server) -> float:
    """What graphs take (``reserve_for_graph_mb``).

    2 MB a sequence of the largest decode graph; 8 MB a captured prefill size, or 1.5 GiB for latents. Data-parallel
    attention pads: 3 MB a sequence and worker, 4.5 MB for large graphs, graphs or not.
    """
    batch, graphs = server.decode_graph_batch, 0.0
    if server.decode_graphs:
        graphs += rules.mb_per_graph_sequence * batch
    if server.workers > 1:
        large = rules.mb_per_large_dp_graph_sequence if batch > rules.large_dp_graph_batch else 0.0
        graphs += (rules.mb_per_dp_graph_sequence + large) * batch * server.workers
    if server.prefill_graphs:
        latent, sizes = rules.latent_prefill_graphs_mb, prefill_graph_sizes(server.prefill_graph_tokens)
        graphs += latent if server.latent else rules.mb_per_prefill_graph * sizes
    return graphs


def share_with_images(rules: SglangRules, shape: ModelShape) -> float:
    """What a multimodal model keeps of the fraction (``adjust_mem_fraction_for_vlm``).

        0.95 x clamp(1 − 0.1 x (layers x hidden² / (24 x 1024²) − 1), 0.8, 1.05)

    of what the vision config states under the usual names, else of the tower that the architecture's config class
    builds of itself, else of 24 layers and 1,024; 1 without any tower.
    """
    own = next((row for row in rules.class_towers if shape.architecture in row.architectures), None)
    if shape.vision_encoder is None and own is None:
        return 1.0
    base_layers, base_hidden = layers, hidden = BASE_TOWER
    if own is not None:
        layers, hidden = own.layers, own.hidden
    if shape.vision_encoder is not None:
        layers, hidden = shape.vision_encoder[0] or layers, shape.vision_encoder[1] or hidden
    if shape.architecture in rules.unread_tower_architectures:
        layers, hidden = BASE_TOWER
    size = layers * hidden**2 / (base_layers * base_hidden**2)
    return rules.multimodal_share * max(0.8, min(1.05, 1.0 - 0.1 * (size - 1.0)))


def images_gib(rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment, mib: float) -> float:
    """What is kept back for images, GiB: embeddings, or on large Hopper GPUs a pool to transfer them."""
    if not server.multimodal:
        return 0.0
    if not on_large_hopper(rules, shape, server.generation, mib, server.multimodal):
        return units.mib_to_gib(rules.multimodal_cache_mib)
    busy = deployment.max_num_seqs is not None and deployment.max_num_seqs >= rules.hopper_busy_requests
    return units.mib_to_gib(rules.hopper_busy_transfer_mib if busy else rules.hopper_transfer_mib)
