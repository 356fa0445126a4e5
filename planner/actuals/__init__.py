"""A past plan against what happened: logs of its horizon, replayed on the fleet that was planned."""
