"""A canonical distribution cut by prompt length, by random shares, or by time."""

from planner.traffic.operations.split.length import by_length
from planner.traffic.operations.split.share import by_share
from planner.traffic.operations.split.time import Period, between, by_period

__all__ = ["Period", "between", "by_length", "by_period", "by_share"]
