"""What the page says is what the study holds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from planner.compare.bridge import bridge
from planner.optimise.periods.schedule import hours_text
from planner.plan import FleetPlan
from planner.report import facts
from planner.report.page.__main__ import main
from planner.report.page.anchors import anchors_of
from planner.report.page.bars import track
from planner.report.page.curves import curves_of
from planner.report.page.last import waterfall
from planner.report.page.markup import prose
from planner.report.page.numbers import MINUS, count, decimal, of_unit, rate, share, usd, usd_change
from planner.report.page.plots import decode_spec, target_rate
from planner.report.page.week import hours_of
from planner.report.speed_curve import SpeedCurve
from planner.study import Study, study_to_json
from planner.traffic.season import SLOTS
from tests.report.page.dom import Node, read


def number(text: str) -> float:
    found = re.match(r"[+-]?[\d.]+", text.replace(",", "").replace(MINUS, "-"))
    assert found, text
    return float(found[0])


def words(node: Node) -> str:
    return " ".join(node.text().split())


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (usd(-0.4), "0"), (usd(1234.5), "1,234"), (usd_change(-1234.4), "−1,234"), (usd_change(0.3), "0"),
        (usd_change(12.0), "+12"), (rate(0.18500), "0.1850"), (count(float("inf")), "no steady state"),
        (decimal(0.0), "0"), (decimal(12.0), "12"), (decimal(0.1266), "0.127"), (decimal(1234.6), "1,235"),
        (share(0.0), "0 %"), (share(1e-15), "0 %"), (share(0.0004), "0.040 %"), (share(0.001), "0.1 %"),
        (share(0.0731), "7.3 %"), (share(0.631), "63 %"), (share(float("inf")), "no steady state"),
        (of_unit(0.85, "share"), "85 %"), (of_unit(12.34, "ms"), "12.3"), (of_unit(1e6, "tokens"), "1,000,000"),
    ],
)  # fmt: skip
def test_figures(made: str, text: str) -> None:
    assert made.replace("\N{NO-BREAK SPACE}", " ") == text


def test_a_bar_stays_in_its_track() -> None:
    made = track([(-1, 0.5, "a"), (0.75, 0.5, "b"), (0.9, float("inf"), "c")], [(7, "end")])
    assert re.findall(r'class="(\w+)" style="left:([\d.]+)%(?:;width:([\d.]+)%)?"', made) == [
        ("a", "0", "50"), ("b", "50", "25"), ("c", "90", "10"), ("end", "100", ""),
    ]  # fmt: skip


def test_hours_are_read_back_as_they_were_written() -> None:
    rng = np.random.default_rng(7)
    everywhere = np.ones(SLOTS, dtype=bool)
    for density in (0.02, 0.3, 0.7, 0.98, 1.0):
        mine = rng.random(SLOTS) < density
        assert hours_of(hours_text(mine, everywhere)) == set(np.flatnonzero(mine[:168]).tolist())
    assert len(hours_of("all hours")) == 168
    assert hours_of("Mon-Wed,holidays 08-10+23-24") == {8, 9, 23, 32, 33, 47, 56, 57, 71}
    with pytest.raises(ValueError, match="names no hours"):
        hours_of("every Monday")


def test_the_head_holds_the_totals(example: FleetPlan, example_tree: Node) -> None:
    tiles = {div.all("dt")[0].text(): div.all("span", "value")[0].text() for div in example_tree.all("dl", "tiles")[0]
             .all("div")}  # fmt: skip
    totals = example.totals
    assert number(tiles["Cost of the horizon"]) == round(totals.usd)
    assert number(tiles["GPUs"]) == totals.gpus
    assert number(tiles["Served tokens"]) == round(totals.served_input_mtok + totals.served_output_mtok)
    for name, value in (
        ("USD per M tokens", totals.usd_per_mtok_by_reservation), ("By use", totals.usd_per_mtok_by_use),
        ("Input", totals.usd_per_mtok_input), ("Output", totals.usd_per_mtok_output),
    ):  # fmt: skip
        assert number(tiles[name]) == pytest.approx(value, abs=5e-5)
    assert f"{len(example.warnings)} warnings" in words(example_tree.with_id("overview"))
    assert len(example_tree.with_id("warnings").all("li")) == len(example.warnings)
    head = words(example_tree.all("header", "masthead")[0])
    stamp = f"{example.created_at:%Y-%m-%d %H:%M} UTC"
    for text in (example.title, example.owner, example.run_id, stamp, "2027-01-01"):
        assert text in head


def test_every_pool_has_its_limits_memory_and_lengths(example: FleetPlan, example_tree: Node) -> None:
    places = anchors_of(example).pools
    for pool, place in zip(example.pools, places, strict=True):
        card = example_tree.with_id(place)
        by_caption = {words(table.all("caption")[0]).split(";")[0]: table for table in card.all("table")}
        limits = by_caption["Limits of one replica"].rows()[1:]
        assert len(limits) == len(pool.margins)
        for margin, row in zip(pool.margins, limits, strict=True):
            assert row[0].startswith(margin.constraint)
            assert ("binds" in row[0]) == (margin.constraint == pool.binding_constraint)
            assert row[1:3] == [of_unit(margin.planned, margin.unit).replace("\N{NO-BREAK SPACE}", " "),
                                of_unit(margin.limit, margin.unit).replace("\N{NO-BREAK SPACE}", " ")]  # fmt: skip
        assert pool.binding_constraint in words(card.all("p", "binds")[0])
        memory = by_caption["Memory of each GPU"].rows()[1:]
        figures = [number(row[1]) for row in memory]
        assert sum(figures[:-1]) == pytest.approx(figures[-1], abs=0.05)
        assert figures[-1] == pytest.approx(pool.memory.available_kv_gib, abs=0.005)
        assert [row[2] for row in memory[2:-1]] == [term.origin for term in pool.memory.terms]
        text = words(card)
        for found in (count(pool.load.quantile_live_tokens), count(pool.memory.logged_tokens), pool.gpu,
                      count(pool.max_model_len), facts.prompt_band(pool)):  # fmt: skip
            assert found in text


def test_a_guess_in_the_memory_is_marked(plan: FleetPlan) -> None:
    from planner.report.page.card_parts import memory

    pool = plan.pools[0]
    terms = (pool.memory.terms[0].model_copy(update={"origin": "guess"}), *pool.memory.terms[1:])
    made = memory(pool.model_copy(update={"memory": pool.memory.model_copy(update={"terms": terms})}))
    assert made.count('<span class="badge warn">guess</span>') == 1
    assert 'class="badge warn">guess' not in memory(pool)


def test_a_broken_limit_is_marked_and_named(plan: FleetPlan) -> None:
    from planner.report.page.card_parts import margins
    from planner.report.page.head import overview

    pool = plan.pools[0]
    broken = pool.margins[0].model_copy(update={"satisfied": False, "used_share": float("inf")})
    worse = pool.model_copy(update={"margins": (broken, *pool.margins[1:])})
    assert 'class="badge bad">exceeded' in margins(worse)
    assert "exceeded" not in margins(pool)
    worse_plan = plan.model_copy(update={"pools": (worse, *plan.pools[1:])})
    assert "Exceeded limits: 1." in overview(worse_plan)
    assert "No warnings. Exceeded limits: 1." in overview(worse_plan.model_copy(update={"warnings": ()}))
    assert "Exceeded" not in overview(plan)


def test_the_fleet_has_every_gpu_type_and_pool(plan: FleetPlan, tree: Node) -> None:
    table = tree.with_id("fleet").all("table")[0]
    groups = [words(row).split()[0] for row in table.all("tr", "group")]
    assert groups == list(facts.gpu_types_by_cost(plan))
    links = {words(link): link.attrs["href"][1:] for link in table.all("a")}
    assert links == dict(zip((pool.name for pool in plan.pools), anchors_of(plan).pools, strict=True))
    assert "No pool stands on it." in words(table)
    row = next(row for row in table.rows() if row[0] == "chat/1")
    pool = plan.pools[0]
    assert row[1].startswith(f"{pool.gpus} GPUs")
    assert number(row[3]) == pytest.approx(100 * pool.load.quantile_live_tokens / facts.token_pool(pool), abs=0.5)
    assert number(row[4]) == pytest.approx(100 * pool.load.work_share, abs=0.5)


def test_the_week_is_that_of_the_schedule(example: FleetPlan, example_tree: Node) -> None:
    week = example_tree.with_id("week")
    strips = {
        row.all("th")[0].text(): row.all("span", "strip")[0] for row in week.all("tr") if row.all("span", "strip")
    }
    assert set(strips) == {pool.name for pool in example.pools}
    for pool in example.pools:
        pieces = [float(re.search(r"flex:(\d+)", piece.attrs["style"])[1]) for piece in strips[pool.name].all("i")]  # type: ignore[index]
        assert sum(pieces) == 168
        said = dict(re.findall(r"(\d+) in (\d+) h", strips[pool.name].attrs["aria-label"]))
        planned = {str(row.replicas): row.hours_a_week for row in example.schedule if row.pool == pool.name}
        assert set(said) == set(planned)
        for replicas, hours in planned.items():
            assert float(said[replicas]) == pytest.approx(hours, abs=3)


def test_scenarios_and_their_differences(study: Study, tree: Node) -> None:
    rows = tree.with_id("futures").all("table")[0].rows()[1:]
    assert len(rows) == len(study.scenarios) + len(study.unsolved)
    base = study.plan.totals.usd
    for scenario, row in zip(study.scenarios[1:], rows[1:], strict=False):
        assert row[0] == scenario.name
        assert number(row[2]) == round(scenario.plan.totals.usd)
        assert number(row[3]) == round(scenario.plan.totals.usd - base)
        assert number(row[4]) == scenario.plan.totals.gpus
    assert "no plan" in rows[-1][1]


def test_the_tornado_starts_at_the_base_and_says_both_ends(study: Study, tree: Node) -> None:
    table = tree.with_id("futures").all("table")[1]
    rows, base = table.all("tr")[1:], study.plan.totals.usd
    ends = [base, *(s.usd for one in study.sensitivities for s in (one.low, one.high) if s.usd is not None)]
    at = 100 * (base - min(ends)) / (max(ends) - min(ends))
    for one, row in zip(study.sensitivities, rows, strict=True):
        assert float(row.all("b")[0].attrs["style"].removeprefix("left:").removesuffix("%")) == pytest.approx(
            at, abs=0.1
        )
        cells = [words(cell) for cell in row.children if isinstance(cell, Node)]
        for side, cell in ((one.low, cells[2]), (one.high, cells[3])):
            assert cell.startswith("no plan") if side.usd is None else number(cell) == round(side.usd)
        assert number(cells[4]) == round(one.swing_usd(base))


def test_the_regret_table_names_its_choice(study: Study, tree: Node) -> None:
    assert study.regret is not None
    rows = tree.with_id("futures").all("table")[2].rows()
    assert [row[0] for row in rows if "least largest regret" in row[0]] == [
        f"{study.regret.choice} least largest regret"
    ]
    assert sum(cell == "cannot serve" for row in rows for cell in row) == sum(c.usd is None for c in study.regret.cells)


def test_the_bridge_closes(study: Study, tree: Node) -> None:
    assert study.last is not None
    found = bridge(study.last.plan, study.plan)
    rows = tree.with_id("last").all("table")[0].rows()[1:]
    assert [row[0] for row in rows[1:-1]] == [step.name for step in found.steps]
    figures = [number(row[2]) for row in rows]
    assert sum(figures[:-1]) == pytest.approx(figures[-1], abs=len(rows))
    made = read(waterfall(100, 120, [("a", 50, ""), ("b", -30, "")], "USD"))
    fills = [node.attrs["style"] for node in made.all("i")]
    assert fills == [
        "left:0%;width:66.67%",
        "left:66.67%;width:33.33%",
        "left:80%;width:20%",
        "left:0%;width:80%",
    ]


def test_planned_stands_over_actual(study: Study, tree: Node) -> None:
    assert study.last is not None
    assert study.last.actuals is not None
    rows = tree.with_id("last").all("table")[1].rows()[1:]
    for one, row in zip(study.last.actuals.models, rows, strict=True):
        assert row[0] == one.model
        assert row[2] == f"{one.planned_requests:,.0f}{one.actual_requests:,.0f}"
        assert ("not known" in row[7]) == (one.actual_overflow is None)


def test_the_curve_holds_the_planned_point_and_the_target(example: FleetPlan) -> None:
    curves = curves_of(example)
    pool = next(pool for pool in example.pools if pool.name == "assistant")
    curve = curves[pool.name]
    assert isinstance(curve, SpeedCurve)
    spec = decode_spec(pool, curve)
    limit = facts.margin(pool, "tpot")
    assert limit is not None
    assert target_rate(pool) == 1000 / limit.limit
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["area", "line", "rule", "rule", "point"]
    assert spec["layer"][2]["data"]["values"] == [{"y": 1000 / limit.limit}]
    assert spec["layer"][3]["data"]["values"] == [{"x": curve.full_at}]
    (point,) = spec["layer"][4]["data"]["values"]
    assert point == {"x": pool.load.mean_live_requests, "y": 1000 / pool.speed.tpot_ms.used}
    assert all(row["low"] <= row["mid"] <= row["high"] for row in spec["data"]["values"])
    assert decode_spec(pool, curve) == spec


def test_limits_routes_purchases_and_lists(plan: FleetPlan, tree: Node) -> None:
    assert [row[4] for row in tree.with_id("routing").all("table")[0].rows()[1:]] == [r.pool for r in plan.routes]
    bought = tree.with_id("purchases").all("table")[0].rows()[1:]
    assert [row[0] for row in bought[:-1]] == [f"{p.offer_id}{p.kind}" for p in plan.purchases]
    assert number(bought[-1][5]) == round(plan.totals.usd) == round(sum(p.usd for p in plan.purchases))
    for quota, row in zip(plan.quotas, tree.with_id("limits").all("table")[0].rows()[1:], strict=True):
        assert row[0].startswith(quota.name)
        assert ("full" in row[0]) == (quota.used >= quota.limit)
    for name, rows in (("rejected", plan.rejected), ("assumptions", plan.assumptions), ("files", plan.inputs)):
        fold = tree.with_id(name).all("details", "fold")[0]
        assert "open" not in fold.attrs
        assert len(fold.all("table")[0].rows()) == len(rows) + 1


def test_an_amount_in_another_currency_has_its_rate_and_source(plan: FleetPlan) -> None:
    import datetime as dt

    from planner.plan import Reporting
    from planner.report.page.head import overview

    money = Reporting(currency="EUR", per_usd=0.92, source="ECB", source_date=dt.date(2026, 11, 27), owner="Treasury")
    made = overview(plan.model_copy(update={"reporting": money}))
    assert f"{plan.totals.usd * 0.92:,.0f} EUR at 0.92 per USD (ECB, 2026-11-27)" in made


def test_long_text_is_folded_and_very_long_text_cut() -> None:
    assert prose("short <b>") == "short &lt;b&gt;"
    made = prose("word " * 100)
    assert made.startswith('<details class="more"><summary>word')
    assert "[cut: 49,999 characters]" in prose("word " * 10_000)


def test_the_command_writes_a_page_of_a_study_or_a_plan(
    study: Study, plan: FleetPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text(plan.model_dump_json(), encoding="utf-8")
    assert main([str(tmp_path), "-o", str(tmp_path / "plan.html")]) == 0
    (tmp_path / "study.json").write_text(study_to_json(study), encoding="utf-8")
    assert main([str(tmp_path), "-o", str(tmp_path / "study.html")]) == 0
    assert 'id="futures"' in (tmp_path / "study.html").read_text(encoding="utf-8")
    assert 'id="futures"' not in (tmp_path / "plan.html").read_text(encoding="utf-8")
    (tmp_path / "study.json").write_text("{}", encoding="utf-8")
    assert main([str(tmp_path), "-o", str(tmp_path / "no.html")]) == 2
    assert "is no study" in capsys.readouterr().err
    assert main([str(tmp_path / "nothing"), "-o", str(tmp_path / "no.html")]) == 2
    assert not (tmp_path / "no.html").exists()
