"""Usage of the OpenAI organisation API: pages of buckets of a minute, an hour or a day.

``GET /v1/organization/usage/completions`` (API reference, "Usage"): ``input_tokens`` include cached ones,
``output_tokens`` reasoning ones. Without ``group_by=model`` the model is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.errors import Problems
from planner.traffic.documents import Peek, json_objects
from planner.traffic.readers.columns import OptionValue
from planner.traffic.storage.files import LogFile
from planner.traffic.sums.table import Sums, count_of


class OpenAi:
    """Answers of the usage API: one page, a list of pages or of buckets, or one a line."""

    name = "openai-usage"
    source = "openai-usage"
    options: Mapping[str, str] = {}

    def claims(self, peek: Peek) -> bool:
        """By the members of a bucket."""
        return {"start_time", "end_time", "results"} <= peek.keys and "input_tokens" in peek.text

    def read(self, path: LogFile, options: Mapping[str, OptionValue]) -> Iterator[Sums]:
        """Every result of every bucket."""
        problems = Problems()
        found = []
        for place, page in json_objects(path):
            data = page.get("data")
            buckets = data if isinstance(data, list) else [page]
            for number, bucket in enumerate(buckets, start=1):
                found += _bucket(problems, place, f"bucket {number}", bucket)
        problems.raise_if_any()
        yield from found


def _bucket(problems: Problems, where: str, row: str, bucket: object) -> list[Sums]:
    results = bucket.get("results") if isinstance(bucket, dict) else None
    if not isinstance(bucket, dict) or not isinstance(results, list):
        problems.add(where, "is no bucket with results", "Save the answers of the usage API as they are", row=row)
        return []
    start, end = (count_of(problems, where, row, bucket, name) for name in ("start_time", "end_time"))
    if not 0 < start < end:
        problems.add(where, f"has no span from {start} to {end}", "Both are Unix seconds", row=row)
        return []
    return [_result(problems, where, row, start, end - start, one) for one in results]


def _result(problems: Problems, where: str, row: str, start_s: int, width_s: int, result: object) -> Sums:
    if not isinstance(result, dict):
        problems.add(where, f"holds a {type(result).__name__} where a result is expected", row=row)
        return Sums("", start_s, width_s, 0, 0, 0)
    names = ("num_model_requests", "input_tokens", "output_tokens", "input_cached_tokens")
    figures = [count_of(problems, where, row, result, name) for name in names]
    return Sums(str(result.get("model") or ""), start_s, width_s, *figures)
