"""Families on what serves each model: its route, its number of pools, and how far it may move from last quarter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pulp

from planner.optimise.program.parts import Program, Terms
from planner.optimise.types import Column, ProgramData

WORTH_OF_A_MODEL = 10_000.0
"""GPUs: in an elastic program anything else is given up before a model is left out."""
WORTH_OF_A_POOL = 8.0


def add_routing(program: Program, data: ProgramData) -> None:
    """Every model's requests are served exactly once: its columns are a path from node 0 to the end of its graph.

    For each model m:  sum of y[c] over c that start at 0                             == 1   ``serve(m)``
    and for each inner node b:  sum over c that end at b  −  sum over c that start at b  == 0   ``route(m,b)``

    Elastic: a model may be left out.
    """
    for m, model in enumerate(data.models):
        through: dict[int, Terms] = defaultdict(list)
        for i in program.groups.by_model[model]:
            column = data.columns[i]
            variable = program.y[column.key]
            through[column.start].append((variable, 1.0 if column.start == 0 else -1.0))
            if column.end != data.end_node[model]:
                through[column.end].append((variable, 1.0))
        out = [(variable, 1.0) for variable, _ in program.short(f"serve[{model}]", "of it", WORTH_OF_A_MODEL, 1.0)]
        program.add_row("routing", f"serve({m})", through.pop(0, []) + out, "==", 1.0)
        for node in sorted(through):
            program.add_row("routing", f"route({m},{node})", through[node], "==", 0.0)


def add_pool_limit(program: Program, data: ProgramData) -> None:
    """For each model m:  sum over its columns of parts[c] * y[c]  <=  max_pools[m]   (pools; ``pools(m)``).

    Left out where no path can have more.
    """
    for m, model in enumerate(data.models):
        columns = [data.columns[i] for i in program.groups.by_model[model]]
        most_parts = max((len(column.parts) for column in columns), default=0)
        if data.max_pools[model] >= most_parts * data.end_node[model]:
            continue
        terms: Terms = [(program.y[column.key], float(len(column.parts))) for column in columns]
        terms += program.short(f"pools[{model}]", "pools", WORTH_OF_A_POOL)
        program.add_row("pool_limit", f"pools({m})", terms, "<=", float(data.max_pools[model]))


def add_movement(program: Program, data: ProgramData) -> None:
    """GPUs that a model has beyond last quarter's are moved, and at most so many are.

    For each model m, GPU type g and period t (GPUs; ``moved(i,t)``):

        sum over columns c of m of GPUs[c, g, t] * y[c]  −  u[m, g]  <=  last[m, g]

    and  sum of u  <=  max_moved   (``movement``). A period in which no column has more
    GPUs than in another is left out.
    """
    if data.movement is None:
        return
    for model in data.models:
        by_gpu = _gpus([data.columns[i] for i in program.groups.by_model[model]], len(data.periods))
        for gpu in sorted(by_gpu):
            index = len(program.moved)
            moved = program.problem.add_variable(f"u({index})", 0, None, pulp.LpContinuous)
            program.moved[model, gpu] = moved
            last = float(data.movement.last_gpus.get((model, gpu), 0))
            counts = {t: tuple(gpus[t] for gpus in by_gpu[gpu].values()) for t in range(len(data.periods))}
            for t in _largest(counts):
                terms: Terms = [(program.y[key], float(gpus[t])) for key, gpus in by_gpu[gpu].items() if gpus[t]]
                program.add_row("movement", f"moved({index},{t})", [*terms, (moved, -1.0)], "<=", last)
    total: Terms = [(variable, 1.0) for variable in program.moved.values()]
    total += program.short("movement", "GPUs", 1.0)
    program.add_row("movement", "movement", total, "<=", float(data.movement.max_moved_gpus))


def _gpus(columns: Iterable[Column], periods: int) -> dict[str, dict[str, list[int]]]:
    """GPUs by type, column key and period."""
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for column in columns:
        for part in column.parts:
            gpus = found[part.placement.gpu].setdefault(column.key, [0] * periods)
            for t, count in enumerate(part.running):
                gpus[t] += count * part.placement.gpus_per_replica
    return found


def _largest(counts: dict[int, tuple[int, ...]]) -> list[int]:
    """Periods whose counts are not all at most those of another; of equal ones the first."""
    kept: list[int] = []
    for t in sorted(counts, key=lambda t: (-sum(counts[t]), t)):
        if not any(all(a <= b for a, b in zip(counts[t], counts[other], strict=True)) for other in kept):
            kept.append(t)
    return sorted(kept)
