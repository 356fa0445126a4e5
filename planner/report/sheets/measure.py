"""A line of sheet Summary, and the ids by which other cells read it."""

from __future__ import annotations

from dataclasses import dataclass

from planner.report.style import Kind
from planner.report.table import Formula

SCENARIO = "summary/scenario"
SCENARIO_NUMBER = "summary/scenario_number"
COST = "summary/cost_usd"
GPUS = "summary/gpus"
TOKENS = "summary/tokens"
BY_RESERVATION = "summary/usd_per_mtok_by_reservation"
BY_USE = "summary/usd_per_mtok_by_use"
INPUT_UNIT = "summary/usd_per_mtok_input"
OUTPUT_UNIT = "summary/usd_per_mtok_output"
INPUT_SHARE = "summary/input_share"
AFTER = "summary/liability_after_usd"
GPU_HOURS = "summary/gpu_hours"
CAPEX = "summary/capex_usd"
RUN_RATE = "summary/run_rate_usd"
COUNT_OR_NONE = '0;-0;"none"'


@dataclass(frozen=True)
class Measure:
    """One line of the summary."""

    id: str
    text: str
    value: Formula | str
    """A formula; the name of the scenario that is shown first is text."""
    unit: str
    number: str
    sheet: str
    """Where it is calculated."""
    meaning: str
    kind: Kind = Kind.LINK
