"""The built-in speed provider: a roofline with measured efficiencies.

A decode step reads the weights once for the whole batch and the cache of every sequence, and multiplies the token of
every sequence with the weights; it takes the longer of reading and multiplying, plus fixed overheads and, with tensor
parallelism, two all-reduces per layer (S. Williams et al., "Roofline", CACM 52(4), 2009; the efficiencies are fitted,
see ``catalogs/speed/roofline.toml``). `planner.speed.work` says what a step does, `planner.speed.terms` how long that
takes.

A provider is any function that returns a `SpeedModel`; consumers see only that type and `planner.speed.step`.
"""

from __future__ import annotations

from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import CacheRole, ModelShape
from planner.errors import InputError, Problem, Problems
from planner.memory.types import Sizing, WeightDtype
from planner.speed.facts import Bands, EraFacts, SpeedFacts
from planner.speed.formats import peaks_of
from planner.speed.terms import machine_of, step_coefficients
from planner.speed.types import Band, SpeedModel
from planner.speed.work import picked_tokens, work_of

FIGURES_USED = frozenset(
    {"memory_bandwidth_gb_s", "bf16_tflops", "fp8_tflops", "fp4_tflops", "int8_tops", "interconnect_gb_s"}
)
"""Fields of a GPU that a prediction rests on."""


def speed_model(shape: ModelShape, gpu: Gpu, sizing: Sizing, facts: SpeedFacts) -> SpeedModel:
    """Step-time coefficients of one replica.

    Parameters
    ----------
    shape, gpu
        The model and the accelerator.
    sizing
        Weight bytes per rank, bytes per token, the engine's version and the deployment (tp, formats, chunk of a
        prefill).
    facts
        Efficiencies and overheads with their bands.

    Raises
    ------
    InputError
        If the GPU lacks a figure that the formats or the tensor parallelism need (names every missing field), or the
        overheads of the engine are not known.
    """
    dtype = sizing.deployment.weight_dtype
    check_figures(gpu, dtype, sizing.deployment.tp)
    era = _era(sizing, facts)
    return SpeedModel(
        coefficients=step_coefficients(work_of(shape, sizing), machine_of(gpu, dtype, facts, era)),
        tpot_band=_band(facts.tpot_bands, shape, gpu, facts),
        ttft_band=_band(facts.ttft_bands, shape, gpu, facts),
        source=_source(shape, gpu, facts, dtype),
    )


def _era(sizing: Sizing, facts: SpeedFacts) -> EraFacts:
    era = facts.era(sizing.engine, sizing.engine_version)
    if era is None:
        known = ", ".join(sorted({each.engine for each in facts.engine}))
        raise InputError(Problem(sizing.engine, "its overheads are not known", f"Engines that were measured: {known}"))
    return era


def _band(bands: Bands, shape: ModelShape, gpu: Gpu, facts: SpeedFacts) -> Band:
    """The band by what was measured: an unknown GPU outweighs an unknown model."""
    fit = facts.fitted_gpu(gpu.id)
    if fit is None or fit.wide_band:
        return bands.new_gpu.band
    return (bands.known if shape.architecture in facts.architectures else bands.new_model).band


def _source(shape: ModelShape, gpu: Gpu, facts: SpeedFacts, dtype: WeightDtype) -> str:
    """What the prediction rests on, for the reader of the plan."""
    fit = facts.fitted_gpu(gpu.id)
    if fit is None:
        text = (
            f"roofline {facts.as_of}: no measurement of {gpu.id}, default bandwidth efficiency "
            f"{facts.bandwidth_efficiency_default.value:.2f} (guess, wide band)"
        )
    else:
        text = (
            f"roofline {facts.as_of}: bandwidth efficiency {fit.bandwidth_efficiency:.2f} "
            f"of {gpu.id} fitted on {fit.points:,} points"
        )
        if fit.wide_band:
            text += f", {fit.source} (wide band)"
    if shape.architecture not in facts.architectures:
        text += f"; no measurement of {shape.architecture}"
    text += "".join(f"; {note}" for note in (peaks_of(gpu, dtype).note, *_simplifications(shape)) if note)
    guesses = [name for name in gpu.unverified if name in FIGURES_USED]
    if guesses:
        text += f"; unverified GPU figures: {', '.join(guesses)}"
    caution = facts.cautions.get(gpu.id)
    return f"{text}; caution: {caution}" if caution else text


def _simplifications(shape: ModelShape) -> list[str]:
    """What the step of this model leaves out, or charges too high."""
    indexed = any(layers.role is CacheRole.INDEX for layers in shape.cache_layers)
    if indexed and picked_tokens(shape) is None:
        return ["sparse attention charged as dense (slow side)"]
    return []


def check_figures(gpu: Gpu, dtype: WeightDtype, tp: int) -> None:
    """Whether a GPU has the figures that the formats and the link of a tensor-parallel group need.

    Raises
    ------
    InputError
        Naming every missing one.
    """
    problems = Problems()
    where = f"gpus.csv, {gpu.id}"
    if gpu.bf16_tflops is None:
        problems.add(where, "the dense 16-bit peak is missing", "Add it with its source", field="bf16_tflops")
    if dtype is WeightDtype.FP8 and gpu.fp8_weights == "native" and gpu.fp8_tflops is None:
        problems.add(where, "FP8 is native but its peak is missing", "Add it with its source", field="fp8_tflops")
    if tp > 1 and gpu.interconnect_gb_s is None:
        problems.add(where, f"tp {tp} needs the link between GPUs", "Add it with its source", field="interconnect_gb_s")
    problems.raise_if_any()
