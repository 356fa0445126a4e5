"""Feed-forward part of a config: dense MLPs, routed and shared experts, and their parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.catalog.hf_fields import EXPERTS, EXPERTS_PER_TOKEN, Fields


@dataclass(frozen=True)
class FeedForward:
    """Feed-forward parameters summed over layers, and the shape of the experts.

    Attributes
    ----------
    dense
        Dense MLPs and shared experts.
    small
        Biases: never quantised.
    """

    dense: int
    experts: int
    router: int
    small: int
    moe_layers: int = 0
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0


def gated(fields: Fields, bias: bool) -> FeedForward:
    """Gate, up and down: ``3 x hidden x ff`` (SwiGLU and the like)."""
    width = fields.feed_forward
    if fields.model_type == "qwen":
        width //= 2  # Qwen v1 counts both gated halves in intermediate_size
    small = fields.layers * (2 * width + fields.hidden) if bias else 0
    return FeedForward(fields.layers * 3 * fields.hidden * width, 0, 0, small)


def plain(fields: Fields, bias: bool) -> FeedForward:
    """Up and down: ``2 x hidden x ff``."""
    width = fields.feed_forward
    small = fields.layers * (width + fields.hidden) if bias else 0
    return FeedForward(fields.layers * 2 * fields.hidden * width, 0, 0, small)


def mixture(fields: Fields, bias: bool) -> FeedForward:
    """Routed experts (gated), shared experts and the dense layers between them.

    ``bias`` adds the biases of experts and router (gpt-oss).
    """
    hidden, layers = fields.hidden, fields.layers
    experts = fields.integer(*EXPERTS)
    width = fields.optional_integer("moe_intermediate_size", least=1) or fields.feed_forward
    shared, shared_gate = shared_width(fields, width)
    sparse = moe_layer_count(fields, layers)
    dense_width = fields.optional_integer("dense_intermediate_size", "intermediate_size_mlp") or fields.feed_forward
    small = sparse * experts * (2 * width + hidden) if bias else 0
    router = hidden * experts + (experts if bias or has_router_bias(fields) else 0)
    return FeedForward(
        dense=sparse * 3 * hidden * shared + (layers - sparse) * 3 * hidden * dense_width,
        experts=sparse * experts * 3 * hidden * width,
        router=sparse * (router + shared_gate),
        small=small,
        moe_layers=sparse,
        num_experts=experts,
        experts_per_token=fields.integer(*EXPERTS_PER_TOKEN),
        moe_intermediate=width,
        shared_intermediate=shared,
    )


def has_router_bias(fields: Fields) -> bool:
    """Whether the router carries one correction term per expert."""
    return fields.get("topk_method") == "noaux_tc" or fields.flag("use_routing_bias") or fields.model_type == "glm4_moe"


def shared_width(fields: Fields, expert_width: int) -> tuple[int, int]:
    """Width of the shared experts together, and the parameters of their gate."""
    stated = fields.optional_integer("shared_expert_intermediate_size")
    if stated:
        return stated, fields.hidden
    count = fields.optional_integer("n_shared_experts", "moe_num_shared_experts")
    if fields.model_type == "llama4_text":
        count = 1
    return count * expert_width, 0


def moe_layer_count(fields: Fields, layers: int) -> int:
    """Layers that hold routed experts, by whichever way the config says it."""
    if isinstance(fields.get("moe_layer_freq", "moe_layers_freq"), list):
        return sum(1 for entry in fields.per_layer("moe_layer_freq", "moe_layers_freq") if entry)
    frequency = fields.optional_integer("moe_layer_freq", "moe_layers_freq")
    if fields.model_type == "ernie4_5_moe":
        first = fields.optional_integer("moe_layer_start_index", default=1)
        last = fields.optional_integer("moe_layer_end_index", default=layers - 1, least=-1)
        last = layers - 1 if last < 0 else last
        step = fields.optional_integer("moe_layer_interval", default=1, least=1)
        return sum(1 for layer in range(layers) if first <= layer <= last and (layer + 1) % step == 0)
    if fields.model_type == "llama4_text":
        step = fields.optional_integer("interleave_moe_layer_step", default=1)
        return layers // step if step else 0
    dense_layers = {layer for layer in fields.items("mlp_only_layers") if isinstance(layer, int)}
    first = fields.optional_integer("first_k_dense_replace")
    every = frequency or fields.optional_integer("decoder_sparse_step", default=1) or 1
    offset = 0 if frequency else 1
    return sum(
        1 for layer in range(layers) if layer >= first and layer not in dense_layers and (layer + offset) % every == 0
    )


def beside_experts(fields: Fields, bias: bool) -> FeedForward:
    """A dense MLP in every layer and, with ``enable_moe_block``, experts beside it (Gemma-4).

    The expert branch brings three more norms and one scale per expert and per hidden dimension.
    """
    dense = gated(fields, bias)
    if not fields.flag("enable_moe_block"):
        return dense
    routed = mixture(fields, bias)
    experts, hidden, layers = routed.num_experts, fields.hidden, fields.layers
    return replace(routed, dense=dense.dense, small=layers * (3 * hidden + hidden + experts), moe_layers=layers)
