"""`planner load`: how many tokens are live at once, and the quantile that a replica's pool must hold."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from planner.cli.fields import options_from
from planner.cli.load_options import LoadOptions, ask_of, place_of
from planner.errors import InputError, Problem, Problems
from planner.queueing.planned_load import STRESS, Ask, PlannedLoad, Routing, planned_load
from planner.traffic.schema import Coupling, iso_utc
from planner.traffic.source import load_traffic
from planner.traffic.stretch import WANDER
from planner.traffic.types import Traffic


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("load")(load_command)


@options_from(LoadOptions)
def load_command(asked: LoadOptions) -> None:
    """Show the live tokens of one replica, mean and quantile, at a decode rate and prefill time that are stated."""
    problems = Problems()
    place = place_of(asked, problems)
    ask = ask_of(asked, problems)
    assert place is not None
    traffic = _load(asked, place, asked.coupling)
    couplings = {}
    if traffic.marginals:
        couplings = {
            c.value: planned_load(_load(asked, place, c), ask) for c in (Coupling.COMONOTONE, Coupling.COUNTERMONOTONE)
        }
    load = _planned(traffic, ask)
    data = as_data(asked, traffic, load, couplings)
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) if asked.as_json else as_text(data))


def _load(asked: LoadOptions, place: Path, coupling: Coupling | None) -> Traffic:
    options: dict[str, Any] = {}
    if asked.idc is not None:
        options["idc"] = asked.idc
    if coupling is not None:
        options["coupling"] = coupling.value
    return load_traffic(place, log_format=asked.log_format, model=asked.model, options=options, name="")


def _planned(traffic: Traffic, ask: Ask) -> PlannedLoad:
    try:
        return planned_load(traffic, ask)
    except InputError as error:
        if any("burst" not in problem.message for problem in error.problems):
            raise
        fix = "Give a log over a longer time or with finer time stamps, or state it: --idc 3 (1 is Poisson)"
        raise InputError([Problem(p.where, p.message, fix) for p in error.problems]) from error


def as_data(
    asked: LoadOptions, traffic: Traffic, load: PlannedLoad, couplings: dict[str, PlannedLoad]
) -> dict[str, Any]:
    """The answer as plain values; figures are of one replica unless their name says otherwise."""
    stretch, ask = load.stretch, load.ask
    return {
        "model": traffic.model,
        "source": traffic.source,
        "figures_are_of": "one replica",
        "replicas": ask.replicas,
        "routing": ask.routing.value,
        "rate_per_s": load.rate_per_s,
        "rate_per_replica_per_s": load.replica.rate_per_s,
        "decode_rate_per_s": ask.decode_tokens_per_s,
        "prefill_s": ask.prefill_s,
        "overflow": ask.overflow,
        "mean_tokens": load.replica.mean_tokens,
        "quantile_tokens": load.replica.quantile_tokens,
        "dispersion": {
            "idc": load.idc,
            "scale_s": load.idc_scale_s,
            "idc_of_a_replica": load.replica_idc,
            "stated": asked.idc is not None,
            "rate_cv": load.rate_cv,
        },
        "live_requests": {"mean": load.replica.mean_requests, "quantile": load.replica.quantile_requests},
        "mean_formula_tokens": load.formula.live_tokens,
        "mean_over_formula": load.ratio_to_formula,
        "mean_prompt_tokens": load.mean_prompt,
        "mean_output_tokens": load.mean_output,
        "refused_share": load.refused_share,
        "stress": {"rate_factor": STRESS, **asdict(load.stress)},
        "couplings": {
            name: {"mean_tokens": c.replica.mean_tokens, "quantile_tokens": c.replica.quantile_tokens}
            for name, c in couplings.items()
        },
        "stretch": {
            "start": _moment(traffic, stretch.start_us),
            "end": _moment(traffic, stretch.end_us),
            "whole_log": stretch.whole,
            "stationary": stretch.stationary,
            "trend_p": None if math.isnan(stretch.trend_p) else stretch.trend_p,
            "rate_per_s": stretch.rate_per_s,
        },
        "assumed": _assumed(asked, load),
        "notes": list(traffic.notes),
    }


def _moment(traffic: Traffic, us: int) -> str:
    if traffic.calendar_time:
        return iso_utc(us)
    return f"{us / 1e6:g} s from the start of the log"


def _assumed(asked: LoadOptions, load: PlannedLoad) -> list[str]:
    """Everything that the figures rest on and the log does not show."""
    ask = load.ask
    found = [
        f"every stream decodes at {ask.decode_tokens_per_s:g} tokens/s after {ask.prefill_s:g} s of prefill; nothing "
        "waits for memory",
        "arrivals come in batches of geometric size that give their measured index of dispersion; lengths are "
        "independent of arrivals",
    ]
    if ask.replicas > 1:
        spread = (
            "each request finds its replica at random"
            if ask.routing is Routing.RANDOM
            else ("sessions keep their replica, so that a burst may hit one replica whole")
        )
        found.append(f"{spread}; the replicas share the traffic equally")
    if ask.rate_cv is None:
        wander = (
            "too short to show any wander of the rate"
            if math.isnan(load.stretch.level_cv2)
            else (f"level variance between sixths of the stretch, times {WANDER:g} as in a random walk, and sampling")
        )
        found.append(f"the coming rate is {load.rate_cv:.1%} uncertain (coefficient of variation): {wander}")
    if not load.stretch.stationary:
        found.append("the rate of the stretch shows a trend: the figures hold for its mean, not for where it leads")
    if ask.holding.shared_tokens:
        found.append(f"a shared prefix of {ask.holding.shared_tokens:,} tokens (whole blocks) is held at all times")
    if asked.sliding_window and not asked.chunk_tokens:
        found.append("sliding layers hold the whole prompt during prefill (no --chunk-tokens)")
    return found


def as_text(data: dict[str, Any]) -> str:
    """The answer for a reader."""
    d, live, stretch, stress = data["dispersion"], data["live_requests"], data["stretch"], data["stress"]
    rows = [
        ("model", data["model"]),
        ("stretch", f"{stretch['start']} to {stretch['end']}{' (the whole log)' if stretch['whole_log'] else ''}"),
        ("requests per s, all replicas", f"{data['rate_per_s']:.6g}"),
        (f"requests per s, one of {data['replicas']:,}", f"{data['rate_per_replica_per_s']:.6g}"),
        ("live requests, mean", f"{live['mean']:,.1f}"),
        (f"live requests, exceeded {data['overflow']:g} of the time", f"{live['quantile']:,.0f}"),
        ("live tokens, mean", f"{data['mean_tokens']:,.0f}"),
        (f"live tokens, exceeded {data['overflow']:g} of the time", f"{data['quantile_tokens']:,.0f}"),
        (f"the same at {stress['rate_factor']:g} times the rate", f"{stress['quantile_tokens']:,.0f}"),
        ("product of means (cross-check)", f"{data['mean_formula_tokens']:,.0f}"),
        ("mean over product of means", f"{data['mean_over_formula']:.3f}"),
        (f"burst (IDC) at {d['scale_s']:.3g} s", f"{d['idc']:.3g}{' (stated)' if d['stated'] else ''}"),
        ("burst (IDC) of one replica", f"{d['idc_of_a_replica']:.3g}"),
    ]
    if data["refused_share"]:
        rows.append(("refused by max_model_len", f"{data['refused_share']:.3%}"))
    for name, figures in data["couplings"].items():
        rows.append((f"live tokens if {name}", f"{figures['mean_tokens']:,.0f} / {figures['quantile_tokens']:,.0f}"))
    width = max(len(label) for label, _ in rows)
    lines = ["Live load of one replica", *(f"  {label:<{width}}  {value}" for label, value in rows)]
    lines += ["Assumed", *(f"  {line}" for line in data["assumed"])]
    if data["notes"]:
        lines += ["Notes", *(f"  {note}" for note in data["notes"])]
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in "\n".join(lines))
