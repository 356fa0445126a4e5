from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.traffic.canonical import Canonical
from planner.traffic.export import Draw, draw, mooncake_lines
from planner.traffic.ingest import Order, ingest


@pytest.fixture(scope="module")
def conv(examples: Path) -> Canonical:
    return ingest(Order((examples / "AzureLLMInferenceTrace_conv.csv",)))


def test_the_trace_is_read_back_as_mooncake(conv: Canonical, tmp_path: Path) -> None:
    drawn = draw(conv, Draw(5000, seed=3))
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(mooncake_lines(drawn)))
    found = ingest(Order((path,)))
    assert (found.manifest.source, found.manifest.counts.kept) == ("mooncake-trace", 5000)
    assert found.manifest.counts.dropped_by_reason == {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["timestamp"] for r in rows] == sorted(r["timestamp"] for r in rows)
    assert all(len(r["hash_ids"]) == -(-r["input_length"] // 512) for r in rows)
    hashes = [h for r in rows for h in r["hash_ids"]]
    assert len(set(hashes)) == len(hashes)


def test_lengths_and_rate_are_those_of_the_log(conv: Canonical, conv_rows: np.ndarray) -> None:
    drawn = draw(conv, Draw(19_000, seed=1))
    for own, column in ((drawn.prompt, 0), (drawn.output, 1)):
        log = conv_rows[:, column]
        error = log.std() / np.sqrt(len(own))
        assert abs(own.mean() - log.mean()) < 4 * error
        assert np.quantile(own, [0.5, 0.9, 0.99]) == pytest.approx(np.quantile(log, [0.5, 0.9, 0.99]), rel=0.1)
        assert own.max() <= log.max()
    joint = np.corrcoef(drawn.prompt, drawn.output)[0, 1]
    assert joint == pytest.approx(np.corrcoef(conv_rows.T)[0, 1], abs=0.05)


def test_minutes_keep_their_counts_and_the_busiest_stretch_is_taken(conv: Canonical) -> None:
    counts = conv.rates.sort_by("minute_utc")["n"].to_numpy()
    drawn = draw(conv, Draw(2000))
    best = min(
        (b - a, -counts[a:b].sum(), a)
        for a in range(len(counts))
        for b in range(a + 1, len(counts) + 1)
        if counts[a:b].sum() >= 2000
    )
    per_minute = np.bincount(drawn.time_ms // 60_000)
    expected = counts[best[2] : best[2] + best[0]]
    assert per_minute[:-1].tolist() == expected[:-1].tolist()
    assert (per_minute.sum(), drawn.minutes) == (2000, best[0])


def test_one_seed_gives_one_trace(conv: Canonical) -> None:
    first, same, other = (list(mooncake_lines(draw(conv, Draw(50, seed=seed)))) for seed in (7, 7, 8))
    assert first == same != other


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Draw(0), "at least 1"),
        (Draw(20_000), "fewer than 20,000"),
        (Draw(5, model="nope"), "'nope' is not in the distribution"),
    ],
)
def test_what_cannot_be_drawn_is_refused(conv: Canonical, wanted: Draw, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(conv, wanted)


def test_of_several_models_one_must_be_named(exports: Path) -> None:
    found = ingest(Order((exports / "burstgpt" / "burstgpt_v1_rows.csv",)))
    with pytest.raises(InputError, match="has 2 models"):
        draw(found, Draw(1))
    assert draw(found, Draw(1, model="GPT-4")).prompt.tolist() == [417]


@pytest.fixture
def exports() -> Path:
    return Path(__file__).parents[1] / "data" / "traffic"
