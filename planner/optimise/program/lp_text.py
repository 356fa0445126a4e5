"""The program as LP text, the same on every version of PuLP, with a legend of what its indices mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pulp

from planner.optimise.program.parts import Program
from planner.optimise.types import ProgramData

LINE = 110
SENSE = {pulp.LpConstraintLE: "<=", pulp.LpConstraintGE: ">=", pulp.LpConstraintEQ: "="}


def write_lp(program: Program, data: ProgramData, path: Path) -> None:
    """Write the program to a file in LP format."""
    path.write_text(lp_text(program, data), encoding="utf-8")


def lp_text(program: Program, data: ProgramData) -> str:
    """The program in LP format; rows in the order of the families."""
    variables = _variables(program)
    names = [name for family in program.rows.values() for name in family]
    lines = [*_legend(program, data), "Minimize", *_wrapped("usd", _terms(program.problem.objective), "")]
    lines.append("Subject To")
    for name in names:
        row = program.problem.get_constraint_by_name(name)
        lines += _wrapped(name, _terms(row), f"{SENSE[row.sense]} {_number(-row.constant)}")
    binary = {id(v) for v in program.y.values()}
    others = [v for v in variables if id(v) not in binary]
    lines += ["Bounds", *_bounds(others), "Binaries", *_wrapped("", [v.name for v in program.y.values()], "")]
    lines += ["Generals", *_wrapped("", [v.name for v in others if v.cat != pulp.LpContinuous], ""), "End", ""]
    return "\n".join(lines)


def _variables(program: Program) -> list[Any]:
    """Every variable once, in the order of its kind."""
    kinds = (program.y, program.reserved, program.x, program.replicas, program.moved, program.slack)
    return list({id(v): v for kind in kinds for v in kind.values()}.values())


def _legend(program: Program, data: ProgramData) -> Iterator[str]:
    """What the indices of names stand for, as comments."""
    groups = program.groups
    yield "\\ y(c): columns; x(o,t) running, X(o) reserved instances; r(k,h,t) replicas; u(i) GPUs moved"
    kinds: list[tuple[str, Iterable[str]]] = [
        ("model m", data.models),
        ("period t", (f"{p.name}, {p.hours:g} h" for p in data.periods)),
        ("column c", (c.key for c in data.columns)),
        ("lot o", (lot.id for lot in data.lots)),
        ("placement k", (str_of(p) for p in groups.needed)),
        ("yard h", (" + ".join(s.id for s in yard.supplies) for yard in groups.yards.yards)),
        ("quota q", (q.name for q in data.quotas)),
        ("moved i", (f"{model} on {gpu}" for model, gpu in program.moved)),
        ("short", program.slack),
    ]
    for kind, names in kinds:
        for i, name in enumerate(names):
            yield f"\\ {kind} = {i}: {' '.join(name.split())}"


def str_of(placement: Any) -> str:
    """A placement in a few words."""
    words = [f"{placement.gpu} x {placement.gpus_per_replica}"]
    words += ["may be interrupted"] if placement.interruptible else []
    words += [f"in {', '.join(placement.regions)}"] if placement.regions else []
    words += [f"spread for {placement.spread}"] if placement.spread else []
    return "; ".join(words)


def _terms(expression: Any) -> list[str]:
    return [f"{'-' if value < 0 else '+'} {_number(abs(value))} {v.name}" for v, value in expression.items()]


def _number(value: float) -> str:
    return f"{value + 0.0:.12g}"


def _wrapped(name: str, words: list[str], end: str) -> Iterator[str]:
    """One row, or a list of names, over as many lines as it takes; a row without terms has one that is 0."""
    line = f" {name}:" if name else ""
    for word in [*(words or (["0 y(0)"] if name else [])), *([end] if end else [])]:
        if len(line) + len(word) + 1 > LINE:
            yield line
            line = "  "
        line += f" {word}"
    yield line


def _bounds(variables: Iterable[Any]) -> Iterator[str]:
    for v in variables:
        if v.upBound is not None and v.upBound < float("inf"):
            yield f" {_number(v.lowBound)} <= {v.name} <= {_number(v.upBound)}"
