"""Each stage of the profiling run, the memory outside PyTorch and the graph estimate, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import units
from planner.catalog.load import Catalog
from planner.memory import overheads
from planner.memory.overheads import ProfilingRun
from planner.memory.types import Deployment, KvDtype, VllmFlags, WeightDtype
from planner.origin import Origin

MIB = 2**20
LLAMA, QWEN3, MIXTRAL = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-8B", "mistralai/Mixtral-8x7B-v0.1"


def run_of(
    catalog: Catalog,
    model: str = LLAMA,
    version: str = "0.19.0",
    gpu: str = "H100-SXM",
    *,
    tp: int = 1,
    seqs: int = 1024,
    tokens: int = 8192,
    length: int = 8192,
    weights: WeightDtype = WeightDtype.BF16,
    **settings: object,
) -> ProfilingRun:
    deployment = replace(Deployment(tp, weights, KvDtype.BF16), **settings)  # type: ignore[arg-type]
    facts = catalog.engine("vllm", version)
    return ProfilingRun(catalog.model_shape(model), catalog.gpu(gpu), facts, deployment, seqs, tokens, length)


@pytest.mark.parametrize(
    ("version", "gpu", "per_logit", "rows"),
    [
        ("0.7.3", "L4", 38, 0),
        ("0.10.1", "A100-80GB-SXM", 14, 0),
        ("0.11.0", "H100-SXM", 38, 0),
        ("0.16.0", "H100-SXM", 38, 0),
        ("0.17.0", "H100-SXM", 14, 132),
        ("0.20.0", "L40S", 14, 142),
        ("0.21.0", "H100-SXM", 14, 0),
        ("0.24.0", "H100-SXM", 2, 0),
        ("0.32.0", "H100-SXM", 2, 0),
        ("0.33.0", "H100-SXM", 14, 0),
        ("0.16.0", "MI300X", 38, 0),
        ("0.21.0", "MI300X", 14, 256),
    ],
)
def test_copies_of_the_logits(catalog: Catalog, version: str, gpu: str, per_logit: int, rows: int) -> None:
    """256 rows of Llama's 128,256 logits; FlashInfer is for CUDA, and a row for each processor never exceeds them."""
    run = run_of(catalog, version=version, gpu=gpu, seqs=256)
    assert overheads.logits_bytes(run) == 128_256 * (256 * per_logit + rows * 4)


def test_no_more_rows_are_sampled_than_tokens_are_run(catalog: Catalog) -> None:
    few = run_of(catalog, version="0.11.0", seqs=1024, tokens=16)
    assert overheads.logits_bytes(few) == 16 * 128_256 * 38


def test_the_sampler_stage(catalog: Catalog) -> None:
    """Llama-3.1-8B, 0.19: logits, 8,192 hidden states of 4,096, twice 1,024 of them; cuBLAS has 32 MiB on Hopper."""
    run = run_of(catalog)
    stage = 128_256 * (1024 * 14 + 132 * 4) + 8192 * 4096 * 2 + 2 * 1024 * 4096 * 2
    assert overheads.sampler_bytes(run) == stage
    term = overheads.activation_term(run)
    assert term.name == "activation peak (sampler)"
    assert term.gib == pytest.approx(units.bytes_to_gib(stage + 32 * MIB))
    assert term.gib == pytest.approx(1.89, abs=0.01), "as logged"


def test_the_sampler_is_not_divided_by_tp(catalog: Catalog) -> None:
    assert overheads.sampler_bytes(run_of(catalog, tp=2)) == overheads.sampler_bytes(run_of(catalog))


def test_the_forward_pass_takes_over_with_few_sequences(catalog: Catalog) -> None:
    """10,000 tokens of Qwen3-4B, 1 sequence: 0.74 GiB logged on a 12 GB card of 0.8.5."""
    run = run_of(catalog, "Qwen/Qwen3-4B", "0.8.5", "RTX3090", seqs=1, tokens=10_000)
    assert overheads.forward_bytes(run) == 10_000 * (3 * 9728 + 4 * 2560) * 2
    term = overheads.activation_term(run)
    assert term.name == "activation peak (forward pass)"
    assert term.gib == pytest.approx(0.74, abs=0.01)


def test_the_forward_pass_divides_the_mlp_by_tp(catalog: Catalog) -> None:
    assert overheads.forward_bytes(run_of(catalog, tp=2)) == 8192 * (3 * 14_336 / 2 + 4 * 4096) * 2


def test_buffers_of_experts(catalog: Catalog) -> None:
    """Mixtral at TP2: 2 of 8 experts, width 14,336 / 2: 7,168 and 14,336 columns. One is kept from 0.17 on."""
    run = run_of(catalog, MIXTRAL, tp=2)
    workspace = 8192 * 2 * (7168 + 14_336) * 2
    assert overheads.expert_workspace_bytes(run) == workspace
    bare = overheads.logits_bytes(run) + run.hidden_bytes + 2 * 1024 * 4096 * 2
    assert overheads.sampler_bytes(run) == bare + workspace
    older = run_of(catalog, MIXTRAL, "0.16.0", tp=2)
    assert overheads.expert_workspace_bytes(older) == 8192 * 2 * (7168 + 14_336) * 2, "a width above the hidden size"
    assert overheads.sampler_bytes(older) == overheads.logits_bytes(older) + run.hidden_bytes + 2 * 1024 * 4096 * 2


@pytest.mark.parametrize(
    ("version", "tokens"), [("0.11.0", 32_768), ("0.15.1", 16_384), ("0.17.0", 16_384), ("0.18.0", 65_536)]
)
def test_experts_take_a_chunk_at_once(catalog: Catalog, version: str, tokens: int) -> None:
    run = run_of(catalog, MIXTRAL, version, tp=2, tokens=65_536)
    assert overheads.expert_workspace_bytes(run) == tokens * 2 * (7168 + 14_336) * 2


def test_experts_divided_whole_keep_their_width(catalog: Catalog) -> None:
    run = run_of(catalog, MIXTRAL, tp=2, expert_parallel=True)
    assert overheads.expert_workspace_bytes(run) == 8192 * 2 * (14_336 + 28_672) * 2


def test_buffers_of_experts_in_marlin(catalog: Catalog) -> None:
    """Qwen3-30B-A3B in int4: 8 experts of width 768, hidden 2,048; own buffers in 0.19, the kept ones from 0.22 on."""
    old = run_of(catalog, "Qwen/Qwen3-30B-A3B", weights=WeightDtype.INT4_GPTQ)
    new = run_of(catalog, "Qwen/Qwen3-30B-A3B", "0.22.0", weights=WeightDtype.INT4_GPTQ)
    assert overheads.expert_workspace_bytes(old) == 8192 * 8 * (768 + 2048) * 2
    assert overheads.expert_workspace_bytes(new) == 8192 * 8 * (2048 + 2048) * 2
    assert (overheads.experts_kept(old), overheads.experts_kept(new)) == (False, True)


def test_mxfp4_experts_and_dense_models_have_no_buffers(catalog: Catalog) -> None:
    assert overheads.expert_workspace_bytes(run_of(catalog, "openai/gpt-oss-20b", weights=WeightDtype.MXFP4)) == 0
    assert overheads.expert_workspace_bytes(run_of(catalog)) == 0


@pytest.mark.parametrize(("length", "tokens"), [(1024, 65_536), (163_840, 65_536)])
def test_latent_attention_sets_a_long_context_aside(catalog: Catalog, length: int, tokens: int) -> None:
    """DeepSeek-V2-Lite: 16 heads of 128 + 128. 1,024 sequences of 4 pages reach the ceiling by themselves."""
    run = run_of(catalog, "deepseek-ai/DeepSeek-V2-Lite", length=length)
    assert overheads.latent_context_bytes(run) == tokens * 16 * 256 * 2
    assert overheads.latent_context_bytes(replace(run, max_num_seqs=8)) == min(max(8 * length, 512), 65_536) * 8192
    assert overheads.latent_context_bytes(run_of(catalog)) == 0


def test_images_live_through_the_run(catalog: Catalog) -> None:
    """Gemma-3: 32 images of 256 tokens in 8,192; pixels of 896 x 896 and outputs of 5,376, both at 16 bits."""
    run = run_of(catalog, "google/gemma-3-27b-it")
    images = 32 * (3 * 896**2 + 256 * 5376) * 2
    assert overheads.image_bytes(run) == images
    assert overheads.activation_term(run).gib == pytest.approx(3.99, abs=0.01), "as logged"
    text_only = run_of(catalog, "google/gemma-3-27b-it", vllm=VllmFlags(language_model_only=True))
    assert overheads.sampler_bytes(run) - overheads.sampler_bytes(text_only) == images
    assert overheads.encoder_bytes(text_only) == 0


def test_an_image_larger_than_the_batch_is_profiled_once(catalog: Catalog) -> None:
    run = run_of(catalog, "Qwen/Qwen2.5-VL-7B-Instruct", tokens=2048)
    image, count = overheads.profiled_images(run) or (None, 0)
    assert count == 1
    assert image is not None
    assert image.tokens == 16_384


@pytest.mark.parametrize(("length", "frames"), [(8192, 1), (40_000, 2), (128_000, 7), (1_000_000, 7)])
def test_a_long_context_is_profiled_with_a_video(catalog: Catalog, length: int, frames: int) -> None:
    """Pairs of frames of 16,384 tokens, as many as the context holds, at most 7; Qwen3-VL's videos are small."""
    old = overheads.profiled_images(run_of(catalog, "Qwen/Qwen2.5-VL-7B-Instruct", length=length))
    new = overheads.profiled_images(run_of(catalog, "Qwen/Qwen3-VL-8B-Instruct", length=length))
    assert old is not None
    assert new is not None
    assert (old[1], new[1]) == (frames, 1)


def test_cross_attention_has_an_image_a_sequence(catalog: Catalog) -> None:
    """Llama-3.2-Vision of 0.6.6, 128 sequences: 36.63 GiB logged. Tiles of 1,608 places, a mask over 4 of them."""
    run = run_of(catalog, "meta-llama/Llama-3.2-11B-Vision-Instruct", "0.6.6", seqs=128, tokens=65_536)
    places, pixels = 4 * 1608, 4 * 3 * 560**2
    assert overheads.encoder_bytes(run) == 128 * (places * (2 * 5120 + 5 * 1280) + pixels + places**2) * 2
    term = overheads.activation_term(run)
    assert term.name == "activation peak (encoder)"
    assert term.gib == pytest.approx(36.63, rel=0.015)


@pytest.mark.parametrize(
    ("model", "version", "weights", "taken"),
    [
        (QWEN3, "0.21.0", WeightDtype.BF16, False),
        (QWEN3, "0.22.0", WeightDtype.BF16, True),
        (QWEN3, "0.22.0", WeightDtype.FP8, False),
        (LLAMA, "0.22.0", WeightDtype.BF16, False),
        (LLAMA, "0.23.0", WeightDtype.BF16, True),
        (LLAMA, "0.23.0", WeightDtype.FP8, False),
        (LLAMA, "0.24.0", WeightDtype.FP8, True),
        ("google/gemma-7b", "0.24.0", WeightDtype.BF16, False),
        ("google/gemma-7b", "0.25.0", WeightDtype.BF16, True),
        (MIXTRAL, "0.28.0", WeightDtype.BF16, False),
        ("Qwen/Qwen3.5-27B", "0.28.0", WeightDtype.BF16, False),
        (MIXTRAL, "0.29.0", WeightDtype.BF16, True),
        ("Qwen/Qwen3.5-27B", "0.29.0", WeightDtype.BF16, True),
    ],
)
def test_models_of_the_second_runner(
    catalog: Catalog, model: str, version: str, weights: WeightDtype, taken: bool
) -> None:
    run = run_of(catalog, model, version, weights=weights)
    assert (overheads.second_runner(run.shape, run.rules, weights) is not None) is taken


def test_penalty_counters_are_seen_where_consumed_memory_is_counted(catalog: Catalog) -> None:
    """Llama at 256 sequences: 4 B and a bit for each entry of the vocabulary, from 0.27 on."""
    term = overheads.buffers_term(run_of(catalog, version="0.27.0", seqs=256))
    assert term is not None
    assert units.gib_to_bytes(term.gib) == pytest.approx(256 * 128_256 * 4.125)
    assert overheads.buffers_term(run_of(catalog, version="0.26.0", seqs=256)) is None
    assert overheads.buffers_term(run_of(catalog, MIXTRAL, "0.27.0", tp=2)) is None, "the first runner has none"


@pytest.mark.parametrize(
    ("version", "gpu", "settings", "gib"),
    [
        ("0.11.0", "H100-SXM", {"tp": 1}, 0.13),
        ("0.11.0", "H100-SXM", {"tp": 2}, 0.54),
        ("0.19.0", "H100-SXM", {"tp": 1}, 0.25),
        ("0.19.0", "H100-SXM", {"tp": 2}, 2.07),
        ("0.19.0", "H100-SXM", {"tp": 4}, 2.21),
        ("0.19.0", "H100-SXM", {"tp": 2, "enforce_eager": True}, 0.66),
        ("0.19.0", "H100-SXM", {"tp": 2, "pp": 2}, 0.66),
        ("0.19.0", "A100-80GB-SXM", {"tp": 2}, 0.66),
        ("0.19.0", "L40S", {"tp": 2}, 0.37),
        ("0.19.0", "RTX5090", {"tp": 2}, 0.37),
        ("0.20.0", "H200-SXM", {"tp": 8}, 0.25 + 0.41 + 0.45),
        ("0.22.0", "GH200-96GB", {"tp": 2}, 0.25 + 0.41),
        ("0.26.0", "GB200", {"tp": 4}, 0.95),
        ("0.7.3", "MI300X", {"tp": 1}, 0.46),
        ("0.19.0", "GB10", {"tp": 1}, 0.25),
        ("0.20.0", "GB10", {"tp": 1}, 0.25 + 2.1),
        ("0.7.3", "L4", {"tp": 1}, 0.08),
    ],
)
def test_memory_outside_pytorch(catalog: Catalog, version: str, gpu: str, settings: dict[str, int], gib: float) -> None:
    """NCCL from two ranks on; fused all-reduces on Hopper, compiled, in one pipeline stage; PCIe cards have neither.

    ROCm's libraries take more; a GPU that shares the host's memory is charged with the engine's own host memory.
    """
    term = overheads.outside_pytorch_term(run_of(catalog, version=version, gpu=gpu, **settings))  # type: ignore[arg-type]
    assert term.gib == pytest.approx(gib, abs=0.005)


@pytest.mark.parametrize(
    ("model", "version", "gpu", "mib"),
    [
        ("Qwen/Qwen3.5-27B", "0.17.0", "RTX5090", 0),
        ("Qwen/Qwen3.5-27B", "0.18.0", "RTX5090", 170 * 22),
        ("Qwen/Qwen3.5-27B", "0.19.0", "GB10", 48 * 22),
        ("Qwen/Qwen3.5-27B", "0.19.0", "H100-SXM", 0),
        ("Qwen/Qwen3.5-27B", "0.20.0", "RTX5090", 0),
        (LLAMA, "0.19.0", "RTX5090", 0),
    ],
)
def test_descriptors_of_delta_nets(catalog: Catalog, model: str, version: str, gpu: str, mib: int) -> None:
    """3,728 MiB were measured on an RTX 5090, 1,077 on a GB10; 3.81 GiB outside PyTorch in a log of 0.18."""
    run = run_of(catalog, model, version, gpu)
    assert units.gib_to_mib(overheads.descriptors_gib(run)) == pytest.approx(mib)
    libraries = run.rules.libraries_gib
    assert overheads.outside_pytorch_term(run).gib == pytest.approx(libraries + mib / 1024)


@pytest.mark.parametrize(
    ("seqs", "tokens", "gpu", "graphs"),
    [
        (256, 8192, "H100-SXM", 51 + 35),
        (1024, 8192, "H100-SXM", 51 + 51),
        (1, 8192, "H100-SXM", 2 + 1),
        (32, 8192, "H100-SXM", 11 + 7),
        (256, 16, "H100-SXM", 5 + 5),
        (1024, 8192, "B200", 83 + 83),
        (1024, 8192, "RTX5090", 51 + 51),
    ],
)
def test_how_many_graphs_are_captured(catalog: Catalog, seqs: int, tokens: int, gpu: str, graphs: int) -> None:
    """Logs say PIECEWISE=51 (largest 512), FULL=35 (largest 256) at 256 sequences."""
    sizes = catalog.engine("vllm", "0.33.0").vllm.graph_sizes
    assert overheads.graphs_captured(sizes, catalog.gpu(gpu), seqs, tokens) == graphs


def test_the_graph_estimate(catalog: Catalog) -> None:
    """86 graphs of 32 layers; none in eager mode, before 0.20, or by the second runner before 0.29."""
    term = overheads.graph_term(run_of(catalog, version="0.33.0", seqs=256))
    assert term is not None
    per_layer = catalog.engine("vllm", "0.33.0").vllm.graph_mib_per_layer
    assert units.gib_to_mib(term.gib) == pytest.approx(86 * 32 * per_layer)
    assert term.origin is Origin.FITTED
    assert overheads.graph_term(run_of(catalog, version="0.20.0")) is not None
    assert overheads.graph_term(run_of(catalog, version="0.19.0")) is None
    assert overheads.graph_term(run_of(catalog, version="0.33.0", enforce_eager=True)) is None
    assert overheads.graph_term(run_of(catalog, version="0.28.0")) is None
    halves = overheads.graph_term(run_of(catalog, version="0.33.0", seqs=256, pp=2))
    assert halves is not None
    assert halves.gib == pytest.approx(term.gib / 2)


@pytest.mark.parametrize(
    ("version", "estimated"), [("0.19.0", False), ("0.20.0", False), ("0.25.0", False), ("0.27.0", True)]
)
def test_graphs_on_rocm_are_estimated_from_0_27_on(catalog: Catalog, version: str, estimated: bool) -> None:
    """A model with experts, which the first runner takes in all four."""
    run = run_of(catalog, MIXTRAL, version, "MI300X")
    assert overheads.graphs_estimated(run) is estimated


def test_an_estimate_says_which_fact_it_rests_on(catalog: Catalog) -> None:
    assert overheads.outside_pytorch_term(run_of(catalog, gpu="GB10", version="0.27.0")).origin is Origin.GUESS
    assert overheads.largest_unknown(run_of(catalog, gpu="MI300X")) == "libraries_amd_gib"
    assert overheads.largest_unknown(run_of(catalog, gpu="L40S", tp=2)) == "nccl_pcie_gib"
    assert overheads.largest_unknown(run_of(catalog, tp=2)) == "nccl_gib"
    assert overheads.largest_unknown(run_of(catalog)) == "libraries_gib"


def test_a_sampler_that_is_stated_comes_before_the_usual_one(catalog: Catalog) -> None:
    """Without FlashInfer 0.10 sorts; with it 0.11 does not. The second runner has a sampler of its own."""

    def per_logit(version: str, stated: bool) -> float:
        run = run_of(catalog, version=version, gpu="A100-80GB-SXM", vllm=VllmFlags(flashinfer_sampler=stated))
        return overheads.sampler_of(run).bytes_per_logit

    assert (per_logit("0.10.1", False), per_logit("0.11.0", True), per_logit("0.25.0", False)) == (38, 14, 2)


def test_sizes_of_graphs_end_where_the_flag_says(catalog: Catalog) -> None:
    sizes = catalog.engine("vllm", "0.33.0").vllm.graph_sizes
    assert overheads.graphs_captured(sizes, catalog.gpu("H100-SXM"), 1024, 8192, 8) == 4 + 4
    run = run_of(catalog, version="0.33.0", vllm=VllmFlags(max_cudagraph_capture_size=1))
    term = overheads.graph_term(run)
    assert term is not None
    assert units.gib_to_mib(term.gib) == pytest.approx(2 * 32 * run.rules.graph_mib_per_layer)
