"""A plan whose every text is an attack on the page that shows it."""

from __future__ import annotations

from typing import Any

from planner.plan import FleetPlan

EVIL = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!-- \x00\x1b[31m\u202e\ud800"
SEEN = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!-- [31m"


def hostile(value: Any) -> Any:
    """A model with every text replaced: names, sources, notes, commands."""
    return value.model_copy(
        update={name: EVIL + ("=" * 40_000 if name in ("notes", "note", "why", "source", "name") else "")
                for name, found in value if type(found) is str}
    )  # fmt: skip


def hostile_plan(plan: FleetPlan) -> FleetPlan:
    pools = [hostile(pool) for pool in plan.pools]
    pools = [
        pool.model_copy(
            update={
                "name": f"{pool.name}{n}",
                "model": f"{EVIL}{n}",
                "memory": pool.memory.model_copy(update={"terms": tuple(map(hostile, pool.memory.terms))}),
                "margins": tuple(map(hostile, pool.margins)),
                "periods": tuple(map(hostile, pool.periods)),
                "placements": tuple(map(hostile, pool.placements)),
                "runner_up": hostile(pool.runner_up),
                "speed": pool.speed.model_copy(update={"provider": EVIL, "tpot_ms": hostile(pool.speed.tpot_ms)}),
            }
        )
        for n, pool in enumerate(pools)
    ]
    lists = ("routes", "purchases", "quotas", "rejected", "assumptions", "periods", "schedule", "models")
    inputs = [file.model_copy(update={"role": EVIL[:-1], "path": EVIL[:-1]}) for file in plan.inputs]
    return hostile(plan).model_copy(
        update={"pools": tuple(pools), "warnings": (EVIL, EVIL * 1000), "solve": hostile(plan.solve)}
        | {"inputs": tuple(inputs)}
        | {name: tuple(map(hostile, getattr(plan, name))) for name in lists}
    )
