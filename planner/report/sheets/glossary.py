"""Glossary: the field's terms in finance's words."""

from __future__ import annotations

from planner.plan import FleetPlan
from planner.report.style import GREY
from planner.report.table import FIRST_TABLE_ROW, Column, Sheet, Table

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
        "The whole plan is solved again with the model on its next best configuration; the extra cost is the "
        "difference for the same tokens.",
        "Fit",
    ),
)
"""Term, meaning, sheets."""


def build(plan: FleetPlan) -> Sheet:
    """The Glossary sheet; it is the same for every plan."""
    del plan
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
        (Table("tblGlossary", "Glossary", FIRST_TABLE_ROW, columns, len(TERMS)),),
    )
