"""The buckets of `planner.traffic.buckets` in whole numbers that every engine compares alike.

A token count lies in the octave of the largest power of two that is not above it, and there in one of eight steps. An
engine compares with 24 powers and 7 multiples of the power instead of with all edges, and takes no logarithm.
"""

from __future__ import annotations

import math

from planner.traffic.buckets import MAX_TOKENS, PER_OCTAVE

OCTAVES = tuple(1 << place for place in range(MAX_TOKENS.bit_length()))
STEPS = tuple(math.ceil(2 ** (len(OCTAVES) + place / PER_OCTAVE)) for place in range(PER_OCTAVE))
"""Where the steps of an octave begin, as multiples of its power over ``STEPS[0]``, which is 2 to the 24th.

``tokens * 2^24 >= power * STEPS[k]`` is ``tokens >= power * 2^(k/8)`` for every power up to 2 to the 24th: the left
side over the power is whole, so it is at least the irrational bound where it is at least the whole number above that.
"""


def lower_edge(octave: int, step: int) -> int:
    """Lower edge of the bucket of a step of an octave; 0 for the octave 0."""
    return -(-octave * STEPS[step] // STEPS[0])
