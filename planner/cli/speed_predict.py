"""`planner speed predict`: TPOT, TTFT and throughput of one deployment under a load, and what its step is spent on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.cli.fields import options_from
from planner.cli.speed_cases import calibrated, read_points_table
from planner.cli.speed_predict_print import Prediction, as_data, print_prediction
from planner.errors import InputError, Problems
from planner.memory.starts.case_texts import AUTO_KV
from planner.memory.types import WeightDtype
from planner.memory.vllm.sizing import ONE_REQUEST
from planner.speed.cases.answers import answer_all
from planner.speed.cases.checkpoints import kv_dtype
from planner.speed.cases.deployments import Deployed, Deployments
from planner.speed.cases.loads import MOST_REQUESTS, MOST_TOKENS
from planner.speed.cases.parts import step_parts
from planner.speed.cases.rows import SIZED_ENGINES, Case, Reader
from planner.speed.cases.splits import MOST_DEGREE
from planner.speed.chain import load_sources
from planner.speed.points import Load, LoadKind, Point, Served

Found = TypeVar("Found")


def _option(help_text: str, *names: str, metavar: str | None = "N") -> typer.models.OptionInfo:
    return typer.Option(*names, metavar=metavar, help=help_text)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PredictOptions:
    """What was typed."""

    model: Annotated[str, typer.Argument(help="Model: catalogue id, or a name that benchmarks use.")]
    gpu: Annotated[str, _option("GPU, such as H100-SXM.", metavar="ID")]
    input_tokens: Annotated[float, _option("Mean prompt length, tokens.", "--input")]
    output_tokens: Annotated[float, _option("Mean answer length, tokens.", "--output")]
    tp: Annotated[int, _option("Tensor-parallel degree: all GPUs of a replica (of a pipeline stage).")] = 1
    pp: Annotated[int, _option("Pipeline-parallel degree.")] = 1
    ep: Annotated[int, _option("Expert-parallel degree.")] = 1
    attention_dp: Annotated[int, _option("Data-parallel degree of attention; divides --tp.")] = 1
    weights: Annotated[
        WeightDtype | None, _option(f"Weight format: {', '.join(WeightDtype)}. Default as stored.", metavar="TYPE")
    ] = None
    kv: Annotated[Literal["auto", "bf16", "fp8"], _option("KV-cache format: auto, bf16, fp8.", metavar="TYPE")] = "auto"
    engine: Annotated[Literal["vllm", "sglang", "trtllm"], _option("vllm, sglang or trtllm.", metavar="NAME")] = "vllm"
    version: Annotated[str, _option("Engine version. Default the newest in the catalogue.", metavar="VERSION")] = ""
    batch: Annotated[list[float] | None, _option("Requests in a replica at once; repeat it for a table.")] = None
    rate: Annotated[float | None, _option("Arrivals per second at a replica.", metavar="X")] = None
    max_load: Annotated[
        bool, _option("As many requests at once as the cache and the engine allow.", "--max-load", metavar=None)
    ] = False
    cached_share: Annotated[
        float, _option("Share of prompt tokens found in the prefix cache, 0 to 1.", metavar="X")
    ] = 0.0
    acceptance: Annotated[float, _option("Tokens that a step yields per sequence (speculation).", metavar="X")] = 1.0
    calibrate_with: Annotated[
        Path | None, _option("Measured points that correct the model, such as an imported load test.", metavar="FILE")
    ] = None
    as_json: Annotated[bool, _option("Print JSON.", "--json", metavar=None)] = False


def register(group: typer.Typer) -> None:
    """Add the command to its group."""
    group.command("predict")(predict_command)


@options_from(PredictOptions)
def predict_command(asked: PredictOptions) -> None:
    """Predict TPOT, TTFT and throughput of a replica with their bands, and show what a decode step is spent on."""
    prediction = predict(asked)
    if asked.as_json:
        typer.echo(json.dumps(as_data(prediction), indent=2, ensure_ascii=False))
    else:
        print_prediction(prediction)


def predict(asked: PredictOptions) -> Prediction:
    """What is predicted for the options.

    Raises
    ------
    InputError
        Listing every option that cannot be used; or if the model does not fit, or has no speed on this GPU.
    """
    problems = Problems()
    loads = _loads(asked, problems)
    _check_degrees(asked, problems)
    given = asked.calibrate_with
    table = problems.attempt(lambda: read_points_table(given)) if given is not None else None
    catalog = load_catalog()
    reader = Reader(Lookup(catalog))
    found = problems.attempt(lambda: _served(asked, reader))
    problems.raise_if_any()
    assert found is not None
    served, notes = found
    sources = load_sources(catalog.root)
    if table is not None and given is not None:
        sources = calibrated(sources, reader, table, given)
    deployments = Deployments(reader, sources)
    try:
        deployed = deployments.of(served)
    except InputError as error:
        where = f"{served.model} on {served.tp} x {served.gpu}"
        raise InputError(
            [replace(p, where=where, field="") if p.where == "row" else p for p in error.problems]
        ) from error
    notes = (*notes, *_refusals(served, deployed))
    answers = answer_all([Case("", Point("", served, load), notes=notes) for load in loads], deployments)
    parts = [step_parts(deployed.model.coefficients, load, one) for load, one in zip(loads, answers, strict=True)]
    return Prediction(served, tuple(loads), tuple(answers), tuple(parts))


def _served(asked: PredictOptions, reader: Reader) -> tuple[Served, tuple[str, ...]]:
    """The deployment in the catalogue's names, and what was read instead of what was typed.

    Raises
    ------
    InputError
        Naming the options that the catalogue does not know.
    """
    problems = Problems()
    gpu = problems.attempt(lambda: _option_of("--gpu", lambda: reader.names.gpu(asked.gpu)))
    wanted = str(asked.weights or "")
    stored = problems.attempt(
        lambda: _option_of("MODEL", lambda: reader.checkpoints.find(asked.model, wanted, exact=True))
    )
    facts = problems.attempt(lambda: reader.facts(asked.engine, asked.version))
    problems.raise_if_any()
    assert gpu is not None
    assert stored is not None
    assert facts is not None
    kv, note = kv_dtype("" if asked.kv == AUTO_KV else asked.kv, asked.engine, stored, facts)
    version = asked.version or (facts.version if facts.name == asked.engine else "")
    served = Served(
        engine=asked.engine,
        version=version,
        model=stored.shape.id,
        gpu=gpu.found.id,
        tp=asked.tp,
        weight_dtype=stored.weights,
        kv_dtype=kv,
        pp=asked.pp,
        ep=asked.ep,
        attention_dp=asked.attention_dp,
    )
    return served, tuple(filter(None, (*gpu.notes, *stored.notes, note)))


def _refusals(served: Served, deployed: Deployed) -> tuple[str, ...]:
    """Why the engine would not start the deployment as it is, the length of a request apart, which is not asked."""
    if served.engine not in SIZED_ENGINES:
        return ()
    refused = [refusal for refusal in deployed.pool.refusals if refusal.rule != ONE_REQUEST]
    return tuple(f"{served.engine} would not start this: {one.rule}: {one.message}" for one in refused)


def _option_of(option: str, step: Callable[[], Found]) -> Found:
    """The step's result; its problems name the option that was typed."""
    try:
        return step()
    except InputError as error:
        raise InputError(
            [replace(p, where=option, field="") if p.where == "row" else p for p in error.problems]
        ) from error


def _loads(asked: PredictOptions, problems: Problems) -> list[Load]:
    """The loads that were asked for, one kind only."""
    for option, tokens in (("--input", asked.input_tokens), ("--output", asked.output_tokens)):
        if not 1 <= tokens <= MOST_TOKENS:
            problems.add(option, f"must be from 1 to {MOST_TOKENS:,.0f} tokens (got {tokens:g})")
    if not 0 <= asked.cached_share <= 1:
        problems.add("--cached-share", f"must be from 0 to 1 (got {asked.cached_share:g})")
    if not 1 <= asked.acceptance <= 100:
        problems.add("--acceptance", f"must be from 1 to 100 tokens a step (got {asked.acceptance:g})")
    kinds = [
        name
        for name, value in (("--batch", asked.batch), ("--rate", asked.rate), ("--max-load", asked.max_load))
        if value
    ]
    if asked.rate is not None and not 0 < asked.rate <= MOST_REQUESTS:
        problems.add("--rate", f"must be above 0 and at most {MOST_REQUESTS:,.0f} (got {asked.rate:g})")
    elif len(kinds) != 1:
        message = f"only one of them can be asked (got {', '.join(kinds)})" if kinds else "one of them is needed"
        problems.add("--batch, --rate, --max-load", message, "Say what the replica is loaded with")
    for batch in asked.batch or ():
        if not 0 < batch <= MOST_REQUESTS:
            problems.add("--batch", f"must be above 0 and at most {MOST_REQUESTS:,.0f} (got {batch:g})")
    base = Load(
        LoadKind.MAX_LOAD,
        asked.input_tokens,
        asked.output_tokens,
        cached_share=asked.cached_share,
        acceptance=asked.acceptance,
    )
    if asked.rate is not None:
        return [replace(base, kind=LoadKind.OPEN_LOOP, rate_per_s=asked.rate)]
    if asked.batch:
        return [replace(base, kind=LoadKind.CLOSED_LOOP, concurrency=batch) for batch in asked.batch]
    return [base]


def _check_degrees(asked: PredictOptions, problems: Problems) -> None:
    for name in ("tp", "pp", "ep", "attention_dp"):
        value = getattr(asked, name)
        if not 1 <= value <= MOST_DEGREE:
            problems.add(f"--{name.replace('_', '-')}", f"must be from 1 to {MOST_DEGREE} (got {value})")
    if asked.attention_dp > 1 and asked.tp % asked.attention_dp:
        problems.add("--attention-dp", f"must divide --tp {asked.tp} (got {asked.attention_dp})")
