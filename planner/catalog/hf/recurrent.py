"""Recurrent mixers: what each keeps for a sequence, and its matrices.

One function per recurrence; a reader of a family (`planner.catalog.hf.hybrid`) gives it the sizes that its config
states. Projections are split by heads; ``B`` and ``C`` of Mamba-2 by groups, of which a rank holds at least one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.catalog.hf import matrices as build
from planner.catalog.hf.fields import Fields
from planner.catalog.hf.matrices import FLOAT32, Layers, Matrices
from planner.catalog.matrix import Part, Split
from planner.catalog.model_shape import StateKind, StateLayers

PRECISIONS = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
"""Bytes per element of the names that configs ask for."""


@dataclass(frozen=True)
class Mixer:
    """Layers with one kind of recurrence."""

    state: StateLayers
    matrices: Matrices


def asked_precision(fields: Fields, key: str) -> int | None:
    """Bytes per element of the recurrent state that the config asks for; ``None`` where it is silent."""
    name = fields.get(key)
    if name is None:
        return None
    if name not in PRECISIONS:
        fields.note(key, f"is no dtype of a state (got {name!r:.40})", f"Write one of: {', '.join(PRECISIONS)}")
    return PRECISIONS.get(str(name))


def mamba2(
    layers: Layers,
    hidden: int,
    *,
    intermediate: int,
    heads: int,
    head_dim: int,
    state: int,
    groups: int,
    kernel: int,
    conv_bias: bool,
    bias: bool,
    gated_norm: bool = True,
    prefix: str = "mixer",
    precision: int | None = None,
    chunk: int = 0,
) -> Mixer:
    """Mamba-2 (vLLM ``mamba_mixer2.py``): gate, inputs, ``B``, ``C`` and time steps in one projection.

    ``in_proj``: ``hidden x (2 x intermediate + 2 x groups x state + heads)``; convolution over
    ``intermediate + 2 x groups x state`` channels. ``A`` is kept at 32 bits, ``D`` and the time-step bias are not.
    """
    shared = 2 * groups * state
    kept = StateLayers(
        StateKind.MAMBA2,
        layers,
        heads=heads,
        head_dim=head_dim,
        state_size=state,
        groups=groups,
        conv_kernel=kernel,
        conv_channels=intermediate + shared,
        state_bytes_per_element=precision,
        chunk_size=chunk,
    )

    def project(outputs: int, split: Split) -> Matrices:
        name = f"{prefix}.in_proj"
        return build.linear(name, hidden, outputs, layers, Part.STATE, split, heads=groups, bias=bias)

    matrices = project(2 * intermediate + heads, Split.COLUMN) + project(shared, Split.KV_HEADS)
    matrices += convolution(layers, intermediate, kernel, prefix, bias=conv_bias)
    matrices += convolution(layers, shared, kernel, prefix, bias=conv_bias, groups=groups)
    matrices += build.linear(
        f"{prefix}.out_proj", intermediate, hidden, layers, Part.STATE, Split.ROW, bias=bias
    ) + _per_head(layers, heads, prefix, names=("D", "dt_bias"))
    if gated_norm:
        matrices += (build.vector(f"{prefix}.norm", intermediate, layers, Part.STATE, Split.COLUMN),)
    return Mixer(kept, matrices)


def convolution(
    layers: Layers, channels: int, kernel: int, prefix: str, *, bias: bool, groups: int = 0, name: str = "conv1d"
) -> Matrices:
    """A causal convolution per channel, split by channels, or by ``groups`` of them."""
    module, split = f"{prefix}.{name}", Split.KV_HEADS if groups else Split.COLUMN
    taps = replace(build.table(module, channels, kernel, layers, Part.STATE, split), heads=groups)
    return (taps, build.bias_of(taps)) if bias else (taps,)


def _per_head(layers: Layers, heads: int, prefix: str, names: tuple[str, ...], decay: str = "A_log") -> Matrices:
    """Vectors with an entry per head: the decay at 32 bits, the others at the model's precision."""
    log = build.vector(f"{prefix}.{decay}", heads, layers, Part.STATE, Split.COLUMN, bytes_per_element=FLOAT32)
    return (log, *(build.vector(f"{prefix}.{name}", heads, layers, Part.STATE, Split.COLUMN) for name in names))


def mamba1(
    layers: Layers,
    hidden: int,
    *,
    intermediate: int,
    state: int,
    kernel: int,
    time_step_rank: int,
    conv_bias: bool,
    bias: bool,
    norms: bool,
    prefix: str,
) -> Mixer:
    """Mamba (vLLM ``mamba_mixer.py``): a state of ``intermediate x state``; never quantised by vLLM.

    ``x_proj`` makes time steps, ``B`` and ``C`` from the convolved inputs; ``norms`` are theirs (Jamba).
    """
    kept = StateLayers(
        StateKind.MAMBA1,
        layers,
        heads=intermediate,
        head_dim=1,
        state_size=state,
        conv_kernel=kernel,
        conv_channels=intermediate,
    )

    def project(name: str, inputs: int, outputs: int, split: Split, with_bias: bool) -> Matrices:
        module = f"{prefix}.{name}"
        return build.linear(module, inputs, outputs, layers, Part.STATE, split, bias=with_bias, quantised=False)

    matrices = project("in_proj", hidden, 2 * intermediate, Split.COLUMN, bias)
    matrices += convolution(layers, intermediate, kernel, prefix, bias=conv_bias)
    matrices += project("x_proj", intermediate, time_step_rank + 2 * state, Split.ROW, False)
    matrices += project("dt_proj", time_step_rank, intermediate, Split.COLUMN, True)
    matrices += project("out_proj", intermediate, hidden, Split.ROW, bias)
    decay = build.table(f"{prefix}.A_log", intermediate, state, layers, Part.STATE, Split.COLUMN)
    matrices += (replace(decay, bytes_per_element=FLOAT32),)
    matrices += (build.vector(f"{prefix}.D", intermediate, layers, Part.STATE, Split.COLUMN),)
    if norms:
        matrices += build.norms((f"{prefix}.dt_layernorm",), time_step_rank, layers)
        matrices += build.norms((f"{prefix}.b_layernorm", f"{prefix}.c_layernorm"), state, layers)
    return Mixer(kept, matrices)


def gated_delta(
    layers: Layers,
    hidden: int,
    *,
    key_heads: int,
    key_dim: int,
    value_heads: int,
    value_dim: int,
    kernel: int,
    precision: int | None = None,
    joined: bool = False,
    prefix: str = "linear_attn",
) -> Mixer:
    """Gated delta net (vLLM ``qwen_gdn_linear_attn.py``): queries, keys, values, gate ``z``, decays ``b`` and ``a``.

    ``joined``: the checkpoint stores them as ``in_proj_qkvz`` and ``in_proj_ba`` (Qwen3-Next); else apart, and the
    engine fuses them (Qwen3.5).
    """
    keys, values = key_heads * key_dim, value_heads * value_dim
    kept = StateLayers(
        StateKind.GATED_DELTA,
        layers,
        heads=value_heads,
        head_dim=value_dim,
        state_size=key_dim,
        groups=key_heads,
        conv_kernel=kernel,
        conv_channels=2 * keys + values,
        state_bytes_per_element=precision,
    )

    def project(name: str, outputs: int, engine: str) -> Matrices:
        fused = "" if name == engine else f"{prefix}.{engine}"
        module = f"{prefix}.{name}"
        return build.linear(module, hidden, outputs, layers, Part.STATE, Split.COLUMN, fused=fused)

    if joined:
        matrices = project("in_proj_qkvz", 2 * keys + 2 * values, "in_proj_qkvz")
        matrices += project("in_proj_ba", 2 * value_heads, "in_proj_ba")
    else:
        matrices = project("in_proj_qkv", 2 * keys + values, "in_proj_qkvz")
        matrices += project("in_proj_z", values, "in_proj_qkvz")
        matrices += project("in_proj_b", value_heads, "in_proj_ba") + project("in_proj_a", value_heads, "in_proj_ba")
    matrices += convolution(layers, 2 * keys + values, kernel, prefix, bias=False)
    matrices += _per_head(layers, value_heads, prefix, names=("dt_bias",))
    matrices += (build.vector(f"{prefix}.norm", value_dim, layers, Part.STATE),)
    matrices += build.linear(f"{prefix}.out_proj", values, hidden, layers, Part.STATE, Split.ROW)
    return Mixer(kept, matrices)


def short_convolution(
    layers: Layers, hidden: int, *, width: int, kernel: int, bias: bool, prefix: str = "conv"
) -> Mixer:
    """Gated short convolution (LFM2, vLLM ``short_conv.py``): two gates and the input, ``width`` channels each."""
    kept = StateLayers(
        StateKind.SHORT_CONVOLUTION,
        layers,
        conv_kernel=kernel,
        conv_channels=width,
    )
    matrices = build.linear(f"{prefix}.in_proj", hidden, 3 * width, layers, Part.STATE, Split.COLUMN, bias=bias)
    matrices += convolution(layers, width, kernel, prefix, bias=bias, name="conv")
    matrices += build.linear(f"{prefix}.out_proj", width, hidden, layers, Part.STATE, Split.ROW, bias=bias)
    return Mixer(kept, matrices)


def lightning(layers: Layers, hidden: int, *, heads: int, head_dim: int, prefix: str = "self_attn") -> Mixer:
    """Lightning attention (MiniMax-M1): queries, keys and values of all heads, an output gate and a norm."""
    inner = heads * head_dim
    kept = StateLayers(
        StateKind.LIGHTNING,
        layers,
        heads=heads,
        head_dim=head_dim,
        state_size=head_dim,
    )
    matrices = build.linear(f"{prefix}.qkv_proj", hidden, 3 * inner, layers, Part.STATE, Split.COLUMN)
    matrices += build.linear(f"{prefix}.output_gate", hidden, inner, layers, Part.STATE, Split.COLUMN)
    matrices += build.linear(f"{prefix}.out_proj", inner, hidden, layers, Part.STATE, Split.ROW)
    matrices += (build.vector(f"{prefix}.norm", inner, layers, Part.STATE, Split.COLUMN),)
    return Mixer(kept, matrices)


def kimi_delta(
    layers: Layers,
    hidden: int,
    *,
    heads: int,
    head_dim: int,
    kernel: int,
    full_rank_gate: bool,
    bounded_gate: bool,
    full_rank_decay: bool = False,
    prefix: str = "self_attn",
) -> Mixer:
    """Kimi delta attention (vLLM ``kimi_gdn_linear_attn.py``): decays through a rank of one head, an output gate.

    Kimi-Linear makes the gate through a rank of one head as well, Kimi-K3 at full rank; Ling 3 both at full rank
    (``bailing_moe_v3.py``). Convolutions, the decay and its bias are float32. The narrow down-projections are whole on
    every rank.
    """
    inner = heads * head_dim
    kept = StateLayers(
        StateKind.KIMI_DELTA,
        layers,
        heads=heads,
        head_dim=head_dim,
        state_size=head_dim,
        groups=heads,
        conv_kernel=kernel,
        conv_channels=3 * inner,
        bounded_gate=bounded_gate,
    )
    matrices = _kimi_projections(
        layers, hidden, heads, head_dim, prefix, full_rank_gate=full_rank_gate, full_rank_decay=full_rank_decay
    )
    taps = build.table(f"{prefix}.conv1d", 3 * inner, kernel, layers, Part.STATE, Split.COLUMN)
    matrices += (replace(taps, bytes_per_element=FLOAT32),)
    for name, size in (("dt_bias", inner), ("A_log", heads)):
        module = f"{prefix}.{name}"
        matrices += (build.vector(module, size, layers, Part.STATE, Split.COLUMN, bytes_per_element=FLOAT32),)
    return Mixer(kept, (*matrices, build.vector(f"{prefix}.o_norm", head_dim, layers, Part.STATE)))


def _kimi_projections(
    layers: Layers, hidden: int, heads: int, head_dim: int, prefix: str, *, full_rank_gate: bool, full_rank_decay: bool
) -> Matrices:
    """Queries, keys, values and output, and what makes gate, decay and strength of the update."""
    inner = heads * head_dim

    def project(name: str, inputs: int, outputs: int, split: Split, fused: bool = True) -> Matrices:
        engine = f"{prefix}.in_proj_qkvgfab" if fused else ""
        return build.linear(f"{prefix}.{name}", inputs, outputs, layers, Part.STATE, split, fused=engine)

    matrices: Matrices = ()
    for name in ("q_proj", "k_proj", "v_proj") + (("g_proj",) if full_rank_gate else ()):
        matrices += project(name, hidden, inner, Split.COLUMN)
    matrices += project("b_proj", hidden, heads, Split.COLUMN)
    if full_rank_decay:
        matrices += project("f_proj", hidden, inner, Split.COLUMN, fused=False)
    else:
        matrices += project("f_a_proj", hidden, head_dim, Split.WHOLE)
        matrices += project("f_b_proj", head_dim, inner, Split.COLUMN, fused=False)
    if not full_rank_gate:
        matrices += project("g_a_proj", hidden, head_dim, Split.WHOLE, fused=False)
        matrices += project("g_b_proj", head_dim, inner, Split.COLUMN, fused=False)
    matrices += project("o_proj", inner, hidden, Split.ROW, fused=False)
    return matrices
