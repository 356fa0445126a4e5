from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest
import vl_convert

from planner.report.chart_file import PNG_SCALE, VEGA_LITE, FileKind
from planner.report.speed_chart import speed_chart
from planner.report.speed_page import chart_file


@pytest.fixture(scope="module")
def sample() -> ModuleType:
    spec = util.spec_from_file_location("speed_chart_cases", Path(__file__).with_name("test_speed_chart.py"))
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(sample: ModuleType, kind: FileKind = FileKind.HTML, label: str = "", source: str = "") -> bytes:
    curve = replace(sample.CURVE, label=label or sample.CURVE.label, planned=sample.PLANNED)
    points = [replace(sample.POINT, source=source or "bench.json")]
    return chart_file(kind, speed_chart([curve], points), [curve], points)


def size_of(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize("kind", FileKind)
def test_same_curves_same_bytes(sample: ModuleType, kind: FileKind) -> None:
    assert page(sample, kind) == page(sample, kind)


def test_a_png_is_whole_and_holds_the_pixels_of_vl_convert(sample: ModuleType) -> None:
    spec = speed_chart([sample.CURVE])
    mine = chart_file(FileKind.PNG, spec, [sample.CURVE])
    plain = vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=PNG_SCALE)
    assert mine[:8] == b"\x89PNG\r\n\x1a\n"
    pixels = []
    for png in (mine, plain):
        at, stream = 8, b""
        while at < len(png):
            (length,) = struct.unpack(">I", png[at : at + 4])
            kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
            assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
            stream += data if kind == b"IDAT" else b""
            at += length + 12
        assert kind == b"IEND"
        pixels.append(zlib.decompress(stream))
    assert pixels[0] == pixels[1]
    assert len(mine) < len(plain) / 2


@pytest.mark.parametrize("width_px", [420, 719, 1000, 1600])
def test_a_picture_has_about_the_width_asked_for(sample: ModuleType, width_px: int) -> None:
    spec = speed_chart([sample.CURVE], width_px=width_px)
    width, _ = size_of(chart_file(FileKind.PNG, spec, [sample.CURVE]))
    assert width / PNG_SCALE == pytest.approx(width_px, rel=0.03)


class Cells(HTMLParser):
    """Text of table cells, and the attributes of all elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.cells, self.attributes = "", [], set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open = tag
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open in ("td", "th", "caption", "title"):
            self.cells.append(data)


def test_a_page_needs_no_network(sample: ModuleType) -> None:
    text = page(sample).decode()
    parser = Cells()
    parser.feed(text)
    assert not parser.attributes & {"src", "href", "srcset", "data"}
    assert "@import" not in text.split("</style>")[0]
    assert "url(" not in text.split("</style>")[0]
    assert len(text) < 1_000_000


def test_the_table_holds_the_figures(sample: ModuleType) -> None:
    parser = Cells()
    parser.feed(page(sample).decode())
    cells = parser.cells
    assert cells[0] == "Speed of org/model"
    at = cells.index("4")
    assert cells[at : at + 5] == ["4", "83.3 (71.4–100)", "12 (10–14)", "120 (70–240)", "310 (240–380)"]
    assert "6" in cells  # the last concurrency, though no power of two
    plan = cells.index("plan: 3")
    assert cells[plan : plan + 5] == ["plan: 3", "71.4", "14", "900", "200"]
    assert cells[-8:] == [sample.CURVE.label, "4", "80", "12.5", "115", "300", "vllm 0.19.0", "bench.json"]


def test_text_from_outside_stays_text(sample: ModuleType) -> None:
    evil = "</script><script>alert(1)</script><!--"
    text = page(sample, label=evil, source=evil).decode()
    assert text.count("<script>") == 2
    assert "<!--" not in text.split("</style>", 1)[1].split("const light", 1)[1]
    parser = Cells()
    parser.feed(text)
    assert f"{evil}: prediction (80 % band)" in parser.cells
    spec = re.search(r"^const light = (.*);$", text, re.MULTILINE)
    assert spec
    assert json.loads(spec[1])["config"]["background"] == "#ffffff"


def test_pages_are_dark_where_the_reader_wishes(sample: ModuleType) -> None:
    text = page(sample).decode()
    assert "prefers-color-scheme: dark" in text
    dark = re.search(r"^const dark = (.*);$", text, re.MULTILINE)
    assert dark
    assert json.loads(dark[1])["background"] == "#16181c"
