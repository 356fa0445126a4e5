"""Better plans from a good one: a few models choose anew, the others keep what they have, instances are bought anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.optimise.program import Program, solver_columns
from planner.optimise.solve.clock import Clock
from planner.optimise.solve.solvers import settle, silent_stdout
from planner.optimise.solve.table import IntArray
from planner.traffic.types import FloatArray

FIRST_MODELS, LEAST_MODELS = 6, 3
"""Models that choose anew together, at first and at least."""
NODES = 200
"""Branch-and-bound nodes after which a choice is taken as it is."""
EASY = 0.1
"""Below this share of the nodes a choice was easy: more models choose together next."""
WORTHWHILE = 1e-5
"""A choice is solved to this gap, and only what is cheaper by a tenth of it is an improvement."""
PATIENCE = 4
"""Rounds over all models without an improvement after which it ends."""


def polish(
    program: Program, objective: float, clock: Clock, *, seed: int, choices: int, stop_at: float | None = None
) -> float:
    """Large-neighbourhood search on a program that HiGHS has solved; its variables hold the better plan at the end.

    Some models choose among all their columns, the other models' columns are fixed, and every count of instances is
    free: a small integer program that sees exactly what filling half-empty instances is worth.

    Parameters
    ----------
    program
        Solved by HiGHS, its variables whole.
    objective
        Its cost (USD).
    clock
        When to end at the latest.
    seed
        Of the order in which models choose.
    choices
        Most small programs to solve.
    stop_at
        Cost at which to end at once.

    Returns
    -------
    float
        Cost of the plan that the variables hold now, at most ``objective``.
    """
    search = Neighbourhoods(program, objective, seed)
    target = -np.inf if stop_at is None else stop_at
    with silent_stdout():
        for _ in range(choices):
            if not search.goes_on or search.objective <= target or clock.left_s <= 0.0:
                break
            search.choose_anew(clock.left_s)
        return search.end()


class Neighbourhoods:
    """The best plan so far, and which models choose next."""

    def __init__(self, program: Program, objective: float, seed: int) -> None:
        self.objective = objective
        self._program = program
        self._highs: Any = program.problem.solverModel
        variables = solver_columns(program.problem)
        where = {variable.name: i for i, variable in enumerate(variables)}
        self._values: FloatArray = np.array([float(variable.varValue or 0.0) for variable in variables])
        keys = list(program.y)
        self._models: list[IntArray] = [
            np.array([where[program.y[keys[i]].name] for i in columns], dtype=np.int64)
            for columns in program.groups.by_model.values()
            if len(columns) > 1
        ]
        self._choices = np.concatenate([np.zeros(0, dtype=np.int64), *self._models]).astype(np.int32)
        self._random = np.random.default_rng(seed)
        self._size, self._idle, self._queue = FIRST_MODELS, 0, list[int]()
        self._highs.setOptionValue("mip_rel_gap", WORTHWHILE)
        self._highs.setOptionValue("mip_max_nodes", NODES)

    @property
    def goes_on(self) -> bool:
        """Whether an improvement may be left."""
        return self._idle * self._size < PATIENCE * len(self._models)

    def choose_anew(self, left_s: float) -> None:
        """Solve one choice, keep what is cheaper, and let more models choose next where that was easy."""
        highs, values = self._highs, self._values
        lower, upper = values[self._choices].copy(), values[self._choices].copy()
        free = np.isin(self._choices, np.concatenate([self._models[m] for m in self._next_models()]))
        lower[free], upper[free] = 0.0, 1.0
        highs.changeColsBounds(self._choices.size, self._choices, lower, upper)
        highs.setSolution(values.size, np.arange(values.size, dtype=np.int32), values)
        highs.setOptionValue("time_limit", highs.getRunTime() + left_s)
        highs.run()
        info = highs.getInfo()
        cheaper = self.objective - WORTHWHILE / 10 * abs(self.objective)
        if info.primal_solution_status == 2 and info.objective_function_value < cheaper:
            self._values = np.array(highs.getSolution().col_value)
            self._values[self._choices] = np.round(self._values[self._choices])
            self.objective, self._idle = float(info.objective_function_value), 0
        else:
            self._idle += 1
        if highs.getModelStatus().name != "kOptimal":
            self._size = max(self._size - 1, LEAST_MODELS)
        elif info.mip_node_count < EASY * NODES:
            self._size = min(self._size + 1, len(self._models))

    def _next_models(self) -> list[int]:
        """The next models of a random order; a new order when all have had a choice."""
        if len(self._queue) < min(self._size, len(self._models)):
            self._queue += self._random.permutation(len(self._models)).tolist()
        taken, self._queue = self._queue[: self._size], self._queue[self._size :]
        return taken

    def end(self) -> float:
        """Put the best plan into the program's variables, whole; its cost."""
        zero, one = np.zeros(self._choices.size), np.ones(self._choices.size)
        self._highs.changeColsBounds(self._choices.size, self._choices, zero, one)
        return settle(self._program, self._highs, self._values, 10.0)
