"""What vLLM takes from its budget besides weights and pool: activation peak, memory outside PyTorch, CUDA graphs.

The activation peak is the most that PyTorch holds at once in the profiling run, above the weights. The run has three
stages, and each stage's tensors are counted as the code allocates them:

1. the multimodal encoder, on the largest images that one batch may hold;
2. the forward pass, on ``max_num_batched_tokens`` tokens, without attention;
3. the sampler, on ``max_num_seqs`` rows of logits, while the hidden states, the encoder's outputs and the buffers of
   routed experts still live.

Source: vllm/v1/worker/gpu_worker.py (determine_available_memory), gpu_model_runner.py (profile_run,
_dummy_sampler_run, profile_cudagraph_memory) and v1/worker/gpu/model_runner.py of the versions in the catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.engine_rules.vllm import GraphSizes, Sampler, SecondRunner, TpFigure, VllmRules
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ImageInput, ModelShape, StateKind
from planner.memory.types import Deployment, Term, WeightDtype
from planner.origin import Origin

BYTES_OF_LOGIT = 4
BYTES_16BIT = 2
BLAS_WORKSPACE_BYTES = 8 * units.BYTES_PER_MIB + 128 * units.BYTES_PER_KIB
BLAS_WORKSPACE_HOPPER_BYTES = 32 * units.BYTES_PER_MIB
"""cuBLAS workspaces that PyTorch allocates at the first matrix product: up to and from compute capability 9.0 on
(aten/src/ATen/cuda/CublasHandlePool.cpp)."""
AMD = "AMD"
"""The maker of GPUs that run ROCm, as the catalogue names it."""
SHARED_MEMORY_CAPABILITIES = frozenset(("8.7", "11.0", "12.1"))
"""Orin, Thor and Spark (GB10), whose GPU uses the host's memory (vllm/utils/mem_utils.py, 0.19.0)."""
EIGHT_RANKS = 8
HOPPER = 9
BLACKWELL = 10
LATENT_CONTEXT_TOKENS = 65536
LATENT_CONTEXT_REQUESTS = 8
LATENT_PAGES_PER_REQUEST = 4
LATENT_PAGE_TOKENS = 16


MARLIN_FORMATS = frozenset(
    (WeightDtype.INT4_AWQ, WeightDtype.INT4_GPTQ, WeightDtype.INT8_GPTQ, WeightDtype.W4A16, WeightDtype.W8A16)
)
"""Formats whose routed experts run in Marlin's kernels: integers with 16-bit activations."""


FLASHINFER = Sampler(bytes_per_logit=14)
"""FlashInfer's sampling: logits 2 + 4, masked logits 4, probabilities 4."""


@dataclass(frozen=True)
class ProfilingRun:
    """One profiling run: what is started, and the sizes of its dummy batch."""

    shape: ModelShape
    gpu: Gpu
    facts: EngineFacts
    deployment: Deployment
    max_num_seqs: int
    batched_tokens: int
    max_model_len: int

    @cached_property
    def rules(self) -> VllmRules:
        """Rules of the engine's version."""
        return self.facts.vllm

    @cached_property
    def runner(self) -> SecondRunner | None:
        """The second model runner, where it is used."""
        return second_runner(self.shape, self.rules, self.deployment.weight_dtype)

    @property
    def sampled_rows(self) -> int:
        """Sequences of the dummy batch: never more than its tokens."""
        return min(self.max_num_seqs, self.batched_tokens)

    @property
    def hidden_bytes(self) -> float:
        """The hidden states of the whole batch."""
        return self.batched_tokens * self.shape.hidden_size * BYTES_16BIT


def at_tp(figures: Sequence[TpFigure], tp: int) -> float:
    """The figure that holds at a tensor-parallel degree, GiB."""
    return max((figure for figure in figures if figure.min_tp <= tp), key=lambda figure: figure.min_tp).gib


def capability_major(gpu: Gpu) -> int:
    """Major number of the CUDA compute capability; 0 for a GPU without one."""
    major = gpu.compute_capability.split(".")[0]
    return int(major) if major.isdecimal() else 0


def second_runner(shape: ModelShape, rules: VllmRules, weights: WeightDtype) -> SecondRunner | None:
    """The second model runner, where this version uses it for this model (vllm/config/vllm.py, use_v2_model_runner)."""
    runner = rules.second_runner
    if runner.takes == "all":
        return runner
    if shape.architecture in runner.architectures:
        taken = not runner.plain_only or (not shape.is_moe and weights is WeightDtype.BF16)
    else:
        taken = runner.takes == "dense" and not shape.is_moe and not shape.state_layers
    return runner if taken else None


def sampler_of(run: ProfilingRun) -> Sampler:
    """The sampler that the dummy run calls; where FlashInfer does not sample, that of other platforms."""
    if run.runner:
        return run.runner.sampler
    flashinfer = run.deployment.vllm.flashinfer_sampler
    if flashinfer is not None:
        return FLASHINFER if flashinfer else run.rules.sampler_elsewhere
    return run.rules.sampler if capability_major(run.gpu) else run.rules.sampler_elsewhere


def logits_bytes(run: ProfilingRun) -> float:
    """Copies of the logits at the sampler's peak; every rank holds the whole vocabulary.

        rows x vocabulary x bytes per logit (+ processors x vocabulary x 4)

    Sorting (to 0.16) holds 38 B a logit: 16-bit and float32 logits (2 + 4), sorted values and indices (4 + 8), and what
    PyTorch's segmented sort needs meanwhile (8 + 4 + 8). Triton's top-k and top-p (from 0.17) holds 14: the logits
    (2 + 4), probabilities and exponentials (4 + 4), and one float32 row for each multiprocessor. FlashInfer holds 14
    too: the logits, masked logits and probabilities.
    """
    sampler, vocabulary = sampler_of(run), run.shape.vocab_size
    total = run.sampled_rows * vocabulary * sampler.bytes_per_logit
    if sampler.row_per_processor:
        total += min(run.gpu.multiprocessors or run.sampled_rows, run.sampled_rows) * vocabulary * BYTES_OF_LOGIT
    return total


def sampler_bytes(run: ProfilingRun) -> float:
    """The sampler's stage: logits, the batch's hidden states, and two copies of the sampled rows' hidden states."""
    rows = 2 * run.sampled_rows * run.shape.hidden_size * BYTES_16BIT
    experts = expert_workspace_bytes(run) if experts_kept(run) else 0.0
    return logits_bytes(run) + run.hidden_bytes + rows + experts + image_bytes(run)


def experts_kept(run: ProfilingRun) -> bool:
    """Whether the experts' buffers stay allocated while the sampler runs."""
    marlin = run.deployment.weight_dtype in MARLIN_FORMATS
    return run.rules.marlin_workspace_kept if marlin else run.rules.expert_workspace_kept


def expert_workspace_bytes(run: ProfilingRun) -> float:
    """Buffers between the matrices of routed experts; the mxfp4 kernels need none.

        min(tokens, chunk) x chosen x (max(w, h) + max(2 w, h)) x 2 B

    w is the expert's width on the rank, h the hidden size. Buffers that are not kept are ``w + max(2 w, h)`` wide.
    Source: vllm/model_executor/layers/fused_moe: workspace shapes of the experts and their one allocation
    (modular_kernel.py); before it fused_experts_impl (fused_moe.py, 0.9.2 to 0.15.1) and fused_marlin_moe.
    """
    shape, deployment = run.shape, run.deployment
    if not shape.is_moe or deployment.weight_dtype is WeightDtype.MXFP4:
        return 0.0
    hidden = shape.hidden_size
    width = shape.moe_intermediate_size / (1 if deployment.expert_parallel else deployment.tp)
    columns = (max(width, hidden) if experts_kept(run) else width) + max(2 * width, hidden)
    tokens = min(run.batched_tokens, run.rules.expert_chunk_tokens or run.batched_tokens)
    return tokens * shape.experts_per_token * columns * BYTES_16BIT


def latent_context_bytes(run: ProfilingRun) -> float:
    """Keys and values of a long context, which latent attention sets aside once in the dummy run.

        min(max(8 x max_model_len, 4 x 16 x max_num_seqs), 65,536) x heads / tp x (key + value) x 2 B

    Source: vllm/model_executor/layers/attention/mla_attention.py, determine_chunked_prefill_workspace_size.
    """
    out_features = up_projection(run.shape)
    if not out_features:
        return 0.0
    requests = LATENT_PAGES_PER_REQUEST * LATENT_PAGE_TOKENS * run.max_num_seqs
    tokens = min(max(LATENT_CONTEXT_REQUESTS * run.max_model_len, requests), LATENT_CONTEXT_TOKENS)
    return tokens * out_features / run.deployment.tp * BYTES_16BIT


@lru_cache(maxsize=1024)
def up_projection(shape: ModelShape) -> int:
    """Outputs of the projection from latents to keys and values; 0 without one."""
    return max((m.out_features for m in shape.matrices if m.module.endswith("kv_b_proj")), default=0)


def forward_bytes(run: ProfilingRun) -> float:
    """The forward pass: ``tokens x (3 x width / tp + 4 x hidden) x 2 B`` beside the experts' buffers.

    Gate, up and their product live at once, beside attention's output, the residual before and after it, and the
    normed input.
    """
    shape, tp = run.shape, run.deployment.tp
    width = max(shape.shared_expert_intermediate_size, 0 if shape.is_moe else shape.intermediate_size)
    layer = run.batched_tokens * 3 * width / tp * BYTES_16BIT + 4 * run.hidden_bytes
    return layer + max(expert_workspace_bytes(run), latent_context_bytes(run)) + image_bytes(run)


def profiled_images(run: ProfilingRun) -> tuple[ImageInput, int] | None:
    """The images of the encoder's stage and how many of them; ``None`` where none are profiled.

    As many images or videos as the batch's tokens hold, at least one (vllm/multimodal/encoder_budget.py); one a
    sequence where images are no part of the prompt (vllm/worker/enc_dec_model_runner.py, 0.9.2).
    """
    image = run.shape.image
    if image is None or run.deployment.vllm.language_model_only or (run.runner and not run.runner.images_profiled):
        return None
    if not image.in_prompt:
        return image, run.max_num_seqs
    frames = max(1, min(image.most_frames, run.max_model_len // image.tokens))
    return image, frames * max(1, run.batched_tokens // (frames * image.tokens))


def image_bytes(run: ProfilingRun) -> float:
    """Pixels and encoder outputs, both at 16 bits, which live until the profiling run ends."""
    profiled = profiled_images(run)
    if profiled is None:
        return 0.0
    image, count = profiled
    return count * (image.pixel_values + image.tokens * image.outputs * run.shape.hidden_size) * BYTES_16BIT


def encoder_bytes(run: ProfilingRun) -> float:
    """The encoder's stage: its MLP, hidden states and mask, beside the pixels.

    ``images x (patches x (matrices x width / tp + copies x hidden) + patches² + pixels) x 2 B``
    """
    profiled = profiled_images(run)
    if profiled is None:
        return 0.0
    image, count = profiled
    width = (3 if image.gated else 2) * image.intermediate_size / run.deployment.tp
    elements = image.patches * (width + image.live_states * image.hidden_size) + image.pixel_values
    if image.masked:
        elements += image.patches**2
    return count * elements * BYTES_16BIT


def activation_term(run: ProfilingRun) -> Term:
    """The largest of the three stages, and the matrix library's workspace."""
    stages = {"sampler": sampler_bytes(run), "forward pass": forward_bytes(run), "encoder": encoder_bytes(run)}
    stage = max(stages, key=lambda name: stages[name])
    workspace = BLAS_WORKSPACE_HOPPER_BYTES if capability_major(run.gpu) >= HOPPER else BLAS_WORKSPACE_BYTES
    source = f"{run.max_num_seqs} sequences, {run.batched_tokens} tokens; {run.facts.source('sampler')}"
    gib = units.bytes_to_gib(stages[stage] + workspace)
    return Term(f"activation peak ({stage})", gib, run.facts.origin("sampler"), source)


def buffers_term(run: ProfilingRun) -> Term | None:
    """Counters of the second runner's penalties: ``max_num_seqs x vocabulary x (4 + 1/8) B``.

    Allocated after the weights, so that only a profile by consumed memory sees them
    (vllm/v1/worker/gpu/sample/penalties.py).
    """
    if not run.rules.buffers_counted or not run.runner:
        return None
    gib = units.bytes_to_gib(run.max_num_seqs * run.shape.vocab_size * (4 + 1 / 8))
    return Term("model runner buffers", gib, Origin.COMPUTED, run.facts.source("buffers_counted"))


def outside_pytorch_term(run: ProfilingRun) -> Term:
    """Libraries of one rank, NCCL by tensor-parallel degree and link, workspace of fused all-reduces, host memory."""
    tp, rules = run.deployment.tp, run.rules
    linked = run.gpu.interconnect != "pcie"
    libraries = rules.libraries_amd_gib if run.gpu.vendor == AMD else rules.libraries_gib
    gib = libraries + at_tp(rules.nccl_gib if linked else rules.nccl_pcie_gib, tp) + descriptors_gib(run)
    if linked and reduces_fused(run):
        gib += rules.fused_allreduce_eight_gib if tp >= EIGHT_RANKS else at_tp(rules.fused_allreduce_gib, tp)
    if run.gpu.compute_capability in SHARED_MEMORY_CAPABILITIES:
        gib += rules.host_memory_gib
    fact = largest_unknown(run)
    name = "memory outside PyTorch (CUDA libraries, NCCL)"
    return Term(name, gib, run.facts.origin(fact), run.facts.source(fact))


def largest_unknown(run: ProfilingRun) -> str:
    """The fact that the memory outside PyTorch depends on most."""
    if run.gpu.compute_capability in SHARED_MEMORY_CAPABILITIES:
        return "host_memory_gib"
    if run.deployment.tp == 1:
        return "libraries_amd_gib" if run.gpu.vendor == AMD else "libraries_gib"
    return "nccl_pcie_gib" if run.gpu.interconnect == "pcie" else "nccl_gib"


def descriptors_gib(run: ProfilingRun) -> float:
    """Tensor descriptors of delta-net kernels: MiB for each multiprocessor; Hopper runs other kernels."""
    delta_net = any(layers.kind is StateKind.GATED_DELTA for layers in run.shape.state_layers)
    if not delta_net or capability_major(run.gpu) < BLACKWELL:
        return 0.0
    return units.mib_to_gib(run.rules.descriptor_mib_per_processor * (run.gpu.multiprocessors or 0))


def reduces_fused(run: ProfilingRun) -> bool:
    """Whether all-reduces are fused with norms: compiled, one stage, one node, Hopper or data-centre Blackwell.

    Source: vllm/config/vllm.py, enable_allreduce_rms_fusion; flashinfer_all_reduce.py, get_fi_ar_workspace: trtllm's
    workspace is for one node. What mnnvl's takes across nodes is not known, and not counted.
    """
    deployment, gpu = run.deployment, run.gpu
    compiled = run.rules.allreduce_fused and deployment.tp > 1 and deployment.pp == 1 and not deployment.enforce_eager
    return compiled and deployment.tp <= gpu.max_gpus_per_node and capability_major(gpu) in (HOPPER, BLACKWELL)


@lru_cache(maxsize=4096)
def graph_sizes(largest: int) -> int:
    """How many sizes up to ``largest``: 1, 2, 4, every 8th to 256, then every 16th (vllm/config/vllm.py)."""
    small = sum(1 for size in (1, 2, 4) if size <= largest)
    return small + len(range(8, min(largest + 1, 256), 8)) + len(range(256, largest + 1, 16))


def graphs_captured(
    sizes: GraphSizes, gpu: Gpu, max_num_seqs: int, batched_tokens: int, largest: int | None = None
) -> int:
    """Graphs of both kinds: piecewise for every size, whole for sizes up to ``max_num_seqs``."""
    ceiling = sizes.largest_blackwell if capability_major(gpu) == BLACKWELL else sizes.largest
    ceiling = min(sizes.per_sequence * max_num_seqs, ceiling) if largest is None else largest
    top = min(ceiling, batched_tokens)
    return graph_sizes(top) + graph_sizes(min(top, max_num_seqs))


def graphs_estimated(run: ProfilingRun) -> bool:
    """Whether this start captures graphs, and estimates them before it sizes the pool (gpu_worker.py)."""
    rules = run.rules
    if not rules.cudagraph_deducted or run.deployment.enforce_eager:
        return False
    if run.gpu.vendor == AMD and not rules.cudagraph_estimated_on_amd:
        return False
    return run.runner is None or run.runner.graphs_estimated


def graph_term(run: ProfilingRun) -> Term | None:
    """The estimate that is deducted: ``graphs x layers x MiB``; ``None`` where none is.

    The engine captures two graphs of each kind and takes the second's memory for every further one.
    """
    rules, deployment = run.rules, run.deployment
    if not graphs_estimated(run):
        return None
    cap = deployment.vllm.max_cudagraph_capture_size
    graphs = graphs_captured(rules.graph_sizes, run.gpu, run.max_num_seqs, run.batched_tokens, cap)
    gib = units.mib_to_gib(graphs * run.shape.num_layers / deployment.pp * rules.graph_mib_per_layer)
    facts = run.facts
    source = f"{graphs} graphs; {facts.source('graph_mib_per_layer')}"
    return Term("CUDA graphs (estimate)", gib, facts.origin("graph_mib_per_layer"), source)


def vllm_overheads(run: ProfilingRun, outside: Term | None = None) -> tuple[Term, ...]:
    """The terms that vLLM measures at start-up, predicted, in the order of its log; ``outside`` where it is known."""
    outside = outside or outside_pytorch_term(run)
    terms = (activation_term(run), outside, buffers_term(run), graph_term(run))
    return tuple(term for term in terms if term is not None)


def given_overhead(gib: float) -> Term:
    """Everything that is neither weights nor pool, as typed by the user."""
    return Term("overhead", gib, Origin.GIVEN, "typed by the user: all that is neither weights nor pool")
