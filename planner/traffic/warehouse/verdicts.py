"""Verdicts as whole numbers without null: engines sort null in different places."""

from __future__ import annotations

from planner.traffic.rules import CODES, TREATMENTS, Rule

KEPT = -1
"""Verdict of a kept row: the codes of the rules start at 0."""
OFFERED = [KEPT, *(CODES[rule] for rule in Rule if TREATMENTS[rule].offered)]
"""Verdicts of the rows that count as arrivals."""
