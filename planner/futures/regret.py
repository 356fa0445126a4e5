"""Least regret: every fleet in every future, and the fleet whose largest regret is least.

    regret[a, f]  =  usd[a, f]  −  min over fleets b of usd[b, f]
    choice        =  argmin over fleets a of  max over futures f of regret[a, f]          ties: the first

``usd[a, f]`` is what fleet a costs in future f for the tokens that the future's own plan serves: its cost per token
times those tokens, for fleets may refuse other requests for their length. ``usd[f, f]`` is the cost of the future's
own plan. All costs are within the solver's gap of the best: where another fleet is cheaper than the own one by as much,
it is that future's best, and no regret is ever below 0. Costs are
rounded to whole cents, so that what differs by rounding alone does not decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import InfeasibleError, SolverError
from planner.futures.carried import CannotServeError, carried_data
from planner.inputs import Inputs
from planner.optimise.explain.relax import elastic, shortage_line
from planner.optimise.solve.ratio import solve_ratio
from planner.optimise.types import ProgramData, SolverSettings
from planner.pipeline import settings_of
from planner.plan import FleetPlan
from planner.preparing import Ground, ground_of
from planner.study import Regret, RegretCell, Scenario
from planner.units import TOKENS_PER_MTOK

CENTS = 2
"""Digits of USD."""
NONE_SERVES_ALL = "no fleet serves every future: of those that serve most, this one's largest regret is least"


def cells_of(future: Scenario, inputs: Inputs, fleets: Sequence[Scenario]) -> tuple[RegretCell, ...]:
    """Every fleet in one future, its own among them; regrets come later, with `regret_of`.

    Parameters
    ----------
    inputs
        Of that future.
    """
    ground = ground_of(inputs)
    cells = []
    for fleet in fleets:
        usd: float | None = round(future.plan.totals.usd, CENTS)
        note = ""
        if fleet.name != future.name:
            usd, note = _usd(fleet.plan, future.plan, inputs, ground)
        cells.append(RegretCell(fleet=fleet.name, future=future.name, usd=usd, regret_usd=None, note=note))
    return tuple(cells)


def _usd(fleet: FleetPlan, own: FleetPlan, inputs: Inputs, ground: Ground) -> tuple[float | None, str]:
    """Cost of a fleet for the tokens that the future's own plan serves, or why there is none."""
    settings = settings_of(inputs.request)
    try:
        data = carried_data(fleet, inputs, ground)
        decision = solve_ratio(data, settings)
        if decision is None:
            return None, _short(data, settings)
    except (CannotServeError, SolverError, InfeasibleError) as error:
        return None, str(error)
    tokens = sum(pool.served_mtok for pool in own.pools) * TOKENS_PER_MTOK
    return round(decision.usd_per_token * tokens, CENTS), ""


def _short(data: ProgramData, settings: SolverSettings) -> str:
    """What is short for a fleet, in words."""
    amounts, _, _ = elastic(data, settings)
    lines = [" ".join(shortage_line(name, value, data).split()) for name, value in sorted(amounts.items())]
    return "; ".join(lines) or "some limit is short by less than the solver can tell"


def regret_of(cells: Sequence[RegretCell]) -> Regret:
    """The table with its regrets, and the choice.

    A fleet that cannot serve some future is chosen only when every fleet has such a future; then one that fails in the
    fewest, and the note of its own cell says so.

    Parameters
    ----------
    cells
        Every fleet in every future; fleets are taken in the order in which they come.
    """
    cheapest = {
        future: min(cell.usd for cell in cells if cell.future == future and cell.usd is not None)
        for future in dict.fromkeys(cell.future for cell in cells)
    }
    made = [_with_regret(cell, cheapest[cell.future]) for cell in cells]

    def judged(fleet: str) -> tuple[int, float]:
        mine = [cell.regret_usd for cell in made if cell.fleet == fleet]
        return sum(regret is None for regret in mine), max((r for r in mine if r is not None), default=0.0)

    choice = min(dict.fromkeys(cell.fleet for cell in cells), key=judged)
    failed, largest = judged(choice)
    if failed:
        made = [_noted(cell) if cell.fleet == cell.future == choice else cell for cell in made]
    return Regret(cells=tuple(made), choice=choice, largest_usd=largest)


def _with_regret(cell: RegretCell, cheapest_usd: float) -> RegretCell:
    if cell.usd is None:
        return cell
    return cell.model_copy(update={"regret_usd": round(cell.usd - cheapest_usd, CENTS)})


def _noted(cell: RegretCell) -> RegretCell:
    return cell.model_copy(update={"note": f"{cell.note}; {NONE_SERVES_ALL}" if cell.note else NONE_SERVES_ALL})
