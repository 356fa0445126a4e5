"""The named rules by which a row of a log is dropped; every dropped row is counted under one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from planner.traffic.buckets import MAX_TOKENS


class Rule(StrEnum):
    """Why a row was dropped, in the order in which the rules are tried."""

    MALFORMED = "malformed line"
    OTHER_MODEL = "other model"
    BAD_TIMESTAMP = "unparseable timestamp"
    IMPLAUSIBLE_TIMESTAMP = "implausible timestamp"
    OUTSIDE_WINDOW = "outside the window"
    NOT_A_GENERATION = "not a text generation"
    CACHE_HIT = "response-cache hit"
    REJECTED_RETRIED = "rejected, then tried again"
    REJECTED = "rejected before prefill"
    FAILED = "failed request"
    ABORTED_EMPTY = "aborted before any output"
    MISSING_TOKENS = "missing token count"
    NOT_WHOLE_TOKENS = "token count is not a whole number"
    NEGATIVE_TOKENS = "negative token count"
    ABSURD_TOKENS = "absurd token count"
    ZERO_TOKENS = "zero prompt tokens"
    NO_LENGTH_LAW = "no published length law"
    DUPLICATE = "duplicate request id"


@dataclass(frozen=True)
class Treatment:
    """What a rule means and whether its rows still count as arrivals."""

    offered: bool
    """True: dropped from the length law, but counted in the offered rate and in the bursts."""
    why: str


TREATMENTS: dict[Rule, Treatment] = {
    Rule.MALFORMED: Treatment(False, "the line does not have the columns of the header, or is not valid text or JSON"),
    Rule.OTHER_MODEL: Treatment(False, "the row belongs to a model that was not asked for"),
    Rule.BAD_TIMESTAMP: Treatment(False, "the time stamp cannot be read"),
    Rule.IMPLAUSIBLE_TIMESTAMP: Treatment(False, "the time stamp is before 2015, after 2100, or negative"),
    Rule.OUTSIDE_WINDOW: Treatment(False, "the row lies outside the window that was asked for"),
    Rule.NOT_A_GENERATION: Treatment(False, "an embedding, a trace span or another call that generates no tokens"),
    Rule.REJECTED_RETRIED: Treatment(
        False, "refused before prefill, and the same logical request was served or came again"
    ),
    Rule.CACHE_HIT: Treatment(False, "answered from the proxy's response cache: no GPU work"),
    Rule.REJECTED: Treatment(True, "refused before prefill (429, 503 and the like) and not tried again: unmet demand"),
    Rule.FAILED: Treatment(True, "the request failed: unmet demand, without trustworthy lengths"),
    Rule.ABORTED_EMPTY: Treatment(
        True, "the client went away and no output was counted: the length law is drawn from the other requests"
    ),
    Rule.MISSING_TOKENS: Treatment(True, "prompt or output token count is empty"),
    Rule.NOT_WHOLE_TOKENS: Treatment(True, "token count is text, NaN, infinite or fractional"),
    Rule.NEGATIVE_TOKENS: Treatment(True, "token count is below zero"),
    Rule.ABSURD_TOKENS: Treatment(True, f"token count above {MAX_TOKENS:,}, longer than any model's context"),
    Rule.ZERO_TOKENS: Treatment(True, "no request has an empty prompt: the count was lost (interrupted stream)"),
    Rule.NO_LENGTH_LAW: Treatment(True, "the sample publishes a rate but no lengths for this client and period"),
    Rule.DUPLICATE: Treatment(False, "the same request id appears again; the first kept one counts"),
}


class Adjustment(StrEnum):
    """What was changed about a kept row, or deserves a remark; every such row is counted."""

    ABORTED = "aborted stream"
    CACHED_ADDED = "cached tokens added to the prompt"
    CACHED_CAPPED = "more cached than prompt tokens"
    REASONING_ADDED = "reasoning tokens added to the output"
    ARRIVAL_COMPUTED = "arrival computed from completion"
    ALIASED = "model renamed"
    SEVERAL_CHOICES = "several choices in one request"
    RETRY = "further attempt at one logical request"


REMARKS: dict[Adjustment, str] = {
    Adjustment.ABORTED: "the client went away: the output that was produced until then counts",
    Adjustment.CACHED_ADDED: "this source counts cached tokens beside the prompt; the cache holds them all the same",
    Adjustment.CACHED_CAPPED: "more tokens are called cached than the prompt has; the prompt is taken to be all cached",
    Adjustment.REASONING_ADDED: "this source counts reasoning tokens beside the output",
    Adjustment.ARRIVAL_COMPUTED: "the log stamps completion; the duration was subtracted",
    Adjustment.ALIASED: "the public name was replaced by the weights that served it",
    Adjustment.SEVERAL_CHOICES: "the output of all choices counts as one: each choice holds its own share of it",
    Adjustment.RETRY: "each attempt loads a GPU, so each counts",
}

BITS: dict[Adjustment, int] = {adjustment: 1 << place for place, adjustment in enumerate(Adjustment)}
"""Adjustment to the bit that marks a row."""


def adjusted_by_reason(rows_by_mask: Mapping[int, int]) -> dict[str, int]:
    """Rows of every adjustment, from the rows of every sum of bits; an adjustment without a row is left out."""
    counts = {
        adjustment.value: sum(rows for mask, rows in rows_by_mask.items() if mask & bit)
        for adjustment, bit in BITS.items()
    }
    return {name: rows for name, rows in counts.items() if rows}


CODES: dict[Rule, int] = {rule: code for code, rule in enumerate(Rule)}
"""Rule to the small integer that marks a staged row; a kept row has none."""


def offered_codes() -> str:
    """Codes of the rules whose rows count as arrivals, as an SQL list."""
    return ", ".join(str(CODES[rule]) for rule in Rule if TREATMENTS[rule].offered)


OFFERED_SQL = f"(verdict IS NULL OR verdict IN ({offered_codes()}))"
"""SQL condition: the staged row counts as an arrival."""
