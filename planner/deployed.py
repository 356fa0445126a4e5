"""A plan's pool as the deployment that its replicas are sized from."""

from __future__ import annotations

from planner.errors import Problems
from planner.memory.types import Deployment, KvDtype, WeightDtype
from planner.plan import Pool


def deployment_of(pool: Pool) -> Deployment:
    """As the plan states it.

    Raises
    ------
    InputError
        If a format is none that the planner knows.
    """
    problems = Problems()
    formats = (("weight_dtype", pool.weight_dtype, WeightDtype), ("kv_dtype", pool.kv_dtype, KvDtype))
    for name, value, known in formats:
        if value not in list(known):
            problems.add(f"pool {pool.name}", f"{value!r:.40} is no format", f"One of {', '.join(known)}", field=name)
    problems.raise_if_any()
    return Deployment(
        tp=pool.tp,
        weight_dtype=WeightDtype(pool.weight_dtype),
        kv_dtype=KvDtype(pool.kv_dtype),
        max_model_len=pool.max_model_len,
        max_num_seqs=pool.max_num_seqs,
        max_num_batched_tokens=pool.max_num_batched_tokens,
        gpu_memory_utilization=pool.gpu_memory_utilization,
    )
