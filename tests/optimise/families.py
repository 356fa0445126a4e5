"""One tiny instance for every family of constraints: its optimum by hand, and a point that breaks this family alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.optimise.types import Caps, Decision, LotKind, Movement, ProgramData, Supply
from planner.request import Quota
from tests.optimise.small_programs import TWO, column, data, decision, lot, part


@dataclass(frozen=True)
class Case:
    data: ProgramData
    usd: float
    """Cost of the optimum, by the arithmetic in the docstring."""
    broken: Decision
    """A point that this family forbids and every other allows."""
    says: str
    """What `recount` says about it."""
    theta: float = 0.0


CASES: dict[str, Callable[[], Case]] = {}

SINGLE = Supply("single", "H", 1)
NODE = Supply("node", "H", 8)


def family(function: Callable[[], Case]) -> Callable[[], Case]:
    CASES[f"add_{function.__name__}"] = function
    return function


@family
def routing() -> Case:
    """Two bands: pools of 1 and 2 GPUs, (1 + 2) x 3 USD x 100 h = 900, beat one of 4 for both, 1200."""
    whole, low, high = (
        column("m", part("H", 1, n), 1e9 * (b - a), a, b) for n, a, b in ((4, 0, 2), (1, 0, 1), (2, 1, 2))
    )
    d = data([whole, low, high], [SINGLE], [lot("a", SINGLE, 3.0)])
    broken = decision(d, [low], {"a": (1,)}, placed={(low.parts[0].placement, "single"): (1,)})
    return Case(d, 900.0, broken, "m: served up to node 1 of 2")


@family
def pool_limit() -> Case:
    """The same two bands with one pool allowed: 4 GPUs x 3 USD x 100 h = 1200."""
    whole, low, high = (
        column("m", part("H", 1, n), 1e9 * (b - a), a, b) for n, a, b in ((4, 0, 2), (1, 0, 1), (2, 1, 2))
    )
    d = data([whole, low, high], [SINGLE], [lot("a", SINGLE, 3.0)], max_pools=1)
    broken = decision(d, [low, high], {"a": (3,)}, placed={(low.parts[0].placement, "single"): (3,)})
    return Case(d, 1200.0, broken, "m: 2 pools, more than 1")


@family
def placement() -> Case:
    """Three replicas that may be interrupted: 2 on spot, all there are, at 1 USD, the third beside the steady one at 3.

    (2 x 1 + 1 x 3 + 1 x 3) x 100 h = 800.
    """
    spot = Supply("spot", "H", 1, spot=True)
    batch, steady = column("batch", part("H", 1, 3, interruptible=True)), column("steady", part("H", 1, 1))
    d = data([batch, steady], [SINGLE, spot], [lot("a", SINGLE, 3.0), lot("s", spot, 1.0, available=(2,))])
    where = {(batch.parts[0].placement, "spot"): (2,), (steady.parts[0].placement, "single"): (1,)}
    broken = decision(d, [batch, steady], {"a": (1,), "s": (2,)}, placed=where)
    return Case(d, 800.0, broken, "all: 3 replicas of H x 1 are needed and 2 stand")


@family
def spread() -> Case:
    """Two replicas must be left when any region is lost: one in each of three, (1 + 2 + 2.5) USD x 100 h = 550.

    Two in each of the two cheapest cost (2 x 1 + 2 x 2) x 100 = 600.
    """
    prices = {"east": 1.0, "north": 2.5, "west": 2.0}
    supplies = [Supply(region, "H", 1, region=region) for region in prices]
    safe = column("m", part("H", 1, 2, spread="m 0-1"))
    d = data([safe], supplies, [lot(f"in {s.id}", s, prices[s.id]) for s in supplies])
    where = {(safe.parts[0].placement, "east"): (2,), (safe.parts[0].placement, "west"): (1,)}
    broken = decision(d, [safe], {"in east": (2,), "in west": (1,)}, placed=where)
    return Case(d, 550.0, broken, "all: without region 'east' 1 replicas of H x 1 are left for m 0-1, of 2 needed")


@family
def node_packing() -> Case:
    """Three replicas of 4 GPUs on nodes of 6 need three, whatever 12 / 6 says: 3 x 20 USD x 100 h = 6000."""
    six = Supply("six", "H", 6)
    large = column("m", part("H", 4, 3))
    d = data([large], [six], [lot("a", six, 20.0)])
    broken = decision(d, [large], {"a": (2,)}, placed={(large.parts[0].placement, "six"): (3,)})
    return Case(d, 6000.0, broken, "all: replicas do not fit 2 instances of six")


@family
def reservations() -> Case:
    """One replica by day (60 h), three by night (40 h); reserved at 2 USD and 0.5 in use, on demand at 3.5.

    The first all the time: reserved 2 x 100 + 0.5 x 100 = 250 < 350. The others by night alone: on demand
    3.5 x 40 = 140 < 200 + 20. In all 250 + 2 x 140 = 530.
    """
    m = column("m", part("H", 1, 1, 3))
    lots = [lot("a", SINGLE, 3.5), lot("c", SINGLE, 0.5, reserved=2.0, kind=LotKind.BOUGHT)]
    d = data([m], [SINGLE], lots, periods=TWO)
    where = {(m.parts[0].placement, "single"): (1, 3)}
    broken = decision(d, [m], {"c": (1, 3)}, {"c": 1}, where)
    return Case(d, 530.0, broken, "lot 'c': 3 instances run and 1 are reserved")


@family
def availability() -> Case:
    """Two replicas; two cheap instances by day, one by night: 2 x 1 x 60 + 1 x 1 x 40 + 1 x 3 x 40 = 280."""
    m = column("m", part("H", 1, 2, 2))
    lots = [lot("a", SINGLE, 3.0), lot("o", SINGLE, 1.0, available=(2, 1), kind=LotKind.OWNED)]
    d = data([m], [SINGLE], lots, periods=TWO)
    broken = decision(d, [m], {"o": (2, 2)}, placed={(m.parts[0].placement, "single"): (2, 2)})
    return Case(d, 280.0, broken, "night: 2 instances of lot 'o' run, 1 can be had")


@family
def quotas() -> Case:
    """Six GPUs at 3 USD exceed the quota of 7, of which 2 are committed already and on another type: a node at 20 USD.

    5 GPUs are left, fewer than 6. With a node of 8 none of them is needed: 20 x 100 h = 2000.
    """
    held = Supply("held", "A", 2)
    m = column("m", part("H", 1, 6))
    lots = [
        lot("a", SINGLE, 3.0),
        lot("held", held, sunk=0.0, available=(1,), kind=LotKind.EXISTING_COMMITMENT),
        lot("n", NODE, 20.0, provider="q"),
    ]
    quota = Quota(name="small", provider="p", max_gpus=7)
    d = data([m], [held, NODE, SINGLE], lots, quotas=(quota,))
    broken = decision(d, [m], {"a": (6,)}, placed={(m.parts[0].placement, "single"): (6,)})
    return Case(d, 2000.0, broken, "all: quota 'small' allows 7 GPUs, 8 are taken")


@family
def budget() -> Case:
    """Tokens are worth 1e-6 USD: the last 10 % of 1e10 are worth 1000, the sixth GPU costs 3 x 100 h = 300.

    The budget of 1750, of which 50 are sunk, pays for five: 5 x 3 x 100 + 50 = 1550.
    """
    less, full = column("m", part("H", 1, 5), 0.9e10), column("m", part("H", 1, 6), 1e10)
    d = data([less, full], [SINGLE], [lot("a", SINGLE, 3.0, sunk=50.0)], caps=Caps(budget_usd=1750.0))
    broken = decision(d, [full], {"a": (6,)}, placed={(full.parts[0].placement, "single"): (6,)})
    return Case(d, 1550.0, broken, "budget is 1850 USD, more than 1750", theta=1e-6)


@family
def power_cap() -> Case:
    """Three instances within 5 kW: two of 2 kW at 1 USD and one of 1 kW at 2 USD, (2 x 1 + 2) x 100 h = 400."""
    m = column("m", part("H", 1, 3))
    lots = [lot("cool", SINGLE, 2.0, power=1.0), lot("hot", SINGLE, 1.0, power=2.0)]
    d = data([m], [SINGLE], lots, caps=Caps(power_kw=5.0))
    broken = decision(d, [m], {"hot": (3,)}, placed={(m.parts[0].placement, "single"): (3,)})
    return Case(d, 400.0, broken, "all: power is 6 kW, more than 5")


@family
def carbon_cap() -> Case:
    """Two instances all the time within 130 kg: one of 1 kg/h (100) and one of 0.2 (20); (1 + 2) x 100 h = 300."""
    m = column("m", part("H", 1, 2, 2))
    lots = [lot("clean", SINGLE, 2.0, carbon=0.2), lot("dirty", SINGLE, 1.0, carbon=1.0)]
    d = data([m], [SINGLE], lots, periods=TWO, caps=Caps(carbon_kg=130.0))
    # Neither period can swap alone: 60 h dirty + 40 h clean of the second instance would be 60 + 8 more than 130 - 100.
    broken = decision(d, [m], {"dirty": (2, 2)}, placed={(m.parts[0].placement, "single"): (2, 2)})
    return Case(d, 300.0, broken, "carbon is 200 kg, more than 130")


@family
def liability_cap() -> Case:
    """Two instances; a commitment at 1 USD leaves 1000 to be paid afterwards, at most 1500 may be: one of each.

    (1 + 3) x 100 h = 400.
    """
    m = column("m", part("H", 1, 2))
    lots = [lot("a", SINGLE, 3.0), lot("c", SINGLE, reserved=1.0, liability=1000.0, kind=LotKind.NEW_COMMITMENT)]
    d = data([m], [SINGLE], lots, caps=Caps(liability_usd=1500.0))
    broken = decision(d, [m], {"c": (2,)}, {"c": 2}, {(m.parts[0].placement, "single"): (2,)})
    return Case(d, 400.0, broken, "liability is 2000 USD, more than 1500")


@family
def movement() -> Case:
    """One GPU may be moved. Four H at 1 USD move 4 - 2 = 2; four L at 3 USD move 4 - 3 = 1: 4 x 3 x 100 h = 1200."""
    other = Supply("other", "L", 1)
    cheap, dear = column("m", part("H", 1, 4)), column("m", part("L", 1, 4))
    d = data(
        [cheap, dear], [other, SINGLE], [lot("a", SINGLE, 1.0), lot("b", other, 3.0)],
        movement=Movement({("m", "H"): 2, ("m", "L"): 3}, 1),
    )  # fmt: skip
    broken = decision(d, [cheap], {"a": (4,)}, placed={(cheap.parts[0].placement, "single"): (4,)})
    return Case(d, 1200.0, broken, "2 GPUs are moved, more than 1")
