"""One module for each sheet; each has ``build(plan) -> Sheet``."""
