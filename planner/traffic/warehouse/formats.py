"""Log formats that stand as tables in warehouses: their columns and what else they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.errors import InputError, Problem
from planner.traffic.readers.columns import OptionValue, Wanted
from planner.traffic.readers.litellm import COLUMNS as LITELLM
from planner.traffic.readers.litellm import GENERATIONS as LITELLM_CALLS
from planner.traffic.warehouse.judged import judged
from planner.traffic.warehouse.table import Shape, TableColumns, mapped, match, table_columns

Prepared = tuple[Any, Shape]


def judged_rows(
    where: str,
    table: Any,
    log_format: str,
    mapping: Mapping[str, str],
    options: Mapping[str, OptionValue],
    wanted: Wanted,
) -> tuple[Any, TableColumns]:
    """The judged rows of a table, as an Ibis expression, and what plays which part.

    Raises
    ------
    InputError
        If the format is unknown here, or the table does not have its columns.
    """
    if log_format in ("auto", "plain"):
        shape = mapped(dict(table.schema().items()), mapping)
    elif log_format in FORMATS:
        table, shape = FORMATS[log_format](table)
    else:
        known = f"Use --map, or one of: {', '.join(FORMATS)}"
        raise InputError(Problem("--format", f"'{log_format}' is not a format of tables", known))
    columns = table_columns(where, dict(table.schema().items()), shape, options)
    return judged(table, columns, wanted), columns


def litellm(table: Any) -> Prepared:
    """``LiteLLM_SpendLogs`` where the proxy keeps it: see `planner.traffic.readers.litellm`.

    Cached tokens and error codes stand inside ``metadata``, which is not read; make a view with the columns
    ``cached_tokens`` and ``error_code`` to have them.
    """
    names = dict(table.schema().items())
    needed = ("timestamp", "prompt", "output")
    used = {role: match(name, names) or name for role, name in LITELLM.used().items()}
    used = {role: name for role, name in used.items() if name in names or role in needed}
    if "model" not in used and "fallback_model" in used:
        used["model"] = used.pop("fallback_model")
    if "request_id" in used and "cache_hit" in used:
        by_id = table[used["request_id"]].cast("string").contains("_cache_hit").fill_null(False)
        hit = table[used["cache_hit"]].cast("string")
        table = table.mutate(**{used["cache_hit"]: by_id.ifelse("true", hit)})
    code = match("error_code", names) if "status" in used else ""
    if code:
        status, found = (table[name].cast("string") for name in (used["status"], code))
        told = (status == "failure") & found.re_search("^[45][0-9][0-9]$")
        table = table.mutate(**{used["status"]: told.fill_null(False).ifelse(found, status)})
    if "logical_id" in used:
        call = table[used["logical_id"]].cast("string").re_replace("-attempt-[0-9]+$", "")
        table = table.mutate(**{used["logical_id"]: call})
    return table, Shape(used, {"error code": code} if code else {}, LITELLM_CALLS)


FORMATS: dict[str, Callable[[Any], Prepared]] = {"litellm": litellm}
