"""Whether a replica that started holds what its pool was planned for: the engine's own figure against the plan's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.memory.starts.log_check import LARGEST_GAP
from planner.memory.starts.log_start import Overrides, model_name
from planner.memory.starts.startup_log import StartupLog
from planner.plan import Pool

FIGURES = (("kv_tokens", "tokens"), ("blocks", "blocks"))


@dataclass(frozen=True)
class FoundPool:
    """The KV pool of one replica, as it was found.

    Attributes
    ----------
    unit
        Of ``planned`` and ``found``: what the log states.
    tokens
        Live tokens that fit: planned tokens x found / planned.
    needed_tokens
        Live tokens of the busiest period that are exceeded with the plan's overflow probability.
    """

    unit: str
    planned: float
    found: float
    tokens: float
    needed_tokens: float

    @property
    def gap(self) -> float:
        """(found - planned) / planned."""
        return self.found / self.planned - 1.0

    @property
    def holds(self) -> bool:
        """Whether the planned load fits, in a pool that is not smaller than planned by more than a tenth."""
        return self.tokens >= self.needed_tokens and self.gap >= -LARGEST_GAP

    def __str__(self) -> str:
        found = f"{self.found:,.0f}" if self.unit != "GiB" else f"{self.found:,.2f}"
        planned = f"{self.planned:,.0f}" if self.unit != "GiB" else f"{self.planned:,.2f}"
        verdict = "holds" if self.holds else "does NOT hold"
        return (
            f"KV pool: {found} {self.unit} found, {planned} planned ({self.gap:+.1%}). It {verdict} the planned load: "
            f"{self.needed_tokens:,.0f} live tokens at the planned quantile, of {self.tokens:,.0f} that fit."
        )


def found_pool(log: StartupLog, pool: Pool) -> FoundPool | None:
    """The pool that a log states; ``None`` where it states none.

    Tokens where the engine logs them, else blocks, else the memory that was left for the cache, GiB.
    """
    memory = pool.memory
    planned = {"kv_tokens": float(memory.logged_tokens), "blocks": float(memory.num_blocks)}
    stated = [(unit, planned[name], log.figures.get(name)) for name, unit in FIGURES]
    stated.append(("GiB", memory.available_kv_gib, log.figure("available")))
    for unit, expected, found in stated:
        if found is not None and expected > 0:
            tokens = memory.pool_tokens * found / expected
            return FoundPool(unit, expected, found, tokens, pool.load.quantile_live_tokens)
    return None


def started_as(overrides: Overrides, log: StartupLog, pool: Pool) -> Overrides:
    """What the log leaves open as the one pool has it that the user says the log is of.

    A log often shows a path: a name that ends as the pool's weights do means them.
    """
    model = overrides.model or model_name(log.model)
    logged = bool(log.gpu) or log.figure("total") is not None
    return replace(
        overrides,
        model=pool.weights if not model or last_part(model) == last_part(pool.weights) else model,
        gpu=overrides.gpu or ("" if logged else pool.gpu),
        version=overrides.version or log.version or pool.engine_version,
        tp=overrides.tp or (None if log.setting("tensor_parallel_size", "tp_size") or len(log.ranks) > 1 else pool.tp),
    )


def last_part(name: str) -> str:
    """A model's name after its organisation, in small letters."""
    return name.rsplit("/", 1)[-1].casefold()
