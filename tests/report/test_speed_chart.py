from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from planner.memory.types import KvDtype, WeightDtype
from planner.report.speed_chart import DASHES, PALETTE, PANELS, SHAPES, caption_lines, speed_chart, subtitle_lines
from planner.report.speed_curve import LEAST_WIDTH_PX, MOST_CURVES, Planned, Series, SpeedCurve
from planner.speed.points import Figures, Load, LoadKind, Point, Served

SERVED = Served("vllm", "0.19.0", "org/model", "H100-SXM", 1, WeightDtype.BF16, KvDtype.BF16)
CURVE = SpeedCurve(
    label="1 x H100-SXM, bf16",
    source="roofline: fitted on 300 points",
    served=SERVED,
    input_tokens=2048,
    output_tokens=512,
    concurrency=(1.0, 2.0, 4.0, 6.0),
    tpot_ms=Series((8.0, 9.0, 10.0, 11.0), (10.0, 11.0, 12.0, 13.0), (12.0, 13.0, 14.0, 15.0)),
    ttft_ms=Series((50.0, 60.0, 70.0, 80.0), (100.0, 110.0, 120.0, 150.0), (200.0, 210.0, 240.0, 300.0)),
    output_tok_s=Series((70.0, 130.0, 240.0, 300.0), (90.0, 170.0, 310.0, 400.0), (120.0, 210.0, 380.0, 500.0)),
)
OTHER = replace(CURVE, label="1 x L40S, bf16", served=replace(SERVED, gpu="L40S"))
FIGURES = Figures(tpot_ms=12.5, ttft_ms=115.0, output_tok_s=300.0)
POINT = Point("p", SERVED, Load(LoadKind.CLOSED_LOOP, 2048, 512, concurrency=4), FIGURES, "bench.json")
PLANNED = Planned(3.0, 14.0, 900.0, 200.0, "planned: 3.0 requests live on average")


def marks(node: Any, data: Any = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mark of a specification with its layer, which has the data of what it stands in."""
    if isinstance(node, dict):
        data = node.get("data", data)
        if "mark" in node:
            mark = node["mark"]
            yield (mark["type"] if isinstance(mark, dict) else mark), {**node, "data": data}
        for value in node.values():
            yield from marks(value, data)
    elif isinstance(node, list):
        for value in node:
            yield from marks(value, data)


def rows(spec: dict[str, Any], node: dict[str, Any]) -> list[dict[str, Any]]:
    return spec["datasets"][node["data"]["name"]]


def titles(spec: Any) -> set[str]:
    return {node["encoding"]["y"]["title"] for _, node in marks(spec) if node["encoding"].get("y", {}).get("title")}


def test_four_panels_with_units_and_a_log2_axis() -> None:
    spec = speed_chart([CURVE])
    assert titles(spec) == {
        "Decode rate of one stream, tokens/s",
        "Time per output token (TPOT), ms",
        "Time to first token (TTFT), ms, log",
        "Replica's output, tokens/s",
    }
    lines = [node for kind, node in marks(spec) if kind == "line"]
    assert len(lines) == 4
    for node in lines:
        x = node["encoding"]["x"]
        assert x["scale"] == {"type": "log", "base": 2, "domain": [1.0, 6.0], "nice": False}
        assert x["axis"]["values"] == [1.0, 2.0, 4.0]
        assert "requests" in x["title"]


def test_line_and_band_are_the_curve() -> None:
    spec = speed_chart([CURVE])
    (ttft,) = (n for k, n in marks(spec) if k == "line" and "TTFT" in n["encoding"]["y"]["title"])
    assert [(r["concurrency"], r["low"], r["value"], r["high"]) for r in rows(spec, ttft)] == [
        (1.0, 50.0, 100.0, 200.0), (2.0, 60.0, 110.0, 210.0), (4.0, 70.0, 120.0, 240.0), (6.0, 80.0, 150.0, 300.0),
    ]  # fmt: skip
    bands = [node for kind, node in marks(spec) if kind == "area"]
    assert [(b["encoding"]["y"]["field"], b["encoding"]["y2"]["field"]) for b in bands] == [("low", "high")] * 4
    decode = rows(spec, next(n for k, n in marks(spec) if k == "line" and "Decode" in n["encoding"]["y"]["title"]))
    assert (decode[0]["low"], decode[0]["value"], decode[0]["high"]) == pytest.approx((1000 / 12, 100.0, 125.0))


def test_measured_points_are_drawn_over_the_line() -> None:
    stranger = replace(POINT, served=replace(SERVED, gpu="B200"))
    spec = speed_chart([CURVE], [POINT, stranger])
    points = [node for kind, node in marks(spec) if kind == "point"]
    drawn = [(r["concurrency"], r["value"], r["source"]) for node in points for r in rows(spec, node)]
    assert drawn == [(4, value, "bench.json") for value in (80.0, 12.5, 115.0, 300.0)]
    for row in spec["vconcat"][0]["vconcat"]:
        for panel in row["hconcat"]:
            assert [kind for kind, _ in marks(panel)] == ["area", "line", "point"]


def test_a_point_without_a_figure_is_left_out_of_its_panel_only() -> None:
    spec = speed_chart([CURVE], [replace(POINT, measured=Figures(ttft_ms=115.0))])
    assert sum(kind == "point" for kind, _ in marks(spec)) == 1
    spec = speed_chart([CURVE], [replace(POINT, measured=Figures(tpot_ms=0.0, ttft_ms=0.0, output_tok_s=1.0))])
    assert sum(kind == "point" for kind, _ in marks(spec)) == 1


def test_the_plan_and_a_full_replica_are_marked() -> None:
    spec = speed_chart([replace(CURVE, full_at=5.0, full_why="KV pool", planned=PLANNED)])
    diamonds = [rows(spec, n)[0] for k, n in marks(spec) if k == "point" and n["mark"].get("shape") == "diamond"]
    assert [(d["concurrency"], d["value"]) for d in diamonds] == [
        (3.0, pytest.approx(1000 / 14)), (3.0, 14.0), (3.0, 900.0), (3.0, 200.0),
    ]  # fmt: skip
    rules = [n for k, n in marks(spec) if k == "rule"]
    assert [rows(spec, n)[0]["concurrency"] for n in rules] == [5.0] * 4
    (domain,) = (
        n["encoding"]["y"]["scale"]["domain"]
        for k, n in marks(spec)
        if k == "line" and n["encoding"]["y"]["scale"].get("type") == "log"
    )
    assert domain[0] < 50
    assert domain[1] > 900


def test_captions_say_source_fullness_and_plan() -> None:
    (line,) = caption_lines([replace(CURVE, full_at=5.0, full_why="KV pool", planned=PLANNED)])
    assert line.startswith("1 x H100-SXM, bf16: roofline: fitted on 300 points; full at 5 requests (KV pool)")
    assert line.endswith("planned: 3.0 requests live on average.")


def test_captions_name_who_measured() -> None:
    points = [replace(POINT, source=source) for source in ("a", "b", "a", "c", "", "x" * 500)]
    stranger = replace(POINT, served=replace(SERVED, gpu="B200"), source="stranger")
    older = replace(POINT, served=replace(SERVED, version="0.16.0"), source="a")
    assert caption_lines([CURVE], [*points[:2], older])[-1] == (
        "Measured: vllm 0.19.0, a; vllm 0.19.0, b; vllm 0.16.0, a."
    )
    assert caption_lines([CURVE], [*points, stranger])[-1].endswith("vllm 0.19.0, c; and 2 more.")
    assert caption_lines([CURVE], points[4:5])[-1] == "Measured: vllm 0.19.0, no source given."
    assert len(caption_lines([CURVE], points[5:])[-1]) < 200
    assert len(caption_lines([CURVE], [stranger])) == 1


def test_the_subtitle_says_load_and_marks() -> None:
    load, reading = subtitle_lines([CURVE], [POINT])
    assert load == "1 x H100-SXM, bf16; vllm 0.19.0; closed loop, prompts of 2,048 and outputs of 512 tokens (means)"
    assert reading == "Line: prediction. Shade: 80 % band. Filled marks: 1 measured point."
    assert "None of the 1 measured points" in subtitle_lines([OTHER], [POINT])[1]
    assert "Open diamond: the plan." in subtitle_lines([replace(CURVE, planned=PLANNED)], [])[1]


def test_deployments_differ_in_colour_dash_and_shape() -> None:
    assert len(set(PALETTE)) == len(SHAPES) == len(DASHES) == MOST_CURVES
    spec = speed_chart([CURVE, OTHER], [POINT])
    texts = [n for k, n in marks(spec) if k == "text"]
    assert [r["deployment"] for r in rows(spec, texts[0])] == [CURVE.label, OTHER.label]
    for kind, node in marks(spec):
        if kind == "line":
            assert node["encoding"]["strokeDash"]["scale"]["domain"] == [CURVE.label, OTHER.label]


def test_text_is_broken_to_the_width() -> None:
    long = replace(CURVE, source="roofline: " + "a long story " * 30)
    for width in (LEAST_WIDTH_PX, 1000, 2400):
        caption = speed_chart([long], width_px=width)["title"]["text"]
        assert max(len(line) for line in caption) * 11 * 0.5 < width
    assert len(speed_chart([CURVE], width_px=500)["vconcat"][0]["vconcat"]) == len(PANELS)
    assert len(speed_chart([CURVE], width_px=1000)["vconcat"][0]["vconcat"]) == 2


@pytest.mark.parametrize("curves", [[], [CURVE, CURVE], [replace(CURVE, label=str(i)) for i in range(7)]])
def test_charts_that_cannot_be_read_are_refused(curves: list[SpeedCurve]) -> None:
    with pytest.raises(ValueError, match="1 to 6 curves"):
        speed_chart(curves)


def test_the_same_curves_give_the_same_specification() -> None:
    first, again = (json.dumps(speed_chart([CURVE, OTHER], [POINT])) for _ in range(2))
    assert first == again
