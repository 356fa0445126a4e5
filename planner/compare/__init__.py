"""Two plans side by side: the bridge between their costs, and what changed, in words."""
