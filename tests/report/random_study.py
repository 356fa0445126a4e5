"""Studies by chance, each plan of which is consistent: for properties that hold whatever was planned."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import replace

from planner.plan import FleetPlan, PlanPeriod, PlanSupply, Purchase
from planner.study import LastQuarter, Scenario, Sensitivity, Side, Study
from tests.report.sample import HOURS, REJECTED, SPECS, WARNINGS, Quarter, Spec, plan_of, purchase
from tests.report.sample_replay import random_record

_GPUS = {"H100-SXM": (8, 6.9), "H200-SXM": (8, 3.5), "B200-SXM": (8, 5.1), "L40S": (4, 1.9), "A10": (1, 0.6)}
"""GPUs of an instance, and USD for one of them an hour."""
_REGIONS = ("us-east-1", "us-west-2", "eu-north1")


def _quarter(rng: random.Random) -> Quarter:
    """One to three periods."""
    count = rng.randint(1, 3)
    parts = [rng.randint(1, 5) for _ in range(count)]
    hours = [HOURS * part / sum(parts) for part in parts]
    weights = sorted((rng.uniform(0.3, 2.0) for _ in range(count)), reverse=True)
    mean = sum(w * h for w, h in zip(weights, hours, strict=True)) / HOURS
    return Quarter(
        periods=tuple(PlanPeriod(name=f"period {n}", hours=h) for n, h in enumerate(hours)),
        mean=tuple(w / mean for w in weights),
        planning=tuple(w / weights[0] for w in weights),
        factor=rng.uniform(0.2, 3.0),
    )


def _specs(rng: random.Random, quarter: Quarter) -> tuple[tuple[Spec, ...], dict[str, PlanSupply]]:
    """Some models of the sample, on other GPUs; chat in one pool or in two."""
    supplies: dict[str, PlanSupply] = {}
    found = []
    names = {"chat", *rng.sample(("code", "agents", "search", "vision"), rng.randint(0, 4))}
    single = rng.random() < 0.5
    for spec in (s for s in SPECS if s.model in names):
        if single and spec.name == "chat/2":
            continue
        gpu, region = rng.choice(list(_GPUS)), rng.choice(_REGIONS)
        each = _GPUS[gpu][0]
        name = f"{gpu} x{each} {region}"
        supplies[name] = PlanSupply(id=name, gpu=gpu, gpus_per_instance=each, region=region)
        needed = sorted((rng.randint(1, 5) for _ in quarter.periods), reverse=True)
        tp = rng.choice([n for n in (1, 2, 4, 8) if n <= each])
        made = replace(spec, supply=name, gpu=gpu, tp=tp, needed=tuple(needed), spare=rng.randint(0, 1))
        whole = {"name": "chat", "low": 0, "high": None, "share": 1.0, "rate": 9.2}
        found.append(replace(made, **whole) if single and spec.name == "chat/1" else made)
    return tuple(found), supplies


def _lots(
    rng: random.Random, specs: tuple[Spec, ...], supplies: dict[str, PlanSupply], quarter: Quarter
) -> tuple[Purchase, ...]:
    """What holds the replicas: some instances reserved or held, the rest on demand; at times a contract that idles."""
    lots = []
    for name, supply in supplies.items():
        each, price = _GPUS[supply.gpu]
        used = [
            sum((s.needed[t] + s.spare) * s.tp for s in specs if s.supply == name) for t in range(len(specs[0].needed))
        ]
        runs = [math.ceil(n / each) for n in used]
        base = rng.randint(0, min(runs))
        lot = f"aws/{supply.gpu.lower()}/{supply.region}"
        kinds = rng.choice(("new commitment", "existing commitment"))
        if base and kinds == "new commitment":
            lots.append(purchase(f"{lot}/commit_1y", kinds, name, each, (base,) * len(runs), base * each,
                                 reserved=base, reserved_price=price * each * 0.6, liability=1_000.0 * base,
                                 quarter=quarter))  # fmt: skip
        elif base:
            held = (base,) * len(runs)
            lots.append(purchase(f"held/{lot}/commit_1y/2027-06-01", kinds, name, each, held, base * each, paid=held,
                                 sunk=5_000.0 * base, available=held, quarter=quarter))  # fmt: skip
        rest = tuple(n - base for n in runs)
        if max(rest):
            most = max(used) - base * each
            lots.append(purchase(f"{lot}/on_demand", "on-demand", name, each, rest, max(most, 1), price=price * each,
                                 quarter=quarter))  # fmt: skip
    if rng.random() < 0.5:
        supplies["A10 idle"] = PlanSupply(id="A10 idle", gpu="A10", gpus_per_instance=1)
        none, all_of = (0,) * len(quarter.periods), (3,) * len(quarter.periods)
        lots.append(purchase("held/lambda/a10/us-east-1/commit_1y/2027-05-01", "existing commitment", "A10 idle", 1,
                             none, 0, paid=all_of, sunk=2_000.0, available=all_of, quarter=quarter))  # fmt: skip
    return tuple(lots)


def random_plan(rng: random.Random, run_id: str) -> FleetPlan:
    """A plan by chance."""
    quarter = _quarter(rng)
    specs, supplies = _specs(rng, quarter)
    lots = _lots(rng, specs, supplies, quarter)
    return plan_of(
        specs, lots, tuple(supplies.values()), quarter, run_id=run_id, title="By chance",
        created_at=dt.datetime(2026, 11, 29, 16, 40, 7, tzinfo=dt.UTC), warnings=WARNINGS[: rng.randint(0, 3)],
        rejected=REJECTED[: rng.randint(0, 2)],
    )  # fmt: skip


def random_study(seed: int) -> Study:
    """One to four scenarios, at times with drivers, with a last quarter and with a replay."""
    rng = random.Random(seed)
    plans = [random_plan(rng, f"{seed:06x}{n:06x}") for n in range(rng.randint(1, 4))]
    usd = plans[0].totals.usd
    drivers = tuple(
        Sensitivity(
            driver="growth", name=f"Driver {n}", words="arrivals", owner="Product", source="request",
            source_date=dt.date(2026, 10, 1),
            low=Side(factor=0.9, usd=usd * (1 - 0.1 / n), usd_per_mtok=1.0, gap=0.001),
            high=Side(factor=1.1, usd=usd * (1 + 0.1 / n), usd_per_mtok=1.0, gap=0.001),
        )
        for n in range(1, rng.randint(1, 5))
    )  # fmt: skip
    last = LastQuarter(path="last/plan.json", sha256="f" * 64, plan=random_plan(rng, f"{seed:012x}"))
    return Study(
        plan=plans[0],
        others=tuple(Scenario(name=f"Future {n}", words="by chance", plan=p) for n, p in enumerate(plans[1:], start=1)),
        sensitivities=drivers,
        last=last if rng.random() < 0.7 else None,
        replay=random_record(rng, plans[0]) if rng.random() < 0.5 else None,
    )
