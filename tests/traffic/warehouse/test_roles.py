"""Every part that a column of a file can play is one of a table, or is refused."""

from __future__ import annotations

from dataclasses import fields

import pytest

from planner.errors import InputError
from planner.traffic.readers.columns import Columns
from planner.traffic.warehouse.table import ROLES, mapped


def test_only_the_share_that_a_log_keeps_is_no_column_of_a_table():
    assert {f.name for f in fields(Columns)} - set(ROLES) == {"sampling"}
    assert set(ROLES) <= {f.name for f in fields(Columns)}


def test_a_role_that_tables_do_not_have_is_refused():
    needed = {"timestamp": "a", "prompt": "b", "output": "c"}
    with pytest.raises(InputError, match="'sampling' is not a role of a table's column"):
        mapped({}, {**needed, "sampling": "d"})
