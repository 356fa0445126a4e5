"""Options of metrics: the longest context, the exporter, and the times that the files do not state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import Problems
from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.readers.columns import OptionValue
from planner.traffic.times import seconds_of

OPTIONS: Mapping[str, str] = {
    "max_model_len": "longest context in tokens, of all models or of each: 131072, or llama:131072;qwen:32768",
    "engine": "whose histograms to read, where several are there: vllm, sglang, tgi, dynamo or otel",
    "at": "when the snapshots were taken, where neither lines nor file names say so",
    "started": "when the counters began at 0, so that the first snapshot counts from there",
}


@dataclass(frozen=True)
class Options:
    """The options, understood."""

    longest: Mapping[str, int]
    """Longest context by model; of all others under the empty name."""
    engine: str
    at_s: float | None
    started_s: float | None

    def limit(self, model: str) -> int | None:
        """Longest context of a model, if it is stated."""
        return self.longest.get(model, self.longest.get(""))


def understood(options: Mapping[str, OptionValue], zone: str) -> Options:
    """The options of an order.

    Raises
    ------
    InputError
        If one of them is no number of tokens or no time.
    """
    problems = Problems()
    longest: dict[str, int] = {}
    for part in str(options.get("max_model_len", "")).split(";"):
        model, _, text = part.strip().rpartition(":")
        if not part.strip():
            continue
        if not text.strip().isdecimal() or not 0 < int(text) <= MAX_TOKENS:
            problems.add("option max_model_len", f"'{part.strip()}' is no number of tokens", "Such as 131072")
        else:
            longest[model.strip()] = int(text)
    times: dict[str, float | None] = {}
    for name in ("at", "started"):
        given = str(options.get(name, ""))
        times[name] = seconds_of(given, zone) if given else None
        if given and times[name] is None:
            problems.add(f"option {name}", f"'{given}' is no time", "Such as 2026-09-03T14:22:07Z")
    problems.raise_if_any()
    return Options(longest, str(options.get("engine", "")), times["at"], times["started"])
