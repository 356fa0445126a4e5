"""What a plan's limits refuse of a log that shows a length law rather than single requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.actuals.route import UNKNOWN, Routing
from planner.plan import Pool
from planner.traffic.law import is_exact
from planner.traffic.types import FloatArray, IntArray, Traffic


@dataclass(frozen=True)
class Refused:
    """Sums over the requests of one or several laws."""

    requests: float = 0.0
    refused: float = 0.0
    tokens: tuple[float, float] = (0.0, 0.0)
    """Input and output of all."""
    refused_tokens: tuple[float, float] = (0.0, 0.0)

    def __add__(self, other: Refused) -> Refused:
        return Refused(
            self.requests + other.requests,
            self.refused + other.refused,
            (self.tokens[0] + other.tokens[0], self.tokens[1] + other.tokens[1]),
            (self.refused_tokens[0] + other.refused_tokens[0], self.refused_tokens[1] + other.refused_tokens[1]),
        )

    @property
    def share(self) -> float:
        """Of the requests."""
        return self.refused / self.requests if self.requests else 0.0

    def fitted_share(self, side: int) -> float:
        """Of the input (0) or output (1) tokens."""
        return 1.0 - self.refused_tokens[side] / self.tokens[side] if self.tokens[side] else 1.0


def refused_of(traffic: Traffic, pools: Sequence[Pool], routing: Routing) -> Refused:
    """What the pools refuse of a law; the log is taken to name no tenants.

    Exact where the log's longest requests reach down to a pool's limit; else a cell counts as refused when its largest
    total is above it: never too few.
    """
    law = traffic.law
    refused = np.zeros(3)
    for number, pool in enumerate(pools):
        if is_exact(traffic, pool.max_model_len):
            tail = traffic.tail
            rows = np.array([tail.n, tail.n * tail.prompt, tail.n * tail.output], dtype=np.float64)
            prompt, total = tail.prompt, tail.total
        else:
            rows = np.array([law.n, law.sum_prompt, law.sum_output], dtype=np.float64)
            prompt, total = np.rint(law.sum_prompt / law.n).astype(np.int64), law.max_total
        weight = _weight(routing, number, prompt) * (total > pool.max_model_len)
        refused += rows @ weight
    scale = 1.0 / traffic.sampling_fraction
    n, prompt_refused, output_refused = (refused * scale).tolist()
    tokens = float(law.sum_prompt.sum()) * scale, float(law.sum_output.sum()) * scale
    return Refused(law.requests * scale, n, tokens, (prompt_refused, output_refused))


def _weight(routing: Routing, pool: int, prompt: IntArray) -> FloatArray:
    """Share of the requests of each prompt length that go to a pool."""
    band = np.searchsorted(routing.edges, prompt, side="right") - 1
    shares = np.diff(routing.until[UNKNOWN], axis=1, prepend=0.0)
    by_band = np.where(routing.pool[UNKNOWN] == pool, shares, 0.0).sum(axis=1)
    return np.asarray(by_band[band])
