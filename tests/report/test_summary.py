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
    assert "369,924 USD for 53 GPUs, 43 of them used by pools" in text
    assert "0.8484 USD by reservation" in text
    assert "0.3531 USD by use" in text
    assert "0.3810 USD of input, 4.6566 USD of output" in flat
    assert "11,088 USD of the cost is paid in any case; 198,000 USD more is due after the horizon" in text
    assert "388,346 M input and 47,664 M output tokens" in text
    assert f"optimal: {facts.CLAIM} than 369,776 USD (gap 0.040%" in flat
    assert "the oldest is of 2026-07-20, 132 days before planning" in flat
    chat = [line.rstrip() for line in lines if line.startswith("chat/1 ")]
    assert len(chat) == 3
    assert "1 to 3 x H100-SXM tp4 fp8/fp8 at aws us-east-1" in chat[0]
    assert "4,096" in chat[0]
    assert "114,521" in chat[0]
    assert "1,352,410 / 1,390,000" in chat[1]
    assert "71% / 85%" in chat[1]
    assert "0.040% / 0.100%" in chat[1]
    assert "token pool" in chat[2]
    assert "38.1 / 50" in chat[2]
    assert "640.0 / 1,500" in chat[2]
    model = [line.split() for line in lines if line.startswith("chat ")]
    assert model[:2] == [
        ["chat", "all", "0", "to", "4,095", "100%", "chat/1"],
        ["chat", "all", "4,096", "and", "more", "100%", "chat/2"],
    ]
    assert model[2][-1] == "+18,250"
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
    assert narrow.count("code-completion-in-edit…") == 3


def test_pools_stand_in_the_order_of_the_plan(plan: FleetPlan):
    names = [pool.name for pool in plan.pools]
    text = _print(plan).split("Which pool")[0] + _print(plan).split("Does it fit")[1].split("Next best")[0]
    starts = [line.split()[0] for line in text.splitlines() if line.split()[:1] and line.split()[0] in names]
    assert starts == names * 3


def test_costs_of_pools_add_up_to_the_total(plan: FleetPlan):
    """All but the contract that nobody uses, 2,592 USD."""
    rows = _print(plan).split("What to run")[1].split("Which pool")[0].splitlines()[2:]
    costs = [int(row.split()[-1].replace(",", "")) for row in rows if row.strip()]
    assert sum(costs) == pytest.approx(plan.totals.usd - 2_592, abs=len(costs))


def test_purchases_limits_and_warnings_are_printed(plan: FleetPlan):
    text = _print(plan)
    assert "aws/p5.48xlarge/us-east-1/on_demand" in text
    assert "limit H100 in us-east-1: 24 of 24 GPUs; one more is worth 210 USD" in text
    assert "limit nebius stock: 16 of 16 GPUs\n" in text
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
