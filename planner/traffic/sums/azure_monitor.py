"""Metrics of Azure OpenAI: answers of Azure Monitor (``az monitor metrics list``), totals per minute, hour or day.

Names and dimensions: Azure Monitor reference, "Supported metrics for Microsoft.CognitiveServices/accounts"; form of the
answer: REST specification ``metrics_API.json`` 2018-01-01. Ask for the metrics ``AzureOpenAIRequests``,
``ProcessedPromptTokens`` and ``GeneratedTokens`` with aggregation ``Total``, split by ``ModelDeploymentName`` or
``ModelName``; requests split by ``StatusCode`` as well tell failed ones apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from planner.errors import InputError, Problem, Problems
from planner.traffic.documents import Peek, json_objects
from planner.traffic.readers.columns import OptionValue
from planner.traffic.storage.files import LogFile
from planner.traffic.sums.table import Sums, count_of
from planner.traffic.times import seconds_of

REQUESTS = "AzureOpenAIRequests"
FIELDS = {REQUESTS: "n", "ProcessedPromptTokens": "sum_prompt", "GeneratedTokens": "sum_output"}
MODELS = ("modeldeploymentname", "modelname")
_GRAIN = re.compile(r"P(?:(?P<D>\d+)D)?(?:T(?:(?P<H>\d+)H)?(?:(?P<M>\d+)M)?)?")
_UNITS_S = {"D": 86_400, "H": 3600, "M": 60}


class AzureMonitor:
    """Answers of the metrics interface: one, a list of them, or one a line."""

    name = "azure-monitor"
    source = "azure-monitor-metrics"
    options: Mapping[str, str] = {}

    def claims(self, peek: Peek) -> bool:
        """By the members of an answer and one of the metrics."""
        return {"interval", "value", "timeseries"} <= peek.keys and any(name in peek.text for name in FIELDS)

    def read(self, path: LogFile, options: Mapping[str, OptionValue]) -> Iterator[Sums]:
        """One row for each model and span.

        Raises
        ------
        InputError
            If a metric is missing or was not asked for as a total.
        """
        problems = Problems()
        found: dict[tuple[str, int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        seen: set[str] = set()
        for place, answer in json_objects(path):
            width_s = _grain_s(answer.get("interval"))
            if width_s is None:
                problems.add(
                    place, f"{answer.get('interval')!r:.20} is no time grain", "Such as PT1M", field="interval"
                )
                continue
            for metric, labels, points in _series(place, answer):
                model = next((labels[name] for name in MODELS if labels.get(name)), "")
                seen.add(metric)
                for number, point in enumerate(points if metric in FIELDS else (), start=1):
                    row = f"point {number} of {metric}"
                    key = model, _start(problems, place, row, point), width_s
                    found[key][_field(metric, labels)] += count_of(problems, place, row, point, "total")
        problems.raise_if_any()
        missing = sorted(set(FIELDS) - seen)
        if missing:
            what = f"holds no {', '.join(missing)}"
            raise InputError(Problem(str(path), what, f"Ask for {', '.join(FIELDS)} in one query, aggregation Total"))
        for (model, start_s, width_s), total in sorted(found.items()):
            if any(total.values()):
                yield Sums(
                    model, start_s, width_s, total["n"], total["sum_prompt"], total["sum_output"], 0, total["failed"]
                )


def _field(metric: str, labels: Mapping[str, str]) -> str:
    status = labels.get("statuscode", "")
    return "failed" if metric == REQUESTS and status[:1].isdigit() and status[0] != "2" else FIELDS[metric]


def _grain_s(text: object) -> int | None:
    found = _GRAIN.fullmatch(str(text))
    width_s = sum(int(found[unit] or 0) * unit_s for unit, unit_s in _UNITS_S.items()) if found else 0
    return width_s or None


def _series(
    place: str, answer: Mapping[str, object]
) -> Iterator[tuple[str, Mapping[str, str], list[Mapping[str, object]]]]:
    """Every series of an answer: its metric, its dimensions in lower case, its points."""
    try:
        for metric in answer["value"]:  # type: ignore[attr-defined]
            for series in metric["timeseries"]:
                labels = {str(m["name"]["value"]).lower(): str(m["value"]) for m in series.get("metadatavalues", ())}
                yield str(metric["name"]["value"]), labels, [dict(point) for point in series["data"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(Problem(place, "is no answer of Azure Monitor", "Save the answer as it is")) from None


def _start(problems: Problems, where: str, row: str, point: Mapping[str, object]) -> int:
    start_s = seconds_of(str(point.get("timeStamp", "")), "UTC")
    if start_s is None:
        problems.add(where, f"{point.get('timeStamp')!r:.40} is no time", row=row, field="timeStamp")
        return 0
    return int(start_s)
