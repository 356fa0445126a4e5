"""How a row's GPUs are split into replicas: degrees in the planner's terms, from what each layout writes.

``tp`` counts the GPUs of a replica (of a pipeline stage); ``attention_dp`` of them hold different requests.

Silicon points write other terms. Of 365 aggregated rows with expert parallelism, 247 carry products of the degrees that
were started with: measurements equal to the last digit occur under both (Qwen3.5 on H200 as tp 64, moe_tp 8, moe_ep 8
and as tp 8, moe_ep 8), and ids say ``tp8_ep8``. They are taken back:

=====================================  =============================  ==============================================
as written                             example                        read as
=====================================  =============================  ==============================================
moe_tp = moe_ep = d, tp x dp = d²      tp 64, moe_tp 8, moe_ep 8      tp d, ep d; attention_dp d where dp > 1
dp = tp = d, moe_tp 1, moe_ep d²       tp 4, dp 4, moe_ep 16          tp d, ep d, attention_dp d
dp > 1                                 tp 1, dp 8, moe_ep 8           tp x dp GPUs, attention_dp as written
tp over 8, moe_ep 1                    tp 36, moe_tp 36               no answer: 36 GPUs of several workers, of which
                                                                      the row does not say how they are split
anything else                          tp 8, moe_ep 8                 as written
=====================================  =============================  ==============================================

A disaggregated point describes its decode workers: ``decode_tp`` GPUs each, ``decode_workers`` of them, which share the
concurrency (``decode_batch`` is concurrency / decode_workers). Without their number there is no answer: taking one
worker is wrong by a factor of 1.3 to 3.8 in the median.

Measured throughput may leave ``tp`` out and give ``gpus`` only:

- ``ep`` as large as ``gpus``, or ``DEP4`` in the notes: data-parallel attention over all of them;
- MLPerf: replicas of the least degree (1, 2, 4, 8) whose GPUs hold the weights in `WEIGHTS_SHARE` of their memory;
- any other source (Argonne, dstack): tensor parallelism over all of them.

``tp`` below ``gpus`` means gpus / (tp x pp) replicas that share the load.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from planner import units
from planner.catalog.gpu import Gpu
from planner.errors import InputError, Problem
from planner.memory.loading import Loading
from planner.memory.weights import weight_bytes
from planner.speed.cases.checkpoints import Stored
from planner.speed.cases.layouts import Cells, Layout

WEIGHTS_SHARE = 0.6
"""Most of a GPU's memory that weights take where the degree is not given: the rest is for the cache."""
NODE_DEGREES = (1, 2, 4, 8)
MOST_DEGREE = 1024
_DEP = re.compile(r"\bDEP(\d{1,3})\b")


@dataclass(frozen=True)
class Split:
    """Degrees of a replica, and how many replicas share the load."""

    tp: int
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1
    replicas: int = 1
    decode_only: bool = False
    notes: tuple[str, ...] = ()


def split_of(layout: Layout, cells: Cells, stored: Stored, gpu: Gpu, engine: str) -> Split:
    """The degrees of a row.

    Raises
    ------
    InputError
        If none is given, or they cannot be: attention_dp that does not divide tp, or ranks that do not divide the
        attention heads.
    """
    if layout is Layout.SILICON:
        disaggregated = cells.text("mode").casefold().startswith("disagg")
        split = _decode_workers(cells) if disaggregated else _silicon(cells)
    else:
        split = _stated(cells, stored, gpu, engine)
    if split.tp % split.attention_dp:
        message = f"{split.attention_dp} does not divide tp {split.tp}, which counts all GPUs of a replica"
        raise InputError(Problem("row", message, field="attention_dp"))
    heads, ranks = stored.shape.attention_heads, split.tp // split.attention_dp
    if ranks > 1 and heads % ranks:
        message = f"{heads} attention heads of {stored.shape.id} cannot be split into {ranks}"
        raise InputError(Problem("row", message, field="tp"))
    return split


def _silicon(cells: Cells) -> Split:
    """Degrees of an aggregated silicon point by the table of the module."""
    tp, dp = _degree(cells, "tp"), _degree(cells, "attention_dp") or 1
    moe_tp, moe_ep = _degree(cells, "moe_tp") or 1, _degree(cells, "moe_ep") or 1
    pp = _degree(cells, "pp") or 1
    if tp is None:
        raise InputError(Problem("row", "is empty", field="tp"))
    if moe_tp == moe_ep > 1 and tp * dp == moe_ep**2:
        note = f"tp {tp} and attention_dp {dp} are products of degrees of {moe_ep}"
        return Split(moe_ep, pp, moe_ep, moe_ep if dp > 1 else 1, notes=(note,))
    if dp == tp > 1 and moe_tp == 1 and moe_ep == tp * dp:
        return Split(tp, pp, tp, dp, notes=(f"moe_ep {moe_ep} is the product of tp {tp} and attention_dp {dp}",))
    if tp > NODE_DEGREES[-1] and moe_ep == 1:
        message = f"{tp} GPUs of an aggregated point: how they are split into workers is not given"
        raise InputError(Problem("row", message, field="tp"))
    return Split(tp * dp, pp, moe_ep, dp)


def _decode_workers(cells: Cells) -> Split:
    """The decode workers of a disaggregated point: GPUs of each, and their number."""
    tp, workers = _degree(cells, "decode_tp"), _degree(cells, "decode_workers")
    if tp is None:
        raise InputError(Problem("row", "is empty: the decode worker is not described", field="decode_tp"))
    batch, total = cells.number("decode_batch"), cells.number("concurrency")
    if workers is None and batch is not None and total is not None and batch > 0:
        workers = max(1, round(total / batch))
    if workers is None:
        message = "is empty: how many workers share the concurrency is not known"
        raise InputError(Problem("row", message, field="decode_workers"))
    return Split(tp, replicas=workers, decode_only=True)


def _stated(cells: Cells, stored: Stored, gpu: Gpu, engine: str) -> Split:
    """Degrees of a load point or of a row of measured throughput."""
    pp, ep, dp = (_degree(cells, name) or 1 for name in ("pp", "ep", "attention_dp"))
    tp, gpus = _degree(cells, "tp"), _degree(cells, "gpus")
    replicas = _degree(cells, "replicas") or 1
    if tp is not None:
        shared, rest = divmod(gpus or tp * pp, tp * pp)
        note = (f"{gpus} GPUs are no multiple of tp {tp} x pp {pp}: gpus is not looked at",) if rest else ()
        return Split(tp, pp, ep, dp, replicas if rest else max(replicas, shared), notes=note)
    if gpus is None:
        raise InputError(Problem("row", "is empty, and so is gpus", field="tp"))
    attention = _DEP.search(cells.text("notes"))
    if gpus > 1 and (ep == gpus or (attention and int(attention.group(1)) == gpus)):
        return Split(gpus, pp, gpus, gpus, notes=(f"data-parallel attention over the {gpus} GPUs",))
    if engine.startswith("mlperf"):
        degree = _least_degree(stored, gpu, gpus)
        return Split(degree, 1, replicas=gpus // degree, notes=(f"{gpus // degree} replicas of tp {degree} assumed",))
    note = (f"tp {gpus} assumed over the {gpus} GPUs",) if gpus > 1 else ()
    return Split(max(1, gpus // pp), pp, ep, dp, replicas, notes=note)


def _least_degree(stored: Stored, gpu: Gpu, gpus: int) -> int:
    """The least degree of a node whose GPUs hold the weights with room for a cache; the largest where none does."""
    degrees = [degree for degree in NODE_DEGREES if gpus % degree == 0]
    room = WEIGHTS_SHARE * units.gib_to_bytes(gpu.visible_memory_gib)
    fitting = (d for d in degrees if weight_bytes(stored.shape, stored.weights, Loading(d)).total <= room)
    return next(fitting, degrees[-1])


def _degree(cells: Cells, column: str) -> int | None:
    """A degree; 0 and an empty cell say nothing.

    Raises
    ------
    InputError
        If it is negative or absurd.
    """
    value = cells.whole(column)
    if value is None or value == 0:
        return None
    if not 1 <= value <= MOST_DEGREE or not math.isfinite(value):
        raise InputError(Problem("row", f"must be from 1 to {MOST_DEGREE} (got {value})", field=column))
    return value
