"""Logs that are one JSON array, and answers of interfaces that wrap one."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import InputError
from planner.traffic.ingest import Order, ingest
from planner.traffic.readers.head import HEAD_BYTES, read_head
from planner.traffic.readers.records import Budget, elements

ROWS: list[dict[str, Any]] = [
    {"timestamp": 1788445327 + i, "prompt": 10 + i, "output": 5, "model": "m", "note": {"deep": [1, {"a": "]}"}]}}
    for i in range(40)
]
MAP = {"timestamp": "timestamp", "prompt": "prompt", "output": "output", "model": "model"}
LAYOUTS = {
    "one_line.json": json.dumps(ROWS),
    "pretty.json": json.dumps(ROWS, indent=4),
    "line_each.json": "[\n" + ",\n".join(json.dumps(row) for row in ROWS) + "\n]\n",
    "bom.json": "\ufeff" + json.dumps(ROWS),
}


def _read(path: Path) -> Any:
    return ingest(Order((path,), mapping=MAP))


@pytest.fixture
def lines(tmp_path: Path) -> Any:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return _read(path)


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_array_is_read_like_lines(name: str, lines: Any, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(LAYOUTS[name])
    found = _read(path)
    assert found.tables() == lines.tables()
    assert found.manifest.counts == lines.manifest.counts


EXPORTS = Path(__file__).parents[2] / "data" / "traffic"


@pytest.mark.parametrize("name", sorted(str(path.relative_to(EXPORTS)) for path in EXPORTS.glob("*/*.jsonl")))
def test_every_export_is_read_as_an_array_too(name: str, tmp_path: Path) -> None:
    """With the same tables, counts, first dropped rows and prefixes as from its lines; broken lines are left out."""
    lines = [line for line in (EXPORTS / name).read_text().splitlines() if _is_json(line)]
    found = []
    for folder, text in (
        ("lines", "\n".join(lines)),
        ("array", json.dumps([json.loads(line) for line in lines], indent=1)),
    ):
        path = tmp_path / folder / Path(name).name
        path.parent.mkdir()
        path.write_text(text)
        found.append(ingest(Order((path,))))
    by_lines, by_array = found
    assert by_array.tables() == by_lines.tables()
    same = {"files_sha256": ""}
    assert by_array.manifest.model_copy(update=same) == by_lines.manifest.model_copy(update=same)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_packed_arrays(ending: str, lines: Any, tmp_path: Path) -> None:
    path = tmp_path / f"log.json.{ending}"
    raw = LAYOUTS["pretty.json"].encode()
    if ending == "gz":
        path.write_bytes(gzip.compress(raw))
    else:
        with pa.output_stream(str(path), compression="zstd") as stream:
            stream.write(raw)
    assert _read(path).tables() == lines.tables()


def test_dropped_elements_are_counted_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(
        json.dumps([*ROWS[:3], {**ROWS[3], "prompt": -1}, 17, *ROWS[4:6], {**ROWS[6], "prompt": "x"}], indent=1)
    )
    counts = _read(path).manifest.counts
    assert counts.kept == 5
    rows = {reason: [row["row"] for row in found] for reason, found in counts.dropped_rows.items()}
    assert rows == {"negative token count": [4], "malformed line": [5], "token count is not a whole number": [8]}


def test_a_first_element_longer_than_the_head(lines: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps([{**ROWS[0], "text": "x" * (HEAD_BYTES + 10)}, *ROWS[1:]]))
    assert read_head(path).columns[:4] == ("timestamp", "prompt", "output", "model")
    assert _read(path).tables() == lines.tables()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "is an empty JSON array"),
        ("[ \n", "breaks off"),
        ('[{"timestamp": 1, "prompt"', "breaks off"),
        ("[1, 2]", "does not begin with an object"),
        ('[[{"a": 1}]]', "does not begin with an object"),
        (json.dumps(ROWS)[:-30], "cannot be read"),
        (json.dumps(ROWS) + " x", "cannot be read"),
        (json.dumps(ROWS) + "\n" + json.dumps(ROWS), "cannot be read"),
    ],
)
def test_broken_arrays_are_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        _read(path)


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("a.json", {"data": ROWS}, "jq -c '.data[]' a.json > a.jsonl"),
        ("a.json", {"meta": {"page": 1}, "data": ROWS}, "jq -c '.data[]' a.json > a.jsonl"),
        ("my log.json", {"my rows": ROWS}, """jq -c '."my rows"[]' 'my log.json' > 'my log.jsonl'"""),
        ("a.json.gz", {"data": ROWS}, "gzip -dc a.json.gz | jq -c '.data[]' > a.jsonl"),
        ("a.json", ROWS[0], "jq -c . a.json > a.jsonl"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_wrapped_array_is_refused_with_the_command(
    name: str, content: Any, command: str, indent: int | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    raw = json.dumps(content, indent=indent).encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    if content is ROWS[0] and indent is None:
        return  # one object on one line is a log of one row
    with pytest.raises(InputError) as raised:
        ingest(Order((path,)))
    assert command in str(raised.value)


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 16])
def test_elements_do_not_depend_on_where_the_text_is_cut(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.traffic.readers.records.CHUNK_CHARS", chunk)
    values = [{"a": 1}, 12345, [1, [2]], "x]", None, {"b": {"c": [{}]}}, True]
    for text in (json.dumps(values), json.dumps(values, indent=3)):
        found = list(elements(io.StringIO(text), Budget(100, 10_000)))
        assert found == [{"a": "1"}, "12345", ["1", ["2"]], "x]", None, {"b": {"c": [{}]}}, True]
    assert len(list(elements(io.StringIO(json.dumps(values)), Budget(3, 10_000)))) == 3
