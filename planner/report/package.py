"""The xlsx package: what openpyxl leaves to the clock or leaves out is set here, so equal plans give equal bytes."""

from __future__ import annotations

import datetime as dt
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from openpyxl.utils import column_index_from_string, range_boundaries

from planner.report.calculate import Grid

_CORE = "docProps/core.xml"
_SHEET = re.compile(r"xl/worksheets/sheet(\d+)\.xml")
_FORMULA = re.compile(
    r'(?P<opening><c r="(?P<letters>[A-Z]+)(?P<row>\d+)"(?: s="\d+")?)>(?P<formula><f>[^<]*</f>)<v ?/></c>'
)
_WHOLE = 1e15
"""Below it every whole number has its own binary form."""
_DRAWING = re.compile(r"xl/drawings/drawing(\d+)\.xml")
_CHART = re.compile(r"xl/charts/chart\d+\.xml")
_CHART_NAME = re.compile(r'<(?:\w+:)?cNvPr id="(\d+)" name="Chart (\d+)"\s*/>')
_REFERENCE = re.compile(r"<(?P<p>(?:\w+:)?)(?P<kind>numRef|strRef)><(?P=p)f>(?P<ref>[^<]+)</(?P=p)f></(?P=p)(?P=kind)>")


def finish_package(
    package: bytes, results: Mapping[str, Grid], stamp: dt.datetime, alt_texts: Sequence[Mapping[str, str]]
) -> bytes:
    """Set results of formulas, stamps, alternative texts and what charts show before anything is recalculated.

    Parameters
    ----------
    package
        An xlsx file as openpyxl writes it.
    results
        Every value of the workbook, by sheet in their order.
    stamp
        Creation time, aware; everything that carries a time gets this one.
    alt_texts
        For each sheet that has charts, in the order of the sheets: title and description of each, in their order.
    """
    parts = _parts(package)
    grids = list(results.values())
    for name, data in parts.items():
        text = data.decode("utf-8") if name.endswith(".xml") else ""
        sheet = _SHEET.fullmatch(name)
        if name == _CORE:
            parts[name] = _stamped(text, stamp).encode()
        elif sheet:
            parts[name] = _calculated(text, grids[int(sheet.group(1)) - 1]).encode()
        elif drawing := _DRAWING.fullmatch(name):
            parts[name] = _described(text, alt_texts[int(drawing.group(1)) - 1]).encode()
        elif _CHART.fullmatch(name):
            parts[name] = _REFERENCE.sub(lambda match: _cached(match, results), text).encode()
    return _zipped(parts, stamp)


def _calculated(xml: str, grid: Grid) -> str:
    """A sheet with the result of every formula beside it; text results are marked as such."""

    def result(match: re.Match[str]) -> str:
        value = grid[int(match["row"]) - 1][column_index_from_string(match["letters"]) - 1]
        opening, formula = match["opening"], match["formula"]
        if isinstance(value, str) or value is None:
            return f'{opening} t="str">{formula}<v>{escape(value or "")}</v></c>'
        if isinstance(value, bool):
            return f'{opening} t="b">{formula}<v>{int(value)}</v></c>'
        return f"{opening}>{formula}<v>{_digits(value)}</v></c>"

    return _FORMULA.sub(result, xml)


def _digits(value: float) -> str:
    """All digits of a number; a whole one has no point."""
    return str(int(value)) if value == int(value) and abs(value) < _WHOLE else repr(value)


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


def _cached(match: re.Match[str], results: Mapping[str, Grid]) -> str:
    """A chart's reference with the values it points to, which previewers draw."""
    prefix, kind, ref = match.group("p"), match.group("kind"), match.group("ref")
    sheet, area = ref.replace("'", "").split("!")
    left, top, right, bottom = (int(edge or 1) for edge in range_boundaries(area))
    cells = [value for row in results[sheet][top - 1 : bottom] for value in row[left - 1 : right]]
    numbers = kind == "numRef"
    points = "".join(
        f'<{prefix}pt idx="{i}"><{prefix}v>{escape(_shown(value))}</{prefix}v></{prefix}pt>'
        for i, value in enumerate(cells)
        if value is not None and (not numbers or isinstance(value, int | float))
    )
    cache = f"{prefix}{'numCache' if numbers else 'strCache'}"
    code = f"<{prefix}formatCode>General</{prefix}formatCode>" if numbers else ""
    count = f'<{prefix}ptCount val="{len(cells)}"/>'
    return f"<{prefix}{kind}><{prefix}f>{ref}</{prefix}f><{cache}>{code}{count}{points}</{cache}></{prefix}{kind}>"


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else _digits(value)
