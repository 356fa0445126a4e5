"""The inputs of another future: what was read once, with factors on what differs.

arrivals      growth factor of the request and of the rates  x  growth
prices        USD per hour of every offer that may be rented  x  price      contracts that are signed stay
targets       TPOT and TTFT, ms, of models and tenants  x  targets
tail budgets  share of requests, of models and tenants  x  tail
electricity   USD per kWh of every site  x  electricity
quotas        floor(GPUs  x  quotas)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from planner.catalog.offer import Offer
from planner.inputs import Inputs, ModelInputs
from planner.request import ModelRequest, PlanRequest, Quota, Site, Targets, TenantRequest
from planner.request_study import Adjustments

ROUNDING = 1e-9
"""GPUs that a product of a whole number and a decimal factor may lie below the whole number that is meant."""


def adjust(inputs: Inputs, change: Adjustments, label: str = "") -> Inputs:
    """The inputs under a change; logs, shapes and speeds are those that were read.

    Parameters
    ----------
    label
        Why a price is not the catalogue's, such as ``scenario High: prices x 1.1``: put into the offers' notes.

    Raises
    ------
    InputError
        If the engine version is unknown.
    """
    request = adjusted(inputs.request, change)
    under = inputs.under(request)
    offers = tuple(_offer(offer, change, label) for offer in inputs.offers.usable)
    return replace(
        under,
        models=tuple(_model(model, change) for model in under.models),
        offers=replace(inputs.offers, usable=offers),
        facts=inputs.catalog.engine(request.engine.name, request.engine.version),
    )


def adjusted(request: PlanRequest, change: Adjustments) -> PlanRequest:
    """The request under a change; prices of offers are no part of it."""
    engine, policy = request.engine, request.policy
    if change.engine_version:
        engine = engine.model_copy(update={"version": change.engine_version})
    if change.speed_edge:
        policy = policy.model_copy(update={"speed_edge": change.speed_edge})
    return request.model_copy(
        update={
            "engine": engine,
            "policy": policy,
            "model": tuple(
                _request(model, change) if touches(change, model.name) else model for model in request.model
            ),
            "site": tuple(_site(site, change.electricity) for site in request.site),
            "quota": tuple(_quota(quota, change.quotas) for quota in request.quota),
        }
    )


def touches(change: Adjustments, model: str) -> bool:
    """Whether the factors on arrivals, targets and tail budgets hold for a model."""
    return not change.models or model in change.models


def repriced(change: Adjustments, offer: Offer) -> bool:
    """Whether the factor on prices holds for an offer."""
    return (not change.providers or offer.provider in change.providers) and (
        not change.gpus or offer.gpu in change.gpus
    )


def _model(model: ModelInputs, change: Adjustments) -> ModelInputs:
    if change.growth == 1.0 or not touches(change, model.request.name):
        return model
    return replace(model, rates=replace(model.rates, growth=model.rates.growth * change.growth))


def _offer(offer: Offer, change: Adjustments, label: str) -> Offer:
    if change.price == 1.0 or not repriced(change, offer):
        return offer
    note = f"{label or f'prices x {change.price:g}'} (catalogue: {offer.usd_per_h:g} USD/h)"
    notes = f"{offer.notes}; {note}" if offer.notes else note
    return offer.model_copy(update={"usd_per_h": offer.usd_per_h * change.price, "notes": notes})


def _request(model: ModelRequest, change: Adjustments) -> ModelRequest:
    update: dict[str, object] = {}
    if change.growth != 1.0:
        update["traffic"] = model.traffic.model_copy(update={"growth": model.traffic.growth * change.growth})
    if change.targets != 1.0:
        update["targets"] = _targets(model.targets, change.targets)
    if change.tail != 1.0:
        update["tail_budget"] = model.tail_budget * change.tail
    if change.targets != 1.0 or change.tail != 1.0:
        update["tenant"] = tuple(_tenant(tenant, change) for tenant in model.tenant)
    return model.model_copy(update=update) if update else model


def _tenant(tenant: TenantRequest, change: Adjustments) -> TenantRequest:
    update: dict[str, object] = {}
    if tenant.targets is not None:
        update["targets"] = _targets(tenant.targets, change.targets)
    if tenant.tail_budget is not None:
        update["tail_budget"] = tenant.tail_budget * change.tail
    return tenant.model_copy(update=update)


def _targets(targets: Targets, factor: float) -> Targets:
    stated: Mapping[str, float | None] = {"tpot_ms": targets.tpot_ms, "ttft_ms": targets.ttft_ms}
    return targets.model_copy(update={key: value * factor for key, value in stated.items() if value is not None})


def _site(site: Site, factor: float) -> Site:
    return site if factor == 1.0 else site.model_copy(update={"usd_per_kwh": site.usd_per_kwh * factor})


def _quota(quota: Quota, factor: float) -> Quota:
    if factor == 1.0:
        return quota
    return quota.model_copy(update={"max_gpus": math.floor(quota.max_gpus * factor + ROUNDING)})
