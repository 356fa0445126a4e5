"""What replicas can stand on: lots of instances, the supplies that they fill, and how replicas fill an instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.offer import Offer, Term
from planner.errors import InputError, Problem
from planner.optimise.supply.lots import (
    bought_lot,
    bought_offer,
    guessed_draw,
    held_lot,
    held_names,
    owned_lot,
    owned_offer,
    rented_lot,
)
from planner.optimise.supply.notes import caveats_of
from planner.optimise.types import Lot, Period, Placement, Supply
from planner.request import MultiNode, PlanRequest


@dataclass(frozen=True)
class Supplied:
    """All that can be had, sorted by id, and what a signer must know about it."""

    supplies: tuple[Supply, ...]
    lots: tuple[Lot, ...]
    caveats: tuple[str, ...]

    def on(self, lots: Sequence[Lot]) -> Supplied:
        """The same with fewer lots, and only the supplies that they fill."""
        kept = {lot.supply for lot in lots}
        return Supplied(tuple(s for s in self.supplies if s.id in kept), tuple(lots), self.caveats)


def supplies_of(
    request: PlanRequest, offers: Sequence[Offer], periods: Sequence[Period], catalog: Catalog, where: str
) -> Supplied:
    """Everything that the request's fleet may stand on.

    Parameters
    ----------
    request
        Passed `supply_checks.check_supply`.
    offers
        What `offers.allowed_offers` found usable; existing commitments come from the whole catalogue.
    periods
        Of the horizon: what leaves during a period is not there in it.
    where
        The request file, for problems.

    Raises
    ------
    InputError
        If nothing is left to stand on.
    """
    supplies: dict[str, Supply] = {}
    lots: list[Lot] = []

    def stand(offer: Offer) -> str:
        supply = supply_of(offer, request, catalog.gpus)
        return supplies.setdefault(supply.id, supply).id

    usable, left_out = _usable(request, offers, catalog.gpus)
    for offer in usable:
        lot = rented_lot(offer, supply_of(offer, request, catalog.gpus).id, request, catalog.gpus, len(periods))
        if lot is None:
            left_out.setdefault("no capacity block is as long as the horizon", []).append(offer)
        else:
            stand(offer)
            lots.append(lot)
    for name, row in held_names(request.commitment):
        offer = catalog.offer(row.offer)
        lots.append(held_lot(row, name, offer, stand(offer), request, catalog.gpus, periods))
    lots += [owned_lot(r, stand(owned_offer(r, request)), request, periods) for r in request.owned if r.instances]
    lots += [
        bought_lot(r, stand(bought_offer(r, request)), request, periods) for r in request.buying if r.max_instances
    ]
    if not lots:
        raise InputError(Problem(where, "no instances can be had", "; ".join(sorted(left_out)), field="offers"))
    ordered = tuple(sorted(lots, key=lambda lot: lot.id))
    caveats = caveats_of(request, ordered, periods, left_out, catalog.gpus)
    return Supplied(tuple(supplies[key] for key in sorted(supplies)), ordered, caveats)


def supply_of(offer: Offer, request: PlanRequest, gpus: Mapping[str, Gpu]) -> Supply:
    """The supply that instances of an offer belong to: those that are alike for every replica of the request.

    Instances of one replica that spans several stand in one place: there, providers, regions and types are told apart.
    """
    gpu, size, spot = gpus[offer.gpu], int(offer.gpus_per_instance), offer.term is Term.SPOT
    alike = regions_alike(request, offer.region)
    # The speed of a replica over machines is that of their network only where it takes whole machines.
    linked = size >= gpu.max_gpus_per_node and network_of(request.multi_node, offer) is not None
    words = [f"{gpu.id} x{size}"]
    if linked:
        words.append(f"linked at {offer.provider}/{offer.instance_type}/{offer.region or 'any'}")
    elif tells_regions(request):
        words.append(f"in {' or '.join(alike)}" if alike else "elsewhere")
    if spot:
        words.append("spot")
    return Supply(
        id=" ".join(words),
        gpu=gpu.id,
        gpus_per_instance=size,
        region=alike[0] if alike else "",
        spot=spot,
        usable_share=1.0 - request.policy.spot_reserve if spot else 1.0,
        nvlink_domain=fast_domain(gpu, size),
        multi_node=linked,
    )


def fast_domain(gpu: Gpu, gpus_per_instance: int) -> int:
    """GPUs of an instance that one fast domain links, 0 where that is all of them.

    On PCIe the link's printed bandwidth is that of the whole machine, so nothing is split there. Speeds of NVLink and
    Infinity Fabric hold inside a domain only.
    """
    split = gpu.interconnect != "pcie" and 1 < gpu.scale_up_domain < gpus_per_instance
    return gpu.scale_up_domain if split else 0


def tells_regions(request: PlanRequest) -> bool:
    """Whether regions matter for where replicas stand; quotas and sites act on lots, which have theirs anyway."""
    return any(model.regions or model.survives_region_loss for model in request.model)


def regions_alike(request: PlanRequest, region: str) -> tuple[str, ...]:
    """Regions that are alike for every model of the request, sorted, with this one among them; none: elsewhere.

    A region stands alone where a model that must survive the loss of one may use it. Else those are alike that the
    same models list, and those that no model lists are all alike.
    """
    lists = [frozenset(model.regions) for model in request.model if model.regions]
    spread = [frozenset(model.regions) for model in request.model if model.survives_region_loss]
    if any(not regions or region in regions for regions in spread):
        return (region,) if region else ()
    named = {name for regions in lists for name in regions}
    if region not in named:
        return ()
    same = [name for name in named if all((name in regions) == (region in regions) for regions in lists)]
    return tuple(sorted(same))


def network_of(rows: Iterable[MultiNode], offer: Offer) -> float | None:
    """Bandwidth between instances of an offer, GB/s a GPU: the least of the rows that match; ``None``: not linked."""
    found = [
        row.network_gb_s
        for row in rows
        if all(
            wanted in ("", actual)
            for wanted, actual in ((row.provider, offer.provider), (row.gpu, offer.gpu), (row.offer, offer.id))
        )
    ]
    return min(found, default=None)


def network_gb_s(request: PlanRequest, lots: Iterable[Lot]) -> dict[str, float]:
    """Bandwidth that replicas over several instances have, by GPU id: the least of the lots that are linked, GB/s."""
    least: dict[str, float] = {}
    for lot in lots:
        found = network_of(request.multi_node, lot.offer)
        if found is not None:
            least[lot.offer.gpu] = min(found, least.get(lot.offer.gpu, found))
    return dict(sorted(least.items()))


def can_stand(placement: Placement, supply: Supply) -> bool:
    """Whether replicas of a placement can stand on instances of a supply.

    The GPU type is the same; on spot only what may be interrupted; in a region that the placement allows; and the
    replica fits one fast domain of an instance, or takes whole instances that are linked for it.
    """
    return (
        placement.gpu == supply.gpu
        and (placement.interruptible or not supply.spot)
        and (not placement.regions or supply.region in placement.regions)
        and room(supply, placement.gpus_per_replica) > 0
    )


def room(supply: Supply, degree: int) -> int:
    """GPUs of one instance that replicas of ``degree`` GPUs can use.

    An instance of S GPUs that are all linked holds ``floor(S/d) * d``. Where a fast domain has N < S GPUs, no replica
    straddles two: ``floor(S/N) * floor(N/d) * d``, and the GPUs left over, S mod N, are one more domain. A replica
    larger than an instance takes whole ones: S where S divides d and the supply is multi-node, else 0.
    """
    size = supply.gpus_per_instance
    if degree > size:
        return size if supply.multi_node and degree % size == 0 else 0
    domain = min(supply.nvlink_domain or size, size)
    whole, rest = divmod(size, domain)
    return whole * (domain // degree) * degree + (rest // degree) * degree


def instances_per_replica(placement: Placement, supply: Supply) -> int:
    """Instances that one replica stands on: 1, or whole ones where it is larger than an instance."""
    return max(1, placement.gpus_per_replica // supply.gpus_per_instance)


def _usable(
    request: PlanRequest, offers: Sequence[Offer], gpus: Mapping[str, Gpu]
) -> tuple[list[Offer], dict[str, list[Offer]]]:
    """Offers that can be planned with, and those left out, by why."""
    interruptible = any(model.interruptible for model in request.model)
    kept: list[Offer] = []
    out: dict[str, list[Offer]] = {}
    for offer in offers:
        if offer.term is Term.SPOT and not interruptible:
            out.setdefault("no model is interruptible, so spot is of no use", []).append(offer)
        elif guessed_draw(offer, request, gpus).lacks(request.policy):
            why = "a cap on power or carbon is asked for, and their [[site]] row or their GPU's tdp_w is missing"
            out.setdefault(why, []).append(offer)
        else:
            kept.append(offer)
    return kept, out
