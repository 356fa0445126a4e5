from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic import dropped
from planner.traffic.ingest import Order, ingest

GOOD = "1700000000,10,5,a,200"
HEADER = "timestamp,prompt,output,request_id,status,note\n"


def _counts(path: Path, content: str | bytes, **order: Any) -> dict[str, Any]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ingest(Order((path,), **order)).manifest.counts.model_dump()


def _rows(counts: dict[str, Any], reason: str) -> list[tuple[int, str, str]]:
    return [(row["row"], row["field"], row["value"]) for row in counts["dropped_rows"].get(reason, ())]


def test_the_first_three_rows_of_every_reason_with_field_and_value(tmp_path: Path) -> None:
    lines = [
        "1700000000,10,5",
        "",
        "1700000001,-1,5",
        "1700000002,1,-2.0",
        "1700000003,1,1.5",
        "1700000004,,5",
        "1999,1,1",
        "1700000005,0,5",
        "1700000006,-4,5",
        "1700000007,-5,5",
        "1700000008,5,99999999",
        "1700000009,5,nan",
        "1700000010",
    ]
    counts = _counts(tmp_path / "log.csv", "timestamp,prompt,output\n" + "\n".join(lines), options={"time": "epoch_s"})
    assert {reason: _rows(counts, reason) for reason in counts["dropped_by_reason"]} == {
        "malformed line": [(14, "", "1 field instead of 3")],
        "implausible timestamp": [(8, "timestamp", "1999")],
        "missing token count": [(7, "prompt", "empty")],
        "token count is not a whole number": [(6, "output", "1.5"), (13, "output", "nan")],
        "negative token count": [(4, "prompt", "-1"), (5, "output", "-2.0"), (10, "prompt", "-4")],
        "absurd token count": [(12, "output", "99999999")],
        "zero prompt tokens": [(9, "prompt", "0")],
    }
    assert counts["dropped_by_reason"]["negative token count"] == 4


def test_nothing_dropped_reads_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("no second look is needed")

    monkeypatch.setattr(dropped, "records", never)
    assert _counts(tmp_path / "log.csv", HEADER + GOOD + ",x\n")["dropped_rows"] == {}


def test_text_is_never_shown(tmp_path: Path) -> None:
    """A shifted row puts a prompt where a number should stand."""
    rows = 'my secret password,1,2,alice,200,n\n1700000001,"bob, +\x1b[31m",1,b,200,n\n1700000002,1,1,carol,lost,n\n'
    found = ingest(Order((_write(tmp_path / "log.csv", HEADER + GOOD + ",n\n" + rows),)))
    text = found.manifest.model_dump_json()
    for word in ("secret", "alice", "bob", "carol", "lost", "x1b", "u001b"):
        assert word not in text
    assert _rows(found.manifest.counts.model_dump(), "unparseable timestamp") == [(3, "timestamp", "text of length 18")]
    assert _rows(found.manifest.counts.model_dump(), "failed request") == [(5, "status", "text of length 4")]


def _write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_a_value_is_shortened_and_a_column_name_made_printable(tmp_path: Path) -> None:
    mapping = {"timestamp": "t", "prompt": "p\x1b" + "q" * 100, "output": "o"}
    content = f"t,{mapping['prompt']},o\n1700000000,1,1\n1700000001,{'9' * 10_000},1\n"
    counts = _counts(tmp_path / "log.csv", content, mapping=mapping)
    ((row, field, value),) = _rows(counts, "token count is not a whole number")
    assert (row, len(field), field[:3], len(value)) == (3, 40, "p?q", 40)
    assert value.startswith("999")


def test_a_quoted_field_over_several_lines_is_one_row(tmp_path: Path) -> None:
    rows = '1700000000,1,1,a,200,"two\nlines, ""quoted"""\n1700000001,-1,1,b,500,x\n1700000002,-1,1,c,200,x\n'
    counts = _counts(tmp_path / "log.csv", HEADER + rows)
    assert _rows(counts, "failed request") == [(3, "status", "500")]
    assert _rows(counts, "negative token count") == [(4, "prompt", "-1")]


def test_an_open_quote_is_named_and_ends_the_look(tmp_path: Path) -> None:
    rows = [f"{1_700_000_000 + i},1,1,{i},200,x" for i in range(20)]
    rows[4] = '1700000004,1,1,d,200,"oops'
    counts = _counts(tmp_path / "log.csv", HEADER + "\n".join(rows))
    assert counts["dropped_by_reason"] == {"malformed line": 16}
    assert _rows(counts, "malformed line") == [(6, "", "a quote is not closed, or stands inside a field")]


def test_the_duplicate_is_the_row_that_was_not_kept(tmp_path: Path) -> None:
    """A failed attempt and its successful retry under one id: the success is kept, wherever it stands."""
    rows = "1700000000,9,1,a,500,x\n1700000001,9,1,a,200,x\n1700000002,9,1,b,500,x\n1700000002,9,1,b,500,x\n"
    counts = _counts(tmp_path / "log.csv", HEADER + rows)
    assert counts["dropped_by_reason"] == {"duplicate request id": 2, "failed request": 1}
    assert [row for row, _, _ in _rows(counts, "duplicate request id")] == [2, 5]
    assert _rows(counts, "failed request") == [(4, "status", "500")]


def test_json_lines_are_numbered_by_line(tmp_path: Path) -> None:
    good = '{"timestamp": 5, "input_length": 7, "output_length": 2}'
    bad = '{"timestamp": 6, "input_length": -7.0, "output_length": 2}'
    deep = "[" * 5000
    content = "\n".join([good, "no json", "", bad, "{}", deep])
    mapping = {"timestamp": "timestamp", "prompt": "input_length", "output": "output_length"}
    counts = _counts(tmp_path / "log.jsonl", content, mapping=mapping, options={"time": "relative_s"})
    assert _rows(counts, "negative token count") == [(4, "input_length", "-7.0")]
    assert [row for row, _, _ in _rows(counts, "malformed line")] == [2, 5, 6]


def test_rows_name_their_file_whatever_the_order_of_the_files(tmp_path: Path) -> None:
    a = _write(tmp_path / "a.csv", "timestamp,prompt,output\n1700000000,1,1\n1700000000,-1,1\n")
    b = _write(tmp_path / "b.csv", "timestamp,prompt,output\n1700000000,-2,1\n")
    for files in ((a, b), (b, a)):
        rows = ingest(Order(files)).manifest.counts.dropped_rows["negative token count"]
        assert [(row["file"], row["row"], row["value"]) for row in rows] == [("a.csv", 3, "-1"), ("b.csv", 2, "-2")]


def test_a_log_without_a_good_row_names_the_first_bad_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(row 2, prompt: -1; row 3, prompt: -2\)"):
        _counts(tmp_path / "log.csv", "timestamp,prompt,output\n1700000000,-1,1\n1700000000,-2,1\n")


def test_the_second_look_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropped, "MAX_ROWS", 100)
    monkeypatch.setattr(dropped, "CHUNK_ROWS", 7)
    rows = [f"{1_700_000_000 + i},{-1 if i in (50, 150) else 1},1\n" for i in range(200)]
    counts = _counts(tmp_path / "log.csv", "timestamp,prompt,output\n" + "".join(rows))
    assert counts["dropped_by_reason"] == {"negative token count": 2}
    assert _rows(counts, "negative token count") == [(52, "prompt", "-1")]


FIELD = st.sampled_from(["1", "0", "-3", "1.5", "", "x", "nan", " 7 ", "1e3", "99999999", '"4"', '5"', "é", "1,2"])
LINE = st.one_of(
    st.just(GOOD.rsplit(",", 2)[0]),
    st.tuples(st.sampled_from(["1700000000", "", "12", "soon", "nan"]), FIELD, FIELD).map(",".join),
    st.sampled_from(["", "  ", "1700000000,1,1,", "1700000000,1", "a", '1700000000,"1"x,1']),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, max_size=12))
def test_the_second_look_agrees_with_the_first(lines: list[str], tmp_path: Path) -> None:
    """Two readers, one verdict: every reason has as many rows as it dropped, up to three."""
    content = "t,p,o\n" + "\n".join([*lines, "1700000000,10,5"]) + "\n"
    mapping = {"timestamp": "t", "prompt": "p", "output": "o"}
    counts = _counts(tmp_path / "log.csv", content, options={"time": "epoch_s"}, mapping=mapping)
    shown = Counter({reason: len(rows) for reason, rows in counts["dropped_rows"].items()})
    assert shown == Counter({reason: min(3, n) for reason, n in counts["dropped_by_reason"].items()})
