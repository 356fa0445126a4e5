"""Models: a table of all, and a card for each with the figures of its pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from planner.plan import FleetPlan, Pool
from planner.report import facts
from planner.report.page.anchors import Anchors, anchors_of
from planner.report.page.bars import meter
from planner.report.page.card_parts import load, margins, memory, times
from planner.report.page.curves import Curves
from planner.report.page.markup import SENTENCE_CHARACTERS, Col, folded, join, pairs, prose, section, short, table
from planner.report.page.numbers import count, decimal, gib, gpus, rate, share, usd, usd_change
from planner.report.page.plots import decode_chart

LAUNCH_CHARACTERS = 8000
"""Of a launch command."""


def models(plan: FleetPlan, curves: Curves) -> Markup:
    """The table of all models and their cards, dearest first."""
    anchors = anchors_of(plan)
    of_model: dict[str, list[tuple[Pool, str]]] = {name: [] for name in anchors.models}
    for i in facts.pools_by_cost(plan):
        of_model[plan.pools[i].model].append((plan.pools[i], anchors.pools[i]))
    cards = (_card(plan, name, pools, anchors.models[name], curves) for name, pools in of_model.items())
    table_of_all = _at_a_glance({name: [pool for pool, _ in pools] for name, pools in of_model.items()}, anchors)
    lead = "Dearest first; each name leads to the model's card."
    return section("models", f"Models ({len(of_model)})", table_of_all, *cards, lead=lead)


def _at_a_glance(of_model: Mapping[str, Sequence[Pool]], anchors: Anchors) -> Markup:
    most = max(sum(pool.usd for pool in pools) for pools in of_model.values()) or 1.0
    columns = (
        Col("Model"), Col("Cost, USD", "plot"), Col("GPUs", "n"), Col("USD per M tokens", "n"), Col("Runs on", "w"),
        Col("Binding", "w"),
    )  # fmt: skip
    rows = []
    for name, pools in of_model.items():
        cost, served = sum(p.usd for p in pools), sum(p.served_mtok for p in pools)
        link = Markup('<a href="#{}">{}</a>').format(anchors.models[name], short(name, 40))
        bar = Markup('{}<span class="figure">{}</span>').format(meter(cost / most, "d"), usd(cost))
        number, price = count(sum(p.gpus for p in pools)), rate(cost / served) if served else "nothing served"
        binding = dict.fromkeys(short(p.binding_constraint) for p in pools)
        rows.append((link, bar, number, price, "; ".join(map(_chosen, pools)), "; ".join(binding)))
    return table("All models", columns, rows)


def _chosen(pool: Pool) -> str:
    count_words = facts.replicas_in_words(pool)
    return (
        f"{count_words} x {short(pool.gpu, 30)} tp{pool.tp} {short(pool.weight_dtype, 12)}/{short(pool.kv_dtype, 12)}"
    )


def _card(plan: FleetPlan, model: str, placed: Sequence[tuple[Pool, str]], anchor: str, curves: Curves) -> Markup:
    pools = [pool for pool, _ in placed]
    weights = ", ".join(dict.fromkeys(short(pool.weights) for pool in pools))
    centres = ", ".join(dict.fromkeys(short(pool.cost_centre, 40) for pool in pools if pool.cost_centre))
    cost, number = sum(pool.usd for pool in pools), sum(pool.gpus for pool in pools)
    words = " · ".join(word for word in (weights, centres, f"{usd(cost)} USD", gpus(number)) if word)
    parts = [_pool(plan, pool, place, curves) for pool, place in placed]
    return Markup(
        '<article class="card" id="{0}" aria-labelledby="{0}-h">\n<header><h3 id="{0}-h">{1}</h3>'
        '<p class="quiet">{2}</p></header>\n{3}\n{4}\n</article>'
    ).format(anchor, short(model), words, join(parts, "\n"), _next_best(pools[0]))


def _next_best(pool: Pool) -> Markup:
    """The runner-up is the model's: it is solved without the GPU type of the model's pools."""
    if pool.runner_up is None:
        return Markup('<p class="runner"><strong>Next best:</strong> none found.</p>')
    best = pool.runner_up
    flip = (
        "not found at which price of a GPU type it is as cheap"
        if best.flip_usd_per_gpu_h is None
        else f"as cheap when the chosen GPU type costs {rate(best.flip_usd_per_gpu_h)} USD per GPU-hour"
    )
    return Markup('<p class="runner"><strong>Next best:</strong> {}, {} USD ({}).</p>').format(
        short(best.description, SENTENCE_CHARACTERS), usd_change(best.extra_usd), flip
    )


def _pool(plan: FleetPlan, pool: Pool, anchor: str, curves: Curves) -> Markup:
    left = join([_column(margins(pool)), _column(memory(pool)), _column(times(pool))])
    right = join([_column(decode_chart(pool, curves.get(pool.name), anchor)), _column(load(pool))])
    return Markup(
        '<div class="pool" id="{}">\n<h4>{} <span class="chip">{}</span></h4>\n<div class="why">{}</div>\n{}\n'
        '<div class="grid"><div>{}</div><div>{}</div></div>\n{}\n{}\n</div>'
    ).format(
        anchor, short(pool.name), _chosen(pool), _sentence(facts.reason(pool)), _pool_facts(plan, pool), left, right,
        _launch(pool, anchor), _sources(pool),
    )  # fmt: skip


def _sentence(words: str) -> Markup:
    return prose(words if words.endswith(".") else f"{words}.")


def _column(*parts: Markup) -> Markup:
    return Markup('<div class="part">{}</div>').format(join(parts, "\n"))


def _pool_facts(plan: FleetPlan, pool: Pool) -> Markup:
    spare = f", {count(pool.replicas_spare)} of them spare" if pool.replicas_spare else ""
    items = [
        ("cost", f"{usd(pool.usd)} USD"),
        ("replicas", f"{facts.replicas_in_words(pool)}{spare}; {gpus(pool.gpus)}"),
        ("prompts", f"{facts.prompt_band(pool)}; {share(pool.request_share)} of requests"),
        ("served", f"{count(pool.served_mtok)} of {count(pool.capacity_mtok)} M tokens"),
        ("arrivals", f"{decimal(pool.load.planning_rate_per_s)} per s when busiest"),
        ("stands on", f"{short(facts.places(plan, pool), 60)}"),
    ]
    if pool.tenants:
        items.append(("tenants", short(facts.tenants(pool), 120)))
    if pool.score_drop is not None:
        items.append(("quality", f"score drop {pool.score_drop:g}, as its owner states"))
    return pairs(items, "strip-facts")


def _launch(pool: Pool, anchor: str) -> Markup:
    return Markup(
        '<div class="launch"><h5 id="{0}-l">Launch command</h5><button type="button" class="copy" hidden '
        'data-of="{0}-c" aria-describedby="{0}-l">Copy</button><pre tabindex="0" aria-labelledby="{0}-l">'
        '<code id="{0}-c">{1}</code></pre></div>'
    ).format(anchor, _options(pool.launch_command[:LAUNCH_CHARACTERS]))


def _options(command: str) -> Markup:
    """The command, broken between its options where it is too long; copied text is as it was."""
    first, *rest = command.split(" --")
    parts = (first, *(f"--{part}" for part in rest))
    return join((Markup('<span class="option">{}</span>').format(part) for part in parts), " ")


def _sources(pool: Pool) -> Markup:
    columns = (Col("Figure"), Col("GiB", "n"), Col("Origin"), Col("Source", "w"))
    rows: list[tuple[str, ...]] = [
        *((short(t.name), gib(t.gib), short(t.origin, 20), prose(t.source)) for t in pool.memory.terms),
        ("TPOT", "", short(pool.speed.provider, 30), prose(pool.speed.tpot_ms.source)),
        ("TTFT", "", short(pool.speed.provider, 30), prose(pool.speed.ttft_ms.source)),
        ("arrivals", "", "measured" if pool.rate_measured else "given", _arrivals(pool)),
    ]
    engine = (
        f"{short(pool.engine, 30)} {short(pool.engine_version, 30)}, max_num_seqs {count(pool.max_num_seqs)}, "
        f"max_num_batched_tokens {count(pool.max_num_batched_tokens)}"
    )
    return folded("Sources", table(f"Where the figures come from; {engine}", columns, rows))


def _arrivals(pool: Pool) -> str:
    rate_words = "the log's own" if pool.rate_measured else "stated in the request"
    peak_words = "that of the log's week" if pool.peak_measured else "stated in the request"
    return (
        f"{decimal(pool.stated_rate_per_s)} per s on average ({rate_words}) x {decimal(pool.growth)} growth "
        f"x {decimal(pool.peak_factor)} peak ({peak_words})"
    )
