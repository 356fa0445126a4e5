"""Sums of usage reports: requests and tokens per minute, hour or day; they scale a distribution and plan nothing."""
