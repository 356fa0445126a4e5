"""The complete plan of a decision."""

from __future__ import annotations

from planner import __version__, units
from planner.assemble.ages import ages_of
from planner.assemble.context import Context, Reasons
from planner.assemble.contracts import described
from planner.assemble.limits import limits_of
from planner.assemble.money import pool_costs, supply_usd, totals_of
from planner.assemble.pools import pool_of
from planner.assemble.purchases import purchases_of
from planner.assemble.stands import standings
from planner.assemble.verify import verify
from planner.assemble.week import periods_of, schedule_of
from planner.errors import PlannerError
from planner.optimise.pools.routes import routes_of
from planner.optimise.recount import recount
from planner.optimise.types import Decision, ProgramData, SolverSettings, Supply, Workload
from planner.plan import FleetPlan, PlanModel, PlanSupply, Reporting, Solve
from planner.request_study import CurrencyRequest


def assemble(context: Context, decision: Decision, reasons: Reasons) -> FleetPlan:
    """The complete plan.

    Parameters
    ----------
    context, decision
        What was asked and what was decided.
    reasons
        Runners-up, worth of limits and rejected configurations.

    Raises
    ------
    PlannerError
        If the recomputed cost differs from the solver's, or anything breaks a constraint: a bug, never a plan.
    """
    data, quarter = context.data, context.request.quarter
    _check(data, decision)
    periods = periods_of(context)
    found = standings(decision, data.models)
    purchases = described(purchases_of(data, decision, found), context.request, context.catalog)
    hours = [period.hours for period in data.periods]
    gpu_hours = [{supply: pool.gpu_hours(supply, hours) for supply in pool.on} for pool in found]
    usd = pool_costs(gpu_hours, supply_usd(purchases))
    pools = tuple(
        pool_of(context, pool, cost, purchases, reasons.runners_up) for pool, cost in zip(found, usd, strict=True)
    )
    plan = FleetPlan(
        planner_version=__version__,
        run_id=context.run_id,
        title=quarter.title,
        owner=quarter.owner,
        created_at=context.created_at,
        horizon_start=quarter.start,
        horizon_end=quarter.end,
        horizon_hours=quarter.hours,
        currency=quarter.currency,
        reporting=_reporting(context.request.currency),
        solve=_solve(decision, context.settings),
        totals=totals_of(pools, purchases, periods),
        periods=periods,
        pools=pools,
        routes=routes_of(
            [p.part.need.slice for p in found], [p.name for p in found], [p.part.load_share for p in found]
        ),
        schedule=schedule_of(context, found),
        models=tuple(_model(context.workloads[name], data.max_pools[name]) for name in data.models),
        supplies=tuple(_supply(supply) for supply in data.supplies if supply.id in {p.supply for p in purchases}),
        purchases=purchases,
        quotas=limits_of(data, purchases, found, reasons.quota_worth),
        rejected=reasons.rejected,
        assumptions=context.assumptions,
        inputs=context.inputs,
        oldest=ages_of(context, purchases),
        warnings=(*context.warnings, *decision.notes),
    )
    verify(plan)
    return plan


def _check(data: ProgramData, decision: Decision) -> None:
    """Every constraint recounted from the decision, without the solver."""
    faults = recount(data, decision)
    if faults:
        raise PlannerError("The decision does not hold when recounted: " + "; ".join(faults))


def _solve(decision: Decision, settings: SolverSettings) -> Solve:
    mtok = decision.served_tokens / units.TOKENS_PER_MTOK
    return Solve(
        status=decision.status,
        objective=decision.usd_per_token * decision.served_tokens,
        bound=decision.usd_per_token_bound * decision.served_tokens,
        gap=decision.gap,
        gap_target=settings.gap,
        usd_per_mtok=decision.usd / mtok,
        usd_per_mtok_bound=decision.usd_per_token_bound * units.TOKENS_PER_MTOK,
        ratio_iterations=decision.ratio_iterations,
        solver=decision.solver,
        solver_version=decision.solver_version,
        threads=settings.threads,
        seed=settings.seed,
    )


def _model(workload: Workload, max_pools: int) -> PlanModel:
    request = workload.request
    return PlanModel(
        name=workload.name,
        max_pools=max_pools,
        tenants=tuple(tenant.name for tenant in request.tenant),
        regions=request.regions,
        interruptible=request.interruptible,
        survives_region_loss=request.survives_region_loss,
    )


def _supply(supply: Supply) -> PlanSupply:
    return PlanSupply(
        id=supply.id,
        gpu=supply.gpu,
        gpus_per_instance=supply.gpus_per_instance,
        region=supply.region,
        spot=supply.spot,
        usable_share=supply.usable_share,
        nvlink_domain=supply.nvlink_domain,
        multi_node=supply.multi_node,
    )


def _reporting(asked: CurrencyRequest | None) -> Reporting | None:
    """The reporting currency as the plan states it."""
    if asked is None:
        return None
    return Reporting(
        currency=asked.reporting,
        per_usd=asked.per_usd,
        source=asked.source,
        source_date=asked.source_date,
        owner=asked.owner,
    )
