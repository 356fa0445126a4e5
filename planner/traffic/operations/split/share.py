"""One model cut into random shares."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import renamed
from planner.traffic.operations.multiples import exact
from planner.traffic.operations.scale import BurstRule, scale_burst
from planner.traffic.operations.split.parts import Band, chosen_models, rates_of_band, together, without_models


def by_share(canonical: Canonical, shares: Mapping[str, float], model: str = "") -> Canonical:
    """One model as several, each a random share of its requests: ``chat/a``, ``chat/b``.

    Arrivals and tokens of each minute go to the parts in proportion, so that the parts add up exactly; the index of
    dispersion less one shrinks with the share. The lengths, all observed requests of them, are those of every part.

    Raises
    ------
    InputError
        If the shares do not add up to 1, or the model is not there or not the only one.
    """
    chosen = _one_model(canonical, model)
    _check_shares(canonical, shares, chosen)
    parts, reached = [without_models(canonical, [chosen])], Fraction(0)
    own = without_models(canonical, [other for other in canonical.models() if other != chosen])
    for name, share in shares.items():
        part, start = f"{chosen}/{name}", reached
        reached = min(reached + exact(share), Fraction(1))
        parts.append(_share_of(own, chosen, part, (start, reached)))
    typed = ", ".join(f"{name} {share:.12g}" for name, share in shares.items())
    remarks = [
        f"{chosen}: its parts are random shares; each has the lengths of all observed requests, so the parts' requests "
        "must not be added",
        f"{chosen}: batches and largest counts of its parts are those before the split, an upper bound",
    ]
    return together(canonical, parts, f"split {chosen} by shares: {typed}", remarks)


def _one_model(canonical: Canonical, model: str) -> str:
    models = canonical.models()
    if not model and len(models) > 1:
        fix = f"Add --model with one of: {', '.join(models[:20])}"
        raise InputError(Problem("--share", "the distribution holds several models", fix))
    return chosen_models(canonical, [model] if model else [])[0]


def _check_shares(canonical: Canonical, shares: Mapping[str, float], model: str) -> None:
    problems = Problems()
    if any(not 0 < share < 1 for share in shares.values()):
        problems.add("--share", "every share must be between 0 and 1", "Such as a=0.7,b=0.3")
    elif sum(map(exact, shares.values())) != 1:
        problems.add("--share", f"the shares add up to {sum(shares.values()):.12g}", "They must add up to 1")
    for name in shares:
        if f"{model}/{name}" in canonical.manifest.models:
            problems.add("--share", f"would make {model}/{name} a second time", "Use another name")
    problems.raise_if_any()


def _share_of(own: Canonical, model: str, name: str, band: Band) -> Canonical:
    """The share between two points of the unit interval."""
    names = {model: name}
    manifest = own.manifest
    caps = {name: manifest.caps[model]} if model in manifest.caps else {}
    return Canonical(
        manifest.model_copy(update={"models": {name: manifest.models[model]}, "caps": caps}),
        lengths=renamed(own.lengths, names),
        tail=renamed(own.tail, names),
        rates=rates_of_band(own.rates, name, (band, band, band)),
        burst=renamed(scale_burst(own.burst, float(band[1] - band[0]), BurstRule.AMPLIFY), names),
        prefix=None if own.prefix is None else renamed(own.prefix, names),
    )
