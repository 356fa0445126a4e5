"""Benchmarks: CPU seconds and memory of what must be fast. They print figures and fail nothing."""
