"""A distribution of lengths and bursts, brought to the rates and mean lengths that a usage report states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow.compute as pc

from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import of_model
from planner.traffic.operations.scale import Factors, scale
from planner.traffic.operations.split.parts import without_models
from planner.traffic.schema import ALL, Kind
from planner.traffic.sums.ingest import SUMS_ONLY


def scale_to_sums(base: Canonical, sums: Canonical) -> Canonical:
    """The rates of the sums with the lengths and bursts of the base.

    Lengths of the base are stretched so that their means are those of the sums; tail and maxima with them, so that they
    are no observations any more. Bursts keep the index of dispersion that the base measured. Models of the base that
    the sums do not name are left out.

    Raises
    ------
    InputError
        If the second is no distribution of sums, the first has no lengths, or a model of the sums has none in it.
    """
    problems = Problems()
    if sums.manifest.kind is not Kind.SUMS:
        problems.add("--to", f"holds {sums.manifest.kind.value}, no sums", "Ingest a usage report, and give its folder")
    if base.manifest.kind is Kind.SUMS:
        problems.add("BASE", "holds sums, no lengths", "Give a distribution of requests or of histograms")
    problems.raise_if_any()
    _same_models(base, sums)
    factors = {model: _factors(base, sums, model) for model in sums.models()}
    gone = [model for model in base.models() if model not in sums.models()]
    stretched = scale(without_models(base, gone), factors)
    manifest = stretched.manifest
    remarks = [*base.manifest.remarks, *(remark for remark in sums.manifest.remarks if remark != SUMS_ONLY)]
    return replace(
        stretched,
        manifest=manifest.model_copy(
            update={
                "window_start_us": sums.manifest.window_start_us,
                "window_end_us": sums.manifest.window_end_us,
                "time_base": "UTC",
                "tz_of_source": "UTC",
                "history": [*base.manifest.history, _history(sums, factors)],
                "remarks": [*remarks, _remark(sums)],
            }
        ),
        rates=sums.rates,
    )


def _same_models(base: Canonical, sums: Canonical) -> None:
    missing = sorted(set(sums.models()) - set(base.models()))
    if missing:
        shown, known = ", ".join(missing[:5]), ", ".join(base.models()[:20])
        fix = (
            f"It holds: {known}. Rename one with planner traffic merge BASE -o DIR --rename OLD=NEW, "
            "or keep single models of the sums with planner ingest --model NAME"
        )
        raise InputError([Problem("BASE", f"has no lengths of {shown}, which the sums hold", fix, field="model")])


def _factors(base: Canonical, sums: Canonical, model: str) -> Factors:
    """How rates and mean lengths of the sums stand to those of the base."""
    n, prompt, output = (_total(sums, model, column) for column in ("n", "sum_prompt", "sum_output"))
    kept = sums.manifest.models[model]
    cells = of_model(base.lengths, model)
    cells = cells.filter(pc.equal(cells["period"], ALL))
    coupling = sorted(set(cells["coupling"].to_pylist()))[0]
    cells = cells.filter(pc.equal(cells["coupling"], coupling))
    means = [pc.sum(cells[name]).as_py() / pc.sum(cells["n"]).as_py() for name in ("sum_prompt", "sum_output")]
    if not kept or not prompt or not output or not all(means):
        what = f"has no requests with prompts and outputs of {model}"
        raise InputError(Problem("--to", what, "Leave the model out with --model", field="model"))
    old = _total(base, model, "n") / base.manifest.window.seconds
    new = n / sums.manifest.window.seconds
    return Factors(rate=new / old, prompt=prompt / kept / means[0], output=output / kept / means[1])


def _total(canonical: Canonical, model: str, column: str) -> int:
    return int(pc.sum(of_model(canonical.rates, model)[column]).as_py() or 0)


def _history(sums: Canonical, factors: Mapping[str, Factors]) -> str:
    parts = (
        f"{model}: rate x {by.rate:.4g}, prompt x {by.prompt:.4g}, output x {by.output:.4g}"
        for model, by in factors.items()
    )
    return f"scaled to {sums.manifest.source} {', '.join(sums.manifest.files)} ({'; '.join(parts)})"


def _remark(sums: Canonical) -> str:
    return (
        f"rates and mean lengths are those of {sums.manifest.source}; the shape of the lengths, the largest of them and"
        " the bursts are those of the scaled distribution, stretched, and no observation"
    )
