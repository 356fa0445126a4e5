"""200 random tiny programs against brute force, and the second solver on others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.optimise.program import build, placed_replicas, trimmed
from planner.optimise.recount import recount
from planner.optimise.solve.ratio import available_solvers, solve_program
from planner.optimise.types import (
    Caps,
    Column,
    Decision,
    LotKind,
    Movement,
    Part,
    Period,
    Placement,
    ProgramData,
    Supply,
)
from planner.plan import SolveStatus
from planner.request import Quota
from tests.optimise.brute_force import least_cost
from tests.optimise.small_programs import EXACT, data, decision, lot, read

KINDS = (LotKind.ON_DEMAND, LotKind.ON_DEMAND, LotKind.NEW_COMMITMENT, LotKind.BOUGHT, LotKind.OWNED)


def supplies_of(rng: np.random.Generator, regions: bool) -> list[Supply]:
    found = []
    for g in range(int(rng.integers(1, 4))):
        size = int(rng.choice([1, 2, 4, 6, 8]))
        spot = bool(rng.random() < 0.25)
        found.append(
            Supply(
                id=f"s{g}",
                gpu=str(rng.choice(["A", "A", "B"])),
                gpus_per_instance=size,
                region=str(rng.choice(["east", "west"])) if regions else "",
                spot=spot,
                usable_share=0.8 if spot and size in (1, 2, 4, 8) else 1.0,
                nvlink_domain=size // 2 if size > 2 and rng.random() < 0.25 else 0,
                multi_node=bool(rng.random() < 0.25),
            )
        )
    return found


def lots_of(rng: np.random.Generator, supplies: list[Supply], periods: int) -> list:
    found = []
    for o, supply in enumerate([*supplies, *(supplies[:1] if len(supplies) < 3 else [])]):
        kind = KINDS[int(rng.integers(len(KINDS)))] if o >= len(supplies) or rng.random() < 0.4 else LotKind.ON_DEMAND
        price = float(np.round(supply.gpus_per_instance * rng.uniform(1.0, 3.0), 2))
        pays = kind in (LotKind.NEW_COMMITMENT, LotKind.BOUGHT)
        limited = kind is LotKind.OWNED or rng.random() < 0.3
        found.append(
            lot(
                f"o{o}",
                supply,
                (0.2 * price if kind is LotKind.BOUGHT else 0.0) if pays else price,
                reserved=0.5 * price if pays else 0.0,
                provider=f"p{o % 2}",
                kind=kind,
                available=tuple(int(n) for n in rng.integers(0, 4, periods)) if limited else None,
                power=float(rng.integers(1, 4)),
                liability=100.0 * price if pays else 0.0,
                sunk=float(rng.integers(0, 50)),
            )
        )
    return found


def columns_of(rng: np.random.Generator, model: str, gpus: list[str], periods: int, regions: bool) -> list[Column]:
    nodes = int(rng.integers(1, 3))
    rules = {"interruptible": bool(rng.random() < 0.4)}
    if regions and rng.random() < 0.3:
        rules["regions"] = ("east",)
    found = []
    for start in range(nodes):
        for end in range(start + 1, nodes + 1):
            spread = f"{model} {start}-{end}" if regions and rng.random() < 0.2 else ""
            for i in range(int(rng.integers(1, 3))):
                parts = tuple(
                    Part(
                        Placement(str(rng.choice(gpus)), int(rng.choice([1, 1, 2, 4, 8])), spread=spread, **rules),
                        None,
                        tuple(int(n) for n in rng.integers(1, 3, periods)),
                    )
                    for _ in range(2 if rng.random() < 0.2 else 1)
                )
                served = 1e9 * (end - start) * float(rng.choice([1.0, 0.99, 0.9]))
                found.append(Column(f"{model} {start}-{end} {i}", model, start, end, parts, served))
    return found


def random_program(seed: int) -> ProgramData:
    rng = np.random.default_rng(seed)
    periods = (Period("a", 60.0), Period("b", 40.0))[: int(rng.integers(1, 3))]
    regions = bool(rng.random() < 0.3)
    supplies = supplies_of(rng, regions)
    lots = lots_of(rng, supplies, len(periods))
    gpus = sorted({s.gpu for s in supplies})
    columns = [
        c for m in ("m0", "m1")[: int(rng.integers(1, 3))] for c in columns_of(rng, m, gpus, len(periods), regions)
    ]
    quota = Quota(name="p0", provider="p0", max_gpus=int(rng.integers(0, 24)))
    caps = Caps(
        budget_usd=float(rng.uniform(200, 4000)) if rng.random() < 0.2 else None,
        power_kw=float(rng.integers(2, 12)) if rng.random() < 0.2 else None,
        liability_usd=float(rng.integers(0, 4000)) if rng.random() < 0.2 else None,
    )
    last = {(c.model, g): int(rng.integers(0, 6)) for c in columns for g in gpus}
    return data(
        columns, supplies, lots, periods=periods, max_pools=int(rng.integers(1, 4)),
        quotas=(quota,) if rng.random() < 0.4 else (), caps=caps,
        movement=Movement(last, int(rng.integers(0, 8))) if rng.random() < 0.2 else None,
    )  # fmt: skip


def solved(d: ProgramData, theta: float, name: str = "highs", gap: float = 1e-9):
    program = build(d, theta)
    certificate = solve_program(program, replace(EXACT, name=name, gap=gap))
    return None if certificate.status is SolveStatus.INFEASIBLE else (certificate.objective, read(program, d))


def assert_trimmed_holds(d: ProgramData, theta: float, found: Decision) -> None:
    """Instances that nothing needs are in no optimum that costs something; without them the plan still holds."""
    program = build(d, theta)
    solve_program(program, EXACT)
    running, reserved = trimmed(program, d, found.columns, found.running, found.reserved)
    placed = placed_replicas(program, d, found.columns, running)
    less = decision(d, found.columns, running, reserved, placed)
    assert recount(d, less) == []
    assert less.usd == pytest.approx(found.usd, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("seed", range(200))
def test_brute_force_agrees(seed):
    d, theta = random_program(seed), (0.0, 2e-6)[seed % 2]
    best, found = least_cost(d, theta), solved(d, theta)
    if np.isinf(best):
        assert found is None
        return
    objective, plan = found
    assert objective == pytest.approx(best, rel=1e-7, abs=1e-6)
    assert recount(d, plan) == []
    assert_trimmed_holds(d, theta, plan)


def test_enough_instances_are_feasible_and_bind():
    """The draw above means something: many programs can be solved, and many cannot."""
    feasible = sum(np.isfinite(least_cost(random_program(seed), 0.0)) for seed in range(0, 200, 10))
    assert 6 <= feasible <= 16


@pytest.mark.skipif("cbc" not in available_solvers(), reason="CBC is not installed")
@pytest.mark.parametrize("seed", range(1000, 1012))
def test_second_solver_agrees(seed):
    d = random_program(seed)
    one, two = solved(d, 1e-6), solved(d, 1e-6, "cbc", 1e-4)
    assert (one is None) == (two is None)
    if one is not None:
        assert two[0] == pytest.approx(one[0], rel=1e-4)
        assert recount(d, two[1]) == []
