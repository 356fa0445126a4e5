"""Configurations of every slice and the replicas that they need, computed outside the program."""
