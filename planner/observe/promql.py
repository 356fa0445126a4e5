"""PromQL of one pool's figures (prometheus.io, "Querying"), in the names that its release uses.

Where a release may use either of two names, the expression takes the first that has series (``or``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.observe.metrics import Figure, MetricName, names_of
from planner.observe.tracks import POOL, UP
from planner.plan import Pool

RATE = "10m"
"""Window of rates: 10 scrapes and more at the usual intervals of up to a minute."""
_ONE_RANK = 'tp_rank=~"|0",pp_rank=~"|0",priority=""'
"""SGLang repeats gauges for every rank, and adds some for each priority beside their sum."""


def number(value: float) -> str:
    """A figure as PromQL and a reader take it: six significant digits."""
    return f"{value:.6g}"


@dataclass(frozen=True)
class Queries:
    """Expressions of one pool.

    Attributes
    ----------
    pool_label
        Label of the series that names the pool: the scrape configuration must set it on every target.
    """

    pool: Pool
    names: Sequence[MetricName]
    pool_label: str = POOL

    @property
    def selector(self) -> str:
        """The pool's series."""
        return f"{{{self.pool_label}={json.dumps(self.pool.name, ensure_ascii=False)}}}"

    @property
    def _engine_selector(self) -> str:
        return f"{self.selector[:-1]},{_ONE_RANK}}}" if self.pool.engine == "sglang" else self.selector

    def exported(self, *figures: Figure) -> bool:
        """Whether the pool's release exports all of them."""
        return all(self._names(figure) for figure in figures)

    def _names(self, figure: Figure) -> tuple[str, ...]:
        return names_of(self.names, self.pool.engine, self.pool.engine_version, figure)

    def _either(self, figure: Figure, part: str, form: Callable[[str], str]) -> str:
        options = [form(f"{name}{part}{self._engine_selector}") for name in self._names(figure)]
        return options[0] if len(options) == 1 else f"({' or '.join(options)})"

    def per_replica(self, figure: Figure) -> str:
        """Mean of a gauge over the replicas."""
        return f"avg({self._either(figure, '', str)})"

    def per_s(self, figure: Figure) -> str:
        """Growth of a counter, of all replicas, per second."""
        return f"sum({self._either(figure, '', lambda one: f'rate({one}[{RATE}])')})"

    def mean(self, figure: Figure) -> str:
        """Mean of a histogram's observations."""
        parts = [f"sum({self._either(figure, p, lambda one: f'rate({one}[{RATE}])')})" for p in ("_sum", "_count")]
        return f"{parts[0]} / {parts[1]}"

    def quantile(self, figure: Figure, share: float) -> str:
        """Quantile of a histogram's observations."""
        buckets = self._either(figure, "_bucket", lambda one: f"rate({one}[{RATE}])")
        return f"histogram_quantile({number(share)}, sum by (le) ({buckets}))"

    def tpot_figure(self) -> Figure:
        """Time per output token of requests, or where a release exports none the gap between tokens."""
        return Figure.TPOT if self.exported(Figure.TPOT) else Figure.TOKEN_GAP

    def tokens_per_s(self) -> str:
        """Prompt and output tokens per second."""
        return f"{self.per_s(Figure.PROMPT_TOKENS)} + {self.per_s(Figure.OUTPUT_TOKENS)}"

    def up(self) -> str:
        """Replicas that answer; 0 where there is none."""
        return f"(count({UP}{self.selector} == 1) or vector(0))"

    def absent(self) -> str:
        """Whether the engine shows nothing at all."""
        return f"absent({self._either(Figure.RUNNING, '', str)})"
