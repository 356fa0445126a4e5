"""The live tokens of a replica at a stated decode rate and prefill time, from a traffic distribution alone.

No engine, no GPU: the question that comes before them. The rate is that of the busiest stationary stretch of the log,
the burstiness that at the scale of a request's life, and the doubt about the rate what the stretch itself shows of it
(`planner.traffic.stretch`, `planner.queueing.residence.sampling_cv2`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from planner.queueing.footprint import Marks, marks_held, moments_of
from planner.queueing.holding import Holding
from planner.queueing.live_tokens import (
    LiveLoad,
    MeanFormula,
    live_tokens_batch,
    mean_formula,
    request_quantile,
    thinned_idc,
)
from planner.queueing.residence import Residence, dispersion_scale_s, sampling_cv2
from planner.traffic.burstiness import idc_at
from planner.traffic.law import truncate
from planner.traffic.stretch import Stretch, busiest_stretch
from planner.traffic.types import Traffic

STRESS = 1.2
"""The stress line takes this many times the rate."""
PLAIN = Holding(full=1.0, sliding=0.0, block_tokens=16, window_tokens=0, reserve_tokens=0, state=0.0)


class Routing(StrEnum):
    """How requests find their replica."""

    RANDOM = "random"
    """Each by itself: a burst is spread over all replicas, IDC_n − 1 = (IDC − 1) / n."""
    AFFINITY = "affinity"
    """Sessions stay where they are: a burst may hit one replica whole, so its index of dispersion is kept."""


@dataclass(frozen=True)
class Ask:
    """What is asked of a traffic distribution.

    Attributes
    ----------
    decode_tokens_per_s
        Of one stream at the planned concurrency.
    prefill_s
        From admission to the first token, the same for every prompt.
    overflow
        Share of the time in which the live tokens may exceed the quantile.
    replicas
        Equal parts of the traffic.
    rate_per_s
        Of all replicas together; without it, that of the busiest stationary stretch of the log.
    rate_cv
        How unsure that rate is, as a coefficient of variation; without it, what the stretch shows.
    max_model_len
        Longer requests are refused.
    """

    decode_tokens_per_s: float
    prefill_s: float
    overflow: float = 0.01
    replicas: int = 1
    rate_per_s: float | None = None
    rate_cv: float | None = None
    routing: Routing = Routing.RANDOM
    holding: Holding = PLAIN
    max_model_len: int | None = None


@dataclass(frozen=True)
class Figures:
    """Live load of one replica at one rate, token-equivalents and requests."""

    rate_per_s: float
    mean_tokens: float
    quantile_tokens: float
    mean_requests: float
    quantile_requests: float


@dataclass(frozen=True)
class PlannedLoad:
    """The answer; every figure is of one replica but ``rate_per_s``, which is of all of them.

    ``idc`` is that of the whole traffic at ``idc_scale_s``, ``replica_idc`` what is left of it at one replica.
    """

    rate_per_s: float
    replica: Figures
    stress: Figures
    idc: float
    replica_idc: float
    idc_scale_s: float
    rate_cv: float
    formula: MeanFormula
    stretch: Stretch
    requests: int
    mean_prompt: float
    mean_output: float
    refused_share: float
    ask: Ask = field(repr=False)

    @property
    def ratio_to_formula(self) -> float:
        """True mean over the product-of-means figure."""
        return self.replica.mean_tokens / self.formula.live_tokens


def planned_load(traffic: Traffic, ask: Ask) -> PlannedLoad:
    """Mean and quantile of the live tokens of one replica.

    Raises
    ------
    InputError
        If ``max_model_len`` refuses every request, or no burst can be measured and none is stated.
    ValueError
        If the rate is 0.
    """
    law = traffic.law if ask.max_model_len is None else truncate(traffic, ask.max_model_len)
    kept = law.requests / traffic.law.requests
    stretch = busiest_stretch(traffic)
    rate = (stretch.rate_per_s if ask.rate_per_s is None else ask.rate_per_s) * kept
    marks = marks_held(law, ask.holding)
    moments = moments_of(marks, law)
    stay = Residence(*(np.asarray(v) for v in (ask.prefill_s, 0.0, 0.0, 1.0 / ask.decode_tokens_per_s)))
    scale_s = float(dispersion_scale_s(moments, stay))
    idc = idc_at(traffic.burst, scale_s)
    own_idc = float(thinned_idc(idc, ask.replicas)) if ask.routing is Routing.RANDOM else idc
    cv2 = _rate_cv2(ask, stretch, marks, stay, law.requests)
    load = LiveLoad(rate / ask.replicas, own_idc, marks, moments, stay, cv2)
    stressed = LiveLoad(STRESS * load.rate_per_s, own_idc, marks, moments, stay, cv2)
    found = live_tokens_batch([load, stressed], ask.overflow)
    figures = [
        _figures(one, tokens.quantile(ask.overflow), ask) for one, tokens in zip((load, stressed), found, strict=True)
    ]
    return PlannedLoad(
        rate_per_s=rate,
        replica=figures[0],
        stress=figures[1],
        idc=idc,
        replica_idc=own_idc,
        idc_scale_s=scale_s,
        rate_cv=float(np.sqrt(cv2)),
        formula=mean_formula(load.rate_per_s, law.mean_prompt, law.mean_output, ask.decode_tokens_per_s, ask.prefill_s),
        stretch=stretch,
        requests=law.requests,
        mean_prompt=law.mean_prompt,
        mean_output=law.mean_output,
        refused_share=1.0 - kept,
        ask=ask,
    )


def _rate_cv2(ask: Ask, stretch: Stretch, marks: Marks, stay: Residence, requests: int) -> float:
    if ask.rate_cv is not None:
        return ask.rate_cv**2
    return stretch.wander_cv2 + sampling_cv2(marks, stay, requests, max(stretch.arrivals, 1.0))


def _figures(load: LiveLoad, quantile: float, ask: Ask) -> Figures:
    """What all requests share is held once, whether or not one is live."""
    shared = float(ask.holding.full * ask.holding.shared_tokens)
    live = load.rate_per_s * float(load.stay.mean_s(load.moments))
    return Figures(
        rate_per_s=load.rate_per_s,
        mean_tokens=load.mean + shared,
        quantile_tokens=quantile + shared,
        mean_requests=live,
        # Beside the bursts, an upper bound on the live count's own dispersion, the doubt about the rate.
        quantile_requests=float(request_quantile(live, load.idc + load.rate_cv2 * live, ask.overflow)),
    )
