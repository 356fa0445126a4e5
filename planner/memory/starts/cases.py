"""Answers to a table of cases: every row goes through `size` as it was started.

A row that cannot be answered says why and does not stop the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.catalog.gpu import Gpu
from planner.catalog.lookup.lookup import Lookup
from planner.catalog.model_shape import AttentionFamily, ModelShape
from planner.errors import InputError, Problem
from planner.memory.size import size
from planner.memory.starts.case_rows import Case
from planner.memory.starts.case_start import Start, start_of
from planner.memory.starts.case_texts import weight_format
from planner.memory.types import Deployment, GivenTerms, KvDtype, Sizing, VllmFlags
from planner.memory.vllm.sizing import ONE_REQUEST


@dataclass(frozen=True)
class Answer:
    """What is predicted for a case.

    Attributes
    ----------
    sizing
        ``None`` where the row cannot be answered.
    reasons
        Why it cannot be answered, or why the engine refuses.
    notes
        What was assumed.
    family
        Attention family of the model, where it was found.
    assumed
        What the row leaves open and decides the answer: ``GPU``, ``version``, ``utilization``,
        ``max_model_len``.
    """

    sizing: Sizing | None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    family: str = ""
    assumed: tuple[str, ...] = ()


def answer(case: Case, lookup: Lookup) -> Answer:
    """Size the case; what stands in the way is a reason, never an exception."""
    try:
        return _sized(start_of(case, lookup), lookup)
    except InputError as error:
        found = _of_any_model(case, lookup)
        return found or Answer(None, tuple(_reason(problem) for problem in error.problems))


def _reason(problem: Problem) -> str:
    """The problem without its remedy, which one row of a table has no use for."""
    return str(replace(problem, fix=""))


ANY_MODEL = "meta-llama/Meta-Llama-3.1-8B"
"""A model without a peculiarity, in whose place every other is refused for its weight format."""


def _of_any_model(case: Case, lookup: Lookup) -> Answer | None:
    """The refusal of a weight format by the GPU, which holds for every model; ``None`` where it is not refused.

    A plain model of 16 bits stands in for the one that is not known, on one GPU of boundless memory, in the format that
    the row or the model's name states.
    """
    stated, dtype = weight_format(f"{case.weights} {case.model}")
    if not stated or dtype is None or not case.gpu:
        return None
    deployment = Deployment(1, dtype, KvDtype.BF16, vllm=VllmFlags(dtype=case.deployment.vllm.dtype))
    given = GivenTerms(gpu_memory_gib=BOUNDLESS_GIB)
    stand_in = replace(case, model=ANY_MODEL, config_file="", weights=dtype, kv="", deployment=deployment, given=given)
    try:
        start = start_of(stand_in, lookup)
    except InputError:
        return None
    if start.gpu is None:
        return None
    found = _answer(start, start.gpu, start.given, f"model not known: {dtype} weights of every model are refused")
    return found if found.sizing is not None and not found.sizing.starts else None


FALLBACK_GPU = "H100-SXM"
BOUNDLESS_GIB = 100_000.0
"""Memory of a GPU on which only rules that hold everywhere refuse."""


def _sized(start: Start, lookup: Lookup) -> Answer:
    """Size the start; without a GPU that is known, say what can be said without one.

    With the available memory given, only rules of layout need a GPU, and a Hopper card stands in. Without, a start that
    is refused on a GPU of boundless memory is refused on every one; any other cannot be told.

    Raises
    ------
    InputError
        Where it cannot be told.
    """
    if start.gpu is not None:
        return _at_some_length(start, _answer(start, start.gpu, start.given))
    stand_in = lookup.gpu(FALLBACK_GPU).found
    if start.given.available_gib is not None:
        found = _answer(start, stand_in, start.given, f"GPU not known: cache layout of {stand_in.id}")
        return _at_some_length(replace(start, gpu=stand_in), found)
    boundless = replace(start.given, gpu_memory_gib=BOUNDLESS_GIB)
    found = _answer(start, stand_in, boundless, "GPU not known: refused on every one")
    if found.sizing is not None and found.sizing.starts:
        assert start.unknown_gpu is not None
        raise start.unknown_gpu
    return found


def _at_some_length(start: Start, found: Answer) -> Answer:
    """The answer where the row states no ``max_model_len`` and the model's own does not fit: that of the longest one.

    A table that leaves the length out does not say that the default was used.
    """
    sizing = found.sizing
    if sizing is None or start.gpu is None or not start.length_open or not only_too_long(sizing):
        return found
    shortest, longest = 0, sizing.max_model_len
    while longest - shortest > 1:
        middle = (shortest + longest) // 2
        deployment = replace(start.deployment, max_model_len=middle)
        if size(start.shape, start.gpu, start.facts, deployment, start.given).starts:
            shortest = middle
        else:
            longest = middle
    if not shortest:
        return found
    assumed = replace(
        start,
        deployment=replace(start.deployment, max_model_len=shortest),
        notes=(*found.notes, f"max_model_len is not given: {shortest:,}, the longest that fits, is assumed"),
        assumed=(*start.assumed, "max_model_len"),
    )
    return _answer(assumed, start.gpu, start.given)


def only_too_long(sizing: Sizing) -> bool:
    """Whether nothing but the length of a request is refused."""
    return bool(sizing.refusals) and all(refusal.rule == ONE_REQUEST for refusal in sizing.refusals)


LOADING_RULES = frozenset(
    {
        "GPTQ ordering",
        "GPU generation",
        "KV heads % tp",
        "bitsandbytes % tp",
        "dtype",
        "dtype support",
        "expert width % tp",
        "fp8 block",
        "quantisation group",
        "state heads % tp",
        "weight format",
    }
)
"""Rules that an engine applies while it builds and loads the model, after its planning code has run."""


def _answer(start: Start, gpu: Gpu, given: GivenTerms, note: str = "") -> Answer:
    sizing = size(start.shape, gpu, start.facts, start.deployment, given)
    notes = (*start.notes, note) if note else start.notes
    if start.planning_only:
        loading = [refusal.rule for refusal in sizing.refusals if refusal.rule in LOADING_RULES]
        sizing = replace(sizing, refusals=tuple(r for r in sizing.refusals if r.rule not in LOADING_RULES))
        notes = (*notes, f"loading the model is refused: {', '.join(loading)}") if loading else notes
    reasons = tuple(f"{refusal.rule}: {refusal.message}" for refusal in sizing.refusals)
    return Answer(sizing, reasons, notes, family_of(start.shape), start.assumed)


def family_of(shape: ModelShape) -> str:
    """Attention family, hybrids by what their other layers keep."""
    if shape.state_layers:
        return "state hybrid"
    return "sliding hybrid" if shape.family is AttentionFamily.HYBRID else str(shape.family)
