"""What tokens occupy in a pool, counted in equivalents of one token of the layers that keep everything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.memory.types import Sizing
from planner.traffic.types import FloatArray

STEPS_IN_FLIGHT = 2
"""Decode steps that an asynchronous scheduler runs ahead of what it has processed: their tokens are not yet freed."""


@dataclass(frozen=True)
class Holding:
    """What a request occupies by its tokens, in token-equivalents.

    Attributes
    ----------
    full, sliding
        Of one token in layers that keep everything, and in those that keep a window.
    block_tokens
        Tokens are taken in blocks of this size.
    window_tokens
        Most tokens held in sliding layers while decoding, in whole blocks.
    reserve_tokens
        The same during prefill.
    state
        Held however short the request.
    shared_tokens
        Leading tokens that all live requests share, such as a system prompt: whole blocks, held once for all of them
        and therefore not charged to a request. A prompt that is shorter shares nothing. Sliding layers share nothing:
        they have let go of the beginning.
    chunk_tokens
        Prompts are computed, and their blocks taken, in chunks of this size; 0 takes the whole prompt on admission.
    """

    full: float
    sliding: float
    block_tokens: int
    window_tokens: int
    reserve_tokens: int
    state: float
    shared_tokens: int = 0
    chunk_tokens: int = 0

    def of(self, tokens: FloatArray, longest: FloatArray, most: int) -> FloatArray:
        """Token-equivalents of requests of ``tokens`` on average, of which none has more than ``longest``.

        ``most`` bounds the tokens of sliding layers.
        """
        block = self.block_tokens
        blocks = np.minimum(np.ceil(longest / block) * block, tokens + (block - 1.0))
        return np.asarray(self.full * blocks + self.sliding * np.minimum(blocks, float(most)) + self.state)

    def of_mean(self, mean_prompt: float, mean_output: float) -> float:
        """Token-equivalents of a request of mean lengths halfway through its output: for the formula of means."""
        tokens = np.asarray(mean_prompt + mean_output / 2)
        return float(self.of(tokens, tokens, self.window_tokens))


def holding_of(sizing: Sizing) -> Holding:
    """How a sizing's pool charges a request."""
    unit, block = token_equivalent_bytes(sizing), sizing.largest_block_tokens
    return Holding(
        full=sizing.bytes_per_token / unit,
        sliding=sizing.sliding_bytes_per_token / unit,
        block_tokens=block,
        window_tokens=min(window_in_blocks(sizing.window_tokens, block), sizing.sliding_reserve_tokens),
        reserve_tokens=sizing.sliding_reserve_tokens,
        state=sizing.pool_state_bytes_per_request / unit,
    )


def window_in_blocks(window_tokens: int, block_tokens: int) -> int:
    """Most tokens that sliding layers hold in decode: the window and the steps in flight, wherever blocks begin."""
    return (-(-(window_tokens + STEPS_IN_FLIGHT - 1) // block_tokens) + 1) * block_tokens


def token_equivalent_bytes(sizing: Sizing) -> float:
    """Bytes per GPU of one token-equivalent: a token of the layers that keep everything, else of the sliding ones.

    The state of one request where no layer keeps tokens.
    """
    kinds = (sizing.bytes_per_token, sizing.sliding_bytes_per_token, sizing.pool_state_bytes_per_request)
    return next(figure for figure in kinds if figure > 0)


def longest_request(sizing: Sizing) -> float:
    """Token-equivalents that one request of ``max_model_len`` fills when its windows are full, states included."""
    windows = sizing.sliding_bytes_per_token * min(sizing.max_model_len, sizing.sliding_reserve_tokens)
    held = sizing.bytes_per_token * sizing.max_model_len + windows + sizing.pool_state_bytes_per_request
    return held / token_equivalent_bytes(sizing)


def pool_token_equivalents(sizing: Sizing) -> float:
    """The pool in token-equivalents: whole blocks only."""
    return sizing.num_blocks * sizing.bytes_per_block / token_equivalent_bytes(sizing)
