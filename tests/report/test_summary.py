from __future__ import annotations

import io

import pytest
from rich.console import Console

from planner.plan import FleetPlan
from planner.report.summary import render_summary


def _print(plan: FleetPlan, width: int = 100) -> str:
    out = io.StringIO()
    render_summary(plan, Console(file=out, width=width))
    return out.getvalue()


def test_a_pipe_of_100_columns_shows_every_figure_on_its_line(plan: FleetPlan):
    text = _print(plan)
    lines = text.splitlines()
    assert "410,066 USD for 42 GPUs, 39 of them used by pools" in text
    assert "1.2813 USD by reservation" in text
    assert "0.5043 USD by use" in text
    assert "optimal: no fleet for these tokens costs less than 409,902 USD (gap 0.040%" in text
    chat = [line for line in lines if line.startswith("chat ")]
    assert len(chat) == 3
    assert "3 x H100-SXM tp4 fp8/fp8" in chat[0]
    assert "16,384" in chat[0]
    assert "190,218" in chat[0]
    assert "1,352,410 / 1,390,000" in chat[1]
    assert "38.1 / 50" in chat[1]
    assert "0.040% / 0.100%" in chat[1]
    assert "token pool" in chat[2]
    assert chat[2].endswith("+18,250")
    assert max(len(line) for line in lines) <= 110
    assert "\x1b" not in text


def test_costs_of_pools_add_up_to_the_total(plan: FleetPlan):
    rows = _print(plan).split("What to run")[1].split("Does it fit")[0].splitlines()[2:]
    costs = [int(row.split()[-1].replace(",", "")) for row in rows if row.strip()]
    assert sum(costs) == pytest.approx(plan.totals.usd, abs=len(costs))


def test_purchases_limits_and_warnings_are_printed(plan: FleetPlan):
    text = _print(plan)
    assert "aws/p5.48xlarge/us-east-1/on_demand" in text
    assert "limit H100 in us-east-1: 16 of 24 GPU" in text
    assert text.count("warning: ") == 3
    assert "44.0 / none" in text


def test_hostile_names_cannot_style_or_break_lines(plan: FleetPlan):
    pool = plan.pools[0].model_copy(update={"name": "[red]x[/red]\x1b[31m\ny", "binding_constraint": "[/]"})
    text = _print(plan.model_copy(update={"pools": (pool, *plan.pools[1:]), "warnings": ("[bold]w\x07",)}))
    assert "[red]x[/red][31m y" in text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "warning: [bold]w" in text
