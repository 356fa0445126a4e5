"""`planner ingest --backend`: a table of a warehouse or cluster to a canonical folder, or the SQL that does it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import Canonical
from planner.traffic.warehouse.backends import BACKENDS, connected, find_backend, open_table
from planner.traffic.warehouse.distribution import distribution
from planner.traffic.warehouse.ingest import ingest_table
from planner.traffic.warehouse.order import TableOrder, check
from planner.traffic.warehouse.saved import saved_answers
from planner.traffic.warehouse.table import named_columns


def ingested(
    tables: Sequence[str], backend: str, address: str, asked: Mapping[str, Any], saved: Path | None
) -> Canonical:
    """The distribution of a table, or of the answers that a person saved.

    Raises
    ------
    InputError
        If the backend, the table or the answers cannot be used.
    """
    order = _order(tables, backend, address, asked)
    if saved is not None:
        check(order)
        used = named_columns(order.log_format, order.mapping)
        if not used:
            fix = "Give the same --map or --format as with --sql-only; --map can name the columns that were found"
            raise InputError(Problem("--from-tables", "needs to know which columns were read", fix))
        return distribution(order, saved_answers(saved), used)
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        return ingest_table(order)
    with console.status(f"asking {order.backend}") as status:
        return ingest_table(order, asking=lambda name: status.update(f"asking {order.backend} for {name}"))


def _order(tables: Sequence[str], backend: str, address: str, asked: Mapping[str, Any]) -> TableOrder:
    problems = Problems()
    if len(tables) != 1:
        problems.add("TABLE", f"{len(tables)} are given", "With --backend give one table; a view can join several")
    if not backend:
        problems.add("--backend", "is not given", f"Use one of: {', '.join(BACKENDS)}")
    elif backend not in BACKENDS:
        find_backend(backend)
    problems.raise_if_any()
    return TableOrder(backend=backend, table=tables[0], connect=address, **asked)


def print_sql(tables: Sequence[str], backend_name: str, address: str, asked: Mapping[str, Any]) -> None:
    """Print one statement per small table. With an address, the types of the columns are looked up there.

    Raises
    ------
    InputError
        If the table does not fit.
    """
    order = _order(tables, backend_name, address, asked)
    check(order)
    backend = find_backend(order.backend)
    from planner.traffic.warehouse.sql import assumed_table, statements  # noqa: PLC0415  needs Ibis, an option

    def text(table: object) -> str:
        found = statements(
            backend,
            order.table,
            table,
            log_format=order.log_format,
            mapping=order.mapping,
            options=order.options,
            wanted=order.wanted(),
        )
        blocks = [f"-- {s.name}: save the result as {s.name}.csv or {s.name}.parquet\n{s.text};\n" for s in found]
        return "\n".join([_heading(order), *blocks])

    if order.connect:
        with connected(backend, order.connect) as connection:
            typer.echo(text(open_table(backend, connection, order.connect, order.table)), nl=False)
    else:
        table = assumed_table(order.table, order.log_format, order.mapping, order.options)
        typer.echo(text(table), nl=False)


def _heading(order: TableOrder) -> str:
    lines = [
        f"Queries of {order.table} for {order.backend}. Each stands for itself; run all of them on the same rows.",
        "Save every result in one folder under the name given above it, as CSV with a header or as Parquet. Then:",
        f"planner ingest --backend {order.backend} --from-tables FOLDER -o DIR ... with the same options and table.",
    ]
    if not order.connect:
        lines.append("The columns were not looked up: times are taken as time stamps with a zone, counts as numbers.")
    return "".join(f"-- {line}\n" for line in lines)
