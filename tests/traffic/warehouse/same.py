"""Whether two engines made the same distribution of the same rows."""

from __future__ import annotations

from typing import Any

from planner.traffic.canonical import Canonical

OF_FILES = ("source", "files", "files_sha256", "remarks", "counts")
"""What a warehouse cannot say as a file can: names, bytes, and rows by their numbers."""


def comparable(canonical: Canonical) -> dict[str, Any]:
    manifest = canonical.manifest.model_dump()
    counts = {name: value for name, value in manifest["counts"].items() if name != "dropped_rows"}
    return {
        **{name: value for name, value in manifest.items() if name not in OF_FILES},
        **counts,
        **{name: table.to_pylist() for name, table in canonical.tables().items()},
    }


def assert_same(found: Canonical, expected: Canonical) -> None:
    left, right = comparable(found), comparable(expected)
    assert left.keys() == right.keys()
    for name in right:
        assert left[name] == right[name], name
    for name, table in expected.tables().items():
        assert found.tables()[name].equals(table), name
