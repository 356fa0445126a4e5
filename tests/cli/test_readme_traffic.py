"""The commands of README's step on traffic, and of its refresh of the picture, as they stand there, on small logs."""

from __future__ import annotations

import gzip
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.request import TrafficSource
from planner.traffic.canonical import read

Run = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STEP = README[README.index("**3. What does the traffic") : README.index("**4. What exists")]
START = np.datetime64("2026-08-31T00:00:00", "us")
ELSEWHERE = "--connect spark://"
"""Needs a cluster."""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Without comments, continued lines joined."""
    joined = "\n".join(blocks(text, "sh")).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in joined.splitlines() if line.strip()]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the commands name: eight days of spend logs in two files, and a log of one's own."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(11)
    stamps = START + np.sort(rng.integers(0, 8 * 86_400, 4000)).astype("timedelta64[s]")
    prompt, output = rng.integers(1, 9000, 4000), rng.integers(1, 800, 4000)
    (tmp_path / "spend-logs").mkdir()
    for k, part in enumerate((slice(0, 2000), slice(2000, 4000))):
        table = pa.table(
            {
                "request_id": [f"r{i}" for i in range(part.start, part.stop)],
                "startTime": stamps[part],
                "prompt_tokens": prompt[part],
                "completion_tokens": output[part],
                "model": ["hosted_vllm/chat"] * 2000,
                "model_group": ["chat"] * 2000,
                "messages": ["SECRET"] * 2000,
            }
        )
        pq.write_table(table, tmp_path / "spend-logs" / f"{k}.parquet")
    rows = [f"{s.item():%d/%m/%Y %H:%M:%S},{p},{o},batch\n" for s, p, o in zip(stamps, prompt, output, strict=True)]
    with gzip.open(tmp_path / "my-log.csv.gz", "wt") as stream:
        stream.write("ts,in_tokens,out_tokens,m\n" + "".join(rows))
    return tmp_path


def test_the_commands_run_in_their_order(logs: Path, planner: Run) -> None:
    asked = [words for words in commands(STEP) if ELSEWHERE not in " ".join(words)]
    assert len(asked) >= 8, "the commands are found"
    printed = []
    for words in asked:
        code, out, err = planner(*words[1:])
        assert (words[0], code, err) == ("planner", 0, ""), words
        printed.append(out)
    text = "\n".join(printed)
    assert "4,000 rows read, 4,000 kept" in text
    assert "SECRET" not in text
    assert read(logs / "traffic" / "all").manifest.models == {"batch": 4000, "chat": 4000}
    batch = read(logs / "traffic" / "batch").manifest
    assert batch.window_start.startswith("2026-08-30T22:0"), "local midnight in Berlin"
    assert (logs / "charts" / "shares.png").stat().st_size > 10_000


def test_the_request_in_it_is_valid() -> None:
    (text,) = blocks(STEP, "toml")
    found = TrafficSource.model_validate(tomllib.loads(text)["model"]["traffic"])
    assert (found.rate_per_s, found.peak_quantile) == (None, 0.95)


def test_the_step_stays_short() -> None:
    assert len(STEP.splitlines()) <= 45


def test_the_picture_is_refreshed_by_the_commands_beside_it(
    tmp_path: Path, planner: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fonts differ between machines, so the size is compared and not the bytes."""
    monkeypatch.chdir(ROOT)
    text = README[README.index("of the charts of traffic") :]
    ingest, show, copy = (
        [word.replace("/tmp", str(tmp_path)) for word in words]
        for words in commands(text[: text.index("Benchmarks run by hand")])
    )
    for words in (ingest, show):
        code, _, err = planner(*words[1:])
        assert (code, err) == (0, "")
    assert copy[0] == "cp"
    assert _size(Path(copy[1])) == _size(ROOT / copy[2]), f"refresh {copy[2]} with the commands in README.md"


def _size(png: Path) -> tuple[int, int]:
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
