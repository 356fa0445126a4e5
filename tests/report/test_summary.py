from __future__ import annotations

import io

import pytest
from rich.console import Console

from planner.plan import FleetPlan, RunnerUp
from planner.report import facts
from planner.report.summary import render_summary


def _print(plan: FleetPlan, width: int = 100) -> str:
    out = io.StringIO()
    render_summary(plan, Console(file=out, width=width))
    return out.getvalue()


def test_every_figure_stands_on_its_line(plan: FleetPlan):
    text = _print(plan, 110)
    lines = text.splitlines()
    flat = " ".join(text.split())
    assert "410,066 USD for 42 GPUs, 39 of them used by pools" in text
    assert "1.0265 USD by reservation" in text
    assert "0.5057 USD by use" in text
    assert "352,383 M input and 47,106 M output tokens" in text
    assert f"optimal: {facts.CLAIM} than 409,902 USD (gap 0.040%" in flat
    assert "the oldest is of 2026-07-20, 132 days before planning" in flat
    chat = [line.rstrip() for line in lines if line.startswith("chat ")]
    assert len(chat) == 4
    assert "3 x H100-SXM tp4 fp8/fp8 at aws us-east-1" in chat[0]
    assert "16,384" in chat[0]
    assert "190,218" in chat[0]
    assert "1,352,410 / 1,390,000" in chat[1]
    assert "71% / 85%" in chat[1]
    assert "0.040% / 0.100%" in chat[1]
    assert "token pool" in chat[2]
    assert "38.1 / 50" in chat[2]
    assert "640.0 / 1,500" in chat[2]
    assert chat[3].endswith("+18,250")
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [80, 110])
def test_lines_fit_the_width_and_no_word_is_broken(width: int, plan: FleetPlan):
    """Long names, offers and texts; every word of a narrow print is a word of a wide one."""
    runner = RunnerUp(description="12 x RTX-PRO-6000-BW tp8 int4-awq/bf16 at a-provider eu-north1", extra_usd=1e7)
    first, *rest = plan.pools
    first = first.model_copy(
        update={"name": "code-completion-in-editors-of-all-teams", "runner_up": runner, "gpu": "RTX-PRO-6000-BW"}
    )
    changed = plan.model_copy(update={"pools": (first, *rest)})
    narrow, wide = _print(changed, width), _print(changed, 400)
    assert max(len(line) for line in narrow.splitlines()) <= width
    assert set(narrow.split()) == set(wide.split())
    assert narrow.count("code-completion-in-edit…") == 4


def test_pools_stand_in_the_order_of_the_plan(plan: FleetPlan):
    names = [pool.name for pool in plan.pools]
    starts = [line.split()[0] for line in _print(plan).splitlines() if line.split()[:1] and line.split()[0] in names]
    assert starts == names * 4


def test_costs_of_pools_add_up_to_the_total(plan: FleetPlan):
    rows = _print(plan).split("What to run")[1].split("Does it fit")[0].splitlines()[2:]
    costs = [int(row.split()[-1].replace(",", "")) for row in rows if row.strip()]
    assert sum(costs) == pytest.approx(plan.totals.usd, abs=len(costs))


def test_purchases_limits_and_warnings_are_printed(plan: FleetPlan):
    text = _print(plan)
    assert "aws/p5.48xlarge/us-east-1/on_demand" in text
    assert "limit H100 in us-east-1: 16 of 24 GPU" in text
    assert text.count("warning: ") == 4
    assert "warning: assumptions without a source date: 1" in text
    assert "44.0 / none" in text


def test_hostile_names_cannot_style_or_break_lines(plan: FleetPlan):
    pool = plan.pools[0].model_copy(update={"name": "[red]x[/red]\x1b[31m\ny", "binding_constraint": "[/]"})
    text = _print(plan.model_copy(update={"pools": (pool, *plan.pools[1:]), "warnings": ("[bold]w\x07",)}))
    assert "[red]x[/red][31m y" in text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "warning: [bold]w" in text
