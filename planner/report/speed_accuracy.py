"""How near the roofline came to points that it had not seen: text for the terminal, tables for a Markdown file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.speed.fit.refit import Refit
from planner.speed.fit.sample import Sample
from planner.speed.fit.validate import Ratios, Score, score
from planner.speed.types import Band, FloatArray

HEADINGS = (
    *("points held out", "closed loops", "TPOT median", "p90", "in band", "TTFT median", "p90", "in band"),
    *("full loads", "throughput median", "p90"),
)


@dataclass(frozen=True)
class Line:
    """Errors of one group."""

    name: str
    tpot: Score
    ttft: Score
    throughput: Score
    tpot_in_band: float
    ttft_in_band: float

    @property
    def cells(self) -> tuple[str, ...]:
        """As text, in the order of `HEADINGS`."""
        tpot, ttft, full = (_errors(found) for found in (self.tpot, self.ttft, self.throughput))
        return (self.name, *tpot, _share(self.tpot_in_band), *ttft[1:], _share(self.ttft_in_band), *full)


def _share(value: float) -> str:
    """A share as percent; empty where there is none."""
    return "" if np.isnan(value) else f"{value:.0%}"


def _errors(found: Score) -> tuple[str, str, str]:
    """Points, median and 90th percentile; empty without points."""
    if not found.points:
        return "", "", ""
    return f"{found.points:,}", f"{found.median:.1f} %", f"{found.p90:.1f} %"


def accuracy_lines(found: Refit, sample: Sample) -> dict[str, list[Line]]:
    """Tables by title: deployments, architectures and GPUs held out."""
    facts = found.facts
    first = found.deployments[0]
    deployments = [_line("all deployments, in turn", found.deployments, _bands(found, "known"), None)]
    for label, names in (("engine", sample.engine), ("GPU", sample.gpu), ("architecture", sample.model)):
        deployments += _groups(label, names, (first,), _bands(found, "known"))
    models = _groups("", sample.model, (found.models,), _bands(found, "new_model"))
    gpus = _groups("", sample.gpu, (found.gpus,), _bands(found, "new_gpu"))
    return {
        f"Deployments held out (coefficients of {facts.as_of})": deployments,
        "Each architecture predicted without its points": [
            _line("all", (found.models,), _bands(found, "new_model"), None),
            *models,
        ],
        "Each GPU predicted without its points": [_line("all", (found.gpus,), _bands(found, "new_gpu"), None), *gpus],
    }


def accuracy_text(found: Refit, sample: Sample, left_out: Mapping[str, int]) -> str:
    """Everything as text in columns."""
    parts = [_basis(sample, left_out)]
    for title, lines in accuracy_lines(found, sample).items():
        rows = [HEADINGS, *(line.cells for line in lines)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
        body = ("  ".join(_aligned(cell, i, widths[i]) for i, cell in enumerate(row)).rstrip() for row in rows)
        parts.append("\n".join((title, *body)))
    return "\n\n".join(parts)


def accuracy_markdown(found: Refit, sample: Sample, left_out: Mapping[str, int]) -> str:
    """Everything as Markdown."""
    parts = [_basis(sample, left_out)]
    for title, lines in accuracy_lines(found, sample).items():
        rows = "\n".join(f"| {' | '.join(line.cells)} |" for line in lines)
        parts.append(f"{title}:\n\n| {' | '.join(HEADINGS)} |\n|---{'|---:' * (len(HEADINGS) - 1)}|\n{rows}")
    return "\n\n".join(parts) + "\n"


def _basis(sample: Sample, left_out: Mapping[str, int]) -> str:
    reasons = "; ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    count = len(np.unique(sample.deployment))
    return f"{len(sample):,} points of {count} deployments. Left out: {reasons or 'nothing'}."


def _aligned(cell: str, column: int, width: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def _bands(found: Refit, name: str) -> tuple[Band, Band]:
    tpot, ttft = getattr(found.facts.tpot_bands, name), getattr(found.facts.ttft_bands, name)
    return tpot.band, ttft.band


def _groups(
    label: str, names: npt.NDArray[np.str_], ratios: tuple[Ratios, ...], bands: tuple[Band, Band]
) -> Iterator[Line]:
    for name in np.unique(names).tolist():
        yield _line(f"{label} {name}".strip(), ratios, bands, names == name)


def _line(
    name: str,
    ratios: tuple[Ratios, ...],
    bands: tuple[Band, Band],
    chosen: npt.NDArray[np.bool_] | None,
) -> Line:
    """One group over every way of holding out; points are counted once."""
    tpot, ttft, full = (
        np.concatenate([getattr(each, figure) if chosen is None else getattr(each, figure)[chosen] for each in ratios])
        for figure in ("tpot", "ttft", "throughput")
    )
    times = len(ratios)
    return Line(
        name,
        _once(score(tpot), times),
        _once(score(ttft), times),
        _once(score(full), times),
        _inside(tpot, bands[0]),
        _inside(ttft, bands[1]),
    )


def _once(found: Score, times: int) -> Score:
    return Score(found.points // times, found.median, found.p90, found.bias)


def _inside(ratio: FloatArray, band: Band) -> float:
    """Share of the points in the band; NaN of none."""
    known = ratio[np.isfinite(ratio)]
    return float(np.mean((known >= band.low) & (known <= band.high))) if len(known) else np.nan
