"""SGLang's pool of recurrent states: slots that are set aside before the token pool is cut.

Source: python/sglang/srt/mem_cache/kv_cache_configurator.py, ``_handle_max_mamba_cache`` (0.5.16, 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner import units
from planner.catalog.engine_rules.sglang import SglangRules
from planner.catalog.model_shape import ModelShape
from planner.memory.sglang.backends import prefix_off
from planner.memory.sglang.server import Server, keeps_states
from planner.memory.states import STATE_DTYPE_BYTES, states_bytes
from planner.memory.types import Deployment, Refusal

MORE_STATES = "Lower max_running_requests, raise mem_fraction_static, or use more or larger GPUs"


@dataclass(frozen=True)
class StatePool:
    """The slots, what one holds, and the GiB that are left for tokens.

    ``slots`` is what the engine reports: it allocates one more, as padding.
    """

    slots: int
    bytes_per_slot: int
    rest_gib: float
    refusal: Refusal | None = None


def slot_bytes(rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment) -> int:
    """Bytes of all states of one sequence on one rank; on the pipeline stage that has the most.

    Every rank of a worker has a share; without attention layers every rank of the server (configs/mamba.py, mamba2.py).
    """
    asked = deployment.sglang.mamba_ssm_dtype
    total = states_bytes(
        shape.state_layers,
        server.attention_tp if shape.cache_layers else deployment.tp,
        rules.states,
        recurrent_bytes=STATE_DTYPE_BYTES.get(asked) if asked else None,
    )
    layers = sum(states.count for states in shape.state_layers)
    return total * -(-layers // deployment.pp) // layers


def state_pool(
    rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment, rest_gib: float
) -> StatePool | None:
    """The pool, or ``None`` for a model without states.

    Slots: the flag over the workers; without prefix caching the running requests that are typed; else what a share
    ``r / (1 + r)`` of the memory left over holds, with ``p`` slots of padding (0.5.23: one):

        slots = (share − p x S) // S

    With drafts every running request also keeps a state per draft token: ``D`` more for each ``slots_per_request``
    slots, and for the padding.
    """
    if not keeps_states(rules, shape):
        return None
    per_slot, padding = slot_bytes(rules, shape, server, deployment), rules.state_policy.padding_slots
    drafts = deployment.speculative.num_tokens if deployment.speculative is not None else 0
    flags, asked = deployment.sglang, server.max_running
    if flags.max_mamba_cache_size is not None:
        slots = flags.max_mamba_cache_size // server.workers
    elif prefix_off(deployment) and asked is not None:
        slots = max(1, asked // server.workers)
    else:
        slots = _slots_by_share(rules, server, deployment, rest_gib, per_slot, drafts)
    requests = slots // server.state_slots_per_request
    if asked is not None:
        requests = min(max(1, asked // server.workers), requests)
    if drafts:
        rest_gib -= units.bytes_to_gib(per_slot * (requests + padding) * drafts)
    refusal = None if slots > 0 else no_states(slots, per_slot, rest_gib)
    return StatePool(slots, per_slot, rest_gib - units.bytes_to_gib((slots + padding) * per_slot), refusal)


def _slots_by_share(
    rules: SglangRules, server: Server, deployment: Deployment, rest_gib: float, per_slot: int, drafts: int
) -> int:
    asked = deployment.sglang.mamba_full_memory_ratio
    ratio = rules.state_policy.memory_ratio if asked is None else asked
    share = units.gib_to_bytes(rest_gib * ratio / (1 + ratio))
    padding = rules.state_policy.padding_slots
    each = per_slot * (1 + drafts / server.state_slots_per_request) if drafts else per_slot
    return int((share - padding * per_slot * (1 + drafts)) // each)


def no_states(slots: int, per_slot: int, rest_gib: float) -> Refusal:
    """Not one slot fits."""
    message = (
        f"Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed max_mamba_cache_size={slots} "
        f"(total_rest_memory={rest_gib:.2f} GB, mamba_cache_per_req={per_slot / units.BYTES_PER_MIB:.2f} MB)"
    )
    return Refusal("state cache", message, MORE_STATES)


def too_few_states(slots: int, per_request: int) -> Refusal:
    """Not one request's slots fit."""
    message = (
        "Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        f"max_mamba_cache_size={slots}, mamba_ratio={per_request}, resulting max_num_reqs=0"
    )
    return Refusal("state cache", message, MORE_STATES)
