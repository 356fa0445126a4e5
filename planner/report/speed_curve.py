"""Speed of a deployment against concurrency, as data: what charts and tables are drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner import units
from planner.memory.types import Sizing
from planner.plan import Measure, Pool
from planner.queueing.holding import holding_of, pool_token_equivalents
from planner.speed.chain import bands_of
from planner.speed.curve import Loads
from planner.speed.operating import closed_loop
from planner.speed.points import LoadKind, Point, Served
from planner.speed.types import Band, FloatArray, SpeedModel

MOST_CURVES = 6
"""That a chart can tell apart."""
DEFAULT_WIDTH_PX, LEAST_WIDTH_PX, MOST_WIDTH_PX = 1000, 420, 2400
"""Of a chart."""
POINTS_PER_DOUBLING = 4
LENGTH_TOLERANCE = 0.1
"""Measured prompts and outputs may be this share off a curve's and still belong to it."""


@dataclass(frozen=True)
class Series:
    """A figure along a curve: the prediction and its 80 % band."""

    low: tuple[float, ...]
    mid: tuple[float, ...]
    high: tuple[float, ...]


def decode_rate(tpot_ms: float | None) -> float | None:
    """Decode rate of one stream, tokens/s: 1000 / TPOT; unknown where TPOT is, or is no time."""
    return units.MS_PER_S / tpot_ms if tpot_ms else None


@dataclass(frozen=True)
class Planned:
    """Where a plan runs a replica: mean live requests, and the figures that its constraints saw."""

    concurrency: float
    tpot_ms: float
    ttft_ms: float
    output_tok_s: float
    note: str

    @property
    def decode_tok_s(self) -> float:
        """One stream's decode rate."""
        return units.MS_PER_S / self.tpot_ms


@dataclass(frozen=True)
class SpeedCurve:
    """Predicted speed of one replica in a closed loop.

    Attributes
    ----------
    label
        What tells this curve from the others of a chart.
    source
        Provider and source of the prediction.
    served
        The deployment; measured points of the same one belong to the curve.
    input_tokens, output_tokens
        Mean lengths of a request.
    concurrency
        Requests in the replica, rising.
    tpot_ms, ttft_ms
        At each concurrency.
    output_tok_s
        Of the whole replica. Its band has TPOT and TTFT both at their edge, so it holds more than 80 %.
    full_at, full_why
        Requests that run at once, and what allows no more; beyond it requests wait, and TTFT includes that. ``None``
        where the curve does not come so far.
    planned
        The operating point of a plan, if the curve belongs to one.
    """

    label: str
    source: str
    served: Served
    input_tokens: float
    output_tokens: float
    concurrency: tuple[float, ...]
    tpot_ms: Series
    ttft_ms: Series
    output_tok_s: Series
    full_at: float | None = None
    full_why: str = ""
    planned: Planned | None = None

    @property
    def decode_tok_s(self) -> Series:
        """Decode rate of one stream, tokens/s: 1000 / TPOT, so the slow edge of TPOT is the low one."""
        slow, mid, fast = (
            tuple(units.MS_PER_S / tpot for tpot in edge)
            for edge in (self.tpot_ms.high, self.tpot_ms.mid, self.tpot_ms.low)
        )
        return Series(slow, mid, fast)

    def covers(self, point: Point) -> bool:
        """Whether a measured point is one of this deployment, in a loop at about these lengths.

        The engine's version may differ; cached prompts and speculative decoding may not.
        """
        load = point.load
        return (
            _same_deployment(self.served, point.served)
            and load.kind in (LoadKind.CLOSED_LOOP, LoadKind.OPEN_LOOP)
            and load.concurrency is not None
            and math.isclose(load.input_tokens, self.input_tokens, rel_tol=LENGTH_TOLERANCE)
            and math.isclose(load.output_tokens, self.output_tokens, rel_tol=LENGTH_TOLERANCE)
            and load.cached_share == 0
            and load.acceptance == 1
        )


def _same_deployment(one: Served, other: Served) -> bool:
    return _identity(one) == _identity(other)


def _identity(served: Served) -> tuple[object, ...]:
    names = (served.engine.casefold(), served.model.casefold(), served.gpu.casefold())
    degrees = (served.tp, served.pp, served.ep, served.attention_dp, served.decode_only)
    return (*names, *degrees, served.weight_dtype, served.kv_dtype)


def concurrency_grid(low: float, high: float) -> tuple[float, ...]:
    """Concurrencies from ``low`` to ``high``, four for each doubling, every power of two among them.

    Parameters
    ----------
    low, high
        0 < low < high.
    """
    n = POINTS_PER_DOUBLING
    steps = range(math.ceil(math.log2(low) * n), math.floor(math.log2(high) * n) + 1)
    return tuple(sorted({float(low), float(high), *(2.0 ** (step / n) for step in steps)}))


@dataclass(frozen=True)
class Room:
    """Requests that a replica runs at once, and what allows no more."""

    requests: float
    why: str


UNLIMITED = Room(math.inf, "")


def room_of(sizing: Sizing, input_tokens: float, output_tokens: float) -> Room:
    """Requests of mean length, halfway through their output, that the pool holds, or ``max_num_seqs`` if fewer.

    All workers of data-parallel attention together. More requests wait in the queue.
    """
    held = holding_of(sizing).of_mean(input_tokens, output_tokens)
    in_pool = pool_token_equivalents(sizing) / held
    if in_pool < sizing.max_num_seqs:
        return Room(sizing.workers * in_pool, "KV pool")
    return Room(float(sizing.workers * sizing.max_num_seqs), "max_num_seqs")


def speed_curve(
    model: SpeedModel,
    served: Served,
    concurrency: Sequence[float],
    *,
    input_tokens: float,
    output_tokens: float,
    label: str,
    room: Room = UNLIMITED,
    planned: Planned | None = None,
) -> SpeedCurve:
    """The curve of a deployment: the closed loop at each concurrency, with the model's bands.

    Of N clients R = min(N, room) run, at the TPOT and TTFT of a closed loop of R, each at an edge of its band. With
    output length O the replica yields (Little's law), and a request waits for its turn,

        X = R O / (TTFT + (O − 1) TPOT)  tokens/s,     wait = (N − R) O / X,

    and TTFT + wait is what a client sees.

    Parameters
    ----------
    model
        Step times and bands, from any provider.
    served
        The deployment.
    concurrency
        Above 0, rising.
    input_tokens, output_tokens
        Mean lengths; an output has at least two tokens.
    label, planned
        As in `SpeedCurve`.
    room
        Requests that run at once.
    """
    knee = {room.requests} if concurrency[0] < room.requests < concurrency[-1] else set()
    clients = np.array(sorted({*concurrency, *knee}))
    running = np.minimum(clients, room.requests)
    at = closed_loop(model.coefficients, running, input_tokens, output_tokens)
    bands = bands_of(model, Loads(running, np.asarray(input_tokens), np.asarray(output_tokens)))
    tpot_s = [at.tpot_s * edge for edge in _edges([tpot for tpot, _ in bands])]
    service_s = [at.ttft_s * edge for edge in _edges([ttft for _, ttft in bands])]
    life_s = [ttft + (output_tokens - 1) * tpot for ttft, tpot in zip(service_s, tpot_s, strict=True)]
    ttft_s = [s + (clients - running) / running * life for s, life in zip(service_s, life_s, strict=True)]
    full = room.requests < clients[-1]
    return SpeedCurve(
        label=label,
        source=f"{model.provider}: {model.source.removeprefix(f'{model.provider} ')}",
        served=served,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=tuple(clients.tolist()),
        tpot_ms=_series([units.MS_PER_S * tpot for tpot in tpot_s]),
        ttft_ms=_series([units.MS_PER_S * ttft for ttft in ttft_s]),
        output_tok_s=_series([running * output_tokens / life for life in reversed(life_s)]),
        full_at=room.requests if full else None,
        full_why=room.why if full else "",
        planned=planned,
    )


def _edges(bands: Sequence[Band]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Low, middle and high multipliers at each concurrency."""
    low, high = (np.array([getattr(band, edge) for band in bands]) for edge in ("low", "high"))
    return low, np.ones_like(low), high


def _series(edges: Sequence[FloatArray]) -> Series:
    low, mid, high = (tuple(edge.tolist()) for edge in edges)
    return Series(low, mid, high)


def planned_point(pool: Pool) -> Planned:
    """The operating point of a pool's replica, at the edge of the band that the plan's constraints saw.

    Its TTFT is the percentile of the pool's target under arrivals at the planning rate, where a curve shows the
    typical TTFT of a closed loop: it lies higher.
    """
    speed, load = pool.speed, pool.load
    return Planned(
        concurrency=load.mean_live_requests,
        tpot_ms=speed.tpot_ms.used,
        ttft_ms=speed.ttft_ms.used,
        output_tok_s=load.rate_per_replica_per_s * pool.mean_output_tokens,
        note=f"planned: {load.mean_live_requests:,.1f} requests live on average, TPOT at {_edge_words(speed.tpot_ms)}, "
        f"TTFT P{100 * speed.ttft_percentile:g} with its queue at {_edge_words(speed.ttft_ms)}",
    )


def _edge_words(figure: Measure) -> str:
    return "the middle of its band" if figure.edge == "middle" else f"the {figure.edge} edge of its band"
