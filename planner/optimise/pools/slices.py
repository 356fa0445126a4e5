"""A model's requests in slices that a router can tell apart, as the arcs of its routing graph.

Nodes 0 .. B are the ends of the bands of everybody's prompts; an arc [a, b) is a pool for a stretch of bands, so that a
path from 0 to B is a set of pools that serves every request once. Where the model has tenants, a second way from 0 to B
goes through an axis of each tenant, one after another: pools by tenant, each cut by prompt length again. The program
chooses between the two ways; they share no node but the ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import Problem, Problems
from planner.optimise.types import Slice
from planner.request import ModelRequest, Routing, Targets
from planner.traffic.law import corners, is_exact, length_at_tail, refused_shares
from planner.traffic.prompt_bands import bands_between, check_cut, cuts_of, occupied_cuts, restrict_prompts
from planner.traffic.prompt_bursts import requests_between
from planner.traffic.types import FloatArray, LengthLaw, Traffic

SHARES_AGREE = 1e-6
"""Shares of tenants may miss 1 by this much: digits in the request."""
MEANS_AGREE = 0.2
"""Largest difference of mean lengths between the tenants' logs together and the model's own."""


@dataclass(frozen=True)
class _Rates:
    """Of the model, by period."""

    planning_per_s: FloatArray
    mean_per_s: FloatArray


@dataclass(frozen=True)
class _Axis:
    """Prompt lengths of everybody or of one tenant, cut into bands."""

    tenants: tuple[str, ...]
    traffic: Traffic
    share: float
    """Of the model's requests."""
    cuts: tuple[int, ...]
    targets: Targets
    tail_budget: float
    nodes: tuple[int, ...]
    """Of the routing graph: one more than bands."""


def slices_of(
    model: ModelRequest,
    routing: Routing,
    traffic: Traffic,
    tenants: Mapping[str, Traffic],
    planning_rate_per_s: FloatArray,
    mean_rate_per_s: FloatArray,
) -> tuple[tuple[Slice, ...], int]:
    """Slices of one model and the end node of its routing graph.

    A slice's rates are those of the model times its share of the requests. With one pool only, the one slice is all of
    the traffic. Pools by tenant need as many pools as there are tenants, and two tenants at least.

    Slices that tenants share hold the strictest of their targets, because a pool does not know whose request it serves;
    and a tail budget under which no tenant loses more of its own requests than its own budget allows, even if all the
    long ones are its.

    Parameters
    ----------
    model
        Its tenants, targets, tail budget and scaling rules.
    routing
        Bands, cuts and pools, where the model does not say.
    traffic
        Of the whole model.
    tenants
        Traffic of each of the model's tenants, by name.
    planning_rate_per_s, mean_rate_per_s
        Of the whole model, shape (periods,).

    Raises
    ------
    InputError
        If a stated cut lies inside a cell of a law, or the tenants are not the model's traffic: shares that do not add
        to 1, a name twice, mean lengths of their logs together that are not the model's.
    """
    rates = _Rates(planning_rate_per_s, mean_rate_per_s)
    pools = routing.max_pools if model.max_pools is None else model.max_pools
    problems = Problems()
    shares = _shares(model, traffic, tenants, problems)
    laws = [tenants[name].law for name in sorted(tenants)]
    cuts = _cuts(routing, traffic, laws, pools, problems)
    problems.raise_if_any()
    shared = _shared_axis(model, traffic, cuts)
    end = len(shared.cuts) + 1
    found = [_slice(model, shared, rates, tenants, a, b) for a, b in _arcs(shared)]
    if len(shares) > 1 and pools >= len(shares):
        for axis in _tenant_axes(model, routing, tenants, shares, pools, end):
            found += [_slice(model, axis, rates, {}, a, b) for a, b in _arcs(axis)]
    return tuple(found), end


def _arcs(axis: _Axis) -> list[tuple[int, int]]:
    """All stretches of neighbouring bands."""
    return list(itertools.combinations(range(len(axis.nodes)), 2))


def _cuts(
    routing: Routing, traffic: Traffic, others: Sequence[LengthLaw], pools: int, problems: Problems
) -> tuple[int, ...]:
    """Cuts of a traffic's prompts that leave a request in every band; none where one pool is all there may be."""
    if pools == 1:
        return ()
    if not routing.cuts:
        measured = None if traffic.prompt_bursts is None else traffic.prompt_bursts.edges
        return occupied_cuts(traffic.law, cuts_of(traffic.law, routing.bands, also=others, within=measured))
    for cut in sorted(set(routing.cuts)):
        _check_stated(cut, [traffic.law, *others], problems)
    return occupied_cuts(traffic.law, routing.cuts)


def _check_stated(cut: int, laws: Sequence[LengthLaw], problems: Problems) -> None:
    if cut < 1:
        problems.add("routing", f"{cut} is no prompt length to cut at", "Give tokens above 0", field="cuts")
        return
    wrong = (check_cut(law, cut, "routing") for law in laws)
    problems.found += [problem for problem in wrong if problem is not None][:1]


def _shared_axis(model: ModelRequest, traffic: Traffic, cuts: tuple[int, ...]) -> _Axis:
    targets = [model.targets if tenant.targets is None else tenant.targets for tenant in model.tenant]
    budgets = [_budget(model, tenant.tail_budget) for tenant in model.tenant]
    return _Axis(
        tenants=(),
        traffic=traffic,
        share=1.0,
        cuts=cuts,
        targets=strictest(targets) if targets else model.targets,
        tail_budget=min(budgets, default=model.tail_budget),
        nodes=tuple(range(len(cuts) + 2)),
    )


def _budget(model: ModelRequest, own: float | None) -> float:
    return model.tail_budget if own is None else own


def strictest(targets: Sequence[Targets]) -> Targets:
    """Targets that hold all of the given ones: the least times, and the highest percentile of a time to first token."""
    first = [t for t in targets if t.ttft_ms is not None]
    return Targets(
        tpot_ms=min((t.tpot_ms for t in targets if t.tpot_ms is not None), default=None),
        ttft_ms=min((t.ttft_ms for t in first if t.ttft_ms is not None), default=None),
        ttft_percentile=max((t.ttft_percentile for t in first), default=Targets().ttft_percentile),
    )


def _tenant_axes(
    model: ModelRequest,
    routing: Routing,
    tenants: Mapping[str, Traffic],
    shares: Mapping[str, float],
    pools: int,
    end: int,
) -> list[_Axis]:
    """An axis of each tenant, chained from node 0 to the end over nodes of their own."""
    # Every other tenant takes a pool at least: the rest is what one tenant may be cut into.
    own_pools = pools - len(shares) + 1
    axes: list[_Axis] = []
    start, free = 0, end + 1
    ordered = sorted(model.tenant, key=lambda tenant: tenant.name)
    for tenant in ordered:
        traffic = tenants[tenant.name]
        cuts = _cuts(routing, traffic, (), own_pools, Problems())
        inner = range(free, free + len(cuts))
        last = tenant is ordered[-1]
        stop = end if last else inner.stop
        axes.append(
            _Axis(
                tenants=(tenant.name,),
                traffic=traffic,
                share=shares[tenant.name],
                cuts=cuts,
                targets=model.targets if tenant.targets is None else tenant.targets,
                tail_budget=_budget(model, tenant.tail_budget),
                nodes=(start, *inner, stop),
            )
        )
        start, free = stop, inner.stop + 1
    return axes


def _slice(
    model: ModelRequest, axis: _Axis, rates: _Rates, tenants: Mapping[str, Traffic], first: int, last: int
) -> Slice:
    """The slice of the bands between two places of an axis; ``tenants`` are those that share it."""
    bands = bands_between(axis.cuts)
    lo, hi = bands[first][0], bands[last - 1][1]
    part = restrict_prompts(axis.traffic, lo, hi)
    share = axis.share * part.law.requests / axis.traffic.law.requests
    budgets = {tenant.name: _budget(model, tenant.tail_budget) for tenant in model.tenant}
    return Slice(
        key=slice_key(model.name, axis.tenants, lo, hi),
        model=model.name,
        start=axis.nodes[first],
        end=axis.nodes[last],
        tenants=axis.tenants,
        prompt_lo_tokens=lo,
        prompt_hi_tokens=hi,
        traffic=part,
        planning_rate_per_s=rates.planning_per_s * share,
        mean_rate_per_s=rates.mean_per_s * share,
        targets=axis.targets,
        tail_budget=min(axis.tail_budget, _budget_of_all(part, tenants, budgets, lo, hi)),
        scaling=model.scaling,
    )


def slice_key(model: str, tenants: Sequence[str], lo: int, hi: int | None) -> str:
    """``chat[acme][4096-8192)``: model, tenants if it is not everybody's, prompt lengths; no number: no upper end."""
    owners = f"[{'+'.join(tenants)}]" if tenants else ""
    return f"{model}{owners}[{lo}-{'' if hi is None else hi})"


def _budget_of_all(
    part: Traffic, tenants: Mapping[str, Traffic], budgets: Mapping[str, float], lo: int, hi: int | None
) -> float:
    """Share of the slice's requests that may be refused so that every tenant's own budget holds.

    The longest of the lengths that the tenants need, each for its own requests of this stretch, refuses this share.
    """
    needed = [
        length_at_tail(restrict_prompts(traffic, lo, hi), budgets[name])
        for name, traffic in sorted(tenants.items())
        if requests_between(traffic, lo, hi)
    ]
    return _surely_refused(part, max(needed)) if needed else 1.0


def _surely_refused(traffic: Traffic, limit: int) -> float:
    """Share of the requests that a max_model_len refuses at the least: below the tail table, cells wholly above it."""
    if is_exact(traffic, limit):
        return refused_shares(traffic, limit).requests
    prompt_lo, output_lo = corners(traffic.law)
    above = prompt_lo + output_lo > limit
    return float(traffic.law.n[above].sum() / traffic.law.requests)


def _shares(
    model: ModelRequest, traffic: Traffic, tenants: Mapping[str, Traffic], problems: Problems
) -> dict[str, float]:
    """Share of the model's requests by tenant: stated, else by the requests of the logs."""
    names = [tenant.name for tenant in model.tenant]
    if not names:
        return {}
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        problems.add("tenant", f"tenant names must be unique; repeated: {', '.join(doubles)}", field="name")
        return {}
    counts = {name: tenants[name].law.requests / tenants[name].sampling_fraction for name in names}
    total = sum(counts.values())
    shares = {t.name: counts[t.name] / total if t.traffic.share is None else t.traffic.share for t in model.tenant}
    found = sum(shares.values())
    if abs(found - 1.0) > SHARES_AGREE:
        shown = ", ".join(f"{name} {share:.4g}" for name, share in sorted(shares.items()))
        fix = "State the share of every tenant, or of none: then their logs' requests count"
        problems.add("tenant", f"the tenants' shares add to {found:.6g}, not 1: {shown}", fix, field="traffic.share")
        return shares
    problems.found += _contradictions(traffic, tenants, shares)
    return shares


def _contradictions(traffic: Traffic, tenants: Mapping[str, Traffic], shares: Mapping[str, float]) -> list[Problem]:
    """Tenants whose logs together are another traffic than the model's: the two ways could not be compared."""
    found = []
    for what, attribute in (("prompt", "mean_prompt"), ("output", "mean_output")):
        own = float(getattr(traffic.law, attribute))
        theirs = float(np.sum([share * getattr(tenants[name].law, attribute) for name, share in shares.items()]))
        if abs(theirs - own) > MEANS_AGREE * own:
            message = (
                f"the tenants' logs together have a mean {what} of {theirs:,.4g} tokens, the model's log {own:,.4g}"
            )
            fix = "Give logs of the same time and requests, or state the tenants' shares"
            found.append(Problem("tenant", message, fix, field="traffic"))
    return found
