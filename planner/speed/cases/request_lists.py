"""How many requests a public benchmark queues at once, where its tables do not say so but its documentation does.

A list that ends is slower than an endless one, since its last requests leave places empty (`planner.speed.max_load`).
Benchmarks are known by the ``id``, ``notes`` and source of a row of measured throughput.

==================  ==================================================================================================
TensorRT-LLM        ``perf-overview.md`` of version 1.0: requests of a run by prompt and output length
                    (https://github.com/NVIDIA/TensorRT-LLM/blob/00f37686aa854010d68bcbd0f4ab000221541ca6/docs/source/
                    performance/perf-overview.md); other lengths are taken as endless
AccelMark offline   ``suites/README.md``, "Request Count Design", and ``output_tokens_max`` of each ``suite.json``
                    (https://github.com/FreedomIntelligence/AccelMark/blob/0613b33665cda8831d348e12b71127b5266e4233/
                    suites/README.md); G from its ``suite.json``
==================  ==================================================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRTLLM_TABLE = re.compile(r"TensorRT-LLM/.*perf-overview|^trt10_|^trtdev_", re.IGNORECASE | re.MULTILINE)
TRTLLM_REQUESTS = {
    (128, 128): 30000,
    (128, 2048): 3000,
    (128, 4096): 1500,
    (500, 2000): 3000,
    (1000, 1000): 3000,
    (1000, 2000): 1500,
    (2048, 128): 3000,
    (2048, 2048): 1500,
    (5000, 500): 1500,
    (20000, 2000): 1000,
}
ACCELMARK_SUITE = re.compile(r"\bsuite ([A-G])\b.*\boffline\b", re.IGNORECASE | re.DOTALL)
ACCELMARK_REQUESTS = {"A": 100, "B": 100, "C": 100, "D": 50, "E": 150, "F": 200, "G": 100}
ACCELMARK_LONGEST = {"D": 256}
ACCELMARK_LONGEST_OTHERS = 512


@dataclass(frozen=True)
class RequestList:
    """A list that is queued at once; ``None`` where it is not known."""

    requests: float | None = None
    longest_output_tokens: float | None = None


def request_list(row_id: str, source: str, notes: str, lengths: tuple[float, float]) -> RequestList:
    """The list behind a row of maximal load, by the table of the module.

    Parameters
    ----------
    row_id, source, notes
        Cells of the row.
    lengths
        Prompt and output tokens.
    """
    if TRTLLM_TABLE.search(f"{row_id}\n{source}"):
        prompt, output = lengths
        found = TRTLLM_REQUESTS.get((round(prompt), round(output)))
        return RequestList(None if found is None else float(found))
    suite = ACCELMARK_SUITE.search(notes)
    if suite and row_id.startswith("am_"):
        letter = suite.group(1).upper()
        return RequestList(ACCELMARK_REQUESTS[letter], ACCELMARK_LONGEST.get(letter, ACCELMARK_LONGEST_OTHERS))
    return RequestList()
