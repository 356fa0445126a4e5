"""The fleet at a glance: pools by GPU type, how full they run, and what they stand on."""

from __future__ import annotations

from markupsafe import Markup

from planner.plan import FleetPlan, Pool
from planner.report import facts
from planner.report.page.anchors import anchors_of
from planner.report.page.bars import meter
from planner.report.page.markup import join, scrolling, section, short
from planner.report.page.numbers import gpus, share, usd

COLUMNS = (
    ("Pool", ""), ("GPUs in the busiest period", "plot"), ("Served of capacity", "meter"),
    ("KV memory at peak", "meter"), ("Work", "meter"), ("Stands on", "w"),
)  # fmt: skip
LEAD = (
    "Served: tokens of the horizon over those that the running replicas could serve. KV memory: peak live tokens over "
    "the pool. Work: share of time that prefill and decode take at the planning rate."
)


def fleet(plan: FleetPlan) -> Markup:
    """The fleet picture: a group of rows for each GPU type, dearest first."""
    head = join(
        Markup('<th scope="col" class="{}">{}</th>').format(kind, header) if kind
        else Markup('<th scope="col">{}</th>').format(header)
        for header, kind in COLUMNS
    )  # fmt: skip
    most = max(pool.gpus for pool in plan.pools)
    groups = join((_group(plan, gpu, most) for gpu in facts.gpu_types_by_cost(plan)), "\n")
    caption = "Pools by GPU type, dearest first"
    made = Markup('<table class="fleet"><caption>{}</caption>\n<thead><tr>{}</tr></thead>\n{}</table>').format(
        caption, head, groups
    )
    return section("fleet", "Fleet", scrolling(caption, made), lead=LEAD)


def _group(plan: FleetPlan, gpu: str, most: int) -> Markup:
    bought = [purchase for purchase in plan.purchases if purchase.gpu == gpu]
    order = facts.pools_by_cost(plan)
    pools = [i for i in order if plan.pools[i].gpu == gpu]
    links = anchors_of(plan).pools
    words = f"{gpus(sum(p.gpus_bought for p in bought))}, {usd(sum(p.usd for p in bought))} USD"
    idle = Markup() if pools else Markup('<tr><td colspan="{}">No pool stands on it.</td></tr>').format(len(COLUMNS))
    header = Markup(
        '<tr class="group"><th scope="rowgroup" colspan="{}">{} <span class="quiet">{}</span></th></tr>'
    ).format(len(COLUMNS), short(gpu), words)
    return Markup("<tbody>{}{}{}</tbody>").format(
        header, join((_row(plan, plan.pools[i], links[i], most) for i in pools), "\n"), idle
    )


def _row(plan: FleetPlan, pool: Pool, anchor: str, most: int) -> Markup:
    link = Markup('<a href="#{}">{}</a>').format(anchor, short(pool.name, 40))
    replicas = facts.replicas_in_words(pool)
    noun = "replica" if replicas == "1" else "replicas"
    size = f"{gpus(pool.gpus)}, {replicas} {noun}" + (f" of {pool.tp}" if pool.tp > 1 else "")
    kv_pool = facts.token_pool(pool)
    shares = (
        pool.served_mtok / pool.capacity_mtok if pool.capacity_mtok else 0.0,
        pool.load.quantile_live_tokens / kv_pool if kv_pool else 0.0,
        pool.load.work_share,
    )
    meters = join(
        Markup('<td class="meter">{}<span class="figure">{}</span></td>').format(meter(value), share(value))
        for value in shares
    )
    return Markup(
        '<tr><th scope="row">{}</th><td class="plot">{}<span class="figure">{}</span></td>{}<td class="w">{}</td></tr>'
    ).format(link, meter(pool.gpus / most, "d"), size, meters, _supply(plan, pool))


def _supply(plan: FleetPlan, pool: Pool) -> str:
    supplies = ", ".join(short(place.supply, 40) for place in pool.placements)
    places = short(facts.places(plan, pool), 60)
    return f"{supplies} ({places})" if places else supplies
