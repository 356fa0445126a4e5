"""Exports of AIPerf and genai-perf (``profile_export_aiperf.json``; aiperf/common/models/export_models.py of 0.13.0,
genai_perf/export_data/json_exporter.py of 0.0.16).

A metric is ``{unit, avg, p50, ...}``, and its unit is read, never assumed. ``inter_token_latency`` is
(latency − TTFT) / (tokens − 1), the planner's TPOT; ``inter_chunk_latency`` is not. ``effective_concurrency`` is
measured where it is exported. The load is in ``input_config``: ``loadgen`` (AIPerf to 0.6), ``phases`` (newer), or
``perf_analyzer.stimulus`` (genai-perf). ``error_request_count`` is left out when nothing failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner.speed.load_tests.collect import collect, kind_of, unusable
from planner.speed.load_tests.document import json_objects
from planner.speed.load_tests.fields import TIMES_MS, Fields
from planner.speed.load_tests.types import Findings, Format, Head, InFlight, Run, Spread

AIPERF = "aiperf"
GENAI_PERF = "genai-perf"
_PER_S = {"requests/sec": 1.0, "tokens/sec": 1.0, "requests/s": 1.0, "tokens/s": 1.0, "req/s": 1.0, "tok/s": 1.0}
_PER_S |= {"requests/min": 1 / 60, "tokens/min": 1 / 60}


def matches(head: Head) -> bool:
    """Whether it is an export of AIPerf."""
    return _is_export(head) and not _is_genai(head)


def matches_genai(head: Head) -> bool:
    """Whether it is an export of genai-perf: the same metrics, without AIPerf's own members."""
    return _is_export(head) and _is_genai(head)


def _is_export(head: Head) -> bool:
    return {"request_throughput", "request_latency", "unit", "avg"} <= head.keys and "timeslices" not in head.keys


def _is_genai(head: Head) -> bool:
    ours = {"schema_version", "aiperf_version", "was_cancelled", "loadgen", "phases"}
    return "perf_analyzer" in head.keys and not ours & head.keys


def read(path: Path) -> Findings:
    """The run of an export of AIPerf."""
    return collect(json_objects(path), lambda data, place: _parse(data, place, AIPERF))


def read_genai(path: Path) -> Findings:
    """The run of an export of genai-perf."""
    return collect(json_objects(path), lambda data, place: _parse(data, place, GENAI_PERF))


def _parse(data: Mapping[str, object], place: str, tool: str) -> Run:
    fields = Fields(data)
    rate, cap = _load(fields)
    completed = _plain(fields, "request_count")
    failed = _plain(fields, "error_request_count")
    if failed is None and completed is not None and tool == AIPERF:
        failed = 0.0
    return Run(
        place=place,
        tool=tool,
        kind=kind_of(rate, cap),
        stated=_stated(fields),
        input_tokens=_plain(fields, "input_sequence_length"),
        output_tokens=_plain(fields, "output_sequence_length"),
        asked_per_s=rate,
        done_per_s=_scaled(fields, "request_throughput", _PER_S),
        e2e_mean_ms=_spread(fields, "request_latency").mean_ms,
        output_tok_s=_scaled(fields, "output_token_throughput", _PER_S),
        total_tok_s=_scaled(fields, "total_token_throughput", _PER_S),
        ttft=_spread(fields, "time_to_first_token"),
        tpot=_spread(fields, "inter_token_latency"),
        in_flight=InFlight(measured=_plain(fields, "effective_concurrency"), cap=cap),
        asked=None if completed is None or failed is None else completed + failed,
        completed=completed,
        failed=failed,
        acceptance=_plain(fields, "spec_decode_token_weighted_acceptance_length")
        or _plain(fields, "spec_decode_acceptance_length"),
        measured_on=fields.text("start_time")[:10],
        unusable=unusable(fields, _ended_early(data)),
    )


def _ended_early(data: Mapping[str, object]) -> str:
    if data.get("was_cancelled") is True:
        return "the run was cancelled"
    return "the run did not complete" if data.get("is_complete") is False else ""


def _load(fields: Fields) -> tuple[float | None, float | None]:
    """Rate and cap that were asked for; of several phases the last one measures, those before it warm up."""
    config = fields.part("input_config")
    if "phases" in config:
        places = [Fields(phase, fields.wrong, "phases.") for phase in config.items("phases")][-1:]
    else:
        places = [config.part("loadgen"), config.part("perf_analyzer", "stimulus")]
    rate = next((found for place in places if (found := place.positive("request_rate", "rate"))), None)
    cap = next((found for place in places if (found := place.positive("concurrency"))), None)
    return rate, cap


def _stated(fields: Fields) -> dict[str, str]:
    config = fields.part("input_config")
    models = config.part("endpoint").names("model_names") or config.names("model_names")
    models = models or (config.part("models").names("items") if "models" in config else [])
    return {"model": models[0]} if len(models) == 1 else {}


def _plain(fields: Fields, name: str) -> float | None:
    return fields.part(name).number("avg")


def _scaled(fields: Fields, name: str, scales: Mapping[str, float]) -> float | None:
    metric = fields.part(name)
    value = metric.positive("avg")
    return None if value is None else value * _scale(metric, name, scales, fields)


def _scale(metric: Fields, name: str, scales: Mapping[str, float], fields: Fields) -> float:
    unit = metric.text("unit").lower()
    if unit not in scales:
        fields.wrong.append(f"{name} is in {unit or 'no unit'}, which is not known ({', '.join(scales)})")
    return scales.get(unit, 1.0)


def _spread(fields: Fields, name: str) -> Spread:
    metric = fields.part(name)
    if "avg" not in metric and "p50" not in metric:
        return Spread()
    return metric.spread("avg", "p50", "p90", "p99", _scale(metric, name, TIMES_MS, fields))


FORMAT = Format(AIPERF, matches, read)
GENAI_FORMAT = Format(GENAI_PERF, matches_genai, read_genai)
