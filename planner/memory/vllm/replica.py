"""What vLLM's sizings of one replica share, whatever its caps on sequences, length and batch are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.loading import loading_of
from planner.memory.options import on_gpu, option_terms
from planner.memory.overheads import ProfilingRun, outside_pytorch_term
from planner.memory.rules import start_rules
from planner.memory.terms import memory_term, weights_term
from planner.memory.types import Deployment, GivenTerms, Refusal, Term, WeightBytes
from planner.memory.vllm import blocks, pages
from planner.memory.weights import weight_bytes


@dataclass(frozen=True)
class Replica:
    """What deployments share that differ in max_num_seqs, max_model_len and max_num_batched_tokens alone.

    ``deployment`` is any of them; every part is made once, when it is first asked for.
    """

    shape: ModelShape
    gpu: Gpu
    facts: EngineFacts
    deployment: Deployment
    given: GivenTerms

    @cached_property
    def memory(self) -> Term:
        """The memory that the utilisation is a share of."""
        return memory_term(self.gpu, self.given)

    @cached_property
    def weights(self) -> WeightBytes:
        """Weights of one rank as they are loaded."""
        loading = loading_of(self.facts, self.deployment, self.gpu)
        return weight_bytes(self.shape, self.deployment.weight_dtype, loading)

    @cached_property
    def loaded(self) -> tuple[Term, ...]:
        """Weights and options: what is taken before the profiling run."""
        shape, deployment, given = self.shape, self.deployment, self.given
        weights = on_gpu(weights_term(shape, deployment, self.weights, given), self.weights, deployment)
        options = option_terms(shape, self.facts, deployment, self.gpu) if given.weights_gib is None else ()
        return (weights, *options)

    @cached_property
    def outside(self) -> Term:
        """Memory outside PyTorch."""
        return outside_pytorch_term(ProfilingRun(self.shape, self.gpu, self.facts, self.deployment, 0, 0, 0))

    @cached_property
    def early_refusals(self) -> tuple[Refusal, ...]:
        """Why the engine would stop whatever the caps are."""
        typed = self.given.weights_gib is not None
        return tuple(start_rules.before_sizing(self.shape, self.gpu, self.facts, self.deployment, typed))

    def layout(self, max_model_len: int) -> blocks.Layout:
        """How the pool of one rank is cut up; only blocks of recurrent states depend on the length."""
        length = max_model_len if self.shape.state_layers else 0
        if length not in self._layouts:
            self._layouts[length] = layout_of(self.shape, self.gpu, self.facts, self.deployment, length)
        return self._layouts[length]

    @cached_property
    def _layouts(self) -> dict[int, blocks.Layout]:
        """By length."""
        return {}


def layout_of(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, max_model_len: int
) -> blocks.Layout:
    """How the pool of one rank is cut up."""
    rules = facts.vllm
    kv_dtype = pages.kv_dtype_in_use(shape, gpu, rules, deployment.kv_dtype)
    kinds = pages.kinds_of(shape, gpu, rules, deployment, kv_dtype, max_model_len)
    layout_rules = blocks.layout_rules(
        rules,
        kinds,
        hybrid_manager=deployment.vllm.hybrid_kv_cache_manager,
        compressed=pages.is_compressed(shape),
    )
    whole = blocks.layout(kinds, layout_rules)
    stage = blocks.on_fullest_stage(whole, shape.num_layers, deployment.pp)
    if rules.check_counts_all_stages and deployment.pp > 1:
        return replace(stage, checked_block_bytes=whole.bytes_per_block)
    return stage
