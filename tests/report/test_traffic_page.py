"""Charts and page of a distribution: what they show, and that it is the same every time."""

from __future__ import annotations

import json
import re
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.report.chart_file import PNG_SCALE, FileKind, picture
from planner.report.traffic_chart import drawn, traffic_charts
from planner.report.traffic_page import traffic_page
from planner.report.traffic_rows import (
    bin_minutes,
    density_rows,
    hour_rows,
    rate_rows,
    share_rows,
    traffic_of,
    week_rows,
)
from planner.report.traffic_style import DASHES, MOST_MODELS, PALETTE, SHAPES
from planner.traffic.canonical import Canonical
from planner.traffic.figures import figures_of
from planner.traffic.operations.merge_bursts import Span
from planner.traffic.operations.small_cells import merge_small
from planner.traffic.schema import Kind
from tests.traffic.handmade import START_US, canonical_of, window_row

WEEK = 7 * 24 * 60


def made(models: int = 2, *, minutes: int = 180, **manifest: Any) -> Canonical:
    rng = np.random.default_rng(5)
    rows, burst = [], []
    for k in range(models):
        name = f"org/model-{k}"
        lengths = zip(rng.integers(1, 9000, 60), rng.integers(0, 900, 60), rng.integers(0, minutes, 60), strict=True)
        rows += [(name, int(m), int(p), int(o)) for p, o, m in lengths]
        burst += [window_row(name, float(s), 100, 1.0, 1.0 + k + s / 100, 5) for s in (1, 60)]
    return canonical_of(rows, minutes=minutes, burst=burst, **manifest)


def charts(canonical: Canonical) -> dict[str, dict[str, Any]]:
    return traffic_charts(canonical, figures_of(canonical, Path("dir")))


def test_densities_add_up_to_all_requests() -> None:
    for canonical in (made(1), merge_small(made(1), 7)):
        rows = density_rows(canonical, "org/model-0")
        share = sum(r["share"] * np.log2(r["p2"] / r["p"]) * np.log2(r["o2"] / r["o"]) for r in rows)
        assert share == pytest.approx(1, abs=1e-4)
        for one, other in ((a, b) for i, a in enumerate(rows) for b in rows[i + 1 :]):
            apart = (
                one["p2"] <= other["p"] or other["p2"] <= one["p"] or one["o2"] <= other["o"] or other["o2"] <= one["o"]
            )
            assert apart


def test_shares_are_those_of_the_requests() -> None:
    rows = [("a", 0, p, p // 10) for p in range(1, 1200)]
    traffic = traffic_of(canonical_of(rows, tail_size=50), "a")
    assert traffic is not None
    found = share_rows(traffic, "a")
    for name, true in (("prompt", [p for _, _, p, _ in rows]), ("total", [p + o for _, _, p, o in rows])):
        shares = [row["share"] for row in found[name]]
        assert shares == sorted(shares)
        assert shares[-1] == 1
        for row in found[name]:
            assert row["share"] <= (np.array(true) <= row["tokens"]).mean() + 1e-6  # never more than fit
    assert found["beyond"][-1]["share"] > 0


def test_rates_and_hours_are_those_of_the_minutes() -> None:
    rows = [("a", minute, 5, 5) for minute in range(170) for _ in range(1 + minute // 60)]
    start = START_US + 30 * 60_000_000 + 5_000_000  # not on a minute: the first one is left out
    canonical = canonical_of(
        [(m, k + 0, p, o) for m, k, p, o in rows], minutes=170, start_us=START_US + 30 * 60_000_000
    )
    assert [row["mean"] * 60 for row in rate_rows(canonical, "a")] == pytest.approx(
        [1 + m // 60 for m in range(170)], rel=1e-5
    )
    assert [row["mean"] * 60 for row in hour_rows(canonical, "a")] == pytest.approx([1.5, 2.5], rel=1e-5)
    assert bin_minutes(Span(start, start + 4 * 86_400_000_000)) == 10


def test_a_week_is_a_band_over_its_hours() -> None:
    rows = [("a", minute, 5, 5) for minute in range(0, 3 * WEEK, 60) for _ in range(1 + minute // WEEK)]
    found = week_rows(canonical_of(rows, minutes=3 * WEEK), "a")
    assert len(found) == 168
    assert found[5]["hour"] == 5
    assert [found[5][name] * 3600 for name in ("low", "mid", "high", "most")] == pytest.approx(
        [1.2, 2, 2.8, 3], rel=1e-5
    )


def test_the_charts_that_a_log_has_data_for() -> None:
    assert set(charts(made())) == {"lengths", "shares", "rates", "hours", "bursts"}
    assert set(charts(made(minutes=90))) == {"lengths", "shares", "rates", "bursts"}
    assert "Hours of the log" in charts(made())["hours"]["title"]["text"]
    assert "Hour of the week" in charts(made(minutes=2 * WEEK))["hours"]["title"]["text"]
    assert "Hours of the log" in charts(made(minutes=2 * WEEK, time_base="start of the log"))["hours"]["title"]["text"]
    assert set(charts(made(kind=Kind.SUMS))) == {"rates", "hours"}


def test_the_largest_models_are_drawn_and_the_others_counted() -> None:
    canonical = made(MOST_MODELS + 2)
    found = figures_of(canonical, Path("dir"))
    assert len(drawn(found)) == MOST_MODELS == len(PALETTE) == len(DASHES) == len(SHAPES)
    spec = charts(canonical)["bursts"]
    assert "2 more are left out" in spec["title"]["subtitle"][-1]
    page = traffic_page(canonical, found, {})
    assert "Not drawn, but in the tables: org/model-" in page


@pytest.mark.parametrize("name", ["lengths", "shares", "rates", "hours", "bursts"])
def test_pictures_repeat_and_hold_the_models(name: str) -> None:
    spec = charts(made())[name]
    svg = picture(FileKind.SVG, spec)
    assert svg == picture(FileKind.SVG, spec)
    assert b"org/model-1" in svg
    png = picture(FileKind.PNG, spec)
    width, height = struct.unpack(">II", png[16:24])
    assert 800 <= width / PNG_SCALE <= 1120
    assert height / PNG_SCALE <= 800


def test_no_page_is_a_picture() -> None:
    with pytest.raises(ValueError, match="no picture"):
        picture(FileKind.HTML, {})


class Cells(HTMLParser):
    """Text of elements, and all attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.cells, self.attributes = "", [], set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open = tag
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open in ("td", "th", "caption", "title", "li", "p"):
            self.cells.append(data)


def parsed(canonical: Canonical) -> tuple[str, Cells]:
    found = figures_of(canonical, Path("dir"))
    text = traffic_page(canonical, found, traffic_charts(canonical, found))
    parser = Cells()
    parser.feed(text)
    return text, parser


def test_a_page_needs_no_network_and_says_what_it_holds() -> None:
    text, parser = parsed(made(remarks=["a guess"], smallest_cell=5))
    assert not parser.attributes & {"src", "href", "srcset", "data"}
    assert "url(" not in text.split("</style>")[0]
    assert "a guess" in parser.cells
    assert "Total tokens" in parser.cells
    words = " ".join(parser.cells)
    assert "Not held: any text of a prompt or an answer, any user, key, address or session." in words
    assert "at least 5 requests" in words
    specs = re.search(r"^const charts = (.*);$", text, re.MULTILINE)
    assert specs
    assert set(json.loads(specs[1])) == {"lengths", "shares", "rates", "hours", "bursts"}
    assert "prefers-color-scheme: dark" in text


def test_text_from_outside_stays_text() -> None:
    evil = "</script><script>alert(1)</script><!--"
    text, parser = parsed(canonical_of([(evil, 0, 5, 5)], remarks=[evil], source=evil))
    assert text.count("<script>") == 2
    assert evil in parser.cells
    assert "<!--" not in text.split("</style>", 1)[1].split("const charts", 1)[1]
