"""The page in a browser: nothing overflows or is cut off, every control is reached, contrast holds, it prints."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.plan import FleetPlan
from planner.report.page.document import render_page
from planner.report.page.picture import browser, render_pictures
from planner.report.recalc import run_tool
from tests.report.page.conftest import EXAMPLE
from tests.report.page.hostile import hostile_plan

playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright (installed with planner[dev])")
CHROMIUM = browser()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (installed by .ci/run)")
WIDTHS = {"phone": 360, "desktop": 1280}

OVERFLOWING = """() => {
  const width = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > width) found.push(`page: ${document.documentElement.scrollWidth}`);
  for (const one of document.body.querySelectorAll("*")) {
    if (one.closest(".scroll > *, nav > *, .skip, svg *, script, .bar > *")) continue;
    const box = one.getBoundingClientRect();
    const out = box.width && (box.right > width + 0.5 || box.left < -0.5);
    if (out) found.push(`${one.tagName}.${one.className} ${box.left} ${box.right}`);
  }
  return found;
}"""
CUT_OFF = """() => {
  const found = [];
  for (const one of document.querySelectorAll("body *")) {
    const style = getComputedStyle(one);
    const text = [...one.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || one.closest("svg, .skip, script") || !one.getClientRects().length) continue;
    if (style.display === "inline") continue;
    const wide = one.scrollWidth > one.clientWidth + 1, tall = one.scrollHeight > one.clientHeight + 2;
    const name = `${one.tagName}.${one.className}: ${one.textContent.slice(0, 40)}`;
    if (wide && !["auto", "scroll"].includes(style.overflowX)) found.push(`wide ${name}`);
    if (tall && style.overflowY === "hidden") found.push(`tall ${name}`);
  }
  for (const text of document.querySelectorAll(".chart text")) {
    const box = text.getBoundingClientRect(), frame = text.closest("svg").getBoundingClientRect();
    const out = box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
    if (out) found.push(`chart ${text.textContent}`);
  }
  return found;
}"""
CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const back = (one) => {
    for (let node = one; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const seen = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || one.closest("script, style")) continue;
    const style = getComputedStyle(one);
    const ink = numbers(one.closest("svg") ? style.fill : style.color), paper = back(one);
    const [high, low] = [light(ink), light(paper)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    seen.set(`${one.tagName}.${one.className.baseVal ?? one.className} ${ink} on ${paper}`, ratio);
  }
  return [...seen];
}"""
CONTROLS = """() => [...document.querySelectorAll("a[href], button, summary, [tabindex='0']")].filter((one) =>
  one.checkVisibility() && !(one.tagName !== "SUMMARY" && one.closest("details:not([open])")) &&
  !(one.tagName === "SUMMARY" && one.parentElement.parentElement.closest("details:not([open])")))
  .map((one) => { one.dataset.n = one.dataset.n ?? String(window.n = (window.n ?? 0) + 1); return one.dataset.n; })"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def files(
    study_page: str, example_page: str, example: FleetPlan, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("page")
    hostile = hostile_plan(example)
    drawn = dict.fromkeys((pool.name for pool in hostile.pools), "=" * 5000)
    made = {"study": study_page, "example": example_page, "hostile": render_page(hostile, drawn)}
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture
def tab(chromium: Any, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Any]:
    """An open page; what it says on the console fails the test."""
    which, width, scheme = getattr(request, "param", ("study", "desktop", "light"))
    context = chromium.new_context(viewport={"width": WIDTHS[width], "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda asked: said.append(asked.url) if not asked.url.startswith("file:") else None)
    page.goto(files[which].as_uri())
    yield page
    context.close()
    assert said == []


def unfold(page: Any) -> None:
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")


@pytest.mark.parametrize(
    "tab",
    [(which, width, "light") for which in ("study", "example", "hostile") for width in WIDTHS],
    indirect=True,
    ids=str,
)
def test_nothing_overflows_and_no_text_is_cut_off(tab: Any) -> None:
    assert tab.evaluate(OVERFLOWING) == []
    assert tab.evaluate(CUT_OFF) == []
    unfold(tab)
    assert tab.evaluate(OVERFLOWING) == []
    assert tab.evaluate(CUT_OFF) == []


@pytest.mark.parametrize("tab", [(which, "desktop", scheme) for which in ("study", "example")
                                 for scheme in ("light", "dark")], indirect=True, ids=str)  # fmt: skip
def test_text_has_contrast(tab: Any) -> None:
    unfold(tab)
    found = dict(tab.evaluate(CONTRAST))
    assert len(found) > 20
    assert {where: ratio for where, ratio in found.items() if ratio < 4.5} == {}


def test_the_theme_turns_without_a_trace(tab: Any) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(paper)
    button = tab.locator("#theme")
    assert button.inner_text() == "Dark theme"
    button.click()
    dark = tab.evaluate(paper)
    assert button.inner_text() == "Light theme"
    assert dark != light
    found = dict(tab.evaluate(CONTRAST))
    assert min(found.values()) >= 4.5
    tab.reload()
    assert tab.evaluate(paper) == light
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate(paper) == dark
    assert tab.locator("#theme").inner_text() == "Light theme"


def test_every_control_is_reached_in_order_and_is_seen(tab: Any) -> None:
    controls = tab.evaluate(CONTROLS)
    assert len(controls) > 40
    visited, outlines = [], set()
    for _ in controls:
        tab.keyboard.press("Tab")
        number, outline = tab.evaluate(
            "() => [document.activeElement.dataset.n, getComputedStyle(document.activeElement).outlineStyle]"
        )
        visited.append(number)
        outlines.add(outline)
    assert visited == controls
    assert outlines == {"solid"}
    assert tab.evaluate("document.querySelector('.skip').dataset.n") == visited[0]


def test_links_lead_to_what_they_name_and_unfold_it(tab: Any) -> None:
    tab.locator("nav a", has_text="Assumptions").click()
    assert tab.evaluate("document.querySelector('#assumptions details').open")
    box = tab.locator("#assumptions h2").bounding_box()
    assert tab.locator(".top").bounding_box()["height"] <= box["y"] < 900
    tab.locator("#fleet a").first.click()
    place = tab.evaluate("location.hash")
    assert re.fullmatch(r"#m\d+p\d+", place)
    assert 0 <= tab.locator(f"{place} h4").bounding_box()["y"] < 900


def test_a_command_is_copied(tab: Any) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = tab.locator("button.copy").first
    button.click()
    tab.wait_for_function("document.querySelector('button.copy').textContent !== 'Copy'")
    assert button.inner_text() == "Copied"
    assert tab.evaluate("navigator.clipboard.readText()") == tab.locator("pre code").first.text_content()


@pytest.mark.parametrize("tab", [("example", "desktop", "dark")], indirect=True, ids=str)
def test_it_prints_on_a4_in_light_with_every_warning(tab: Any, example: Any, tmp_path: Path) -> None:
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert min(dict(tab.evaluate(CONTRAST)).values()) >= 4.5
    path = tmp_path / "page.pdf"
    tab.pdf(path=str(path), prefer_css_page_size=True)
    if shutil.which("pdftotext") is None:
        pytest.skip("needs pdftotext (package poppler-utils)")
    size = re.search(r"Page size:\s+([\d.]+) x ([\d.]+)", run_tool(["pdfinfo", str(path)], 60))
    assert size
    assert (float(size[1]), float(size[2])) == pytest.approx((595, 842), abs=2)
    text = " ".join(run_tool(["pdftotext", str(path), "-"], 60).split())
    assert example.title in text
    for warning in example.warnings:
        assert " ".join(warning.split())[:60] in text
    for pool in example.pools:
        assert pool.launch_command.split()[2] in text
    assert "1 of " in text


def test_pictures_are_drawn(tmp_path: Path) -> None:
    pictures = render_pictures(EXAMPLE, tmp_path)
    assert [path.name for path in pictures] == ["page.png", "card.png"]
    for path in pictures:
        data = path.read_bytes()
        assert struct.unpack(">I", data[16:20]) == (1400,)
        assert len(data) > 100_000
