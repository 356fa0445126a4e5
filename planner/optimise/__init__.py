"""The optimise room."""
