from __future__ import annotations

import numpy as np
import pytest

from planner.speed.facts import SpeedFacts
from planner.speed.fit.parameters import Parameter, era_name, facts_with, parameters, values_of
from planner.speed.fit.refit import differences


@pytest.fixture(scope="module")
def every(facts: SpeedFacts) -> tuple[Parameter, ...]:
    return parameters(tuple(facts.gpu), tuple(era_name(era) for era in facts.engine))


def test_value_by_hand() -> None:
    """A prior of 0.5 that moves by a tenth a deviation; the second, 0.9947 without its bound, bends to it."""
    fitted = (Parameter(("a",), 0.5, 0.1), Parameter(("b", "c"), 0.9, 0.1, most=0.95), Parameter(("d",), 2.0, 0.3))
    values = values_of(fitted, np.array([2.0, 1.0, 0.0]))
    assert values == {
        "a": pytest.approx(0.5 * np.exp(0.2)),
        "b.c": pytest.approx(0.9947 / (1 + (0.9947 / 0.95) ** 12) ** (1 / 12), rel=1e-4),
        "d": 2.0,
    }
    assert values["b.c"] < 0.95


def test_every_value_lands_in_its_place_and_nowhere_else(facts: SpeedFacts, every: tuple[Parameter, ...]) -> None:
    values = values_of(every, np.zeros(len(every)))
    base = facts_with(facts, values)
    for parameter in every:
        place = parameter.place
        if place[0] == "engine":
            index = [era_name(era) for era in facts.engine].index(place[1])
            expected = [f"engine.{index}.{place[2]}"]
        elif place[0] == "gpu":
            expected = [parameter.name]
        else:
            expected = [f"{parameter.name}.value"]
        if place[-1] == "fp8":
            expected.append(f"{place[0]}.int8.value")  # not measured: follows
        moved = facts_with(facts, values | {parameter.name: 0.9 * values[parameter.name]})
        assert differences(moved, base) == sorted(expected)


def test_what_is_not_fitted_stays(facts: SpeedFacts, every: tuple[Parameter, ...]) -> None:
    found = facts_with(facts, values_of(every, np.ones(len(every))))
    for name in ("as_of", "ttft_floor_ms", "bandwidth_efficiency_default", "tpot_bands", "ttft_bands", "cautions"):
        assert getattr(found, name) == getattr(facts, name)
    assert [fit.gpus for fit in found.gpu.values()] == [fit.gpus for fit in facts.gpu.values()]


def test_names_are_unique_and_priors_are_within_their_bounds(every: tuple[Parameter, ...]) -> None:
    assert len({parameter.name for parameter in every}) == len(every)
    assert all(0 < parameter.prior <= parameter.most and parameter.spread > 0 for parameter in every)


def test_eras_of_one_engine_are_told_apart(facts: SpeedFacts) -> None:
    newest = facts.engine[0].model_copy(update={"before_version": ""})
    older = newest.model_copy(update={"before_version": "0.8"})
    assert (era_name(newest), era_name(older)) == (newest.engine, f"{newest.engine}<0.8")
