"""The table of metric names: complete, sourced, and without two answers for one release."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.observe.metrics import Figure, Kind, metric_names, names_of

RELEASES = [("vllm", "0.9.2"), ("vllm", "0.11.0"), ("vllm", "0.33.0"), ("sglang", "0.5.23")]


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_every_figure_has_a_name(engine: str, version: str) -> None:
    optional = {Figure.TPOT} if version in ("0.9.2", "0.11.0") else set()
    for figure in set(Figure) - optional:
        assert names_of(metric_names(), engine, version, figure), figure


def test_names_by_release() -> None:
    def of(version: str, figure: Figure) -> tuple[str, ...]:
        return names_of(metric_names(), "vllm", version, figure)

    assert of("0.6.3", Figure.KV_USAGE) == ("vllm:gpu_cache_usage_perc",)
    assert of("0.10.2", Figure.KV_USAGE) == ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    assert of("0.33.0", Figure.KV_USAGE) == ("vllm:kv_cache_usage_perc",)
    assert of("0.33.0", Figure.TOKEN_GAP) == ("vllm:inter_token_latency_seconds",)
    assert of("0.6.3", Figure.TPOT) == ()


def test_rows() -> None:
    rows = metric_names()
    assert len({(row.engine, row.figure, row.name) for row in rows}) == len(rows)
    for row in rows:
        assert row.name.startswith(f"{row.engine}:")
        assert (row.kind is Kind.COUNTER) <= row.name.endswith("_total")
    kinds = {(row.engine, row.figure): row.kind for row in rows}
    assert all(kinds[row.engine, row.figure] is row.kind for row in rows)


def test_a_broken_table_says_where(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    head = "engine,figure,kind,name,first,last,source,as_of"
    (tmp_path / "engines/metrics.csv").write_text(f"{head}\nvllm,speed,gauge,vllm:x,,,code,2026-12-01\n")
    with pytest.raises(InputError, match=r"row 2, field figure"):
        metric_names(tmp_path)
