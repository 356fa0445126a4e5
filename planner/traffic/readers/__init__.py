"""One module per log format, behind one interface; the format is told from the head of the file."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import InputError, Problem
from planner.traffic.readers.aiperf import AIPERF, AIPERF_RECORDS, REPLAY
from planner.traffic.readers.apim import APIM
from planner.traffic.readers.azure import AZURE
from planner.traffic.readers.bailian import BAILIAN
from planner.traffic.readers.base import Reader
from planner.traffic.readers.bedrock import BEDROCK
from planner.traffic.readers.burstgpt import BURSTGPT
from planner.traffic.readers.cloudflare import CLOUDFLARE
from planner.traffic.readers.databricks import DATABRICKS
from planner.traffic.readers.envoy import ENVOY
from planner.traffic.readers.head import Head
from planner.traffic.readers.helicone import HELICONE
from planner.traffic.readers.json_start import unwrapped
from planner.traffic.readers.kong import KONG
from planner.traffic.readers.langfuse import LANGFUSE
from planner.traffic.readers.litellm import LITELLM
from planner.traffic.readers.mooncake import MOONCAKE
from planner.traffic.readers.openrouter import OPENROUTER
from planner.traffic.readers.otel import OTEL
from planner.traffic.readers.plain import Plain
from planner.traffic.readers.portkey import PORTKEY
from planner.traffic.readers.servegen import ServeGen
from planner.traffic.readers.vidur import VIDUR

READERS: tuple[Reader, ...] = (
    AZURE,
    LITELLM,
    LANGFUSE,
    HELICONE,
    PORTKEY,
    CLOUDFLARE,
    KONG,
    ENVOY,
    OPENROUTER,
    DATABRICKS,
    BEDROCK,
    APIM,
    OTEL,
    BURSTGPT,
    VIDUR,
    BAILIAN,
    AIPERF_RECORDS,
    AIPERF,
    MOONCAKE,
    REPLAY,
    ServeGen(),
    Plain(),
)
"""In the order in which they are asked whether a file is theirs."""


def find_reader(log_format: str, heads: tuple[Head, ...], *, mapped: bool) -> Reader:
    """The reader for the files: the one that was named (see `aggregated.check_format`), or that claims every file.

    Raises
    ------
    InputError
        If no reader claims a file, or the files are of different formats.
    """
    by_name = {reader.name: reader for reader in READERS}
    if log_format != "auto":
        return by_name[log_format]
    if mapped:
        return by_name["plain"]
    claims = [next((reader for reader in READERS if reader.claims(head)), None) for head in heads]
    unknown: dict[tuple[str, ...], list[Head]] = {}
    for head, reader in zip(heads, claims, strict=True):
        if reader is None:
            unknown.setdefault(tuple(head.columns), []).append(head)
    if unknown:
        raise InputError([_unknown(alike) for alike in unknown.values()])
    found = [reader for reader in claims if reader is not None]
    if len({reader.name for reader in found}) > 1:
        raise InputError(
            [
                Problem(
                    str(head.path), f"is {reader.name}, but all files of one run must be of one format", "Ingest apart"
                )
                for head, reader in zip(heads, found, strict=True)
            ]
        )
    return found[0]


def _unknown(alike: Sequence[Head]) -> Problem:
    """Of a quarter of daily files with the same columns, one problem."""
    shown = ", ".join(column[:40] for column in alike[0].columns[:12])
    others = f", as are {len(alike) - 1:,} more files with these columns" if len(alike) > 1 else ""
    fix = (
        "Name the columns with planner ingest --map timestamp=COLUMN,prompt=COLUMN,output=COLUMN,model=COLUMN, "
        "or give --format"
    )
    if alike[0].lists:
        fix = f"If the rows stand in '{alike[0].lists[0]}': {unwrapped(alike[0].path, alike[0].lists[0])}"
    return Problem(str(alike[0].path), f"is in no known log format (columns: {shown}){others}", fix, row="1")
