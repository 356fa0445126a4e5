"""State bytes of recurrent layers, each by hand from the engine's shapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planner.catalog.engine import find_engine, load_engines
from planner.catalog.engine_rules.shared import StateRules
from planner.catalog.model_shape import StateKind, StateLayers
from planner.memory.states import extra_groups, state_bytes, states_bytes

ENGINES = load_engines(Path(__file__).parents[2] / "catalogs")
VLLM = find_engine(ENGINES, "vllm", "0.33.0").vllm.states
SGLANG = find_engine(ENGINES, "sglang", "0.5.23").sglang.states

QWEN3_NEXT = StateLayers(
    StateKind.GATED_DELTA,
    layers=tuple(layer for layer in range(48) if (layer + 1) % 4),
    heads=32,
    head_dim=128,
    state_size=128,
    groups=16,
    conv_kernel=4,
    conv_channels=2 * 16 * 128 + 32 * 128,
)
FALCON_H1_3B = StateLayers(
    StateKind.MAMBA2,
    layers=tuple(range(32)),
    heads=32,
    head_dim=128,
    state_size=256,
    groups=1,
    conv_kernel=4,
    conv_channels=4096 + 2 * 256,
)
KIMI_LINEAR = StateLayers(
    StateKind.KIMI_DELTA,
    layers=tuple(range(20)),
    heads=32,
    head_dim=128,
    state_size=128,
    groups=32,
    conv_kernel=4,
    conv_channels=3 * 32 * 128,
)
LFM2 = StateLayers(
    StateKind.SHORT_CONVOLUTION, layers=tuple(range(10)), heads=0, head_dim=0, state_size=0, groups=0, conv_kernel=3,
    conv_channels=2048,
)  # fmt: skip
JAMBA = StateLayers(
    StateKind.MAMBA1, layers=tuple(range(28)), heads=8192, head_dim=1, state_size=16, groups=1, conv_kernel=4,
    conv_channels=8192,
)  # fmt: skip
MINIMAX_M1 = StateLayers(
    StateKind.LIGHTNING, layers=tuple(range(70)), heads=64, head_dim=128, state_size=128, groups=0, conv_kernel=0,
    conv_channels=0,
)  # fmt: skip


def test_a_gated_delta_net_by_hand() -> None:
    """3 x 8,192 x 2 B of convolution and 32 x 128 x 128 of state: in the model's 2 B, or in 4 B where asked."""
    assert state_bytes(QWEN3_NEXT, 1, VLLM) == 49_152 + 1_048_576
    assert state_bytes(QWEN3_NEXT, 1, VLLM, recurrent_bytes=4) == 49_152 + 2_097_152
    assert state_bytes(QWEN3_NEXT, 8, VLLM) == (49_152 + 1_048_576) // 8
    asks = replace(QWEN3_NEXT, state_bytes_per_element=4)
    assert state_bytes(asks, 1, VLLM) == 49_152 + 2_097_152
    assert state_bytes(asks, 1, VLLM, recurrent_bytes=2) == 49_152 + 1_048_576


def test_speculative_tokens_lengthen_the_convolution_only() -> None:
    """2 draft tokens: 5 taps instead of 3, 8,192 channels of 2 B each."""
    assert state_bytes(QWEN3_NEXT, 1, VLLM, speculative_tokens=2) == 5 * 8_192 * 2 + 1_048_576
    assert state_bytes(JAMBA, 1, VLLM, speculative_tokens=2) == state_bytes(JAMBA, 1, VLLM)
    assert state_bytes(QWEN3_NEXT, 1, SGLANG, speculative_tokens=2) == state_bytes(QWEN3_NEXT, 1, SGLANG)


@pytest.mark.parametrize(
    ("layers", "tp", "expected"),
    [
        (QWEN3_NEXT, 1, 77_266_944),
        (QWEN3_NEXT, 8, 9_658_368),
        (FALCON_H1_3B, 1, 135_102_464),
        (FALCON_H1_3B, 2, 67_600_384),
        (KIMI_LINEAR, 1, 43_417_600),
        (KIMI_LINEAR, 8, 5_427_200),
        (LFM2, 1, 81_920),
        (LFM2, 8, 10_240),
    ],
)
def test_sglang_slots(layers: StateLayers, tp: int, expected: int) -> None:
    """Bytes of one slot over all layers, as SGLang 0.5.23's own code computes them."""
    assert states_bytes((layers,), tp, SGLANG) == expected


def test_groups_are_extended_where_ranks_are_more() -> None:
    """Falcon-H1 at TP2: its one group is on both ranks, so 512 of 4,608 channels are doubled."""
    assert extra_groups(1, 2) == 1
    assert extra_groups(8, 4) == 0
    convolution = 3 * (4_096 + 2 * 2 * 256) // 2 * 2
    assert state_bytes(FALCON_H1_3B, 2, VLLM) == convolution + 16 * 128 * 256 * 2


def test_kinds_with_a_precision_of_their_own() -> None:
    """vLLM keeps Kimi delta states at 32 bits and lightning states at the model's, whatever is asked."""
    assert state_bytes(KIMI_LINEAR, 1, VLLM, recurrent_bytes=2) == 3 * 12_288 * 2 + 32 * 128 * 128 * 4
    assert state_bytes(MINIMAX_M1, 1, VLLM, recurrent_bytes=4) == 64 * 128 * 128 * 2
    assert state_bytes(MINIMAX_M1, 1, SGLANG) == 64 * 128 * 128 * 4
    older = StateRules(fixed_recurrent_bytes=((StateKind.GATED_DELTA, 2),))
    asks = replace(QWEN3_NEXT, state_bytes_per_element=4)
    assert state_bytes(asks, 1, older) == 49_152 + 1_048_576


def test_mamba_and_the_short_convolution() -> None:
    """Jamba: 3 x 8,192 and 8,192 x 16 elements, 2 B each; LFM2: 2 x 2,048 and no recurrence."""
    assert state_bytes(JAMBA, 1, VLLM) == (3 * 8_192 + 8_192 * 16) * 2
    assert states_bytes((LFM2, JAMBA), 2, VLLM) == 10 * 4_096 + 28 * (3 * 4_096 + 4_096 * 16) * 2
    assert state_bytes(LFM2, 1, VLLM, speculative_tokens=1) == 3 * 2_048 * 2


def test_what_releases_of_vllm_read() -> None:
    """0.11.0 keeps every state at the model's precision; the config's is read later, and speculative tokens kept."""
    asks = replace(QWEN3_NEXT, state_bytes_per_element=4)
    older = find_engine(ENGINES, "vllm", "0.11.0").vllm.states
    assert state_bytes(asks, 1, older, recurrent_bytes=4) == 49_152 + 1_048_576
    mamba = replace(FALCON_H1_3B, state_bytes_per_element=4)
    assert state_bytes(mamba, 1, older) == state_bytes(FALCON_H1_3B, 1, older)
    middle = find_engine(ENGINES, "vllm", "0.15.1").vllm.states
    assert state_bytes(mamba, 1, middle) > state_bytes(FALCON_H1_3B, 1, middle)
    for layers, since in ((KIMI_LINEAR, "0.27.0"), (LFM2, "0.30.0"), (FALCON_H1_3B, "0.17.0")):
        with_tokens = find_engine(ENGINES, "vllm", since).vllm.states
        assert state_bytes(layers, 1, with_tokens, speculative_tokens=1) > state_bytes(layers, 1, with_tokens)
        assert state_bytes(layers, 1, middle, speculative_tokens=1) == state_bytes(layers, 1, middle)
