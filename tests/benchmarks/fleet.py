"""Fleets of many models: time, memory and gap by phase, on real models, prices, lengths and weeks.

python -m tests.benchmarks.fleet --size small|medium|large [--models N] [--processes N] [--seed S] [--synthetic]
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import ParamSpec, TypeVar
from unittest import mock

from planner.catalog.load import load_catalog
from planner.optimise.program import Program
from planner.optimise.solve import fleet as fleets
from planner.optimise.solve import scale
from planner.optimise.solve.ratio import solve_ratio
from planner.optimise.solve.whole_nodes import WholeSearch
from planner.optimise.types import Decision, ProgramData, SolverSettings
from planner.pipeline import prepare, settings_of
from tests.benchmarks.fleet_real import SIZES, instance, library
from tests.benchmarks.fleet_synthetic import SIZES as SYNTHETIC_SIZES
from tests.benchmarks.fleet_synthetic import synthetic

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Phase:
    """What a phase took, all its calls together, child processes included."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    calls: int = 0
    peak_mib: float = 0.0


@dataclass
class Phases:
    """Phases by name, in the order in which they first ended; one inside another counts in both."""

    found: dict[str, Phase] = field(default_factory=dict)

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Measure a block."""
        wall, cpu = time.monotonic(), _cpu_s()
        yield
        phase = self.found.setdefault(name, Phase())
        phase.wall_s += time.monotonic() - wall
        phase.cpu_s += _cpu_s() - cpu
        phase.calls += 1
        phase.peak_mib = max(phase.peak_mib, _peak_mib())

    def wrapped(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        """A function whose calls are measured."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.measured(name):
                return function(*args, **kwargs)

        return call

    def print(self) -> None:
        """As a table."""
        print("| phase | calls | wall s | CPU s | peak MiB |\n|---|---|---|---|---|")
        for name, p in self.found.items():
            print(f"| {name} | {p.calls} | {p.wall_s:.1f} | {p.cpu_s:.1f} | {p.peak_mib:,.0f} |")


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _peak_mib() -> float:
    """Of this process, and of the largest child on top: what forked children share counts twice."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(each).ru_maxrss for each in who) / 1024


@dataclass
class Last:
    """The last integer program that was built."""

    program: Program | None = None

    def keeping(self, build: Callable[P, Program]) -> Callable[P, Program]:
        """A builder whose last program is kept."""

        def call(*args: P.args, **kwargs: P.kwargs) -> Program:
            self.program = build(*args, **kwargs)
            return self.program

        return call


@contextmanager
def watched(phases: Phases, last: Last) -> Iterator[None]:
    """The parts of a solve measured apart."""
    with (
        mock.patch.object(scale, "build", phases.wrapped("- build", last.keeping(scale.build))),
        mock.patch.object(scale, "lower_bound", phases.wrapped("- bound over all columns", scale.lower_bound)),
        mock.patch.object(scale, "polish", phases.wrapped("- polish", scale.polish)),
        mock.patch.object(WholeSearch, "run", phases.wrapped("- bound with whole instances", WholeSearch.run)),
        mock.patch.object(scale, "solve_program", phases.wrapped("- integer program", scale.solve_program)),
        mock.patch.object(fleets, "exact_need", phases.wrapped("- exact needs", fleets.exact_need)),
    ):
        yield


def run_real(
    size: str, models: int, seed: int, processes: int, limit_s: float, phases: Phases
) -> tuple[ProgramData, Decision | None]:
    """Candidates, then the fleet with exact needs; laws, rates and weeks are part of the instance."""
    with phases.measured("(logs and weeks)"):
        inputs = instance(replace(SIZES[size], models=models), seed, load_catalog(), library())
    with phases.measured("candidates"):
        quarter = prepare(inputs, processes=processes)
    with phases.measured("columns"):
        data = quarter.fleet.data()
    with phases.measured("solve with exact needs"):
        decision = quarter.fleet.solve(replace(settings_of(inputs.request), time_limit_s=limit_s))
    print(f"{len(inputs.offers.usable)} offers, {quarter.fleet.rounds} rounds")
    return data, decision


def run_synthetic(
    size: str, models: int, seed: int, limit_s: float, phases: Phases
) -> tuple[ProgramData, Decision | None]:
    """A made program, solved."""
    with phases.measured("(generate)"):
        data = synthetic(replace(SYNTHETIC_SIZES[size], models=models), seed)
    with phases.measured("solve"):
        decision = solve_ratio(data, SolverSettings("highs", SIZES[size].gap, limit_s, 2, 0))
    return data, decision


def print_decision(decision: Decision | None, gap: float) -> None:
    """What was found."""
    if decision is None:
        print("infeasible")
        return
    bound = decision.usd_per_token_bound * decision.served_tokens
    print(f"{decision.status}: {decision.usd:,.0f} USD, bound {bound:,.0f}, gap {decision.gap:.3%} (asked {gap:.2%})")
    print(f"{decision.ratio_iterations} ratio iterations; {len(decision.columns)} pools; {'; '.join(decision.notes)}")


def main() -> None:
    """Print one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--models", type=int)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600.0, help="wall seconds of the solve")
    parser.add_argument("--synthetic", action="store_true")
    asked = parser.parse_args()
    phases, last = Phases(), Last()
    models = asked.models or SIZES[asked.size].models
    with watched(phases, last):
        if asked.synthetic:
            data, decision = run_synthetic(asked.size, models, asked.seed, asked.limit, phases)
        else:
            data, decision = run_real(asked.size, models, asked.seed, asked.processes, asked.limit, phases)
    program = last.program
    binaries = len(program.y) if program is not None else 0
    print(f"{models} models, {len(data.columns):,} columns, {len(data.lots)} lots, {len(data.periods)} periods")
    print(f"last integer program: {binaries:,} binaries, load {os.getloadavg()[0]:.1f}")
    phases.print()
    print_decision(decision, SIZES[asked.size].gap)


if __name__ == "__main__":
    main()
