"""What a future differs in, in words."""

from __future__ import annotations

from collections.abc import Iterator

from planner.request_study import Adjustments, Driver

NO_CHANGE = "as the request"
_WORDS = {
    Driver.GROWTH: "arrivals",
    Driver.PRICE: "prices",
    Driver.TARGETS: "latency targets",
    Driver.TAIL: "tail budgets",
    Driver.ELECTRICITY: "electricity",
    Driver.QUOTAS: "quotas",
}
_BY_MODEL = frozenset({Driver.GROWTH, Driver.TARGETS, Driver.TAIL})


def driver_words(driver: Driver, change: Adjustments) -> str:
    """What a driver multiplies, such as ``prices of aws, H100-SXM``."""
    names: tuple[str, ...] = ()
    if driver in _BY_MODEL:
        names = change.models
    elif driver is Driver.PRICE:
        names = (*change.providers, *change.gpus)
    return _WORDS[driver] + (f" of {', '.join(names)}" if names else "")


def words_of(change: Adjustments) -> str:
    """All that a future differs in, such as ``arrivals x 1.3; quotas x 0.5``."""
    return "; ".join(_differences(change)) or NO_CHANGE


def differing(change: Adjustments) -> tuple[Driver, ...]:
    """Drivers whose factor is not 1."""
    return tuple(driver for driver in Driver if getattr(change, driver.value) != 1.0)


def _differences(change: Adjustments) -> Iterator[str]:
    for driver in differing(change):
        yield f"{driver_words(driver, change)} x {getattr(change, driver.value):g}"
    if change.engine_version:
        yield f"engine version {change.engine_version}"
    if change.speed_edge:
        yield f"{change.speed_edge} edge of the speed band"
