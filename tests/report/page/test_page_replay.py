"""The Replay section of the page."""

from __future__ import annotations

import pytest

from planner.report.page.document import render_page
from planner.study import Study
from tests.report.page.dom import Node, read
from tests.report.sample import sample_plan
from tests.report.sample_replay import CASES, HOSTILE_FILE, sample_record


@pytest.fixture(scope="module")
def page() -> Node:
    plan = sample_plan()
    return read(render_page(Study(plan=plan, replay=sample_record(plan))))


def _section(page: Node) -> Node:
    return next(node for node in page.all("section") if node.attrs["id"] == "replay")


def _rows(page: Node, caption: str) -> list[list[str]]:
    tables = [t for t in _section(page).all("table") if t.all("caption")[0].text().startswith(caption)]
    assert len(tables) == 1, caption
    rows = tables[0].all("tbody")[0].all("tr")
    return [[cell.text().strip() for cell in (*row.all("th"), *row.all("td"))] for row in rows]


def test_every_promise_stands_in_a_row_with_its_verdict(page: Node) -> None:
    rows = {row[2]: row for row in _rows(page, "Promises of the plan") if row[2].startswith("case ")}
    assert {name: row[-1] for name, row in rows.items()} == {
        f"case {n}": "stands" if stands else "refuted" for n, (_, stands) in enumerate(CASES)
    }
    assert rows["case 0"][3:] == ["40", "", "24.5", "24 to 25", "50", "stands"]
    assert rows["case 3"][6] == "one repeat"
    assert rows["case 5"][5] == "none served"
    assert rows["case 6"][5] == "nothing to measure"
    assert rows["case 7"][6] == "0 to 5"


def test_headline_fewer_means_and_drills_are_shown(page: Node) -> None:
    text = _section(page).text()
    assert "refuted: 3 of 14 limits" in text
    assert [row[-1] for row in _rows(page, "With one replica fewer")] == ["refuted"]
    assert [row[5] for row in _rows(page, "A fleet by the rule of means")] == ["none served"]
    assert [row[-1] for row in _rows(page, "Failure drills")] == ["not within the replay", "300"]
    assert HOSTILE_FILE in text


def test_a_bar_shows_the_interval_over_the_figure(page: Node) -> None:
    row = next(r for r in _section(page).all("tr") if "case 0" in r.text())
    bars = [node.attrs["style"] for node in row.all("i")]
    assert bars == ["left:0%;width:39.2%", "left:38.4%;width:1.6%"]


def test_without_a_replay_there_is_no_section_and_no_link() -> None:
    made = render_page(sample_plan())
    assert 'id="replay"' not in made
    assert "#replay" not in made
