"""What vLLM takes from its budget besides weights and pool: activation peak, memory outside PyTorch, CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from planner import units
from planner.catalog.engine import EngineFacts, TpFigure
from planner.catalog.model_shape import ModelShape
from planner.memory.types import Deployment, Origin, Term, WeightDtype

BYTES_OF_LOGIT = 4
BYTES_16BIT = 2


def at_tp(figures: Sequence[TpFigure], tp: int) -> float:
    """The figure that holds at a tensor-parallel degree, GiB."""
    return max((figure for figure in figures if figure.min_tp <= tp), key=lambda figure: figure.min_tp).gib


def sampler_gib(shape: ModelShape, facts: EngineFacts, max_num_seqs: int, batched_tokens: int) -> float:
    """Peak of the sampler's dummy run, which follows the forward pass; not divided by tp.

    copies x max_num_seqs x vocabulary x 4 B + hidden_copies x batched tokens x hidden x 2 B + constant
    """
    rules = facts.vllm
    logits = max_num_seqs * shape.vocab_size * BYTES_OF_LOGIT
    hidden = batched_tokens * shape.hidden_size * BYTES_16BIT
    return units.bytes_to_gib(rules.sampler_copies * logits + rules.hidden_copies * hidden) + rules.sampler_constant_gib


def expert_workspace_gib(shape: ModelShape, batched_tokens: int, tp: int, *, mxfp4: bool) -> float:
    """Buffers between the matrices of routed experts; the mxfp4 kernels need none.

        tokens x chosen x (max(w, h) + max(2 w, h)) x 2 B

    w is the expert's width / tp, h the hidden size. Source: vllm/model_executor/layers/fused_moe, workspace shapes of
    the Triton experts.
    """
    if not shape.is_moe or mxfp4:
        return 0.0
    width, hidden = shape.moe_intermediate_size / tp, shape.hidden_size
    elements = batched_tokens * shape.experts_per_token * (max(width, hidden) + max(2 * width, hidden))
    return units.bytes_to_gib(elements * BYTES_16BIT)


def forward_gib(shape: ModelShape, batched_tokens: int, tp: int) -> float:
    """Peak of the forward pass without routed experts: ``tokens x (3 x width / tp + 4 x hidden) x 2 B``."""
    width = shape.shared_expert_intermediate_size if shape.is_moe else shape.intermediate_size
    return units.bytes_to_gib(batched_tokens * (3 * width / tp + 4 * shape.hidden_size) * BYTES_16BIT)


def activation_term(
    shape: ModelShape, facts: EngineFacts, tp: int, max_num_seqs: int, batched_tokens: int, *, mxfp4: bool
) -> Term:
    """The larger of the sampler's and the forward pass's peak, beside the experts' buffers where they are kept."""
    workspace = expert_workspace_gib(shape, batched_tokens, tp, mxfp4=mxfp4)
    sampler = sampler_gib(shape, facts, max_num_seqs, batched_tokens)
    sampler += workspace if facts.vllm.expert_workspace_kept else 0.0
    forward = forward_gib(shape, batched_tokens, tp) + workspace
    fact = "sampler_copies" if sampler >= forward else "forward_pass"
    name = "activation peak (sampler)" if sampler >= forward else "activation peak (forward pass)"
    return Term(name, max(sampler, forward), facts.origin(fact), facts.source(fact))


def vllm_overheads(
    shape: ModelShape, facts: EngineFacts, deployment: Deployment, max_num_seqs: int, batched_tokens: int
) -> tuple[Term, ...]:
    """The terms that vLLM measures at start-up, predicted, in the order of its log."""
    mxfp4 = deployment.weight_dtype is WeightDtype.MXFP4
    terms = [
        activation_term(shape, facts, deployment.tp, max_num_seqs, batched_tokens, mxfp4=mxfp4),
        Term(
            "memory outside PyTorch (CUDA context, NCCL)",
            at_tp(facts.vllm.non_torch_gib, deployment.tp),
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
