from __future__ import annotations

from pathlib import Path

import pytest

from planner.traffic.readers import READERS
from planner.traffic.readers.head import read_head
from planner.traffic.readers.table_of_formats import ABOUT, PLACE, table

ELSEWHERE = ("servegen", "plain", "replay")
"""Their files are made by their own tests."""
ENDINGS = {"CSV": ".csv", "JSON lines": ".jsonl", "Parquet": ".parquet"}


def test_every_reader_is_in_the_table_and_the_file_is_fresh() -> None:
    assert list(ABOUT) == [reader.name for reader in READERS]
    assert PLACE.read_text(encoding="utf-8") == table(), "run python -m planner.traffic.readers.table_of_formats"


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name, about in ABOUT.items() for kind in about.files if name not in ELSEWHERE],
)
def test_every_file_type_has_an_export_that_the_reader_claims(name: str, kind: str, exports: Path) -> None:
    reader = next(reader for reader in READERS if reader.name == name)
    files = [path for path in exports.glob(f"*/*{ENDINGS[kind]}") if reader.claims(read_head(path))]
    assert files
    for path in files:
        told = [word for word in ABOUT[name].told_by.split("`")[1::2] if word in read_head(path).columns]
        assert told, "no column of the table's fourth column is in the export"
