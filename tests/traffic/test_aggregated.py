"""The page on metrics and usage reports names every format, option and metric that the code reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.traffic.aggregated import AGGREGATED, check_format
from planner.traffic.documents import MAX_BYTES
from planner.traffic.histograms.names import VOCABULARIES, Vocabulary
from planner.traffic.histograms.options import OPTIONS
from planner.traffic.readers import READERS

PAGE = (Path(__file__).parents[2] / "catalogs" / "traffic-metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*(f"| `{source.name}` |" for source in AGGREGATED), *(f"| `{o}` |" for o in OPTIONS)])
def test_formats_and_options_are_on_the_page(word: str) -> None:
    assert word in PAGE


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda v: v.engine)
def test_metrics_are_on_the_page(vocabulary: Vocabulary) -> None:
    plain = PAGE.replace("vllm:", "vllm_").replace("sglang:", "sglang_")
    assert f"`{vocabulary.prompt[0]}`" in plain
    assert f"`{vocabulary.output[0]}`" in plain
    assert f"`{vocabulary.engine}`" in PAGE


def test_the_size_limit_is_on_the_page() -> None:
    assert f"{MAX_BYTES >> 20} MiB" in PAGE


def test_formats_have_one_name_each() -> None:
    names = [source.name for source in (*AGGREGATED, *READERS)]
    assert len(names) == len(set(names))
    for name in (*names, "auto"):
        check_format(name)
