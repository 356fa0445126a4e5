"""What a model needs, on one page: cache by format, states, weights by format, degrees of parallelism, engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from planner.catalog.engine import EngineFacts
from planner.catalog.matrix import Split
from planner.catalog.model_shape import CacheKind, ModelShape
from planner.catalog.safetensors import CheckpointBytes
from planner.memory.kv import heads_per_rank, layer_bytes_per_token
from planner.memory.loading import Loading
from planner.memory.rules import format_rules, sglang_rules, split_rules
from planner.memory.rules.start_rules import architecture_known
from planner.memory.states import states_bytes
from planner.memory.tensors import BYTES_16BIT, VOCABULARY_PADDING, padded
from planner.memory.types import Deployment, KvDtype, Refusal, WeightDtype
from planner.memory.vllm.groups import ceil_div
from planner.memory.weights import stored_as, weight_bytes
from planner.origin import Origin

PLANNED = (WeightDtype.BF16, WeightDtype.FP8, WeightDtype.INT4_AWQ, WeightDtype.NVFP4)
"""Formats that every model is shown in, beside its own."""
CONVERTED = "another checkpoint: every linear layer converted"
UNCONVERTED = "another checkpoint: no layer converted"
NOT_FROM_FILES = "layers of the config, as the checkpoint's format stores them"
UNLISTED = "its model registry is not in the catalogue: try it"
CLOSE = 0.01
"""Share by which the files may differ from the layers before it is said what may be the reason."""


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of one token on one GPU at TP 1: of layers that keep every token, and of those that keep a window."""

    kv_dtype: KvDtype
    full: float
    sliding: float


@dataclass(frozen=True)
class WeightLine:
    """Bytes of all weights in one format.

    Attributes
    ----------
    own
        It is the format of the checkpoint.
    origin
        ``measured`` where files or their index were read, ``computed`` for the checkpoint's own format without them,
        ``guess`` for another checkpoint in that format.
    """

    dtype: str
    n_bytes: float
    own: bool
    origin: Origin
    basis: str


@dataclass(frozen=True)
class Degree:
    """One tensor-parallel degree: whether it divides the model, and what a rank then holds."""

    tp: int
    kv_heads: int
    """On a rank; 0 where the model has none (a latent, or states only)."""
    replicated: bool
    """Ranks share KV heads, so that more of them do not make a token's cache smaller."""
    bytes_per_token: float
    """16-bit cache of one token on one GPU, windows included."""
    experts: int
    """On a rank with expert parallelism; 0 without experts."""
    experts_even: bool
    refusals: tuple[str, ...]


@dataclass(frozen=True)
class Support:
    """What an engine of the catalogue says of the architecture; ``refusal`` is empty where nothing is against it."""

    engine: str
    version: str
    text: str
    refusal: str = ""
    unchecked: bool = False
    """The catalogue does not list the architectures of this engine."""


@dataclass(frozen=True)
class ModelCard:
    """What a model needs."""

    shape: ModelShape
    cache: tuple[CacheBytes, ...]
    window_tokens: int
    state_bytes: Mapping[str, int]
    """Recurrent states of a sequence on one GPU at TP 1, by engine and version; empty without states."""
    weights: tuple[WeightLine, ...]
    degrees: tuple[Degree, ...]
    engines: tuple[Support, ...]
    remarks: tuple[str, ...] = ()


def model_card(shape: ModelShape, engines: tuple[EngineFacts, ...], stored: CheckpointBytes | None) -> ModelCard:
    """The page of a model, by the newest release of each engine in the catalogue.

    Parameters
    ----------
    shape
        The model.
    engines
        All engines of the catalogue.
    stored
        Bytes of the checkpoint's files, where they were read.
    """
    newest = {facts.name: facts for facts in engines}
    vllm = newest["vllm"]
    windows = [layers.window_tokens or 0 for layers in shape.cache_layers if layers.kind is CacheKind.SLIDING]
    weights = tuple(_weights(shape, stored))
    return ModelCard(
        shape=shape,
        cache=tuple(_cache(shape, kv_dtype) for kv_dtype in KvDtype),
        window_tokens=max(windows, default=0),
        state_bytes={f"{f.name} {f.version}": _states(shape, f) for f in newest.values() if shape.state_layers},
        weights=weights,
        degrees=tuple(_degree(shape, vllm, tp) for tp in split_rules.DEGREES),
        engines=tuple(_support(shape, facts) for facts in newest.values()),
        remarks=tuple(_remarks(shape, stored)),
    )


def cache_bytes(shape: ModelShape, kind: CacheKind, tp: int, kv_dtype: KvDtype) -> float:
    """Bytes of a token on one GPU: ``sum of layers x bytes of an entry / tokens that an entry stands for``."""
    return sum(
        layers.count * layer_bytes_per_token(layers, tp, kv_dtype) / layers.tokens_per_state
        for layers in shape.cache_layers
        if layers.kind is kind
    )


def _cache(shape: ModelShape, kv_dtype: KvDtype) -> CacheBytes:
    full, sliding = (cache_bytes(shape, kind, 1, kv_dtype) for kind in (CacheKind.FULL, CacheKind.SLIDING))
    return CacheBytes(kv_dtype, full, sliding)


def _states(shape: ModelShape, facts: EngineFacts) -> int:
    rules = facts.vllm.states if facts.name == "vllm" else facts.sglang.states
    return states_bytes(shape.state_layers, 1, rules)


def _parameter_bytes(shape: ModelShape, dtype: WeightDtype) -> float:
    """Bytes of all parameters in a format, as files hold them: without the rows that pad a vocabulary."""
    padding = sum(
        matrix.count * (padded(matrix.out_features, VOCABULARY_PADDING) - matrix.out_features) * matrix.in_features
        for matrix in shape.matrices
        if matrix.split is Split.VOCABULARY and stored_as(matrix, dtype, shape.native_weight_dtype) is None
    )
    return weight_bytes(shape, dtype, Loading()).parameters - padding * BYTES_16BIT


def _weights(shape: ModelShape, stored: CheckpointBytes | None) -> Iterator[WeightLine]:
    """The checkpoint's own format first, exact where files were read; then others as estimates."""
    native = shape.native_weight_dtype
    known = native in frozenset(WeightDtype)
    if stored is not None:
        yield WeightLine(native, float(stored.total_bytes), True, Origin.MEASURED, stored.source)
    elif known:
        n_bytes = _parameter_bytes(shape, WeightDtype(native))
        yield WeightLine(native, n_bytes, True, Origin.COMPUTED, NOT_FROM_FILES)
    for dtype in PLANNED:
        if dtype != native:
            basis = UNCONVERTED if dtype is WeightDtype.BF16 else CONVERTED
            yield WeightLine(dtype, _parameter_bytes(shape, dtype), False, Origin.GUESS, basis)


def _remarks(shape: ModelShape, stored: CheckpointBytes | None) -> Iterator[str]:
    """Where files and config disagree, and formats that are not modelled."""
    native = shape.native_weight_dtype
    if native not in frozenset(WeightDtype):
        yield f"weights are stored in a format whose bytes are not modelled ({native}): size it with --weights-gib"
    elif stored is not None:
        computed = _parameter_bytes(shape, WeightDtype(native))
        share = stored.total_bytes / computed - 1.0
        yield f"computed from the config: {computed:,.0f} bytes; the files hold {stored.total_bytes:,} ({share:+.2%})"
        if abs(share) > CLOSE:
            yield (
                "files may hold layers that are not loaded (multi-token prediction, a head stored twice), or the "
                "config is not of these files: compare before signing"
            )


def _degree(shape: ModelShape, facts: EngineFacts, tp: int) -> Degree:
    heads = split_rules.kv_heads(shape)
    cache = sum(cache_bytes(shape, kind, tp, KvDtype.BF16) for kind in CacheKind)
    return Degree(
        tp=tp,
        kv_heads=sum(heads_per_rank(count, tp) for count in heads[:1]),
        replicated=(shape.has_latent_cache and tp > 1) or any(count < tp for count in heads),
        bytes_per_token=cache,
        experts=ceil_div(shape.num_experts, tp) if shape.is_moe else 0,
        experts_even=shape.num_experts % tp == 0,
        refusals=tuple(f"{refusal.rule}: {refusal.message}" for refusal in _refusals(shape, facts, tp)),
    )


def _refusals(shape: ModelShape, facts: EngineFacts, tp: int) -> list[Refusal]:
    """Rules of sizes and splits that the degree breaks, in the checkpoint's own format; no GPU is looked at."""
    native = shape.native_weight_dtype
    known = native in frozenset(WeightDtype)
    deployment = Deployment(tp, WeightDtype(native) if known else WeightDtype.BF16, KvDtype.BF16)
    quantised = bool(format_rules.method_of(shape, deployment))
    return [
        *split_rules.heads_divide(shape, tp),
        *split_rules.states_divide(shape, facts, tp, quantised=quantised),
        *split_rules.widths_divide(shape, deployment),
        *split_rules.vocabulary_divides(shape, facts, tp),
        *format_rules.blocks_divide(shape, facts, deployment),
        *format_rules.groups_divide(shape, facts, deployment),
    ]


def _support(shape: ModelShape, facts: EngineFacts) -> Support:
    """The registry of vLLM by release; SGLang's own lists, as its registry is not in the catalogue."""
    if facts.name == "sglang":
        found = [*sglang_rules.config_read(shape, facts), *sglang_rules.states_kept(shape, facts)]
        refusal = "; ".join(refusal.message for refusal in found)
        return Support(facts.name, facts.version, UNLISTED, refusal, unchecked=True)
    registry = facts.registry
    if registry is None:
        return Support(facts.name, facts.version, UNLISTED, unchecked=True)
    refusal = "; ".join(refusal.message for refusal in architecture_known(shape, facts, 1))
    return Support(facts.name, facts.version, registry.advice(shape.architecture), refusal)
