"""Optional terms: LoRA adapters, drafts of speculative decoding, weights in host memory; figures beside the pool.

A shared prefix and a second tier of cache in host memory change what the pool serves, never what the engine prints:
they come as figures of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.matrix import Matrix, Part, Split
from planner.catalog.model_shape import ModelShape
from planner.memory.kv import layer_bytes_per_token
from planner.memory.loading import Loading, loading_of
from planner.memory.tensors import BYTES_16BIT, on_rank
from planner.memory.types import (
    DRAFT_MODEL,
    Deployment,
    LoraAdapters,
    Sizing,
    Speculative,
    Term,
    WeightBytes,
    WeightDtype,
)
from planner.memory.weights import pipeline_stages, weight_bytes
from planner.origin import Origin

ADAPTED_PARTS = frozenset({Part.ATTENTION, Part.STATE, Part.MLP, Part.SHARED_EXPERTS, Part.ROUTER})
"""Parts whose linear layers take adapters whatever the model."""


def option_terms(
    shape: ModelShape, facts: EngineFacts, deployment: Deployment, gpu: Gpu | None = None
) -> tuple[Term, ...]:
    """What the options of a deployment take from the budget, GiB per GPU; empty without options."""
    terms = []
    if deployment.lora is not None:
        terms.append(lora_term(shape, facts, deployment, deployment.lora))
    if deployment.speculative is not None:
        terms.append(draft_term(shape, facts, deployment, deployment.speculative, gpu))
    return tuple(terms)


LOADED_OPTIONS = frozenset({"LoRA adapters", "draft weights"})


def loaded_weights_gib(sizing: Sizing) -> float:
    """Weights of one rank as the engine logs them, GiB.

    ``Model loading took`` of vLLM is printed after adapters are made room for and the draft is loaded
    (vllm/v1/worker/gpu_model_runner.py, ``load_model``, 0.9.2 to 0.33.0); SGLang prints the model's alone.
    """
    loaded = LOADED_OPTIONS if sizing.engine == "vllm" else frozenset()
    return sizing.terms[0].gib + sum(term.gib for term in sizing.terms[1:] if term.name in loaded)


# LoRA adapters


@dataclass(frozen=True)
class AdapterRules:
    """Which layers of a model take adapters.

    Attributes
    ----------
    experts
        Routed experts.
    merged_experts
        Their gate and up share one adapter.
    tables
        Embedding and output head.
    """

    experts: bool = False
    merged_experts: bool = False
    tables: bool = False


def adapter_rules(shape: ModelShape, facts: EngineFacts) -> AdapterRules:
    """The release's; SGLang adapts the linear layers that ``--lora-target-modules all`` names."""
    if facts.name == "sglang":
        return AdapterRules(experts=True)
    rules = facts.vllm
    return AdapterRules(
        experts=rules.lora_experts,
        merged_experts=shape.architecture in rules.lora_merged_experts,
        tables=shape.architecture in rules.lora_tables,
    )


def lora_term(shape: ModelShape, facts: EngineFacts, deployment: Deployment, lora: LoraAdapters) -> Term:
    """Buffers of all adapters that may run in one batch, allocated when the server starts."""
    size = lora_bytes(shape, loading_of(facts, deployment), lora, adapter_rules(shape, facts))
    source = (
        f"{lora.max_loras} adapters of rank {lora.max_rank} on every linear layer, 16 bits "
        f"({facts.name}/lora of {facts.version}: stacked A and B)"
    )
    return Term("LoRA adapters", units.bytes_to_gib(size), Origin.COMPUTED, source)


@lru_cache(maxsize=4096)
def lora_bytes(shape: ModelShape, loading: Loading, lora: LoraAdapters, rules: AdapterRules) -> int:
    """Bytes on the rank that holds most.

        2 B x max_loras x max_rank x Σ layers x (inputs of the rank + outputs of the rank)

    A is ``(max_loras, 1, max_rank, inputs)`` and B ``(max_loras, 1, outputs, max_rank)``, one pair for each part of a
    fused module, divided among ranks as the layer is (vllm/lora/layers/base_linear.py, column_parallel_linear.py,
    fused_moe.py; ``fully_sharded_loras`` off). Embedding and head are whole on every rank
    (vocal_parallel_embedding.py, logits_processor.py).
    """
    stages = pipeline_stages(shape.num_layers, loading.pp, loading.extra_layers)
    elements = max(_stage_elements(shape, loading, rules, layers) for layers in stages)
    return BYTES_16BIT * lora.max_loras * lora.max_rank * elements


def _stage_elements(shape: ModelShape, loading: Loading, rules: AdapterRules, layers: range) -> int:
    """Elements per adapter and rank-one direction in one pipeline stage."""
    total = 0
    for matrix in shape.matrices:
        count = sum(1 for layer in matrix.layers if layer in layers)
        if matrix.part in (Part.EMBEDDING, Part.LM_HEAD):
            total += matrix.out_features + matrix.in_features if rules.tables else 0
            if matrix.part is Part.EMBEDDING and rules.tables and shape.tied_embeddings:
                total += matrix.out_features + matrix.in_features  # the head reads the same table, with its own adapter
        elif count and _takes_adapter(matrix, rules):
            copies, rows, columns = on_rank(matrix, loading)
            gate = rules.merged_experts and matrix.part is Part.EXPERTS and matrix.split is Split.COLUMN
            total += count * copies * (rows + (columns // 2 if gate else columns))
    return total


def _takes_adapter(matrix: Matrix, rules: AdapterRules) -> bool:
    if matrix.in_features == 1:
        return False
    if matrix.part is Part.EXPERTS:
        return rules.experts
    return matrix.part in ADAPTED_PARTS and (matrix.linear or matrix.part is Part.ROUTER)


# Speculative decoding


def draft_term(
    shape: ModelShape, facts: EngineFacts, deployment: Deployment, speculative: Speculative, gpu: Gpu | None = None
) -> Term:
    """Weights of the draft; its cache is among the model's layers."""
    loading = loading_of(facts, deployment, gpu)
    if speculative.method == DRAFT_MODEL:
        size, source = separate_draft_bytes(speculative, facts, deployment, gpu)
    else:
        size = own_draft_bytes(shape, deployment.weight_dtype, loading, speculative)
        source = (
            f"{speculative.draft_layers} layer(s) like the model's last with attention, and the projection of "
            "2 x hidden; embedding and head are the model's (vllm/v1/spec_decode)"
        )
    return Term("draft weights", units.bytes_to_gib(size), Origin.COMPUTED, source)


def separate_draft_bytes(
    speculative: Speculative, facts: EngineFacts, deployment: Deployment, gpu: Gpu | None
) -> tuple[float, str]:
    """Another model's weights, divided as the model's are (``draft_tensor_parallel_size`` as tp); as stored."""
    draft = speculative.draft
    if draft is None:
        return 0.0, "the draft model is not named"
    known = {str(dtype): dtype for dtype in WeightDtype}
    dtype = known.get(draft.native_weight_dtype, WeightDtype.BF16)
    alone = replace(deployment, weight_dtype=dtype, pp=1, expert_parallel=False)
    return weight_bytes(draft, dtype, loading_of(facts, alone, gpu)).total, f"{draft.id} as {dtype}"


@lru_cache(maxsize=4096)
def own_draft_bytes(shape: ModelShape, dtype: WeightDtype, loading: Loading, speculative: Speculative) -> float:
    """Layers of multi-token prediction or of an EAGLE head, built like the model's last layer with attention.

        layers x (attention + MLP or experts + norms + 2 x hidden² x 2 B)

    The projection joins hidden state and embedding, at 16 bits and whole on every rank (``eh_proj``, ``fc``).
    """
    attention = [max(matrix.layers) for matrix in shape.matrices if matrix.part is Part.ATTENTION and matrix.layers]
    if not attention:
        return 0.0
    matrices, dtype = tuple(_as_only_layer(shape.matrices, max(attention))), _draft_dtype(shape, dtype)
    layer = replace(shape, matrices=matrices, num_layers=1, tied_embeddings=False, vision_encoder=None)
    size = weight_bytes(layer, dtype, replace(loading, pp=1, vision=False)).total - layer.rotary_bytes
    return speculative.draft_layers * (size + 2 * shape.hidden_size**2 * BYTES_16BIT)


def _draft_dtype(shape: ModelShape, dtype: WeightDtype) -> WeightDtype:
    """The model's format; 16 bits where the checkpoint keeps the draft so (``is_layer_excluded``, modelopt.py)."""
    return WeightDtype.BF16 if shape.draft_16bit and dtype == shape.native_weight_dtype else dtype


def _as_only_layer(matrices: tuple[Matrix, ...], layer: int) -> Iterator[Matrix]:
    for matrix in matrices:
        if layer in matrix.layers:
            yield replace(matrix, layers=(0,))


# Host memory


def on_gpu(weights: Term, held: WeightBytes, deployment: Deployment) -> Term:
    """The weights term less what stays in host memory.

    ``--cpu-offload-gb`` moves parameters of decoder layers until that many GiB are moved, per GPU
    (vllm/model_executor/models/utils.py, ``maybe_offload_to_cpu``); embedding and head stay.
    """
    asked = deployment.vllm.cpu_offload_gib
    if asked <= 0:
        return weights
    moved = min(asked, units.bytes_to_gib(held.dense + held.experts), weights.gib)
    return replace(weights, gib=weights.gib - moved, source=f"{weights.source}, less {moved:.2f} GiB in host memory")


def offload_tier_tokens(shape: ModelShape, deployment: Deployment, tier_gib: float) -> int:
    """Tokens that a tier of cache in host memory holds (``--kv-offloading-size``: GiB of all ranks together).

    ``tier / (bytes per token and rank x ranks)``: ranks that replicate heads or latents store every copy. Only layers
    that keep every token count.
    """
    per_rank = sum(
        layers.count * layer_bytes_per_token(layers, deployment.tp, deployment.kv_dtype) / layers.tokens_per_state
        for layers in shape.cache_layers
        if layers.window_tokens is None
    )
    return int(units.gib_to_bytes(tier_gib) / (per_rank * deployment.tp)) if per_rank else 0


# Prefix caching


def effective_pool_tokens(sizing: Sizing, hit_share: float) -> int:
    """Live tokens that the pool serves when a share of them is held once for several requests.

        pool / (1 − hit share)

    ``hit_share`` is the measured share of prompt tokens found in the cache. The figure assumes that a shared token is
    live in all requests that share it at the same time, and that it is stored once; blocks kept after their last
    request are not counted, as the engine evicts them first. It says what the traffic needs less of, not what the
    engine prints.
    """
    if not 0 <= hit_share < 1:
        raise ValueError(f"a hit share is from 0 to below 1 (got {hit_share})")
    return int(sizing.pool_tokens / (1 - hit_share))


@dataclass(frozen=True)
class Beside:
    """A figure beside the pool: tokens, and what it means."""

    name: str
    tokens: int
    meaning: str


def beside_the_pool(shape: ModelShape, sizing: Sizing, hit_share: float | None = None) -> tuple[Beside, ...]:
    """Figures that options add beside what the engine prints."""
    figures = []
    if hit_share is not None:
        meaning = (
            f"live tokens served where {hit_share:.0%} of prompt tokens are found in the cache and are live in all "
            "requests that share them: pool / (1 − share); the pool itself stays as it is"
        )
        figures.append(Beside("effective pool", effective_pool_tokens(sizing, hit_share), meaning))
    tier_gib = sizing.deployment.vllm.kv_offload_gib
    if tier_gib > 0:
        tokens = offload_tier_tokens(shape, sizing.deployment, tier_gib)
        meaning = f"tokens that {tier_gib:g} GiB of host memory keep after they leave the pool, all ranks together"
        figures.append(Beside("second tier in host memory", tokens, meaning))
    return tuple(figures)
