"""Glossary: the field's terms in finance's words."""

from __future__ import annotations

from planner.report.scenarios import IN_SCENARIO, several
from planner.report.style import GREY
from planner.report.table import Column, Sheet, Table, stack
from planner.report.view import View

TERMS: tuple[tuple[str, str, str], ...] = (
    (
        "Token",
        "Unit of text that a model reads (input) or writes (output), about three quarters of an English word. Volumes "
        "here are in millions (M).",
        "Demand",
    ),
    (
        "Pool",
        "Identical replicas that serve one part of a model's requests: a stretch of prompt lengths, a tenant, or all. "
        "A model may have several pools.",
        "Plan, Routing",
    ),
    (
        "Period",
        "Hours of the horizon that are planned alike, such as the busy hours of working days. Replicas and instances "
        "may differ from period to period.",
        "Periods",
    ),
    (
        "Supply, lot",
        "A supply is a kind of instance that replicas stand on (GPU type, size, place). A lot is such instances on one "
        "contract: on demand, spot, committed, owned or to be bought.",
        "Cost, Periods",
    ),
    (
        "Paid in any case, after the horizon",
        "In any case: contracts that exist already are paid whatever is planned. After the horizon: what new "
        "commitments and purchases still cost when the horizon is over; it is in no cost of this plan.",
        "Cost, Summary",
    ),
    (
        "Replica",
        "One running copy of a model, on one or more GPUs. It is the smallest step by which a pool grows.",
        "Plan",
    ),
    (
        "TP",
        "Tensor parallelism: the GPUs over which one replica is split. GPUs of a pool = replicas x TP.",
        "Plan",
    ),
    (
        "dtype",
        "Number format of the weights or of the KV cache. Fewer bits need less memory; the model's owner approves "
        "which ones may be used.",
        "Plan",
    ),
    (
        "KV cache",
        "Working memory of a replica: what it remembers of every request in progress. It is what is left of GPU "
        "memory after the weights; when it is full, requests wait.",
        "Fit",
    ),
    (
        "Live tokens",
        "Tokens of all requests in progress on a replica at one moment. They must fit into its KV cache; the peak is "
        "the figure that is exceeded no more often than the policy allows.",
        "Fit, Margins",
    ),
    (
        "TPOT",
        "Time per output token, ms: how fast an answer is written once it has begun.",
        "Margins",
    ),
    (
        "TTFT",
        "Time to first token, ms: how long a user waits until the answer begins.",
        "Margins",
    ),
    (
        "max_model_len",
        "Longest request, prompt and answer together in tokens, that a replica accepts. Longer requests are refused; "
        "the tail budget says how many that may be.",
        "Plan, Demand",
    ),
    (
        "Work share",
        "Share of time that a replica's own work takes at the planning rate. At 100 % it would fall behind for good; "
        "the policy keeps it below a limit.",
        "Fit, Margins",
    ),
    (
        "Planning rate",
        "Requests per second of the busy hours, which the fleet must hold. Served and paid tokens follow the mean "
        "rate, without the peak factor.",
        "Demand",
    ),
    (
        "Capacity",
        "Tokens that a pool could serve in the horizon at the highest steady rate that holds every limit. Capacity "
        "used = served over capacity.",
        "Fit",
    ),
    (
        "USD per 1M by reservation",
        "Everything that is paid over the tokens that are served. A reserved GPU costs the same busy or idle: this "
        "is the figure for budgets.",
        "Summary",
    ),
    (
        "USD per 1M by use",
        "The part of the cost that stands for the capacity that served tokens use, over the same tokens: what a "
        "token would cost in a fleet that is always full. The difference is the price of headroom.",
        "Summary",
    ),
    (
        "USD per 1M input, output",
        "Everything that is paid, split by the time that prompts and outputs take of the replicas of each pool, over "
        "the tokens of each kind.",
        "Summary, Fit",
    ),
    (
        "Worth of a limit",
        "The whole plan is solved again with the limit one instance wider; the saving is divided by the GPUs of it.",
        "Cost",
    ),
    (
        "Bound and gap",
        "The solver proves that no plan among those that the request allows costs less than the bound. The gap is "
        "the share of the cost between the plan and the bound: the most that a better plan could save.",
        "Cover, Summary",
    ),
    (
        "Extra USD, re-solve",
        "The whole plan is solved again without the GPU types that the model stands on, so all of its pools move; the "
        "extra cost is the difference for the same tokens. It loses above: price of a GPU-hour of its type at which "
        "both cost the same; not found where a model stands on several types.",
        "Fit",
    ),
    (
        "On demand, spot, commitment",
        "On demand: paid by the hour, ended at will. Spot: cheaper, may be taken away by the provider at any time, so "
        "only a share of it is counted on. Commitment: a term of 1 or 3 years, or a block of days, paid in every hour "
        "of it whether it runs or not.",
        "Catalogue, Cost",
    ),
    (
        "List, contracted, effective price",
        "List: what the provider prints for the same instance on demand. Contracted: list after negotiated discounts, "
        "before any commitment. Effective: what is really paid over the GPU-hours paid; a commitment's saving is the "
        "distance from contracted.",
        "Catalogue, Commitments",
    ),
    (
        "Billed and effective cost",
        "Billed: the cash that the horizon is invoiced for, what is paid in advance in full. Effective (amortised): "
        "the cost of the horizon, with what is paid in advance spread over the time that it covers. The plan is "
        "decided on effective cost.",
        "Commitments, Data_FOCUS",
    ),
    (
        "Capex, depreciation, return on capital",
        "Capex: the price of bought hardware, cash on the day of purchase. Depreciation: that price less what is left "
        "at the end, in equal parts over its life. Return on capital: what the money tied up would earn elsewhere. "
        "Maintenance, hosting and power are operating cost.",
        "Commitments, Catalogue",
    ),
    (
        "Coverage, utilisation, unused cost",
        "Coverage: share of the GPU-hours that run which commitments and own hardware provide. Utilisation: share of "
        "the hours held that run. Unused cost: fixed cost of the hours held that do not run.",
        "Commitments",
    ),
    (
        "Showback",
        "Cost told to the cost centres that cause it, without a payment. Direct cost is for the GPUs that a workload's "
        "replicas hold; idle cost is the rest of the same supply, shared out by those GPU-hours.",
        "Showback",
    ),
    (
        "Scenario, future",
        "The request with some figures multiplied (growth, prices, targets, quotas), planned on its own. Base is the "
        "request as it stands.",
        "Summary, Sensitivity",
    ),
    (
        "Sensitivity, swing, tornado",
        "Sensitivity: one driver at a low and at a high value, planned again. Swing: distance between the cheapest and "
        "the dearest of low, base and high. Tornado: a bar chart of them, the largest swing on top.",
        "Sensitivity",
    ),
    (
        "Replay, repeat, interval",
        "Replay: real requests of the past, brought to the planning rate, run through a model of the planned replicas "
        "step by step. Repeat: one such run from another moment of the past. Interval: range that holds the true mean "
        "with the confidence stated; narrow where repeats agree. Refuted: the whole interval lies beyond the limit.",
        "Replay",
    ),
    (
        "Rule of means, drill",
        "Rule of means: replicas for the mean load and a factor of headroom, as many sizing guides count them. Drill: "
        "a replay in which something goes wrong (a machine is lost, a burst arrives), and how long clients notice.",
        "Replay",
    ),
    (
        "Regret",
        "What a fleet costs more in a future than the cheapest fleet would have, when its pools and new commitments "
        "stay and only counts of replicas follow the load. The fleet whose largest regret is least is the safe choice.",
        "Sensitivity",
    ),
    (
        "Bridge",
        "The change of cost since last quarter, step by step: volume, efficiency, mix of GPU types, exchange rate, "
        "price, and what commitments leave unused. The steps add up to the change.",
        "Bridge",
    ),
    (
        "FOCUS",
        "FinOps Open Cost and Usage Specification, version 1.2: names that bills of all providers share. "
        "ChargeCategory Usage is what is used, Purchase a commitment bought; lists of costs leave one of the two out. "
        "CommitmentDiscountStatus says whether committed hours are Used or Unused. End dates are exclusive.",
        "Data_FOCUS",
    ),
    (
        "GPU-hour, instance-hour",
        "One GPU, or one whole machine of one or more GPUs, for one hour. Providers bill machines; prices here are "
        "also shown for one GPU.",
        "Catalogue, Periods",
    ),
)
"""Term, meaning, sheets."""


def _names(view: View, top: int) -> Table:
    """Defined names: what a formula or a reader may use instead of an address."""
    rows = [("all_checks", "1 while every check passes, else 0", "Checks, cell A3")]
    if several(view.study):
        rows.append((IN_SCENARIO, "Number of the scenario that every sheet shows, as listed on sheet Runs", "Summary"))
    defined, meanings, sheets = zip(*rows, strict=True)
    columns = (Column("Name", 28, defined), Column("Stands for", 104, meanings), Column("Where", 18, sheets))
    heading = "Defined names of this workbook"
    return Table("tblNames", "Glossary", top, columns, len(rows), heading, workings=True)


def build(view: View) -> Sheet:
    """The Glossary sheet; it is the same for every plan, but for the names."""
    terms, meanings, sheets = zip(*TERMS, strict=True)
    columns = (
        Column("Term", 28, terms),
        Column("Meaning", 104, meanings),
        Column("Sheets", 18, sheets),
    )
    return Sheet(
        "Glossary",
        "Glossary: the terms of this workbook",
        "The field's words in the words of a budget.",
        "What the terms mean",
        GREY,
        stack(
            [
                lambda top: Table("tblGlossary", "Glossary", top, columns, len(TERMS)),
                lambda top: _names(view, top),
            ]
        ),
    )
