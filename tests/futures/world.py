"""Small requests with futures: files in a folder, and inputs with offers made by hand."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

from planner.catalog.load import load_catalog
from planner.catalog.offer import Offer, Term
from planner.futures.study import study_quarter
from planner.inputs import Inputs, read_inputs
from planner.study import Study
from tests.optimise.world import offer
from tests.test_frontier import write

NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
HOURS = 2160.0
SITE = '\n[[site]]\nregion = "here"\nusd_per_kwh = 0.2\nsource = "bill"\n'
OWNED = """
[[owned]]
name = "rack"
gpu = "L40S"
gpus_per_instance = 1
instances = 2
region = "here"
power_kw = 0.5
source = "inventory"
"""
QUOTA = '\n[[quota]]\nname = "all"\nmax_gpus = {gpus}\n'


def request(folder: Path, tables: str = "", *, targets: str = "") -> Path:
    """The two models of `tests.test_frontier` with more tables, and targets for both."""
    path = write(folder)
    text = path.read_text()
    if targets:
        text = text.replace("tail_budget = 0.01", f"tail_budget = 0.01\ntargets = {targets}")
    at = text.index("[[model]]")
    path.write_text(f"{text[:at]}{tables}\n{text[at:]}")
    return path


def inputs_of(path: Path) -> Inputs:
    return read_inputs(path, load_catalog(), NOW.date())


def study_of(path: Path, **more: object) -> Study:
    return study_quarter(path, load_catalog(), created_at=NOW, **more)


def committed(gpu: str, usd_per_h: float) -> Offer:
    """A commitment for a year on one GPU."""
    plain = offer(gpu, 1, usd_per_h)
    return plain.model_copy(update={"id": plain.id.replace("on_demand", "commit_1y"), "term": Term.COMMIT_1Y})


def with_offers(inputs: Inputs, *offers: Offer) -> Inputs:
    return replace(inputs, offers=replace(inputs.offers, usable=tuple(sorted(offers, key=lambda o: o.id))))
