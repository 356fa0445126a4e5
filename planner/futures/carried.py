"""A fleet in a future that it was not planned for: its pools and commitments stay, counts of replicas follow the load.

What is decided here and now are the pools (slice, GPU type, tp, formats, max_model_len, max_num_seqs, shares of split
slices) and the new commitments, bought hardware included. In the future that comes every pool gets the replicas that it
needs then, and instances without a commitment are had as they are needed. Commitments are paid at that future's
prices, whether their instances run or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from planner.catalog.load import Catalog
from planner.inputs import Inputs
from planner.optimise.needs.approved import approved_formats
from planner.optimise.needs.asks import asks_of
from planner.optimise.needs.candidate_table import table_of
from planner.optimise.needs.candidates import least_counts, missed, needs_of
from planner.optimise.needs.columns import column_of, placement_of, running
from planner.optimise.needs.configurations import Links, Place, Replicas, ways_of
from planner.optimise.needs.exact import exact_need
from planner.optimise.needs.lengths import length_choice
from planner.optimise.pools.slices import slice_key
from planner.optimise.program.parts import is_reserved
from planner.optimise.solve.splits import need_at_share
from planner.optimise.supply.supplies import network_gb_s
from planner.optimise.types import Column, Lot, LotKind, Need, Part, ProgramData, Serving, Workload
from planner.plan import FleetPlan, Pool
from planner.preparing import Ground, data_of, spare_of
from planner.queueing.replicas import reachable
from planner.request import Policy


class CannotServeError(Exception):
    """Why a fleet cannot serve a future."""


@dataclass(frozen=True)
class Setting:
    """What all pools of one model meet in a future."""

    workload: Workload
    serving: Serving
    policy: Policy
    catalog: Catalog
    replicas: Replicas


def carried_data(plan: FleetPlan, inputs: Inputs, ground: Ground) -> ProgramData:
    """The program of a future with a plan's pools as its only columns, and the plan's new commitments as given.

    Parameters
    ----------
    plan
        Whose fleet is taken.
    inputs, ground
        Of the future.

    Raises
    ------
    CannotServeError
        If a pool cannot serve its requests then, or the commitments owe more than the cap allows.
    """
    columns = carried_columns(plan, inputs, ground)
    taken = {p.offer_id: p.reserved_instances for p in plan.purchases if p.reserved_instances}
    lots = held_lots(ground, taken)
    data = data_of(inputs, ground.horizon, ground.workloads, ground.everything.on(lots))
    cap = data.caps.liability_usd
    owed = sum(lot.liability_after_usd * taken.get(lot.id, 0) for lot in ground.everything.lots)
    if cap is not None and owed > cap * (1 + 1e-9):
        raise CannotServeError(f"its commitments owe {owed:,.0f} USD after the horizon, and {cap:,.0f} are allowed")
    return replace(data, columns=columns, caps=replace(data.caps, liability_usd=None))


def held_lots(ground: Ground, taken: Mapping[str, int]) -> tuple[Lot, ...]:
    """Lots of a future with commitments as given.

    A lot that is paid every hour becomes one that is held: its reserved price of all hours is sunk, and so many
    instances can run for what an hour in use costs beyond. No other commitments can be had.
    """
    hours = sum(period.hours for period in ground.horizon.periods)
    held = [_held(lot, taken[lot.id], hours, len(ground.horizon.periods)) for lot in _paid_always(ground, taken)]
    free = [lot for lot in ground.supplied.lots if not is_reserved(lot)]
    return tuple(sorted((*held, *free), key=lambda lot: lot.id))


def _paid_always(ground: Ground, taken: Mapping[str, int]) -> list[Lot]:
    """Lots of the commitments, those too that another one would replace in this future.

    Raises
    ------
    CannotServeError
        If one cannot be had at all.
    """
    lots = {lot.id: lot for lot in ground.everything.lots}
    missing = sorted(set(taken) - set(lots))
    if missing:
        raise CannotServeError(f"its commitments cannot be had: {', '.join(missing)}")
    return [lots[name] for name in sorted(taken)]


def _held(lot: Lot, instances: int, hours: float, periods: int) -> Lot:
    return replace(
        lot,
        kind=LotKind.EXISTING_COMMITMENT,
        reserved_usd_per_h=0.0,
        sunk_usd=lot.sunk_usd + lot.reserved_usd_per_h * hours * instances,
        liability_after_usd=0.0,
        available=(instances,) * periods,
    )


def carried_columns(plan: FleetPlan, inputs: Inputs, ground: Ground) -> tuple[Column, ...]:
    """A plan's pools with the exact replicas that they need in a future; one column for each slice.

    Raises
    ------
    CannotServeError
        If a pool does not start, refuses too much or misses a target then, however many replicas it has.
    """
    links = network_gb_s(inputs.request, ground.supplied.lots)
    serving, columns = inputs.serving, []
    for workload in ground.workloads:
        replicas = Replicas(workload.shape, serving, links)
        setting = Setting(workload, serving, inputs.request.policy, inputs.catalog, replicas)
        spare = spare_of(workload, inputs.request)
        pools = sorted((pool for pool in plan.pools if pool.model == workload.name), key=_slice_of)
        for _, group in groupby(pools, key=_slice_of):
            parts = tuple(_part(pool, setting, links, spare) for pool in group)
            columns.append(column_of(workload, parts, ground.horizon.periods))
    return tuple(sorted(columns, key=lambda column: column.key))


def _slice_of(pool: Pool) -> str:
    return slice_key(pool.model, pool.tenants, pool.prompt_lo_tokens, pool.prompt_hi_tokens)


def _part(pool: Pool, setting: Setting, links: Links, spare: int) -> Part:
    need = _need(pool, setting, links)
    if pool.load_share < 1.0:
        need = need_at_share(need, pool.load_share)
    need = exact_need(need)
    placement = placement_of(setting.workload.request, need.slice, need.config)
    return Part(placement, need, running(need.replicas, spare, need.slice.scaling), pool.load_share)


def _need(pool: Pool, setting: Setting, links: Links) -> Need:
    """The lower bound of what a pool needs for all requests of its slice."""
    workload, key = setting.workload, _slice_of(pool)
    slice_ = next((each for each in workload.slices if each.key == key), None)
    if slice_ is None:
        raise CannotServeError(f"{pool.name}: its requests are no slice any more")
    length = length_choice(slice_, pool.max_model_len)
    if length is None:
        text = f"max_model_len {pool.max_model_len:,} refuses more than the tail budget of {slice_.tail_budget:.3%}"
        raise CannotServeError(f"{pool.name}: {text}")
    place = _place(pool, setting)
    ways, refused = ways_of(workload, [place], [pool.max_model_len], setting.replicas)
    if not ways:
        raise CannotServeError(f"{pool.name}: {refused[0].detail}")
    table = table_of(asks_of(slice_, [length], setting.policy), ways, setting.replicas, setting.policy)
    everyone = np.arange(len(table))
    if not reachable(table.screen, everyone).all():
        worst = missed(workload, table, everyone)[0]
        raise CannotServeError(f"{pool.name}: {worst.reason}: {worst.detail}")
    return _only(needs_of(workload, table, *least_counts(table, everyone, prune=False)))


def _place(pool: Pool, setting: Setting) -> Place:
    request, shape = setting.workload.request, setting.workload.shape
    approved, _ = approved_formats(request, shape, setting.serving.facts)
    pair = next((each for each in approved if (each.weights, each.kv) == (pool.weight_dtype, pool.kv_dtype)), None)
    if pair is None:
        raise CannotServeError(f"{pool.name}: {pool.weight_dtype}/{pool.kv_dtype} is not approved")
    return Place(setting.catalog.gpu(pool.gpu), pool.tp, pair, pool.max_num_seqs)


def _only(needs: Sequence[Need]) -> Need:
    (need,) = needs
    return need
