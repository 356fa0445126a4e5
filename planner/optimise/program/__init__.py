"""The integer program: which columns serve each model, where their replicas stand, and what is bought for them.

Sets: models m, columns c, placements k, supplies g, yards h (supplies that differ in size alone), lots o, periods t.

    y[c] in {0, 1}     column c is chosen
    r[k, h, t]         replicas of placement k in yard h; substituted out where k can stand in one yard only
    x[o, t]            instances of lot o that run, whole
    X[o]               instances of lot o that are paid every hour, whole
    u[m, gpu]          GPUs beyond last quarter's

    minimise  sum_o (reserved_usd[o] * H * X[o]  +  sum_t used_usd[o] * h[t] * x[o, t])  +  theta * sum_c lost[c] * y[c]

``lost[c]`` are tokens that the column serves less than the best path over its arc. The theta of a Dinkelbach iteration
makes the second term their worth at the current cost per token, so that minimising the sum minimises the ratio of cost
and served tokens. Written this way the objective is in USD and never near 0, and a relative gap means what it says.

Every family of constraints is one function ``add_<family>`` with its inequality in the docstring; `build` calls them.
"""

from planner.optimise.program.build import build, lost_tokens
from planner.optimise.program.buying import quota_covers
from planner.optimise.program.lp_text import lp_text, write_lp
from planner.optimise.program.parts import Program, solver_columns
from planner.optimise.program.placing import placed_replicas, trimmed

__all__ = [
    "Program",
    "build",
    "lost_tokens",
    "lp_text",
    "placed_replicas",
    "quota_covers",
    "solver_columns",
    "trimmed",
    "write_lp",
]
