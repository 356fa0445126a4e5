"""Replay: whether a plan holds when real requests arrive."""
