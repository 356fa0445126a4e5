"""The queueing room: how many replicas a load needs."""
