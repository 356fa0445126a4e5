"""Starts in tables and logs, compared with their prediction."""
