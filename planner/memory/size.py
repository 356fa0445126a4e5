"""Size one replica: what the GPU has, what is taken, and the pool that is left.

`size` is pure and cheap (it searches only when a deployment is refused), so that an optimiser may call it for every
candidate.
"""

from __future__ import annotations

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, Problem
from planner.memory.sglang.sizing import size_sglang
from planner.memory.types import Deployment, GivenTerms, Sizing, WeightDtype
from planner.memory.vllm.replica import Replica
from planner.memory.vllm.sizing import size_vllm

MODELLED_DTYPES = frozenset(WeightDtype)
MOST_GIB = 1e6
"""Largest memory that may be typed, GiB."""
MOST_COUNT = 2**31 - 1
"""Largest count that may be typed: what the engines' 32-bit sizes hold."""


def size(
    shape: ModelShape,
    gpu: Gpu,
    facts: EngineFacts,
    deployment: Deployment,
    given: GivenTerms | None = None,
    replica: Replica | None = None,
) -> Sizing:
    """Size one replica.

        available = utilization x memory − weights − overheads
        blocks = floor(available / bytes_per_block)

    Parameters
    ----------
    shape
        The model.
    gpu
        The GPU that each rank runs on.
    facts
        Rules and overheads of the engine's version.
    deployment
        How the replica is started.
    given
        Terms typed by the user, which replace predictions.
    replica
        What another deployment has found out that differs from this one in its caps alone, to save time. SGLang's
        sizing makes no use of it.

    Returns
    -------
    Sizing
        Also for a deployment that the engine would refuse; ``refusals`` then lists every reason.

    Raises
    ------
    InputError
        If a number of the deployment or of the typed terms is out of range, whatever the model and the GPU: what an
        engine would refuse is a `Refusal`.
    """
    given = given or GivenTerms()
    check_terms(deployment, given)
    if facts.name == "sglang":
        return size_sglang(shape, gpu, facts, deployment, given)
    return size_vllm(shape, gpu, facts, deployment, given, replica)


def stored_dtype(shape: ModelShape) -> WeightDtype:
    """The format of the checkpoint, when its bytes are modelled.

    Raises
    ------
    InputError
        If the checkpoint is stored in a format whose bytes are not modelled.
    """
    if shape.native_weight_dtype in MODELLED_DTYPES:
        return WeightDtype(shape.native_weight_dtype)
    raise InputError(
        Problem(
            shape.id,
            f"the checkpoint's weight format is not modelled ({shape.native_weight_dtype})",
            f"Choose one of {', '.join(sorted(MODELLED_DTYPES))} with --weights, or give --weights-gib",
            field="quantization_config",
        )
    )


def check_terms(deployment: Deployment, given: GivenTerms) -> None:
    """Whether the typed numbers are in range.

    Raises
    ------
    InputError
        Listing every one that is not; ``field`` is the attribute's name.
    """
    problems = []
    for name, value in (
        ("tp", deployment.tp),
        ("pp", deployment.pp),
        ("dcp", deployment.dcp),
        ("attention_dp", deployment.attention_dp),
        ("block_size_tokens", deployment.vllm.block_size_tokens),
        ("page_size_tokens", deployment.sglang.page_size_tokens),
        ("cuda_graph_max_batch", deployment.sglang.cuda_graph_max_batch),
        ("max_total_tokens", deployment.sglang.max_total_tokens),
        ("max_model_len", deployment.max_model_len),
        ("max_num_seqs", deployment.max_num_seqs),
        ("max_num_batched_tokens", deployment.max_num_batched_tokens),
    ):
        if value is not None and not 1 <= value <= MOST_COUNT:
            message = f"must be from 1 to {MOST_COUNT:,} (got {_shown(value)})"
            problems.append(Problem("deployment", message, field=name))
    share = deployment.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        problems.append(Problem("deployment", f"must be above 0 and at most 1 (got {share})", field="utilization"))
    for name, gib, least in (
        ("gpu_memory_gib", given.gpu_memory_gib, "above 0"),
        ("weights_gib", given.weights_gib, "at least 0"),
        ("overhead_gib", given.overhead_gib, "at least 0"),
        ("free_before_weights_gib", given.free_before_weights_gib, "above 0"),
    ):
        if gib is not None and not (0 <= gib <= MOST_GIB and (gib > 0 or least == "at least 0")):
            message = f"must be {least} and at most {MOST_GIB:,.0f} GiB (got {gib:g})"
            problems.append(Problem("deployment", message, field=name))
    if given.available_gib is not None and not abs(given.available_gib) <= MOST_GIB:
        message = f"must be at most {MOST_GIB:,.0f} GiB (got {given.available_gib:g})"
        problems.append(Problem("deployment", message, field="available_gib"))
    if problems:
        raise InputError(problems)


def _shown(value: int) -> str:
    text = str(value)
    return text if len(text) <= 20 else f"a number of {len(text)} digits"
