"""`planner pareto` at the keyboard: its files, the same bytes each time, and what it refuses."""

import csv
import io
import json

import pytest

from tests.test_frontier import write


def test_csv_json_and_chart_are_the_same_each_time(planner, tmp_path):
    path = write(tmp_path)
    texts = []
    for name in ("a", "b"):
        files = ("--csv", str(tmp_path / f"{name}.csv"), "--chart", str(tmp_path / f"{name}.svg"))
        code, out, err = planner(
            "pareto", str(path), "--vary", "tpot", "--values", "3,60", "--today", "2026-11-29", "--json", *files
        )
        assert (code, err) == (0, "")
        texts.append(out)
    assert texts[0] == texts[1]
    for kind in ("csv", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    points = json.loads(texts[0])
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [float(row["value"]) for row in rows] == [point["value"] for point in points] == [3, 60]
    assert float(rows[1]["usd"]) == points[1]["fleet"]["usd"]
    assert rows[0]["usd"] == ""
    assert "No configuration" in rows[0]["why"]


def test_the_table_says_what_is_not_feasible(planner, tmp_path):
    """Also of a model whose name looks like markup."""
    path = write(tmp_path)
    path.write_text(path.read_text().replace('name = "chat"', 'name = "[/bold] chat"'))
    code, out, err = planner("pareto", str(path), "--vary", "tpot", "--values", "3", "--today", "2026-11-29")
    assert (code, err) == (0, "")
    assert "none" in out
    assert "3: No configuration can serve model '[/bold] chat'" in out


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (("--values", "20,x"), "is not a list of numbers"),
        (("--values", "20", "--chart", "a.gif"), "neither .png nor .svg"),
        (("--values", "20", "--today", "soon"), "--today"),
        (("--values", "20"), "no such file"),
    ],
)
def test_what_is_refused(planner, tmp_path, extra, words):
    code, out, err = planner("pareto", str(tmp_path / "none.toml"), "--vary", "tpot", *extra)
    assert (code, out) == (2, "")
    assert words in err
