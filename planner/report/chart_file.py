"""A Vega-Lite specification as the bytes of a file, and the parts of pages that show one."""

from __future__ import annotations

import html
import json
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import altair as alt
import vl_convert

PNG_SCALE = 2.0
"""Pixels of a PNG for each pixel of the chart."""
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


class FileKind(StrEnum):
    """Files that a chart can be written as, by their suffix."""

    PNG = ".png"
    SVG = ".svg"
    HTML = ".html"


def picture(kind: FileKind, spec: Mapping[str, Any]) -> bytes:
    """The chart as a PNG or SVG; same specification, same bytes.

    Raises
    ------
    ValueError
        If the kind is a page.
    """
    local: list[str] = []  # no address may be read: everything is in the specification
    if kind is FileKind.HTML:
        raise ValueError("a page is no picture")
    if kind is FileKind.SVG:
        return _renumbered(
            vl_convert.vegalite_to_svg(dict(spec), vl_version=VEGA_LITE, allowed_base_urls=local)
        ).encode()
    return _packed(
        vl_convert.vegalite_to_png(dict(spec), vl_version=VEGA_LITE, scale=PNG_SCALE, allowed_base_urls=local)
    )


def _renumbered(svg: str) -> str:
    """The picture with its gradients and clips numbered from 0: Vega counts them over all pictures of a process."""
    names = dict.fromkeys(re.findall(r'id="((?:gradient|clip)_?\d+)"', svg))
    new = {name: f"{name.rstrip('0123456789')}{number}" for number, name in enumerate(names)}
    return re.sub(r"(?<=[\"#])(?:gradient|clip)_?\d+(?=[\")])", lambda found: new.get(found[0], found[0]), svg)


def _packed(png: bytes) -> bytes:
    """The same picture in a third of the bytes: its pixel stream deflated again at the highest level.

    A PNG is a signature and chunks of length, type, data and CRC; the IDAT chunks together hold one zlib stream
    (W3C, PNG specification, third edition, sections 5 and 10).
    """
    chunks, at = [], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += length + 12
    pixels = zlib.compress(zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT")), 9)
    before = [chunk for chunk in chunks if chunk[0] not in (b"IDAT", b"IEND")]
    packed = [png[:8]]
    for kind, data in (*before, (b"IDAT", pixels), (b"IEND", b"")):
        packed.append(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    return b"".join(packed)


@cache
def library() -> str:
    """Vega and its embedding, bundled: about 0.9 MB."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)


def script_json(data: object) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts, each made safe."""
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in header)
    body = "\n".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<table>\n<caption>{html.escape(caption)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )
