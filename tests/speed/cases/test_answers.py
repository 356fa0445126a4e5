"""Answers to rows: what has a figure, and what makes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.speed.cases.answers import Answer, answer_all
from planner.speed.cases.cells import COLUMNS, answer_cells
from planner.speed.cases.deployments import Deployments
from planner.speed.cases.layouts import Layout
from planner.speed.cases.parts import step_parts
from planner.speed.cases.rows import Reader, read_measured
from planner.speed.cases.scores import OUTPUT, TPOT, TTFT, Scored, score
from planner.speed.measured import MeasuredSet
from planner.speed.points import Figures, Load, LoadKind, Point
from planner.speed.types import Banded


def answers(reader: Reader, deployments: Deployments, layout: Layout, *rows: Any) -> list[Answer]:
    return answer_all([reader.read(layout, row) for row in rows], deployments)


def test_a_band_lies_around_each_figure(reader: Reader, deployments: Deployments, silicon: Any) -> None:
    (found,) = answers(reader, deployments, Layout.SILICON, silicon())
    for figure in (found.tpot_ms, found.ttft_ms):
        assert figure is not None
        assert figure.low < figure.value < figure.high
    assert found.output_tok_s == pytest.approx(found.total_tok_s * 512 / 1536)  # type: ignore[operator]
    assert "H100" in found.source
    assert found.reason == ""


def test_every_row_has_an_answer_in_order(reader: Reader, deployments: Deployments, silicon: Any) -> None:
    rows = [silicon(id="a"), silicon(id="b", model="nothing"), {}, silicon(id="c", osl="1"), silicon(id="a")]
    found = answers(reader, deployments, Layout.SILICON, *rows)
    assert [one.id for one in found] == ["a", "b", "", "c", "a"]
    assert found[0] == found[4]
    assert found[1].reason == "model: model 'nothing' is not in the catalogue"
    assert found[3].tpot_ms is None
    assert found[3].reason == "no TPOT: the answer has one token"


def test_other_rows_do_not_change_a_row(reader: Reader, deployments: Deployments, silicon: Any, point: Any) -> None:
    rows = [silicon(id=str(n), concurrency=str(n), system=gpu) for n in (1, 7, 64) for gpu in ("h100_sxm", "b200_sxm")]
    together = answers(reader, deployments, Layout.SILICON, *rows)
    assert answers(reader, deployments, Layout.SILICON, *reversed(rows)) == list(reversed(together))
    for row, found in zip(rows, together, strict=True):
        assert answers(reader, deployments, Layout.SILICON, row) == [found]


def test_totals_are_of_all_replicas(reader: Reader, deployments: Deployments, throughput: Any) -> None:
    one, four = answers(
        reader, deployments, Layout.THROUGHPUT,
        throughput(concurrency_or_rate="16"), throughput(concurrency_or_rate="64", gpus="4"),
    )  # fmt: skip
    assert four.tpot_ms == one.tpot_ms
    assert four.output_tok_s == pytest.approx(4 * one.output_tok_s)  # type: ignore[operator]


def test_figures_that_have_no_meaning_say_why(reader: Reader, deployments: Deployments, throughput: Any) -> None:
    full, flooded = answers(
        reader, deployments, Layout.THROUGHPUT,
        throughput(concurrency_or_rate="max-load"), throughput(concurrency_or_rate="100000 req/s"),
    )  # fmt: skip
    assert full.ttft_ms is None
    assert full.reason == "no TTFT: all requests queue at once"
    assert "arrive faster" in flooded.reason
    assert flooded.output_tok_s == pytest.approx(full.output_tok_s, rel=1e-6)


def test_an_engine_that_is_not_known_is_read_as_another(reader: Reader, deployments: Deployments, silicon: Any) -> None:
    vllm, other = answers(reader, deployments, Layout.SILICON, silicon(), silicon(engine="lmdeploy"))
    assert other.tpot_ms == vllm.tpot_ms
    assert "engine lmdeploy is read as vllm" in other.notes


def test_a_decode_worker_has_no_ttft(reader: Reader, deployments: Deployments, silicon: Any) -> None:
    row = silicon(mode="disagg", tp="", decode_tp="1", decode_workers="2", concurrency="32")
    (found,) = answers(reader, deployments, Layout.SILICON, row)
    assert found.tpot_ms is not None
    assert found.ttft_ms is None
    assert "prefill workers" in found.reason


def test_what_does_not_fit_says_so(reader: Reader, deployments: Deployments, silicon: Any) -> None:
    (found,) = answers(reader, deployments, Layout.SILICON, silicon(model="deepseek-ai/DeepSeek-R1", precision="fp8"))
    assert found.tpot_ms is None
    assert "does not fit" in found.reason


def test_stages_of_a_pipeline_follow_one_another(reader: Reader, deployments: Deployments, point: Any) -> None:
    """A token passes every stage: two of one GPU each are no faster than one."""
    one, two = answers(reader, deployments, Layout.POINTS, point(concurrency="1"), point(concurrency="1", pp="2"))
    assert two.tpot_ms.value > 0.99 * one.tpot_ms.value  # type: ignore[union-attr]


def test_measured_points_correct_the_model(reader: Reader, deployments: Deployments, silicon: Any) -> None:
    rows = [silicon(concurrency=str(n), tpot_ms=str(30 + n), ttft_ms="900") for n in (4, 16, 64)]
    points = read_measured(reader, Layout.SILICON, rows)
    with_them = Deployments(reader, replace(deployments.sources, measured=MeasuredSet(points)))
    (plain,) = answers(reader, deployments, Layout.SILICON, silicon(concurrency="16"))
    (found,) = answers(reader, with_them, Layout.SILICON, silicon(concurrency="16"))
    assert found.provider == "measured curve"
    assert abs(found.tpot_ms.value - 46) < abs(plain.tpot_ms.value - 46) / 2  # type: ignore[union-attr]
    (other,) = answers(reader, with_them, Layout.SILICON, silicon(system="h200_sxm"))
    assert other.provider == "roofline"
    (far,) = answers(reader, with_them, Layout.SILICON, silicon(concurrency="4000", isl="64"))
    assert any("beyond what was measured" in note for note in far.notes)


def test_cells_have_the_columns_that_were_asked_for() -> None:
    assert ",".join(COLUMNS) == (
        "id,predicted_tpot_ms,predicted_tpot_ms_low,predicted_tpot_ms_high,predicted_ttft_ms,predicted_ttft_ms_low,"
        "predicted_ttft_ms_high,predicted_output_tok_s_total,predicted_total_tok_s,source,reason"
    )
    answer = Answer("a", Banded(12.3456789, 10, 15, "s"), None, 1234567.0, None, "s", ("n",), "r")
    assert answer_cells(answer) == ("a", "12.3457", "10", "15", "", "", "", "1.23457e+06", "", "s; n", "r")


def test_parts_of_a_step_add_up(reader: Reader, deployments: Deployments, point: Any) -> None:
    case = reader.read(Layout.POINTS, point(concurrency="32"))
    assert case.point is not None
    (found,) = answer_all([case], deployments)
    parts = step_parts(deployments.of(case.point.served).model.coefficients, case.point.load, found)
    assert parts is not None
    whole = parts.busy_ms + parts.fixed_ms + parts.sequence_ms + parts.allreduce_ms + parts.prefill_ms
    assert whole == pytest.approx(found.tpot_ms.value, rel=1e-6)  # type: ignore[union-attr]
    assert parts.busy_ms >= max(parts.weights_read_ms + parts.kv_read_ms, parts.compute_ms) * 0.999
    assert 20 < parts.decoding < 32
    assert step_parts(deployments.of(case.point.served).model.coefficients, case.point.load, Answer("x")) is None


def scored(reader: Reader, point: Any, tpot: float, measured: Figures, kind: LoadKind = LoadKind.CLOSED_LOOP) -> Scored:
    case = reader.read(Layout.POINTS, point())
    assert case.point is not None
    at: Point = replace(case.point, load=Load(kind, 10, 10, 1, 1))
    return Scored(
        at, Answer("", Banded(tpot, tpot * 0.9, tpot * 1.1, ""), Banded(50, 40, 60, ""), 100.0, 200.0), measured
    )


def test_scores_are_medians_and_shares(reader: Reader, point: Any) -> None:
    rows = [scored(reader, point, tpot, Figures(tpot_ms=10)) for tpot in (10, 12, 5)]
    rows.append(scored(reader, point, 10, Figures(ttft_ms=100, total_tok_s=100)))
    rows.append(scored(reader, point, 10, Figures(output_tok_s=50), LoadKind.OPEN_LOOP))
    found = score(rows, ("all", "gpu"))
    tpot = found["all", "all", TPOT]
    assert (tpot.rows, tpot.median, tpot.bias) == (3, pytest.approx(0.2), 1.0)
    assert tpot.p90 == pytest.approx(0.2 + 0.8 * 0.3)
    assert tpot.covered == pytest.approx(1 / 3)
    assert found["gpu", "H100-SXM", TTFT].median == pytest.approx(0.5)
    assert found["all", "all", OUTPUT].rows == 1
    assert found["all", "all", OUTPUT].covered is None
    assert list(found)[:3] == [("all", "all", TPOT), ("all", "all", TTFT), ("all", "all", OUTPUT)]


@pytest.mark.parametrize(("engine", "most"), [("trtllm", 2 * 2048), ("trtllm-bench", 2 * 4096)])
def test_what_serves_has_half_the_cap_of_what_benches(
    reader: Reader, deployments: Deployments, point: Any, engine: str, most: float
) -> None:
    """Two data-parallel ranks, each with the default of ``trtllm-serve`` or the most of ``trtllm-bench``."""
    case = reader.read(Layout.POINTS, point(engine=engine, version="1.0.0", tp="2", attention_dp="2"))
    assert case.point is not None
    assert deployments.of(case.point.served).most_sequences == most
