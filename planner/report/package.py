"""The xlsx package: what openpyxl leaves to the clock or leaves out is set here, so equal plans give equal bytes."""

from __future__ import annotations

import datetime as dt
import io
import re
import zipfile
from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

from openpyxl import Workbook, load_workbook
from openpyxl.utils import range_boundaries

_CORE = "docProps/core.xml"
_DRAWING = re.compile(r"xl/drawings/drawing\d+\.xml")
_CHART = re.compile(r"xl/charts/chart\d+\.xml")
_CHART_NAME = re.compile(r'<(?:\w+:)?cNvPr id="(\d+)" name="Chart (\d+)"\s*/>')
_REFERENCE = re.compile(r"<(?P<p>(?:\w+:)?)(?P<kind>numRef|strRef)><(?P=p)f>(?P<ref>[^<]+)</(?P=p)f></(?P=p)(?P=kind)>")


def finish_package(package: bytes, stamp: dt.datetime, alt_texts: Mapping[str, str]) -> bytes:
    """Set stamps, alternative texts and the values that charts show before anything is recalculated.

    Parameters
    ----------
    package
        An xlsx file with formula results.
    stamp
        Creation time, aware; everything that carries a time gets this one.
    alt_texts
        Title and description of each chart, in the order of the charts.
    """
    parts = _parts(package)
    values = load_workbook(io.BytesIO(package), data_only=True)
    for name, data in parts.items():
        text = data.decode("utf-8") if name.endswith(".xml") else ""
        if name == _CORE:
            parts[name] = _stamped(text, stamp).encode()
        elif _DRAWING.fullmatch(name):
            parts[name] = _described(text, alt_texts).encode()
        elif _CHART.fullmatch(name):
            parts[name] = _REFERENCE.sub(lambda match: _cached(match, values), text).encode()
    return _zipped(parts, stamp)


def _parts(package: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(parts: Mapping[str, bytes], stamp: dt.datetime) -> bytes:
    """A zip whose entries all carry ``stamp`` (zip times start in 1980 and have a step of 2 s)."""
    buffer = io.BytesIO()
    when = (max(stamp.year, 1980), stamp.month, stamp.day, stamp.hour, stamp.minute, stamp.second // 2 * 2)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, data in parts.items():
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o600 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _stamped(core: str, stamp: dt.datetime) -> str:
    """Document properties with ``stamp`` as the time of creation and change."""
    text = stamp.strftime("%Y-%m-%dT%H:%M:%SZ")
    return re.sub(r"(<dcterms:(created|modified)[^>]*>)[^<]*(</dcterms:\2>)", rf"\g<1>{text}\g<3>", core)


def _described(drawing: str, alt_texts: Mapping[str, str]) -> str:
    """A drawing whose charts have a name and a description (openpyxl writes none)."""
    items = list(alt_texts.items())

    def named(match: re.Match[str]) -> str:
        title, description = items[int(match.group(2)) - 1]
        prefix = match.group(0).split(" ", 1)[0]
        return f'{prefix} id="{match.group(1)}" name={quoteattr(title)} descr={quoteattr(description)}/>'

    return _CHART_NAME.sub(named, drawing)


def _cached(match: re.Match[str], values: Workbook) -> str:
    """A chart's reference with the values it points to, which previewers draw."""
    prefix, kind, ref = match.group("p"), match.group("kind"), match.group("ref")
    sheet, area = ref.replace("'", "").split("!")
    left, top, right, bottom = range_boundaries(area)
    cells = [cell for row in values[sheet].iter_rows(top, bottom, left, right, values_only=True) for cell in row]
    points = "".join(
        f'<{prefix}pt idx="{i}"><{prefix}v>{escape(str(value))}</{prefix}v></{prefix}pt>'
        for i, value in enumerate(cells)
        if value is not None
    )
    numbers = kind == "numRef"
    cache = f"{prefix}{'numCache' if numbers else 'strCache'}"
    code = f"<{prefix}formatCode>General</{prefix}formatCode>" if numbers else ""
    count = f'<{prefix}ptCount val="{len(cells)}"/>'
    return f"<{prefix}{kind}><{prefix}f>{ref}</{prefix}f><{cache}>{code}{count}{points}</{cache}></{prefix}{kind}>"
