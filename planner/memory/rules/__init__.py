"""Why an engine would not start."""
