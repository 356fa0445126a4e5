"""Why this fleet, why none, and what rules of thumb would cost."""
