"""A table of a warehouse in, canonical distribution out: only the small tables of `queries` come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from planner.errors import InputError
from planner.traffic.canonical import Canonical
from planner.traffic.tables.rows import KEPT
from planner.traffic.warehouse.address import asked
from planner.traffic.warehouse.answers import Answers, Row, plain_rows
from planner.traffic.warehouse.backends import Backend, connected, find_backend, kept_rows, open_table
from planner.traffic.warehouse.distribution import distribution, nothing_left
from planner.traffic.warehouse.order import TableOrder, check

Asking = Callable[[str], None]


def ingest_table(order: TableOrder, *, asking: Asking = lambda name: None) -> Canonical:
    """Aggregate a table where it stands.

    Parameters
    ----------
    asking
        Called with the name of every query before it is run.

    Raises
    ------
    InputError
        If the backend cannot be reached, the table does not fit, a query fails, or no row remains.
    """
    check(order)
    backend = find_backend(order.backend)
    with connected(backend, order.connect) as connection:
        answers, used = _answers(order, backend, connection, asking)
    return distribution(order, answers, used)


def _answers(order: TableOrder, backend: Backend, connection: Any, asking: Asking) -> tuple[Answers, Mapping[str, str]]:
    from planner.traffic.warehouse import queries  # noqa: PLC0415  they need Ibis, which is optional
    from planner.traffic.warehouse.formats import judged_rows  # noqa: PLC0415

    table = open_table(backend, connection, order.connect, order.table)
    found: dict[str, tuple[Row, ...]] = {}

    def ask(name: str, query: Any) -> tuple[Row, ...]:
        asking(name)
        with _failing(order, name):
            found[name] = plain_rows(connection.to_pyarrow(query))
        return found[name]

    with ExitStack() as stack:
        with _failing(order, "judged"):
            wanted = order.wanted()
            rows, columns = judged_rows(order.table, table, order.log_format, order.mapping, order.options, wanted)
            held = stack.enter_context(kept_rows(backend, connection, rows))
        if not any(row["verdict"] == KEPT for row in ask("verdicts", queries.verdicts(held))):
            raise InputError(nothing_left(order, Answers(found)))
        at = queries.Span(None, None, None, order.since_us, order.until_us)
        (span,) = ask("span", queries.span(held, at))
        at = replace(at, start_us=span["start_us"], last_us=span["last_us"])
        hours = ask("hours", queries.hours(held, at))
        at = replace(at, busiest_us=min(hours, key=lambda row: (-row["n"], row["hour_us"]))["hour_us"])
        for name, query in queries.QUERIES.items():
            if name not in found:
                ask(name, query(held, at))
    return Answers(found), columns.used()


def _failing(order: TableOrder, name: str) -> AbstractContextManager[None]:
    what = f"the query '{name}' failed"
    fix = "With --sql-only the same queries can be read, and run by hand"
    return asked(f"--backend {order.backend}, {order.table}", order.connect, what, fix)
