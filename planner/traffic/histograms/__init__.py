"""Metrics of engines, which count lengths in buckets: rates by scrape interval, and each length by itself."""
