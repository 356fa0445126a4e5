"""What vLLM takes from its budget besides weights and pool: activation peak, memory outside PyTorch, CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from planner import units
from planner.catalog.engine import EngineFacts, TpFigure
from planner.catalog.model_shape import ModelShape
from planner.memory.types import Origin, Term

BYTES_OF_LOGIT = 4
BYTES_16BIT = 2


def at_tp(figures: Sequence[TpFigure], tp: int) -> float:
    """The figure that holds at a tensor-parallel degree, GiB."""
    return max((figure for figure in figures if figure.min_tp <= tp), key=lambda figure: figure.min_tp).gib


def sampler_gib(shape: ModelShape, facts: EngineFacts, max_num_seqs: int) -> float:
    """Peak of the sampler's dummy run: ``copies x max_num_seqs x vocabulary x 4 B``; not divided by tp."""
    logits = max_num_seqs * shape.vocab_size * BYTES_OF_LOGIT
    return facts.vllm.sampler_copies * units.bytes_to_gib(logits) + facts.vllm.sampler_constant_gib


def forward_gib(shape: ModelShape, facts: EngineFacts, batched_tokens: int, tp: int) -> float:
    """Peak of the forward pass: ``copies x tokens x (3 x width / tp + 4 x hidden) x 2 B``.

    ``width`` is the widest feed-forward of a token: the dense MLP, or the experts that it is routed to together.
    """
    routed = shape.experts_per_token * shape.moe_intermediate_size + shape.shared_expert_intermediate_size
    width = routed if shape.is_moe else shape.intermediate_size
    per_token = (3 * width / tp + 4 * shape.hidden_size) * BYTES_16BIT
    return facts.vllm.forward_copies * units.bytes_to_gib(batched_tokens * per_token)


def vllm_overheads(
    shape: ModelShape, facts: EngineFacts, tp: int, max_num_seqs: int, batched_tokens: int
) -> tuple[Term, ...]:
    """The terms that vLLM measures at start-up, predicted, in the order of its log."""
    sampler = sampler_gib(shape, facts, max_num_seqs)
    forward = forward_gib(shape, facts, batched_tokens, tp)
    if sampler >= forward:
        activation = Term(
            "activation peak (sampler)", sampler, facts.origin("sampler_copies"), facts.source("sampler_copies")
        )
    else:
        activation = Term(
            "activation peak (forward pass)", forward, facts.origin("forward_copies"), facts.source("forward_copies")
        )
    terms = [
        activation,
        Term(
            "memory outside PyTorch (CUDA context, NCCL)",
            at_tp(facts.vllm.non_torch_gib, tp),
            facts.origin("non_torch_gib"),
            facts.source("non_torch_gib"),
        ),
    ]
    if facts.vllm.cudagraph_deducted:
        terms.append(
            Term(
                "CUDA graphs (estimate)",
                facts.vllm.cudagraph_gib,
                facts.origin("cudagraph_gib"),
                facts.source("cudagraph_gib"),
            )
        )
    return tuple(terms)


def given_overhead(gib: float) -> Term:
    """Everything that is neither weights nor pool, as typed by the user."""
    return Term("overhead", gib, Origin.GIVEN, "typed by the user: all that is neither weights nor pool")
