"""What to try when a replica would not start, cheapest first, each tried by sizing it.

The order is that of what a change costs: settings that are put right, a shorter ``max_model_len``, an fp8 cache, less
kept for activations and graphs, no vision tower, another division among the ranks, quantised weights, more GPUs; a
larger share of the GPU's memory comes last, since what runs above the pool needs the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.rules.device_rules import MOST_OF_HOST
from planner.memory.size import size
from planner.memory.types import Deployment, GivenTerms, KvDtype, Sizing, WeightDtype

LEAST_USEFUL_LENGTH = 256
"""A cap below this serves nobody."""
LEAST_BATCHED_TOKENS = 2048
"""Halving ``max_num_batched_tokens`` stops here: prompts would be computed in too small pieces."""
LEAST_SEQUENCES = 32
"""Halving ``max_num_seqs`` stops here."""
MOST_UTILIZATION = 0.94
"""From 0.95 on too little is left for what is allocated outside the budget."""
WORTH = 1.01
"""A setting that does not let the replica start at the asked length must allow one longer by this than a cap alone."""
DEGREE_RULES = frozenset(
    {
        "attention heads % tp",
        "KV heads % tp",
        "state heads % tp",
        "expert width % tp",
        "MLP width % tp",
        "vocabulary % tp",
        "fp8 block",
        "quantisation group",
        "bitsandbytes % tp",
        "page sizes",
        "attention dp",
    }
)
"""Refusals that a lower tensor-parallel degree may lift."""
FORMAT_RULES = frozenset(
    {
        "dtype support",
        "weight format",
        "quantisation method",
        "GPTQ ordering",
        "fp8 block",
        "quantisation group",
        "bitsandbytes % tp",
    }
)
"""Refusals that another weight format may lift."""


@dataclass(frozen=True)
class Fix:
    """One change and what it gives."""

    change: str
    sizing: Sizing


@dataclass(frozen=True)
class Change:
    """One change to try.

    Attributes
    ----------
    minor
        A setting that frees little: only worth naming where it lets the replica start, or serve longer requests than a
        shorter ``max_model_len`` alone.
    """

    text: str
    deployment: Deployment
    given: GivenTerms
    minor: bool = False


@dataclass(frozen=True)
class Refused:
    """The deployment that would not start, and the world it would run in."""

    shape: ModelShape
    gpu: Gpu
    facts: EngineFacts
    deployment: Deployment
    given: GivenTerms
    sizing: Sizing

    @property
    def rules(self) -> frozenset[str]:
        """Names of the rules that refuse it."""
        return frozenset(refusal.rule for refusal in self.sizing.refusals)

    @property
    def predicted(self) -> GivenTerms:
        """Typed terms that still hold once format or degree of parallelism change."""
        return replace(self.given, weights_gib=None)

    def sized(self, deployment: Deployment, given: GivenTerms | None = None) -> Sizing:
        """Another deployment of the same model on the same GPU."""
        return size(self.shape, self.gpu, self.facts, deployment, given or self.given)


def fixes(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, given: GivenTerms, refused: Sizing
) -> tuple[Fix, ...]:
    """Changes that make it start, in the order of what they cost.

    Settings that contradict each other or the model are put right together. Every other change is tried alone on the
    refused deployment, and with the longest max_model_len that then fits where the asked one does not. Weights typed by
    the user no longer hold once their format or degree changes, and are predicted instead.
    """
    case = Refused(shape, gpu, facts, deployment, given, refused)
    found = list(_put_right(case))
    shorter = _shortened(case, deployment, given, refused)
    if shorter is not None:
        found.append(Fix(f"cap max_model_len at {shorter.max_model_len:,}", shorter))
    capped = shorter.max_model_len if shorter is not None else 0
    for family in (_cache_format, _settings, _divided_otherwise, _weight_formats, _more_gpus, _utilization):
        found.extend(_tried(case, family, capped))
    return tuple({fix.change: fix for fix in reversed(found)}.values())[::-1]


def _tried(case: Refused, family: Callable[[Refused], Iterator[Change]], capped: int) -> Iterator[Fix]:
    """What starts of a family of changes; of degrees of parallelism, none above the first that serves in full."""
    for change in family(case):
        sizing = case.sized(change.deployment, change.given)
        suffix = ""
        if not sizing.starts:
            shorter = _shortened(case, change.deployment, change.given, sizing)
            if shorter is None or (change.minor and shorter.max_model_len < capped * WORTH):
                continue
            sizing, suffix = shorter, f" and cap max_model_len at {shorter.max_model_len:,}"
        yield Fix(change.text + suffix, sizing)
        longest = case.shape.max_position_embeddings
        if gpus(change.deployment) > gpus(case.deployment) and (not suffix or sizing.max_model_len == longest):
            return


def gpus(deployment: Deployment) -> int:
    """GPUs of a replica."""
    return deployment.tp * deployment.pp


def _put_right(case: Refused) -> Iterator[Fix]:
    """Every setting that is refused whatever the memory, corrected together; at no cost but what was asked for."""
    texts, deployment = [], case.deployment
    for rules, correct in CORRECTIONS:
        if case.rules & rules:
            text, deployment = correct(case, deployment)
            texts.append(text)
    if not texts and not case.rules & DEGREE_RULES:
        return
    for changed, degree in _degrees(case, deployment):
        wrong = [*texts, degree] if degree else texts
        text = " and ".join(filter(None, (", ".join(wrong[:-1]), wrong[-1])))
        terms = case.given if changed.tp == case.deployment.tp else case.predicted
        sizing = case.sized(changed, terms)
        if not sizing.starts:
            shorter = _shortened(case, changed, terms, sizing)
            if shorter is None:
                continue
            sizing, text = shorter, f"{text}, max_model_len {shorter.max_model_len:,}"
        yield Fix(text, sizing)
        return


def _degrees(case: Refused, deployment: Deployment) -> Iterator[tuple[Deployment, str]]:
    """The degrees that divide what ranks divide, where that is refused: the largest below first, then those above."""
    if not case.rules & DEGREE_RULES:
        yield deployment, ""
        return
    below = [tp for tp in (8, 4, 2, 1) if tp < deployment.tp]
    above = [tp for tp in (2, 4, 8, 16) if deployment.tp < tp <= case.gpu.max_gpus_per_node // deployment.pp]
    for tp in below + above:
        changed = replace(deployment, tp=tp, attention_dp=1)
        if not DEGREE_RULES & {refusal.rule for refusal in case.sized(changed, case.predicted).refusals}:
            yield changed, _degree(tp)


Corrected = tuple[str, Deployment]


def _fewer_seqs(case: Refused, deployment: Deployment) -> Corrected:
    state_blocks = "state blocks" in case.rules and case.sizing.num_blocks
    seqs = case.sizing.num_blocks if state_blocks else case.sizing.max_num_batched_tokens
    seqs = min(seqs, case.sizing.max_num_batched_tokens)
    return f"max_num_seqs {seqs:,}", replace(deployment, max_num_seqs=seqs)


def _plain_cache(case: Refused, deployment: Deployment) -> Corrected:
    return "16-bit KV cache", replace(deployment, kv_dtype=KvDtype.BF16, kv_cache_dtype_name="")


def _lora_rank(case: Refused, deployment: Deployment) -> Corrected:
    """The next rank that is accepted, or the largest."""
    assert deployment.lora is not None
    ranks = sorted(case.facts.vllm.lora_ranks)
    rank = next((each for each in ranks if each >= deployment.lora.max_rank), ranks[-1])
    return f"LoRA rank {rank}", replace(deployment, lora=replace(deployment.lora, max_rank=rank))


def _no_flags(case: Refused, deployment: Deployment) -> Corrected:
    """Flags that do not suit the model, left out."""
    if case.facts.name == "vllm":
        return "default attention backend", replace(deployment, vllm=replace(deployment.vllm, attention_backend=""))
    flags = deployment.sglang
    left = [
        name
        for rule, name in (
            ("attention backend", "attention_backend"),
            ("language only", "language_only"),
            ("page size", "page_size_tokens"),
            ("unified memory", "unified_memory"),
        )
        if rule in case.rules
    ]
    plain = replace(flags, **{name: getattr(type(flags)(), name) for name in left})
    return f"without {', '.join(name.replace('_', ' ') for name in left)}", replace(deployment, sglang=plain)


def _less_swap(case: Refused, deployment: Deployment) -> Corrected:
    """The most whole GiB per GPU that the host's memory allows."""
    host = deployment.vllm.host_memory_gib or 0.0
    share = math.floor(MOST_OF_HOST * host / deployment.tp)
    return f"swap_space {share}", replace(deployment, vllm=replace(deployment.vllm, swap_space_gib=share))


def _no_stages(case: Refused, deployment: Deployment) -> Corrected:
    """Tensor parallelism over the same GPUs."""
    degree = gpus(deployment)
    return f"TP {degree} without stages", replace(deployment, tp=degree, pp=1)


CORRECTIONS: tuple[tuple[frozenset[str], Callable[[Refused, Deployment], Corrected]], ...] = (
    (frozenset({"scheduler budget", "state blocks"}), _fewer_seqs),
    (frozenset({"fp8 KV support", "KV cache format"}), _plain_cache),
    (frozenset({"LoRA rank"}), _lora_rank),
    (frozenset({"LoRA"}), lambda _, deployment: ("no LoRA", replace(deployment, lora=None))),
    (
        frozenset({"decode context parallelism"}),
        lambda _, deployment: ("no decode context parallelism", replace(deployment, dcp=1)),
    ),
    (
        frozenset({"expert parallelism"}),
        lambda _, deployment: ("no expert parallelism", replace(deployment, expert_parallel=False)),
    ),
    (frozenset({"pipeline parallelism"}), _no_stages),
    (frozenset({"swap space"}), _less_swap),
    (
        frozenset({"speculative decoding"}),
        lambda _, deployment: ("no speculative decoding", replace(deployment, speculative=None)),
    ),
    (
        frozenset({"block size"}),
        lambda _, deployment: (
            "default block size",
            replace(deployment, vllm=replace(deployment.vllm, block_size_tokens=None)),
        ),
    ),
    (
        frozenset({"dtype"}),
        lambda _, deployment: ("default dtype", replace(deployment, vllm=replace(deployment.vllm, dtype=""))),
    ),
    (
        frozenset({"free memory"}),
        lambda _, deployment: ("default gpu_memory_utilization", replace(deployment, gpu_memory_utilization=None)),
    ),
    (frozenset({"attention backend", "language only", "page size", "unified memory"}), _no_flags),
)
"""Settings that an engine refuses whatever the memory, and what to write instead."""


def _cache_format(case: Refused) -> Iterator[Change]:
    deployment = case.deployment
    if deployment.kv_dtype is not KvDtype.FP8:
        yield Change("fp8 KV cache", replace(deployment, kv_dtype=KvDtype.FP8), case.given)


def _settings(case: Refused) -> Iterator[Change]:
    """Less kept for a step, no graphs, no vision tower: each frees memory without touching what is served."""
    deployment, sizing, given = case.deployment, case.sizing, case.given
    tokens = _halved(case, sizing.max_num_batched_tokens, LEAST_BATCHED_TOKENS, _with_batched_tokens)
    if tokens is not None:
        text = f"max_num_batched_tokens {tokens.max_num_batched_tokens:,}"
        yield Change(text, tokens, given, minor=True)
    seqs = _halved(case, sizing.max_num_seqs, LEAST_SEQUENCES, _with_seqs)
    if seqs is not None:
        yield Change(f"max_num_seqs {seqs.max_num_seqs:,}", seqs, given, minor=True)
    if not deployment.enforce_eager:
        eager = replace(deployment, enforce_eager=True)
        if case.sized(eager).available_kv_gib > sizing.available_kv_gib:
            yield Change("no CUDA graphs (slower steps)", eager, given, minor=True)
    if case.facts.name == "vllm" and case.shape.vision_encoder is not None and not deployment.vllm.language_model_only:
        text_only = replace(deployment, vllm=replace(deployment.vllm, language_model_only=True))
        if case.sized(text_only, case.predicted).available_kv_gib > sizing.available_kv_gib:
            yield Change("text only (--language-model-only)", text_only, case.predicted)


def _with_batched_tokens(deployment: Deployment, sizing: Sizing, tokens: int) -> Deployment:
    return replace(deployment, max_num_batched_tokens=tokens, max_num_seqs=min(sizing.max_num_seqs, tokens))


def _with_seqs(deployment: Deployment, sizing: Sizing, seqs: int) -> Deployment:
    return replace(deployment, max_num_seqs=seqs, max_num_batched_tokens=sizing.max_num_batched_tokens)


def _halved(
    case: Refused, value: int, least: int, changed: Callable[[Deployment, Sizing, int], Deployment]
) -> Deployment | None:
    """The setting halved until the replica starts, or to the least; ``None`` where that frees nothing."""
    last = None
    value //= 2
    while value >= least:
        last = changed(case.deployment, case.sizing, value)
        if case.sized(last).starts:
            return last
        value //= 2
    return last if last is not None and case.sized(last).available_kv_gib > case.sizing.available_kv_gib else None


def _weight_formats(case: Refused) -> Iterator[Change]:
    deployment, predicted = case.deployment, case.predicted
    if deployment.weight_dtype is WeightDtype.BF16:
        yield Change("fp8 weights", replace(deployment, weight_dtype=WeightDtype.FP8), predicted)
    if deployment.weight_dtype in (WeightDtype.BF16, WeightDtype.FP8):
        yield Change("int4 (AWQ) weights", replace(deployment, weight_dtype=WeightDtype.INT4_AWQ), predicted)
    if deployment.weight_dtype is not WeightDtype.BF16 and case.rules & FORMAT_RULES:
        yield Change("16-bit weights", replace(deployment, weight_dtype=WeightDtype.BF16), predicted)


def _divided_otherwise(case: Refused) -> Iterator[Change]:
    """Where the number of ranks is what is wrong: experts whole, or fewer ranks. And attention by data on SGLang."""
    deployment, predicted = case.deployment, case.predicted
    if case.rules & DEGREE_RULES:
        if case.shape.is_moe and not deployment.expert_parallel:
            yield Change("expert parallelism", replace(deployment, expert_parallel=True), predicted)
        for tp in (8, 4, 2, 1):
            if tp < deployment.tp:
                yield Change(_degree(tp), replace(deployment, tp=tp, attention_dp=1, dcp=1), predicted)
    latent = case.shape.has_latent_cache
    if case.facts.name == "sglang" and latent and deployment.attention_dp == 1 < deployment.tp:
        text = f"data-parallel attention (--dp {deployment.tp})"
        yield Change(text, replace(deployment, attention_dp=deployment.tp), predicted, minor=True)


def _more_gpus(case: Refused) -> Iterator[Change]:
    """More ranks in one machine; stages where heads do not divide."""
    deployment, predicted, most = case.deployment, case.predicted, case.gpu.max_gpus_per_node
    for tp in (2, 4, 8, 16):
        if tp > deployment.tp and tp * deployment.pp <= most:
            yield Change(_degree(tp), replace(deployment, tp=tp), predicted)
            stages = tp // deployment.tp
            if case.shape.attention_heads % tp and tp % deployment.tp == 0:
                text = f"{gpus(deployment) * stages} GPUs (TP {deployment.tp}, PP {deployment.pp * stages})"
                yield Change(text, replace(deployment, pp=deployment.pp * stages), predicted)


def _degree(tp: int) -> str:
    return f"{tp} GPU{'s' if tp > 1 else ''} (TP {tp})"


def _utilization(case: Refused) -> Iterator[Change]:
    """The smallest share, in steps of a hundredth, that starts; else the largest that is safe."""
    share = case.sizing.utilization
    if share >= MOST_UTILIZATION or case.sizing.available_kv_gib >= case.sizing.gpu_memory.gib:
        return
    name = "mem_fraction_static" if case.facts.name == "sglang" else "gpu_memory_utilization"
    hundredths = range(int(share * 100) + 1, round(MOST_UTILIZATION * 100) + 1)
    last = None
    for hundredth in hundredths:
        last = replace(case.deployment, gpu_memory_utilization=hundredth / 100)
        if case.sized(last).starts:
            break
    if last is not None:
        text = f"{name} {last.gpu_memory_utilization:g} (leaves less for what is outside the budget)"
        yield Change(text, last, case.given, minor=True)


def _shortened(case: Refused, deployment: Deployment, given: GivenTerms, sizing: Sizing) -> Sizing | None:
    """The same with the longest max_model_len that starts, by bisection; ``None`` where none does."""

    def capped(length: int) -> Sizing:
        return case.sized(replace(deployment, max_model_len=length), given)

    low, high = LEAST_USEFUL_LENGTH, min(sizing.max_model_len - 1, case.shape.max_position_embeddings)
    if high < low or not capped(low).starts:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if capped(middle).starts:
            low = middle
        else:
            high = middle - 1
    return capped(low)
