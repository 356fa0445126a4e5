"""Which tool wrote a file: told by what is in it, not by its name."""

from __future__ import annotations

from pathlib import Path

from planner.errors import InputError, Problem
from planner.speed.load_tests import aiperf, guidellm, inference_perf, prometheus, sglang_bench, vllm_bench, vllm_sweep
from planner.speed.load_tests.document import head_of
from planner.speed.load_tests.types import Format

FORMATS: tuple[Format, ...] = (
    vllm_bench.FORMAT,
    vllm_sweep.FORMAT,
    guidellm.FORMAT,
    inference_perf.FORMAT,
    aiperf.FORMAT,
    aiperf.GENAI_FORMAT,
    sglang_bench.FORMAT,
    prometheus.FORMAT,
)
AUTO = "auto"
NAMES = (AUTO, *(known.name for known in FORMATS))


def named(name: str) -> Format | None:
    """The format of that name; ``None`` for ``auto``.

    Raises
    ------
    InputError
        If there is none.
    """
    found = next((known for known in FORMATS if known.name == name), None)
    if found is None and name != AUTO:
        raise InputError(Problem("--format", f"{name!r:.40} is not known", f"One of {', '.join(NAMES)}"))
    return found


def format_of(path: Path) -> Format | None:
    """The format that the file's content shows; ``None`` if it is none that is known.

    Raises
    ------
    InputError
        If the file cannot be read as text.
    """
    head = head_of(path)
    return next((known for known in FORMATS if known.matches(head)), None)
