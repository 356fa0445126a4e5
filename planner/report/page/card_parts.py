"""Parts of a pool's card: limits, memory, load and lengths, times."""

from __future__ import annotations

import math

from markupsafe import Markup

from planner.origin import Origin
from planner.plan import Margin, Measure, Pool
from planner.report import facts
from planner.report.page.bars import meter, track
from planner.report.page.markup import SENTENCE_CHARACTERS, Col, badge, join, pairs, short, table
from planner.report.page.numbers import count, decimal, gib, of_unit, share


def margins(pool: Pool) -> Markup:
    """Planned against allowed, a bar for each limit; the binding one is named."""
    columns = (Col("Limit", "plot"), Col("Planned", "n"), Col("Allowed", "n"), Col("Used", "n"))
    rows = [
        (
            _with_bar(_limit_name(pool, m), meter(m.used_share, _fill(pool, m))),
            of_unit(m.planned, m.unit), of_unit(m.limit, m.unit), share(m.used_share),
        )
        for m in pool.margins
    ]  # fmt: skip
    binds = Markup('<p class="binds">Binding: <strong>{}</strong></p>').format(
        short(pool.binding_constraint, SENTENCE_CHARACTERS)
    )
    return Markup("{}{}").format(table("Limits of one replica", columns, rows, kind="tight", wide=False), binds)


def _limit_name(pool: Pool, margin: Margin) -> Markup:
    unit = "" if margin.unit.startswith("share") else f" {short(margin.unit, 24)}"
    return Markup('{}<span class="quiet">{}</span> {}').format(short(margin.constraint), unit, _flag(pool, margin))


def _with_bar(label: Markup, bar: Markup) -> Markup:
    return Markup('<span class="barred"><span>{}</span>{}</span>').format(label, bar)


def _binds(pool: Pool, margin: Margin) -> bool:
    return margin.constraint.casefold() == pool.binding_constraint.casefold()


def _flag(pool: Pool, margin: Margin) -> Markup:
    if not margin.satisfied:
        return badge("exceeded", "bad")
    return badge("binds", "warn") if _binds(pool, margin) else Markup()


def _fill(pool: Pool, margin: Margin) -> str:
    if not margin.satisfied:
        return "r"
    return "c" if _binds(pool, margin) else "a"


def memory(pool: Pool) -> Markup:
    """The subtraction on each GPU, as a waterfall: budget, less every term, leaves the KV cache."""
    held = pool.memory
    whole = max(held.gpu_memory_gib, held.budget_gib) or 1.0
    kept = held.gpu_memory_gib - held.budget_gib
    rows: list[tuple[str, ...]] = [
        _memory_row("GPU memory", 0, held.gpu_memory_gib, whole, "d", gib(held.gpu_memory_gib), "catalogue"),
        _memory_row(
            f"kept free (utilisation {pool.gpu_memory_utilization:g})", held.budget_gib, held.gpu_memory_gib, whole,
            "m", f"−{gib(kept)}", Origin.GIVEN.value,
        ),
    ]  # fmt: skip
    level = held.budget_gib
    for term in held.terms:
        rows.append(_memory_row(term.name, level - term.gib, level, whole, "m", f"−{gib(term.gib)}", term.origin))
        level -= term.gib
    rows.append(_memory_row("KV cache", 0, held.available_kv_gib, whole, "g", gib(held.available_kv_gib), "computed"))
    columns = (Col("Term", "plot"), Col("GiB", "n"), Col("Origin"))
    return table("Memory of each GPU", columns, rows, kind="tight memory", wide=False)


def _memory_row(
    name: str, start: float, end: float, whole: float, kind: str, figure: str, origin: str
) -> tuple[str, ...]:
    bar = track([(start / whole, end / whole, kind)])
    trust = badge(origin, "warn") if origin == Origin.GUESS else short(origin, 20)
    return _with_bar(Markup("{}").format(short(name)), bar), figure, trust


def load(pool: Pool) -> Markup:
    """Live tokens of a replica against its pool, and lengths against the longest request that is accepted."""
    return join([_live_tokens(pool), _lengths(pool)], "\n")


def _live_tokens(pool: Pool) -> Markup:
    found, room = pool.load, facts.token_pool(pool)
    scale = max(room, found.quantile_live_tokens, found.mean_live_tokens) or 1.0
    bar = track(
        [(0, found.mean_live_tokens / scale, "a"),
         (found.mean_live_tokens / scale, found.quantile_live_tokens / scale, "b")],
        [(room / scale, "end")],
    )  # fmt: skip
    logged = (
        f"{count(pool.memory.logged_tokens)}: {count(pool.memory.num_blocks)} blocks of "
        f"{count(pool.memory.block_size_tokens)}, {count(pool.memory.bytes_per_token)} bytes a token"
    )
    items = (
        (_key("a", "mean"), count(found.mean_live_tokens)),
        (_key("b", "peak"), f"{count(found.quantile_live_tokens)}, exceeded with probability of at most "
         f"{share(found.overflow_probability)} (expected {share(found.expected_overflow)})"),
        (_key("end", "room"), f"{count(room)} tokens"),
        ("start-up log", f"{logged}; compare with the engine's start-up log"),
        ("requests", f"{decimal(found.mean_live_requests)} live on average, {count(found.quantile_live_requests)} at "
         f"peak; {decimal(found.rate_per_replica_per_s)} arrive a second, dispersion {decimal(found.dispersion)}"),
    )  # fmt: skip
    return _plot("Live tokens of one replica", bar, pairs(items))


def _lengths(pool: Pool) -> Markup:
    """Prompts on a logarithmic track from 1 token to the longest that matters."""
    end = max(pool.max_model_len, pool.prompt_lo_tokens + 1)
    top = math.log(end * 1.15)

    def at(tokens: float) -> float:
        return math.log(max(1.0, tokens)) / top

    high = min(pool.prompt_hi_tokens or end, end)
    whole = pool.mean_prompt_tokens + pool.mean_output_tokens
    bar = track(
        [(at(pool.prompt_lo_tokens), at(high), "b")],
        [(at(pool.mean_prompt_tokens), "mean"), (at(whole), "whole"), (at(pool.max_model_len), "end")],
    )
    refused = (
        f"{share(pool.refused_request_share)} of requests and {share(pool.refused_token_share)} of tokens are too "
        f"long; {share(pool.tail_budget)} of requests may be"
    )
    items = (
        (_key("b", "prompts"), f"{facts.prompt_band(pool)} tokens are routed here"),
        (_key("mean", "mean prompt"), f"{decimal(pool.mean_prompt_tokens)} tokens"),
        (_key("whole", "mean request"), f"{decimal(whole)} tokens, {decimal(pool.mean_output_tokens)} of them output"),
        (_key("end", "longest"), f"max_model_len {count(pool.max_model_len)}"),
        ("refused", refused),
    )
    return _plot("Lengths (logarithmic)", bar, pairs(items))


def _key(kind: str, name: str) -> Markup:
    return Markup('<span class="key {}" aria-hidden="true"></span>{}').format(kind, name)


def _plot(title: str, bar: Markup, facts_list: Markup) -> Markup:
    return Markup('<div class="plotbox"><h5>{}</h5>{}{}</div>').format(title, bar, facts_list)


def times(pool: Pool) -> Markup:
    """Predicted times with their bands, and which edge the limits saw."""
    speed = pool.speed
    columns = (Col("Time"), Col("Predicted", "n"), Col("80 % band", "n"), Col("Used", "n"))
    rows = [
        ("TPOT, ms", *_measure(speed.tpot_ms)),
        (f"TTFT P{100 * speed.ttft_percentile:g}, ms", *_measure(speed.ttft_ms)),
    ]
    note = Markup('<p class="note">{}; edge used: {} of TPOT, {} of TTFT</p>').format(
        short(speed.provider), short(speed.tpot_ms.edge), short(speed.ttft_ms.edge)
    )
    return Markup("{}{}").format(table("Times at the planned load", columns, rows, kind="tight", wide=False), note)


def _measure(figure: Measure) -> tuple[str, str, str]:
    return decimal(figure.value), f"{decimal(figure.low)} to {decimal(figure.high)}", decimal(figure.used)
