"""The provider chain: measured curve, measured point on a model, kernel measurements, roofline.

The first provider that is allowed and can answer is taken; a measurement corrects the model that would be taken
without it. Whatever answers carries its source and its bands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, Problem
from planner.memory.types import Sizing
from planner.speed.curve import Loads
from planner.speed.facts import SpeedFacts, load_speed_facts
from planner.speed.measured import NOTHING_MEASURED, MeasuredSet, measured_model
from planner.speed.prior import SpeedPrior, load_prior
from planner.speed.roofline import speed_model
from planner.speed.types import Band, SpeedModel

MEASURED, SILICON, ROOFLINE = "measured", "aiconfigurator", "roofline"
PROVIDERS = (MEASURED, SILICON, ROOFLINE)
"""Names of the providers, best first."""

Silicon = Callable[[ModelShape, Gpu, Sizing], SpeedModel | str]
"""Kernel measurements of a deployment, or why there are none."""


@dataclass(frozen=True)
class SpeedSources:
    """Everything that speeds may come from.

    Attributes
    ----------
    version
        Engine version that is planned, as asked; empty: that of the engine's facts.
    providers
        Those that may answer, first choice first. A measurement needs one of the others to correct.
    silicon
        The optional provider; ``None`` where it is not installed or not wanted.
    """

    facts: SpeedFacts
    prior: SpeedPrior
    measured: MeasuredSet = NOTHING_MEASURED
    providers: tuple[str, ...] = (MEASURED, ROOFLINE)
    version: str = ""
    silicon: Silicon | None = None


def load_sources(root: Path) -> SpeedSources:
    """The built-in provider's facts from a catalogue folder, nothing measured.

    Raises
    ------
    InputError
        If either file of facts cannot be used.
    """
    return SpeedSources(load_speed_facts(root), load_prior(root))


def speed_of(
    shape: ModelShape, gpu: Gpu, sizing: Sizing, sources: SpeedSources, expected: Loads | None = None
) -> SpeedModel:
    """The step-time model of a deployment from the best provider that has it.

    Parameters
    ----------
    shape, gpu, sizing
        The deployment.
    sources
        What was measured, and the models.
    expected
        Loads at which a measured deployment's band is wanted.

    Raises
    ------
    InputError
        If no allowed provider can answer, with every provider's reason.
    """
    base = _first_model(shape, gpu, sizing, sources)
    if MEASURED not in sources.providers:
        return base
    match = sources.measured.match(sizing, sources.version or sizing.engine_version)
    return base if match is None else measured_model(base, match, sizing, sources.prior, expected)


def bands_of(model: SpeedModel, loads: Loads) -> tuple[tuple[Band, Band], ...]:
    """Bands of TPOT and TTFT at each load: a measured model's are narrow near the measurements."""
    if model.bands_at is not None:
        return model.bands_at(loads)
    return ((model.tpot_band, model.ttft_band),) * int(np.size(loads.clients))


def _first_model(shape: ModelShape, gpu: Gpu, sizing: Sizing, sources: SpeedSources) -> SpeedModel:
    """The first model in the order asked; its source says which better ones had nothing."""
    reasons: list[str] = []
    for name in sources.providers:
        if name == SILICON:
            found = sources.silicon(shape, gpu, sizing) if sources.silicon else "not installed"
        elif name == ROOFLINE:
            found = speed_model(shape, gpu, sizing, sources.facts)
        else:
            continue
        if isinstance(found, SpeedModel):
            return replace(found, source="; ".join([found.source, *reasons])) if reasons else found
        reasons.append(f"no {name}: {found}")
    where = f"{shape.id} on {gpu.id}"
    fix = f"Add {ROOFLINE} to the providers of [speed]; a measurement corrects it"
    raise InputError(Problem(where, f"no model of its speed ({'; '.join(reasons) or 'none is allowed'})", fix))
