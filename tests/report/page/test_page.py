"""The page as a document: whole, safe, self-contained, the same every time, small and quick."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.plan import FleetPlan
from planner.report.page import cards, plots
from planner.report.page.curves import curves_of
from planner.report.page.document import render_page, write_page
from planner.report.page.markup import KEPT_CHARACTERS
from planner.study import Study
from tests.report.page.dom import Node, read
from tests.report.page.hostile import SEEN, hostile_plan

LOADING = {"src", "srcset", "data", "poster", "action", "formaction", "background", "ping", "xlink:href"}


@pytest.mark.parametrize("which", ["study_page", "example_page"])
def test_elements_close_ids_are_unique_and_links_lead_somewhere(which: str, request: pytest.FixtureRequest) -> None:
    tree = read(request.getfixturevalue(which))
    ids = [node.attrs["id"] for node in tree.all() if "id" in node.attrs]
    assert len(ids) == len(set(ids))
    links = [node.attrs["href"] for node in tree.all("a")]
    assert len(links) > 20
    assert {link[0] for link in links} == {"#"}
    assert {link[1:] for link in links} <= set(ids)
    for name in ("aria-labelledby", "aria-describedby", "data-of"):
        assert {node.attrs[name] for node in tree.all() if name in node.attrs} <= set(ids)


@pytest.mark.parametrize("which", ["study_page", "example_page"])
def test_nothing_is_loaded_and_no_other_script_may_run(which: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(which)
    tree = read(page)
    assert not {name for node in tree.all() for name in node.attrs} & LOADING
    assert not [name for node in tree.all() for name in node.attrs if name.startswith("on")]
    assert not tree.all("link") + tree.all("img") + tree.all("iframe") + tree.all("base")
    (style,), (script,) = tree.all("style"), tree.all("script")
    assert "url(" not in style.text()
    assert "@import" not in style.text()
    digest = base64.b64encode(hashlib.sha256(script.text().encode()).digest()).decode()
    policy = next(node.attrs["content"] for node in tree.all("meta") if "http-equiv" in node.attrs)
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'" in policy
    assert not re.search(r"\b(localStorage|sessionStorage|cookie|fetch|XMLHttpRequest|import)\b", script.text())


@pytest.mark.parametrize("which", ["tree", "example_tree"])
def test_headings_descend_and_tables_have_captions_and_scopes(which: str, request: pytest.FixtureRequest) -> None:
    tree = request.getfixturevalue(which)
    levels = [int(node.tag[1]) for node in tree.all() if re.fullmatch(r"h[1-6]", node.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels))
    tables = tree.all("table")
    assert len(tables) > 20
    for table in tables:
        assert table.all("caption")[0].text().strip()
        assert {th.attrs.get("scope") for th in table.all("th")} <= {"col", "row", "rowgroup"}
        widths = {sum(int(cell.attrs.get("colspan", "1")) for cell in row.children if isinstance(cell, Node))
                  for row in table.all("tr")}  # fmt: skip
        assert len(widths) == 1


@pytest.mark.parametrize("which", ["tree", "example_tree"])
def test_pictures_have_words_and_figures(which: str, request: pytest.FixtureRequest) -> None:
    tree = request.getfixturevalue(which)
    charts = tree.all("div", "chart")
    assert charts
    for chart in charts:
        assert chart.attrs["role"] == "img"
        assert "requests live" in chart.attrs["aria-label"]
        assert chart.all("svg")[0].attrs["aria-hidden"] == "true"
        assert chart.parent is not None
        assert len(chart.parent.all("table")[0].rows()) > 3
    for strip in tree.all("span", "strip"):
        assert re.search(r"\d+ in \d+ h", strip.attrs["aria-label"])
    for bar in tree.all("span", "bar"):
        assert bar.attrs["aria-hidden"] == "true"
        assert bar.text() == ""


def test_same_study_same_bytes(study: Study, study_page: str, tmp_path: Path) -> None:
    again = Study.model_validate_json(study.model_dump_json())
    write_page(again, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes() == study_page.encode()


def test_a_plan_alone_is_a_study_of_one(plan: FleetPlan) -> None:
    assert render_page(plan) == render_page(Study(plan=plan))
    tree = read(render_page(plan))
    assert not {"futures", "last"} & {node.attrs.get("id") for node in tree.all("section")}


def test_an_example_quarter_is_small(example_page: str) -> None:
    assert len(example_page.encode()) < 1_500_000


@pytest.mark.parametrize("timetable", [False, True])
def test_text_from_outside_stays_text(plan: FleetPlan, example: FleetPlan, timetable: bool) -> None:
    page = render_page(hostile_plan(example if timetable else plan))
    tree = read(page)
    assert len(tree.all("script")) == 1
    assert not tree.all("img")
    assert "<!--" not in page
    assert not [name for node in tree.all() for name in node.attrs if name.startswith("on")]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", page)
    assert SEEN[:60] in tree.all("title")[0].text()
    for section in ("warnings", "models", "purchases", "limits", "rejected", "assumptions", "files"):
        assert SEEN[:60] in tree.with_id(section).text()
    for command in tree.all("pre"):
        assert command.text() == SEEN
    assert "=" * (KEPT_CHARACTERS + 1) not in page
    assert len(page.encode()) < 2_000_000
    page.encode("utf-8")


def many(plan: FleetPlan, models: int) -> FleetPlan:
    """The plan's models again and again, each under a name of its own."""
    names = list(dict.fromkeys(pool.model for pool in plan.pools))

    def copies() -> Iterator[tuple[str, str]]:
        for k in range(models):
            yield names[k % len(names)], f"{names[k % len(names)]}-{k}"

    def renamed(rows: Any, key: str, *also: str) -> tuple[Any, ...]:
        return tuple(
            row.model_copy(update={name: getattr(row, name).replace(old, new, 1) for name in (key, *also)})
            for old, new in copies()
            for row in rows
            if getattr(row, key).split("/")[0] == old
        )

    return plan.model_copy(
        update={
            "pools": renamed(plan.pools, "model", "name"),
            "routes": renamed(plan.routes, "model", "pool"),
            "schedule": renamed(plan.schedule, "pool"),
            "rejected": renamed(plan.rejected, "model"),
        }
    )


def test_two_hundred_models_are_quick_and_not_large(example: FleetPlan) -> None:
    big = many(example, 200)
    start = time.process_time()
    page = render_page(big, curves_of(big))
    assert time.process_time() - start <= 20
    assert len(page.encode()) < 15_000_000
    assert page.count("<article ") == 200
    assert page.count('<div class="chart"') == len(big.pools) > 250
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_page_that_cannot_be_written_leaves_the_old_one(plan: FleetPlan, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        write_page(plan, tmp_path / "no folder" / "page.html")
    (tmp_path / "page.html").write_text("old", encoding="utf-8")
    broken = plan.model_copy(update={"purchases": ()})
    with pytest.raises(ValueError, match="empty"):
        write_page(broken, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_without_a_catalogue_the_page_says_what_is_not_drawn(
    plan: FleetPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_CATALOGS", str(tmp_path / "none"))
    curves = curves_of(plan)
    assert set(curves) == {pool.name for pool in plan.pools}
    tree = read(render_page(plan, curves))
    missing = tree.all("div", "missing")
    assert len(missing) == len(plan.pools)
    assert "catalogue folder not found" in missing[0].text()
    assert not tree.all("svg")


def test_a_pool_that_the_catalogue_does_not_know_is_named(plan: FleetPlan) -> None:
    odd = plan.pools[0].model_copy(update={"gpu": "Z9000"})
    curves = curves_of(plan.model_copy(update={"pools": (odd, *plan.pools[1:])}))
    assert "Z9000" in str(curves[odd.name])
    drawn = plots.decode_chart(plan.pools[1], curves[plan.pools[1].name], "x")
    assert "<svg" in drawn
    assert "Z9000" in plots.decode_chart(odd, curves[odd.name], "x")


def test_a_launch_command_is_copied_as_it_is(example: FleetPlan, example_tree: Node) -> None:
    shown = {node.text() for node in example_tree.all("pre")}
    assert shown == {pool.launch_command for pool in example.pools}
    assert max(len(pool.launch_command) for pool in example.pools) < cards.LAUNCH_CHARACTERS
