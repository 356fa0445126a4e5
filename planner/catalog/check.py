"""Everything that can be wrong with a catalogue, found at once: tables, model configs, engine facts, dates."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.catalog.load import Catalog, load_catalog
from planner.catalog.offer import PriceKind
from planner.errors import InputError, Problems

STALE_AFTER_DAYS = 400
"""Age beyond which a price is counted as stale; the default of the request's ``policy.max_price_age_days``."""
NAMED_ENTRIES = 3
"""Entries of one file that a message names before it only counts them."""


@dataclass(frozen=True)
class CatalogCheck:
    """What a catalogue without problems holds.

    Attributes
    ----------
    as_of
        Day that dates were compared with.
    offers_per_provider
        Offers of each provider.
    offers_per_kind
        Offers by what their price is worth.
    offered_gpus
        GPU types with at least one offer.
    models_read
        Ids whose shape was read.
    models_refused
        Ids that the planner refuses to size, each with the reason.
    stale_offers
        Ids of offers older than `STALE_AFTER_DAYS` days.
    unverified
        GPU ids with the fields whose source is a recollection.
    """

    as_of: dt.date
    gpus: int
    offers: int
    engines: int
    offers_per_provider: Mapping[str, int]
    offers_per_kind: Mapping[PriceKind, int]
    offered_gpus: tuple[str, ...]
    models_read: tuple[str, ...]
    models_refused: Mapping[str, str]
    stale_offers: tuple[str, ...]
    unverified: Mapping[str, tuple[str, ...]]


def check_catalog(as_of: dt.date, root: Path | None = None) -> CatalogCheck:
    """Read everything that a catalogue holds and report what it is.

    Parameters
    ----------
    as_of
        Day of the check: a later date in the catalogue is a problem.
    root
        Catalogue folder; the default one if not given.

    Raises
    ------
    InputError
        Listing every problem found. Problems of the tables come first: while they stand, nothing else is read.
    """
    catalog = load_catalog(root)
    problems = Problems()
    _dates(catalog, as_of, problems)
    read, refused = _models(catalog, problems)
    engines = _engines(catalog, problems)
    problems.raise_if_any()
    return CatalogCheck(
        as_of=as_of,
        gpus=len(catalog.gpus),
        offers=len(catalog.offers),
        engines=engines,
        offers_per_provider=Counter(offer.provider for offer in catalog.offers),
        offers_per_kind=Counter(offer.price_kind for offer in catalog.offers),
        offered_gpus=tuple(sorted({offer.gpu for offer in catalog.offers})),
        models_read=read,
        models_refused=refused,
        stale_offers=tuple(o.id for o in catalog.offers if (as_of - o.as_of).days > STALE_AFTER_DAYS),
        unverified={gpu.id: gpu.unverified for gpu in catalog.gpus.values() if gpu.unverified},
    )


def _dates(catalog: Catalog, as_of: dt.date, problems: Problems) -> None:
    dated = [
        *((catalog.root / "gpus.csv", gpu.id, gpu.as_of) for gpu in catalog.gpus.values()),
        *((catalog.root / "offers" / f"{o.provider}.csv", o.id, o.as_of) for o in catalog.offers),
        *((catalog.root / "providers.csv", p.provider, p.as_of) for p in catalog.providers),
        *((catalog.root / "models" / "sources.csv", m.file, m.as_of) for m in catalog.model_sources.values()),
        *((catalog.root / "models" / "sources.csv", m.file, m.as_of) for m in catalog.quant_sources.values()),
        *((catalog.root / "models" / "aliases.csv", a.alias, a.as_of) for a in catalog.aliases.values()),
    ]
    late: dict[Path, list[tuple[str, dt.date]]] = {}
    for path, entry, date in dated:
        if date > as_of:
            late.setdefault(path, []).append((entry, date))
    for path, entries in late.items():
        named = ", ".join(f"{entry} ({date})" for entry, date in entries[:NAMED_ENTRIES])
        more = f" and {len(entries) - NAMED_ENTRIES} more" if len(entries) > NAMED_ENTRIES else ""
        fix = "Correct the date, or check with a later --as-of"
        problems.add(str(path), f"dated after {as_of}: {named}{more}", fix, field="as_of")


def _models(catalog: Catalog, problems: Problems) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Ids that were read, and refused ids with the reason; a refusal without a reason is a problem."""
    read: list[str] = []
    refused: dict[str, str] = {}
    for model_id in catalog.model_ids():
        try:
            catalog.model_shape(model_id)
        except InputError as error:
            reason = "; ".join(problem.message for problem in error.problems)
            refused[model_id] = reason
            if not reason:
                problems.add(model_id, "refused without a reason", "Say what the reader does not support")
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            path = catalog.root / "models" / catalog.model_sources[model_id].file
            problems.add(str(path), f"the reader fails: {error!r}", "Correct the config, or refuse it with a reason")
        else:
            read.append(model_id)
    return tuple(read), refused


def _engines(catalog: Catalog, problems: Problems) -> int:
    try:
        return len(catalog.engines)
    except InputError as error:
        problems.found.extend(error.problems)
        return 0
