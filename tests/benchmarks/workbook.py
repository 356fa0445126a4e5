"""Seconds and bytes of the workbook: `python -m tests.benchmarks.workbook --models 200 --scenarios 3`.

Wanted: 200 models in 3 scenarios written within 60 s on one core, at most 15 MB, and opened by LibreOffice within 20 s;
5 models within 5 s. The study is the hand-made one of tests/report, its pools, lots, supplies and quotas repeated under
other names, so that 200 models stand on 280 lots: more than any real fleet has.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from openpyxl import load_workbook

from planner.assemble.money import totals_of
from planner.assemble.rows import GPUS
from planner.plan import Assumption, FleetPlan, Pool, Purchase, QuotaUse
from planner.report.recalc import convert_with_libreoffice
from planner.report.workbook import write_workbook
from planner.study import Scenario, Side, Study
from tests.report.sample_study import sample_study

_OF_MODEL = ("rate_", "peak_", "lengths_", "tail_", "growth_")


def repeated(plan: FleetPlan, copies: int) -> FleetPlan:
    """The plan ``copies`` times beside itself, each time under other names and with its own hardware."""
    tags = ["" if n == 0 else f"-{n + 1}" for n in range(copies)]
    pools = tuple(_pool(pool, tag) for tag in tags for pool in plan.pools)
    purchases = tuple(_purchase(purchase, tag) for tag in tags for purchase in plan.purchases)
    totals = totals_of(pools, purchases, plan.periods)
    ratio = plan.solve.bound / plan.solve.objective
    solve = plan.solve.model_copy(update={"objective": totals.usd, "bound": totals.usd * ratio})
    return plan.model_copy(
        update={
            "pools": pools,
            "purchases": purchases,
            "totals": totals,
            "solve": solve,
            "models": tuple(m.model_copy(update={"name": m.name + tag}) for tag in tags for m in plan.models),
            "supplies": tuple(s.model_copy(update={"id": s.id + tag}) for tag in tags for s in plan.supplies),
            "routes": tuple(
                r.model_copy(update={"model": r.model + tag, "pool": r.pool + tag}) for tag in tags for r in plan.routes
            ),
            "quotas": _quotas(plan, tags),
            "assumptions": _assumptions(plan, tags),
        }
    )


def _pool(pool: Pool, tag: str) -> Pool:
    places = tuple(place.model_copy(update={"supply": place.supply + tag}) for place in pool.placements)
    offers = tuple(offer + tag for offer in pool.offers)
    return pool.model_copy(
        update={"name": pool.name + tag, "model": pool.model + tag, "placements": places, "offers": offers}
    )


def _purchase(purchase: Purchase, tag: str) -> Purchase:
    # The longest note of the sample is 32,767 characters: a test of hostile text, not of a fleet.
    return purchase.model_copy(
        update={
            "offer_id": purchase.offer_id + tag,
            "supply": purchase.supply + tag,
            "notes": purchase.notes[:200],
        }
    )


def _quotas(plan: FleetPlan, tags: list[str]) -> tuple[QuotaUse, ...]:
    """Quotas of GPUs for each copy; limits of the whole fleet once, as many times larger."""
    found = []
    for quota in plan.quotas:
        if quota.unit == GPUS:
            found += [
                quota.model_copy(update={"name": quota.name + tag, "offers": tuple(o + tag for o in quota.offers)})
                for tag in tags
            ]
        else:
            larger = {"used": quota.used * len(tags), "limit": quota.limit * len(tags)}
            found.append(quota.model_copy(update={**larger, "offers": ()}))
    return tuple(found)


def _assumptions(plan: FleetPlan, tags: list[str]) -> tuple[Assumption, ...]:
    return tuple(
        row.model_copy(update={"id": row.id + tag})
        for row in plan.assumptions
        for tag in (tags if row.id.startswith(_OF_MODEL) else [""])
    )


def study(models: int, scenarios: int) -> Study:
    """The hand-made study with ``models`` models (a multiple of 5) and at most its three scenarios."""
    made = sample_study()
    copies = models // 5
    others = tuple(
        Scenario(name=other.name, words=other.words, plan=repeated(other.plan, copies))
        for other in made.others[: scenarios - 1]
    )
    drivers = tuple(
        row.model_copy(update={"low": _larger(row.low, copies), "high": _larger(row.high, copies)})
        for row in made.sensitivities
    )
    plan = repeated(made.plan, copies)
    return made.model_copy(update={"plan": plan, "others": others, "sensitivities": drivers, "regret": None})


def _larger(side: Side, copies: int) -> Side:
    return side if side.usd is None else side.model_copy(update={"usd": side.usd * copies})


def main(arguments: list[str] | None = None) -> int:
    """Write the workbook, let LibreOffice open it, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--scenarios", type=int, default=3)
    parser.add_argument("-o", type=Path, default=None, help="folder that keeps the file")
    asked = parser.parse_args(arguments)
    made = study(asked.models, asked.scenarios)
    with tempfile.TemporaryDirectory() as folder:
        path = (asked.o or Path(folder)) / "plan.xlsx"
        wall, cpu = time.perf_counter(), time.process_time()
        write_workbook(made, path)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size_mb = path.stat().st_size / 1e6
        print(f"{asked.models} models, {asked.scenarios} scenarios: {wall:.1f} s wall, {cpu:.1f} CPU s, ", end="")
        print(f"{size_mb:.1f} MB, peak {peak_mib:,.0f} MiB")
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        convert_with_libreoffice(path, Path(folder) / "opened", "csv", 600)
        took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"LibreOffice opened it and wrote its first sheet as CSV: {took:.1f} s wall, {cpu:.1f} CPU s")
        checks = load_workbook(path, data_only=True, read_only=True)["Checks"]
        print(next(checks.iter_rows(min_row=3, max_row=3, max_col=2, values_only=True)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
