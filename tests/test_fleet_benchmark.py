"""The instances of the fleet benchmark are what they are said to be: as many offers and models, all real, seeded."""

from __future__ import annotations

import pytest

from planner.catalog.load import load_catalog
from planner.optimise.supply.offers import undominated
from planner.optimise.supply.supplies import supplies_of
from planner.optimise.types import Caps, Period
from planner.traffic.week import FLAT
from tests.benchmarks.fleet_real import SHIFTS_H, SIZES, SOURCES, WEEKS, WEIGHTS, Library, instance, shifted
from tests.optimise.world import lengths, traffic

CATALOG = load_catalog()
READ = Library(
    tuple(traffic(source.path, *lengths(number)) for number, source in enumerate(SOURCES)),
    (FLAT,) * (len(WEEKS) * len(SHIFTS_H)),
)
"""Logs and weeks stand in for those that take seconds to read."""


@pytest.mark.parametrize(("size", "models", "offers"), [("small", 20, 12), ("medium", 60, 20), ("large", 200, 25)])
def test_every_offer_of_an_instance_is_a_choice_that_no_other_offer_replaces(size, models, offers):
    inputs = instance(SIZES[size], 0, CATALOG, READ)
    assert len(inputs.models) == models
    supplied = supplies_of(inputs.request, inputs.offers.usable, (Period("all", 2160.0),), CATALOG, "request")
    assert len(undominated(supplied.lots, (), Caps())) == offers
    sizes = {int(offer.gpus_per_instance) for offer in inputs.offers.usable}
    assert sizes >= {1, 4, 8}, "single GPUs, halves of nodes, nodes"


def test_the_large_instance_has_models_of_more_than_forty_weights_that_read_its_longest_prompts():
    names = [model.shape.id for model in instance(SIZES["large"], 0, CATALOG, READ).models]
    assert len(set(names)) == len(set(WEIGHTS)) == len(WEIGHTS) > 40
    assert all(CATALOG.model_shape(name).max_position_embeddings >= 131_072 for name in WEIGHTS)


def test_a_seed_gives_one_instance_and_another_seed_another():
    first, again, other = (instance(SIZES["small"], seed, CATALOG, READ) for seed in (3, 3, 4))
    assert first.request == again.request
    assert first.request != other.request
    assert {model.max_pools for model in first.request.model} == {2, 3}


def test_a_shifted_week_is_the_same_hours_later():
    """168 hours in a circle: what was at hour 5 is at hour 13; the hours of holidays stay."""
    week = type(FLAT)(FLAT.mean.cumsum(), FLAT.peak.cumsum())
    later = shifted(week, 8)
    assert (later.mean[13], later.mean[2]) == (week.mean[5], week.mean[162])
    assert later.peak[168:].tolist() == week.peak[168:].tolist()
