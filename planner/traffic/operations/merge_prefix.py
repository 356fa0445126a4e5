"""The prefix tables of several logs as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from planner.traffic.schema import PREFIX

SUMS = ("n", "sum_prompt", "sum_cached")


def merge_prefix(tables: Sequence[pa.Table | None], names: Mapping[str, str]) -> pa.Table | None:
    """Requests and tokens added by model, kind, hour of the week and cache size; None without any table.

    Reuse is that of separate caches, one for each model of each log. Sizes that not all of them were measured at are
    left out: the sums there would lack some requests.

    Parameters
    ----------
    tables
        One for each log, None where it tells nothing.
    names
        Old to new model names.
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    streams: dict[str, set[tuple[int, str]]] = {}
    for place, table in enumerate(tables):
        for row in table.to_pylist() if table is not None else ():
            model = names.get(row["model"], row["model"])
            key = model, row["kind"], row["hour_of_week"], row["cache_tokens"]
            sums = found.setdefault(key, [0] * len(SUMS))
            found[key] = [a + row[name] for a, name in zip(sums, SUMS, strict=True)]
            if row["cache_tokens"] is not None:
                seen[key] += 1
                streams.setdefault(model, set()).add((place, row["model"]))
    if all(table is None for table in tables):
        return None
    kept = [key for key in found if key[3] is None or seen[key] == len(streams[key[0]])]
    kept.sort(key=lambda key: (key[0], key[1], -1 if key[2] is None else key[2], -1 if key[3] is None else key[3]))
    rows = [
        dict(zip(("model", "kind", "hour_of_week", "cache_tokens", *SUMS), (*key, *found[key]), strict=True))
        for key in kept
    ]
    return pa.Table.from_pylist(rows, schema=PREFIX)
