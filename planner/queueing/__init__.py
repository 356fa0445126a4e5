"""The queueing room."""
