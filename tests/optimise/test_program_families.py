"""Every family: a hand-solved case, a point that it alone forbids, its LP text; and that none is missing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import planner.optimise.program as package
from planner.optimise.program import build
from planner.optimise.program.parts import linear
from planner.optimise.recount import recount
from planner.optimise.solve.ratio import solve_program
from planner.plan import SolveStatus
from tests.optimise.families import CASES
from tests.optimise.lp_snapshots import FOLDER, path, snapshot
from tests.optimise.small_programs import EXACT, solve

builder = importlib.import_module("planner.optimise.program.build")


def families() -> set[str]:
    """Every function named ``add_...`` in the modules of the program."""
    modules = [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    return {
        name for module in modules for name, _ in inspect.getmembers(module, inspect.isfunction) if name[:4] == "add_"
    }


def fixed(case, **options):
    """The program with the broken point's columns, instances and replicas as rows; what is moved stays free."""
    d, point = case.data, case.broken
    program = build(d, case.theta, **options)
    chosen = {c.key for c in point.columns}
    values = [(v, float(key in chosen)) for key, v in program.y.items()]
    values += [(v, float(point.reserved.get(name, 0))) for name, v in program.reserved.items()]
    none = (0,) * len(d.periods)
    reserved = {id(v) for v in program.reserved.values()}
    values += [
        (v, float(point.running.get(name, none)[t])) for (name, t), v in program.x.items() if id(v) not in reserved
    ]
    for (placement, h, t), v in program.replicas.items():
        supplies = program.groups.yards.yards[h].supplies
        values.append((v, float(sum(point.placed.get((placement, s.id), none)[t] for s in supplies))))
    problem = program.problem
    for i, (variable, value) in enumerate(values):
        problem += linear([(variable, 1.0)]) == value, f"fix({i})"
    return program


@pytest.mark.parametrize("name", sorted(CASES))
def test_hand_solved(name):
    case = CASES[name]()
    decision = solve(case.data, case.theta)
    assert decision.usd == pytest.approx(case.usd, rel=1e-9)
    assert recount(case.data, decision) == []


@pytest.mark.parametrize("name", sorted(CASES))
def test_broken_point_is_reported_and_excluded_by_this_family_alone(name, monkeypatch):
    case = CASES[name]()
    assert recount(case.data, case.broken) == [case.says]
    assert solve_program(fixed(case), EXACT).status is SolveStatus.INFEASIBLE
    monkeypatch.setattr(builder, name, lambda program, data: None)
    assert solve_program(fixed(case), EXACT).status is SolveStatus.OPTIMAL


@pytest.mark.parametrize("name", sorted(CASES))
def test_lp_text(name):
    """Refresh with ``python -m tests.optimise.lp_snapshots`` and read the difference."""
    assert snapshot(name) == path(name).read_text(encoding="utf-8")


def test_no_family_is_without_its_tests(monkeypatch):
    assert set(CASES) == families()
    assert {p.stem for p in FOLDER.glob("*.lp")} == {name.removeprefix("add_") for name in CASES}
    assert all(case.__doc__ for case in CASES.values())
    called = []
    for name in CASES:
        monkeypatch.setattr(builder, name, lambda program, data, name=name: called.append(name))
    build(CASES["add_routing"]().data, 0.0)
    assert sorted(called) == sorted(CASES)


def test_a_new_family_without_tests_is_found(monkeypatch):
    caps = importlib.import_module("planner.optimise.program.caps")
    monkeypatch.setattr(caps, "add_noise_cap", lambda program, data: None, raising=False)
    assert set(CASES) != families()
