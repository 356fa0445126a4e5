"""What an SGLang worker sets up: the pools of tokens and states that free memory gives, and the requests they hold.

    rest = free after weights − free before weights x (1 − fraction) − kept back for images − pool of states
    tokens = rest // bytes per token, in whole pages

Source: python/sglang/srt/mem_cache/kv_cache_configurator.py and model_executor/pool_configurator.py (0.5.16, 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.engine_rules.sglang import SglangRules
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.sglang.compressed import compressed_cells, compressed_pools
from planner.memory.sglang.fraction import images_gib, mem_fraction_static
from planner.memory.sglang.pools import TOO_SMALL, Cells, Pools, cells_of, pools_of
from planner.memory.sglang.server import Server, resolve
from planner.memory.sglang.states import StatePool, state_pool, too_few_states
from planner.memory.terms import no_room
from planner.memory.types import Deployment, Refusal


@dataclass(frozen=True)
class Plan:
    """The figures that the engine logs, per worker.

    Attributes
    ----------
    rest_bytes
        Bytes that are left for the token pools; negative when there are none.
    context_tokens
        Longest context that is served.
    max_running
        Most requests that run at once.
    refusals
        Why the server would not start.
    """

    server: Server
    fraction: float
    rest_bytes: int
    context_tokens: int
    cells: Cells
    pools: Pools
    states: StatePool | None
    max_running: int
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True)
class FreeMemory:
    """Free memory of a GPU before and after the weights are loaded, GiB."""

    before_gib: float
    after_gib: float


def running_requests(rules: SglangRules, server: Server, tokens: int, context_tokens: int) -> int:
    """Most requests that run at once in one worker (``resolve_max_num_reqs``).

    As asked, over the workers; else ``clamp(tokens / context x 512, 2048, 4096)``; at most half the tokens.
    """
    if server.max_running is not None:
        wanted = max(1, server.max_running // server.workers)
    else:
        wanted = min(max(int(tokens / context_tokens * rules.running_factor), rules.min_running), rules.max_running)
    return min(wanted, tokens // 2)


def plan_sglang(
    shape: ModelShape,
    facts: EngineFacts,
    gpu: Gpu,
    deployment: Deployment,
    driver_mib: float,
    rest_gib: float | None,
    free: FreeMemory,
) -> Plan:
    """What the engine sets up, given free memory, or what is left for the token pools (``rest_gib``)."""
    rules = facts.sglang
    server = resolve(rules, shape, gpu, deployment, driver_mib)
    fraction = mem_fraction_static(rules, shape, server, deployment, driver_mib)
    context = deployment.max_model_len or shape.max_position_embeddings
    if rest_gib is None:
        left = free.after_gib - free.before_gib * (1 - fraction)
        left -= images_gib(rules, shape, server, deployment, driver_mib)
        states = state_pool(rules, shape, server, deployment, left)
        rest_gib = left if states is None else states.rest_gib
    else:
        ratio = deployment.sglang.mamba_full_memory_ratio or rules.state_policy.memory_ratio
        states = state_pool(rules, shape, server, deployment, rest_gib * (1 + ratio))
    rest_bytes = int(units.gib_to_bytes(rest_gib))
    cells, pools = _token_pools(rules, shape, server, deployment, context, rest_bytes)
    running = running_requests(rules, server, pools.tokens, context)
    if states is not None:
        running = max(0, min(running, states.slots // server.state_slots_per_request))
    return Plan(
        server=server,
        fraction=fraction,
        rest_bytes=rest_bytes,
        context_tokens=context,
        cells=cells,
        pools=pools,
        states=states,
        max_running=running,
        refusals=_refusals(rest_gib, fraction, free, server, pools, states, running),
    )


def _token_pools(
    rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment, context: int, rest_bytes: int
) -> tuple[Cells, Pools]:
    """Bytes per token and the pools of tokens."""
    if server.compressed:
        cells = compressed_cells(rules, shape, server, deployment)
        return cells, compressed_pools(rules, shape, cells, server, deployment, rest_bytes)
    cells = cells_of(rules, shape, server, deployment)
    return cells, pools_of(rules, cells, server, deployment, context, rest_bytes)


def _refusals(
    rest_gib: float,
    fraction: float,
    free: FreeMemory,
    server: Server,
    pools: Pools,
    states: StatePool | None,
    running: int,
) -> tuple[Refusal, ...]:
    """The first reason, as the engine checks them: states, memory, sliding pool, tokens, requests."""
    if states is not None and states.refusal is not None:
        return (states.refusal,)
    if rest_gib <= 0:
        return (weights_leave_nothing(fraction, free, rest_gib),)
    if pools.refusal is not None:
        return (pools.refusal,)
    if pools.tokens <= 0:
        message = (
            "Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={fraction:.6g}"
        )
        return (Refusal("no room for KV cache", message, TOO_SMALL),)
    if states is not None and running <= 0:
        return (too_few_states(states.slots, server.state_slots_per_request),)
    return ()


def weights_leave_nothing(fraction: float, free: FreeMemory, rest_gib: float) -> Refusal:
    """``_profile_available_bytes``: the fraction that would be the least is named."""
    if not free.before_gib:
        return no_room(units.gib_to_bytes(rest_gib))
    least = 1 - free.after_gib / free.before_gib
    message = (
        f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={fraction:.6g} "
        f"(minimum viable = 1 - available/pre = {least:.4f}; {rest_gib:.2f} GiB are left)"
    )
    return Refusal("no room for KV cache", message, TOO_SMALL)
