"""Hours of the horizon that are planned alike, and the week of every pool."""
