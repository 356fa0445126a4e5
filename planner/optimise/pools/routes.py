"""The routing table of the chosen pools: which tenant and prompt length goes where."""

from __future__ import annotations

from collections.abc import Sequence

from planner.optimise.types import Slice
from planner.plan import Route

SHARES_AGREE = 1e-9


def routes_of(
    chosen: Sequence[Slice], pools: Sequence[str], shares: Sequence[float] | None = None
) -> tuple[Route, ...]:
    """Rows of the routing table, by model, tenant and prompt length.

    Parameters
    ----------
    chosen
        The slice of each pool: those of one path through the routing graph of each model.
    pools
        Name of each pool.
    shares
        Share of the slice's requests that each pool serves; all of them where it is not given. A slice that is split
        over GPU types stands several times, and a router picks one of its pools at random by these weights.

    Returns
    -------
    tuple of Route
        Complete and without overlap: every prompt length of every tenant has pools whose shares add to 1.

    Raises
    ------
    ValueError
        If the slices leave a prompt length out or serve one twice: no path through the graph does.
    """
    weights = [1.0] * len(chosen) if shares is None else list(shares)
    rows = [
        Route(
            model=one.model,
            tenant=tenant,
            prompt_lo_tokens=one.prompt_lo_tokens,
            prompt_hi_tokens=one.prompt_hi_tokens,
            pool=pool,
            share=share,
        )
        for one, pool, share in zip(chosen, pools, weights, strict=True)
        for tenant in one.tenants or ("",)
    ]
    ordered = tuple(sorted(rows, key=lambda row: (row.model, row.tenant, row.prompt_lo_tokens, row.pool)))
    _check(ordered)
    return ordered


def _check(rows: Sequence[Route]) -> None:
    for model in {row.model for row in rows}:
        tenants = {row.tenant for row in rows if row.model == model}
        if "" in tenants and len(tenants) > 1:
            raise ValueError(f"{model}: some requests are everybody's and some a tenant's")
        for tenant in tenants:
            _check_axis([row for row in rows if (row.model, row.tenant) == (model, tenant)])


def _check_axis(rows: Sequence[Route]) -> None:
    """Rows of one tenant in order: stretches from 0 to no upper end, one after another, shares adding to 1."""
    reached: int | None = 0
    stretches: dict[tuple[int, int | None], float] = {}
    for row in rows:
        stretch = (row.prompt_lo_tokens, row.prompt_hi_tokens)
        stretches[stretch] = stretches.get(stretch, 0.0) + row.share
    for (lo, hi), share in stretches.items():
        if lo != reached or abs(share - 1.0) > SHARES_AGREE:
            raise ValueError(f"{rows[0].model}: prompts from {reached} on are not served once by [{lo}, {hi})")
        reached = hi
    if reached is not None:
        raise ValueError(f"{rows[0].model}: prompts from {reached} on are not served")
