"""Which model of a plan a log shows: by the names in it, by what the user says, or because there is only one."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path

from planner.errors import InputError, Problem
from planner.plan import FleetPlan
from planner.report import facts

SHOWN = 20
FIX = "Write LOG=MODEL, or name the weights of its models with --alias"


def split(text: str, plan: FleetPlan) -> tuple[Path, str]:
    """``LOG=MODEL`` in two; a path that exists is taken whole.

    Raises
    ------
    InputError
        If no log is named, or the plan has no such model.
    """
    path, equals, model = text.rpartition("=")
    if not (path if equals else text).strip():
        raise InputError(Problem(f"'{text}'", "no log is named", "Write LOG, or LOG=MODEL"))
    if not equals or Path(text).exists():
        return Path(text), ""
    models = facts.models(plan)
    if model not in models:
        close = difflib.get_close_matches(model, models, n=1)
        fix = f"Did you mean '{close[0]}'?" if close else f"It plans: {_listed(models)}"
        raise InputError(Problem(text, f"the plan has no model '{model}'", fix))
    return Path(path), model


def models_in(where: str, names: Collection[str], asked: str, plan: FleetPlan) -> dict[str, str]:
    """Model of the plan by name inside the log; names without one are left out.

    Parameters
    ----------
    names
        Models inside the log.
    asked
        What the user says; empty: nothing.

    Raises
    ------
    InputError
        If it cannot be told.
    """
    if asked:
        return {_asked(where, names, asked, plan): asked}
    known = _names(plan)
    found = {name: known[name] for name in sorted(names) if name in known}
    if found:
        return found
    models = facts.models(plan)
    if len(names) == 1 and len(models) == 1:
        return {next(iter(names)): models[0]}
    what = f"holds {_listed(names)}, and the plan has {_listed(models)}: it cannot be told which is which"
    raise InputError(Problem(where, what, FIX))


def _asked(where: str, names: Collection[str], asked: str, plan: FleetPlan) -> str:
    """The name inside the log that the user means: the same, the model's weights, or the only one."""
    known = _names(plan)
    same = [name for name in sorted(names) if known.get(name) == asked]
    if asked in names or len(same) == 1:
        return asked if asked in names else same[0]
    if len(names) == 1:
        return next(iter(names))
    what = f"holds several models ({_listed(names)}), and none is called '{asked}'"
    raise InputError(Problem(where, what, f"Rename one: --alias NAME={asked}"))


def _names(plan: FleetPlan) -> dict[str, str]:
    """Model of the plan by its name, and by its weights where only one model has them."""
    weights: dict[str, set[str]] = {}
    for pool in plan.pools:
        weights.setdefault(pool.weights, set()).add(pool.model)
    by_weights = {name: next(iter(models)) for name, models in weights.items() if len(models) == 1}
    return by_weights | {model: model for model in facts.models(plan)}


def _listed(names: Collection[str]) -> str:
    shown = [f"'{name}'" for name in sorted(names)]
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more
