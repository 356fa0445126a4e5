"""From decisions to the `FleetPlan`: every figure recomputed without the solver, and compared with its objective."""

from __future__ import annotations

from planner.assemble.assemble import assemble
from planner.assemble.context import Context, Reasons
from planner.assemble.verify import verify

__all__ = ["Context", "Reasons", "assemble", "verify"]
