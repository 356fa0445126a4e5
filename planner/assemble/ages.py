"""The oldest price and the oldest engine fact that a plan stands on."""

from __future__ import annotations

from collections.abc import Sequence

from planner.assemble.context import Context
from planner.catalog.engine_ages import dated_facts
from planner.plan import Age, AgeKind, Purchase


def ages_of(context: Context, purchases: Sequence[Purchase]) -> tuple[Age, ...]:
    """The oldest of each kind, with its age on the day of planning; of equally old ones the first by name.

    Prices are those of everything that is paid; engine facts are those that hold for the release and the models'
    architectures. There is none of a kind that the plan was made without.
    """
    today = context.created_at.date()
    found = []
    if purchases:
        price = min(purchases, key=lambda p: (p.price_as_of, p.offer_id))
        found.append((AgeKind.PRICE, price.offer_id, price.price_as_of, price.source_url))
    if context.catalog is not None:
        engine = context.request.engine
        facts = context.catalog.engine(engine.name, engine.version)
        held = dated_facts(facts, [workload.shape.architecture for workload in context.workloads.values()])
        oldest = held[:1]
        found += [(AgeKind.ENGINE_FACT, f"{facts.name} {facts.version}: {f.name}", f.as_of, f.source) for f in oldest]
    return tuple(
        Age(kind=kind, what=what, as_of=day, age_days=(today - day).days, source=source)
        for kind, what, day, source in found
    )
