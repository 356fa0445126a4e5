"""Out of sample: the example quarter planned on the first half of every log, replayed on the second half.

OMP_NUM_THREADS=1 python -m tests.benchmarks.halves -o DIR [--at 0.5]

Writes the requests of the first halves as logs, and the example's request with these logs in the place of its own (the
rates, profiles of the week and all else stay), plans it into DIR/plan, and then calls `planner replay` on the second
halves, with one replica fewer as well.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

from planner.cli import main as planner
from planner.replay.trace import Source, Trace, read_trace

EXAMPLE = Path(__file__).parents[2] / "catalogs" / "example"
NOW = "2026-12-01T12:00:00Z"
START = dt.datetime(2026, 1, 5)
FUTURES = ("scenario", "sensitivity", "last_quarter")
"""What is planned beside the base case, and left out here."""


def main() -> None:
    """Plan and replay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--at", type=float, default=0.5, help="where logs are cut, as a share of their span")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    request = first_part(tomllib.loads((EXAMPLE / "quarter.toml").read_text("utf-8")), asked.at, asked.output)
    plan = str(asked.output / "plan")
    run("plan", str(request), "--now", NOW, "--format", "json", "-o", plan)
    run("replay", plan, "--request", str(EXAMPLE / "quarter.toml"), "--part", f"{asked.at}:1", "--least")


def run(*words: str) -> None:
    """One command, as at the keyboard; its exit code ends this program where it is not 0."""
    sys.argv = ["planner", *words]
    try:
        planner()
    except SystemExit as end:
        if end.code:
            raise


def first_part(request: dict[str, Any], share: float, folder: Path) -> Path:
    """The request with the first share of each log."""
    kept = {key: value for key, value in request.items() if key not in FUTURES}
    for model in kept["model"]:
        traffic = model["traffic"]
        source = Source(EXAMPLE / traffic["path"], traffic["format"], "", traffic.get("options", {}))
        log = folder / f"{model['name']}.csv"
        write_azure(read_trace(source).part(0.0, share), log)
        if traffic.get("week") == "log":
            traffic["week"] = str(EXAMPLE / traffic["path"])
        elif "week" in traffic:
            traffic["week"] = str(EXAMPLE / traffic["week"])
        traffic |= {"path": str(log.resolve()), "format": "azure"}
        traffic.pop("options", None)
    path = folder / "quarter.toml"
    path.write_text(tomli_w.dumps(kept), "utf-8")
    return path


def write_azure(trace: Trace, path: Path) -> None:
    """A trace in the columns of the Azure traces."""
    at = pd.Timestamp(START) + pd.to_timedelta(np.round(trace.arrival_s * 1e6), unit="us")
    columns = {"TIMESTAMP": at, "ContextTokens": trace.prompt_tokens, "GeneratedTokens": trace.output_tokens}
    pd.DataFrame(columns).to_csv(path, index=False, date_format="%Y-%m-%d %H:%M:%S.%f")


if __name__ == "__main__":
    main()
