"""Options of `planner speed plot`, and whether they can be used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from planner.errors import InputError, Problem, Problems
from planner.memory.types import WeightDtype
from planner.report.speed_curve import LEAST_WIDTH_PX, MOST_CURVES, MOST_WIDTH_PX
from planner.speed.cases.splits import MOST_DEGREE

KINDS = (".png", ".svg", ".html")
"""Values of `planner.report.speed_page.FileKind`, which loads the charts."""
MOST_TOKENS = 10_000_000
MOST_CONCURRENCY = 65_536


def _option(help_text: str, *names: str, metavar: str | None = "N") -> typer.models.OptionInfo:
    return typer.Option(*names, metavar=metavar, help=help_text)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class PlotOptions:
    """What was typed."""

    model: Annotated[str, typer.Argument(help="Catalogue id, or path of a Hugging Face config.json.")] = ""
    gpu: Annotated[list[str] | None, _option("GPU id, such as H100-SXM; repeat it to compare.", metavar="ID")] = None
    tp: Annotated[list[int] | None, _option("Tensor-parallel degree; repeat it to compare. Default 1.")] = None
    weights: Annotated[
        list[WeightDtype] | None,
        _option("Weight format; repeat it to compare. Default as stored.", metavar="TYPE"),
    ] = None
    kv: Annotated[Literal["auto", "bf16", "fp8"], _option("KV-cache format: auto, bf16, fp8.", metavar="TYPE")] = "auto"
    engine: Annotated[Literal["vllm", "sglang"], _option("vllm or sglang.", metavar="NAME")] = "vllm"
    engine_version: Annotated[
        str, _option("Default the newest in the catalogue.", "--engine-version", "--version", metavar="VERSION")
    ] = ""
    input_tokens: Annotated[int | None, _option("Mean prompt, tokens.", "--input")] = None
    output_tokens: Annotated[int | None, _option("Mean output, tokens.", "--output")] = None
    concurrency: Annotated[str, _option("Least and most requests in a replica. Default 1:256.", metavar="A:B")] = ""
    measured: Annotated[Path | None, _option("Measured points to draw, such as a load test.", metavar="FILE")] = None
    calibrate_with: Annotated[
        Path | None, _option("Measured points that correct the model, such as a load test.", metavar="FILE")
    ] = None
    plan: Annotated[
        Path | None, _option("Draw every pool of a plan.json instead, into the folder -o.", metavar="FILE")
    ] = None
    width: Annotated[int | None, _option("Width of the picture, pixels. Default 1000.", metavar="PX")] = None
    out: Annotated[
        Path | None, _option("File (.png, .svg, .html), or the folder of --plan.", "-o", "--out", metavar="PATH")
    ] = None


WITHOUT_PLAN = ("model", "gpu", "tp", "weights", "engine_version", "input_tokens", "output_tokens", "concurrency")
"""Options that a plan answers itself."""
TYPED_AS = {"model": "MODEL", "input_tokens": "--input", "output_tokens": "--output", "out": "-o"}


def span_of(text: str) -> tuple[float, float]:
    """``A:B`` as the least and the most concurrency."""
    ends = text.split(":")
    if len(ends) == 2 and all(end.isascii() and end.isdigit() for end in ends):
        low, high = (int(end[:10]) for end in ends)
        if 1 <= low < high <= MOST_CONCURRENCY:
            return float(low), float(high)
    message = f"{text!r:.40} is no range of whole numbers from 1 to {MOST_CONCURRENCY:,}"
    raise InputError(Problem("--concurrency", message, "Write it like 1:256"))


def check_out(asked: PlotOptions, problems: Problems) -> None:
    """Whether there is somewhere to write, and a width that text fits in."""
    suffix = asked.out.suffix.lower() if asked.out is not None else ""
    if asked.out is None:
        what = "the folder to write into" if asked.plan is not None else "a file such as speed.png"
        problems.add("-o", "is missing", f"Name {what}")
    elif asked.plan is None and suffix not in KINDS:
        problems.add("-o", f"{asked.out} is no kind of picture", f"End its name with one of {', '.join(KINDS)}")
    elif asked.plan is None and asked.out.is_dir():
        problems.add("-o", f"{asked.out} is a folder", "Name a file")
    if asked.width is not None and not LEAST_WIDTH_PX <= asked.width <= MOST_WIDTH_PX:
        problems.add("--width", f"must be from {LEAST_WIDTH_PX} to {MOST_WIDTH_PX:,} pixels (got {asked.width})")


def check_typed(asked: PlotOptions, problems: Problems) -> None:
    """Everything that can be judged without the catalogue."""
    for name, least in (("input_tokens", 1), ("output_tokens", 2)):
        value = getattr(asked, name)
        if value is None:
            problems.add(TYPED_AS[name], "is missing", "Give the mean tokens of a request")
        elif not least <= value <= MOST_TOKENS:
            problems.add(TYPED_AS[name], f"must be from {least} to {MOST_TOKENS:,} tokens")
    wrong = [str(tp)[:20] for tp in asked.tp or () if not 1 <= tp <= MOST_DEGREE]
    if wrong:
        problems.add("--tp", f"must be from 1 to {MOST_DEGREE:,} (got {', '.join(wrong)})")
    for option, values in (("--gpu", asked.gpu), ("--tp", asked.tp), ("--weights", asked.weights)):
        names = [str(value).casefold() for value in values or ()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            problems.add(option, f"names {', '.join(twice)} twice", "Name it once")
    count = math.prod(len(values or (None,)) for values in (asked.gpu, asked.tp, asked.weights))
    if count > MOST_CURVES:
        problems.add("--gpu, --tp, --weights", f"make {count} deployments", f"Compare at most {MOST_CURVES}")
    if not asked.model:
        problems.add("MODEL", "is missing", "Give a model, or --plan FILE")
    if not asked.gpu:
        problems.add("--gpu", "is missing", "Give a GPU such as H100-SXM, or --plan FILE")
    check_out(asked, problems)
