"""Measures of sheet Summary: the figures of the plan, each a formula with its unit and meaning."""

from __future__ import annotations

from planner.report import facts
from planner.report.sheets import cover, inputs
from planner.report.sheets.measure import (
    AFTER,
    BY_RESERVATION,
    BY_USE,
    COST,
    COUNT_OR_NONE,
    GPU_HOURS,
    GPUS,
    INPUT_SHARE,
    INPUT_UNIT,
    OUTPUT_UNIT,
    TOKENS,
    Measure,
)
from planner.report.sheets.measures_finance import (
    currency_measures,
    fleet_measures,
    last_measures,
    regret_measures,
    scenario_measures,
)
from planner.report.style import COUNT, DATE, SHARE, SHARE_FINE, USD, USD_RATE
from planner.report.table import Formula
from planner.report.view import View


def _total(table: str, header: str) -> Formula:
    return Formula(f"={table}[{header}]#total")


def measures(view: View) -> tuple[Measure, ...]:
    """The figures of the summary, most important first."""
    money, rest = _money(), (*_volume(), *fleet_measures())
    in_currency = currency_measures(view, (*money, *rest))
    return (
        *scenario_measures(view),
        *money,
        *in_currency,
        *last_measures(view),
        *regret_measures(view),
        *rest,
        *_record(),
    )


def _money() -> tuple[Measure, ...]:
    """Cost, in all and for a token."""
    tokens = "tblPlan[Served, M tokens]#total"
    per_token = Formula(f"=IF({tokens}>0,tblCost[Cost, USD]#total/{tokens},0)")
    used = "SUMPRODUCT(tblPlan[Cost of GPUs held, USD],tblFit[Capacity used])"
    for_input = Formula("=SUMPRODUCT(tblPlan[Cost, USD],tblFit[Prompts' share of work])/tblPlan[Cost, USD]#total")
    input_tokens, output_tokens = (f"tblTokens[Served {word}, M tokens]#total" for word in ("input", "output"))
    input_unit = Formula(f"=IF({input_tokens}>0,<1>*<2>/{input_tokens},0)", (COST, INPUT_SHARE))
    output_unit = Formula(f"=IF({output_tokens}>0,<1>*(1-<2>)/{output_tokens},0)", (COST, INPUT_SHARE))
    by_use = Formula(f"=IF({tokens}>0,{used}/{tokens},0)")
    return (
        Measure(
            COST,
            "Cost of the horizon",
            _total("tblCost", "Cost, USD"),
            "USD",
            USD,
            "Cost",
            "Reserved hours, hours in use, and what is paid in any case",
        ),
        Measure(
            BY_RESERVATION,
            "USD per 1M served tokens, by reservation",
            per_token,
            "USD per 1M",
            USD_RATE,
            "Cost, Plan",
            "All that is paid, over input and output tokens served",
        ),
        Measure(
            BY_USE,
            "USD per 1M served tokens, by use",
            by_use,
            "USD per 1M",
            USD_RATE,
            "Plan, Fit",
            "GPUs that pools hold, for the share of their capacity that served tokens use",
        ),
        Measure(
            INPUT_UNIT,
            "USD per 1M input tokens",
            input_unit,
            "USD per 1M",
            USD_RATE,
            "Fit, Plan",
            "All that is paid, by the replica time that prompts take",
        ),
        Measure(
            OUTPUT_UNIT,
            "USD per 1M output tokens",
            output_unit,
            "USD per 1M",
            USD_RATE,
            "Fit, Plan",
            "All that is paid, by the replica time that outputs take",
        ),
        Measure(
            INPUT_SHARE,
            "Share of cost for input",
            for_input,
            "share",
            SHARE,
            "Fit",
            "Work of prompts over all work of the replicas, pool by pool",
        ),
    )


def _volume() -> tuple[Measure, ...]:
    """GPUs, tokens, and what is refused."""
    tokens = "tblPlan[Served, M tokens]#total"
    refused = Formula("=tblDemand[Refused requests]#total/MAX(1,tblDemand[Requests offered]#total)")
    offered = "tblTokens[Offered, M tokens]#total"
    refused_tokens = Formula(f"=IF({offered}>0,tblTokens[Refused, M tokens]#total/{offered},0)")
    return (
        Measure(
            GPUS,
            "GPUs bought",
            _total("tblCost", "GPUs bought"),
            "GPU",
            COUNT,
            "Cost",
            "Whole instances, each lot at its largest",
        ),
        Measure(
            "summary/used",
            "GPUs used by pools",
            _total("tblPlan", "GPUs"),
            "GPU",
            COUNT,
            "Plan",
            "Replicas x TP, each pool in its busiest period",
        ),
        Measure(
            "summary/idle",
            "Cost of idle GPU-hours",
            _total("tblSupplies", "Of which idle, USD"),
            "USD",
            USD,
            "Cost",
            "Paid and used by no pool; in the cost above",
        ),
        Measure(
            "summary/sunk",
            "Paid in any case",
            _total("tblCost", "In any case, USD"),
            "USD",
            USD,
            "Cost",
            "Contracts that exist already; in the cost above",
        ),
        Measure(
            AFTER,
            "Still to be paid after the horizon",
            _total("tblCost", "After the horizon, USD"),
            "USD",
            USD,
            "Cost",
            "Rest of new commitments and purchases; not in the cost above",
        ),
        Measure(
            GPU_HOURS,
            "GPU-hours paid",
            _total("tblSupplies", "GPU-hours paid"),
            "GPU-h",
            COUNT,
            "Cost",
            "Of all lots, running or not",
        ),
        Measure(TOKENS, "Served tokens", Formula(f"={tokens}"), "M tokens", COUNT, "Demand", "Input and output"),
        Measure(
            "summary/input",
            "of which input",
            _total("tblTokens", "Served input, M tokens"),
            "M tokens",
            COUNT,
            "Demand",
            "Prompt tokens, cached ones included",
        ),
        Measure(
            "summary/output",
            "of which output",
            _total("tblTokens", "Served output, M tokens"),
            "M tokens",
            COUNT,
            "Demand",
            "Generated tokens",
        ),
        Measure(
            "summary/refused",
            "Requests refused",
            refused,
            "share",
            SHARE_FINE,
            "Demand",
            "Longer than max_model_len, of all requests that arrive",
        ),
        Measure(
            "summary/refused_tokens",
            "Tokens refused",
            refused_tokens,
            "share",
            SHARE_FINE,
            "Demand",
            "Tokens of those requests, of all tokens that arrive",
        ),
    )


def _record() -> tuple[Measure, ...]:
    """What was proven, how old prices are, and what is left to read."""
    return (
        Measure(
            "summary/bound",
            "Proven lower bound",
            Formula("=<1>", (cover.BOUND,)),
            "USD",
            USD,
            "Cover",
            f"{facts.CLAIM[0].upper()}{facts.CLAIM[1:]}",
        ),
        Measure(
            "summary/gap",
            "Gap to the bound",
            Formula("=<1>", (cover.GAP,)),
            "share",
            SHARE_FINE,
            "Cover",
            "Most that is left to save",
        ),
        Measure(
            "summary/oldest",
            "Oldest price paid",
            Formula("=<1>", (cover.OLDEST,)),
            "date",
            DATE,
            "Cost",
            "Day on which its source stated it",
        ),
        Measure(
            "summary/age",
            "Its age when planned",
            Formula("=<1>", (cover.AGE,)),
            "days",
            COUNT,
            "Inputs",
            "Prices older than the limit fail a check",
        ),
        Measure(
            "summary/undated",
            "Inputs without a source date",
            Formula(f'=COUNTIF(tblInputs[Source date],"{inputs.UNDATED}")'),
            "count",
            COUNT_OR_NONE,
            "Inputs",
            "Shown there as undated",
        ),
        Measure(
            "summary/warnings",
            "Warnings to read",
            Formula("=MAX(tblWarnings[No])"),
            "count",
            COUNT_OR_NONE,
            "Warnings",
            "What a signer must know",
        ),
    )
