"""`planner catalog`: what exists, where each figure comes from, and whether the files are sound."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner import units
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog, load_catalog
from planner.catalog.model_shape import CacheKind, ModelShape
from planner.catalog.offer import Offer, PriceKind, Term
from planner.cli import catalog_add_model, catalog_check, catalog_import
from planner.errors import InputError, Problem, Problems

BYTES_PER_ELEMENT_16_BIT = 2


class Kind(StrEnum):
    """What can be listed."""

    GPUS = "gpus"
    OFFERS = "offers"
    MODELS = "models"
    ENGINES = "engines"


def register(app: typer.Typer) -> None:
    """Add the command group to the application."""
    group = typer.Typer(no_args_is_help=True, help="List, show and check what the planner knows.")
    group.command("list")(list_entries)
    group.command("show")(show_entry)
    catalog_check.register(group)
    catalog_add_model.register(group)
    catalog_import.register(group)
    app.add_typer(group, name="catalog")


def list_entries(
    kind: Annotated[Kind, typer.Argument(help="What to list.")] = Kind.GPUS,
    gpu: Annotated[str, typer.Option(help="Only this GPU, such as H100-SXM.")] = "",
    provider: Annotated[str, typer.Option(help="Only offers of this provider.")] = "",
    region: Annotated[str, typer.Option(help="Only offers in this region.")] = "",
    term: Annotated[Term | None, typer.Option(help="Only offers on this term.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with every field.")] = False,
) -> None:
    """List GPUs, offers, models or engines; offers are ordered by USD per GPU-hour."""
    _filters_apply(kind, {"--gpu": gpu, "--provider": provider, "--region": region, "--term": term})
    catalog = load_catalog()
    if kind is Kind.GPUS:
        wanted = [catalog.gpu(gpu)] if gpu else list(catalog.gpus.values())
        _list([g.model_dump(mode="json") for g in wanted], _GPU_COLUMNS, [_gpu_row(g) for g in wanted], as_json)
    elif kind is Kind.OFFERS:
        offers = _pick_offers(catalog, gpu, provider, region, term)
        rows = [_offer_row(offer) for offer in offers]
        _list([offer.model_dump(mode="json") for offer in offers], _OFFER_COLUMNS, rows, as_json)
    elif kind is Kind.MODELS:
        sources = [catalog.model_sources[model_id] for model_id in catalog.model_ids()]
        rows = [(s.hf_id, s.as_of.isoformat(), s.source) for s in sources]
        aliases = list(catalog.aliases.values())
        rows += [(a.alias, a.as_of.isoformat(), f"as {a.hf_id}: {a.reason}") for a in aliases]
        rows.sort(key=lambda row: row[0].casefold())
        records = [record.model_dump(mode="json") for record in (*sources, *aliases)]
        _list(records, ("model", "as of", "source"), rows, as_json)
    else:
        engines = catalog.engines
        facts = [engine.model_dump(mode="json") for engine in engines]
        _list(facts, ("engine", "version", "note"), [(e.name, e.version, e.note) for e in engines], as_json)


def show_entry(
    entry: Annotated[str, typer.Argument(help="GPU, offer or model id, path of a config.json, or engine==version.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one entry with the source and date of everything."""
    catalog = load_catalog()
    name, facts = _find(catalog, entry)
    if as_json:
        typer.echo(json.dumps(dict(facts), indent=2, ensure_ascii=False, default=str))
        return
    _print_table((name, ""), [(label, _text(value)) for label, value in facts], right=())


# --- listing ---

_GPU_COLUMNS = ("GPU", "memory GiB", "from", "GB/s", "TFLOP/s", "link", "guesses")
_OFFER_COLUMNS = ("offer", "GPUs", "USD/h", "USD/GPU-h", "as of", "price")


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    memory = "CUDA/HIP" if gpu.memory_visible_gib else "driver" if gpu.memory_driver_mib else "nameplate"
    link = f"{gpu.interconnect} {gpu.interconnect_gb_s:g}" if gpu.interconnect_gb_s else gpu.interconnect
    flops = f"{gpu.bf16_tflops:g}" if gpu.bf16_tflops else ""
    guesses = str(len(gpu.unverified)) if gpu.unverified else ""
    return (gpu.id, f"{gpu.visible_memory_gib:.2f}", memory, f"{gpu.memory_bandwidth_gb_s:g}", flops, link, guesses)


def _offer_row(offer: Offer) -> tuple[str, ...]:
    kind = "" if offer.price_kind is PriceKind.LIST else offer.price_kind.value
    gpus = f"{offer.gpus_per_instance:g} x {offer.gpu}"
    return (offer.id, gpus, f"{offer.usd_per_h:.2f}", f"{offer.usd_per_gpu_h:.3f}", offer.as_of.isoformat(), kind)


APPLIES_TO = {
    "--gpu": (Kind.GPUS, Kind.OFFERS),
    "--provider": (Kind.OFFERS,),
    "--region": (Kind.OFFERS,),
    "--term": (Kind.OFFERS,),
}
"""Kinds that a filter narrows."""


def _filters_apply(kind: Kind, filters: Mapping[str, object]) -> None:
    problems = Problems()
    for option, value in filters.items():
        if value and kind not in APPLIES_TO[option]:
            kinds = " and ".join(APPLIES_TO[option])
            problems.add(option, f"does not apply to {kind}", f"It narrows {kinds}")
    problems.raise_if_any()


def _pick_offers(catalog: Catalog, gpu: str, provider: str, region: str, term: Term | None) -> list[Offer]:
    problems = Problems()
    gpu_id = problems.attempt(lambda: catalog.gpu(gpu).id) if gpu else ""
    problems.attempt(lambda: _known(provider, {offer.provider for offer in catalog.offers}, "--provider"))
    problems.attempt(lambda: _known(region, {offer.region for offer in catalog.offers}, "--region"))
    problems.raise_if_any()
    picked = [
        offer
        for offer in catalog.offers
        if gpu_id in ("", offer.gpu)
        and provider in ("", offer.provider)
        and region in ("", offer.region)
        and term in (None, offer.term)
    ]
    return sorted(picked, key=lambda offer: (offer.usd_per_gpu_h, offer.id))


def _known(value: str, values: set[str], option: str) -> None:
    if value and value not in values:
        names = ", ".join(sorted(values - {""}))
        raise InputError(Problem(option, f"{value!r} occurs in no offer", f"Known: {names}"))


def _list(
    records: Sequence[dict[str, Any]], columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], as_json: bool
) -> None:
    if as_json:
        typer.echo(json.dumps(list(records), indent=2, ensure_ascii=False))
    else:
        _print_table(columns, rows, right=("memory GiB", "GB/s", "TFLOP/s", "USD/h", "USD/GPU-h", "guesses"))


def _print_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: tuple[str, ...]) -> None:
    """A rich table on a terminal; plain aligned columns, one line a row, in a pipe."""
    console = Console()
    if not console.is_terminal:
        widths = _widths(columns, rows)
        for line in (columns, *rows):
            cells = [
                cell.rjust(width) if name in right else cell.ljust(width)
                for cell, width, name in zip(line, widths, columns, strict=True)
            ]
            typer.echo("  ".join(cells).rstrip())
        return
    columns, rows = _that_fit(columns, rows, console.width)
    needed = _widths(columns, rows)
    folded = 0 if columns[0] == _OFFER_COLUMNS[0] else len(columns) - 1
    rest = console.width - _table_width(needed) + needed[folded]
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        justify: Any = "right" if column in right else "left"
        whole = index != folded and rest >= LEAST_REST
        table.add_column(column, justify=justify, overflow="fold", min_width=needed[index] if whole else None)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


LEAST_REST = 12
"""Characters that must be left for the one column that folds, beside the others in full."""
DROPPED_FIRST = ("price", "as of", "USD/h")
"""Columns of the offers that make room for whole ids on a narrow terminal, in this order; a pipe shows them all."""


def _widths(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(len(line[i]) for line in (columns, *rows)) for i in range(len(columns))]


def _table_width(widths: Sequence[int]) -> int:
    """Width of a table without borders, whose columns are two blanks apart."""
    return sum(widths) + 2 * (len(widths) - 1)


def _that_fit(
    columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], width: int
) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
    """The columns of a table of offers that a terminal has room for; other tables fold their text."""
    for name in DROPPED_FIRST if columns == _OFFER_COLUMNS else ():
        if _table_width(_widths(columns, rows)) <= width:
            break
        at = columns.index(name)
        columns = columns[:at] + columns[at + 1 :]
        rows = [row[:at] + row[at + 1 :] for row in rows]
    return columns, rows


# --- showing ---

Facts = list[tuple[str, object]]


def _find(catalog: Catalog, entry: str) -> tuple[str, Facts]:
    """The entry's name and facts: a GPU, an offer, an engine, else a model or a path."""
    readers: list[Callable[[Catalog, str], tuple[str, Facts] | None]] = [_as_gpu, _as_offer]
    if "/" not in entry:
        readers.append(_as_engine)
    for reader in readers:
        found = reader(catalog, entry)
        if found is not None:
            return found
    return _as_model(catalog, entry)


def _as_gpu(catalog: Catalog, entry: str) -> tuple[str, Facts] | None:
    if entry.casefold() not in {name.casefold() for name in catalog.gpus}:
        return None
    gpu = catalog.gpu(entry)
    facts: Facts = [("memory seen by the engine", f"{gpu.visible_memory_gib:.3f} GiB ({gpu.visible_memory_origin})")]
    for field, value in gpu.model_dump().items():
        if field in ("id", "unverified") or value in (None, ""):
            continue
        facts.append((field, f"{_text(value)}  (guess: recalled, not read)" if field in gpu.unverified else value))
    return gpu.id, facts


def _as_offer(catalog: Catalog, entry: str) -> tuple[str, Facts] | None:
    if entry.casefold() not in {offer.id.casefold() for offer in catalog.offers}:
        return None
    offer = catalog.offer(entry)
    facts: Facts = [(name, value) for name, value in offer.model_dump().items() if name != "id" and value != ""]
    facts.insert(6, ("usd_per_gpu_h", round(offer.usd_per_gpu_h, 6)))
    return offer.id, facts


def _as_engine(catalog: Catalog, entry: str) -> tuple[str, Facts] | None:
    name, _, version = entry.casefold().replace("==", " ").replace("@", " ").partition(" ")
    versions = [engine for engine in catalog.engines if engine.name == name]
    if not versions:
        return None
    if not version.strip():
        return name, [(engine.version, engine.note or "-") for engine in versions]
    engine = catalog.engine(name, version.strip())
    facts: Facts = [("facts of version", engine.version), ("note", engine.note)]
    for fact, value in engine.rules.model_dump(mode="json").items():
        origin = engine.sources.get(fact)
        facts.append((fact, f"{_text(value)}  ({origin}, {origin.as_of})" if origin else value))
    return f"{name} {version.strip()}", facts


def _as_model(catalog: Catalog, entry: str) -> tuple[str, Facts]:
    if "/" not in entry and not entry.endswith(".json"):
        fix = "Give a GPU, an offer or a model id as printed by `planner catalog list`"
        try:
            catalog.gpu(entry)
        except InputError as error:
            fix = error.problems[0].fix
        raise InputError(Problem(repr(entry), "neither GPU, offer, model nor engine", fix))
    shape = catalog.model_shape(entry)
    return shape.id, [*_shape_facts(shape), *_provenance(catalog, shape.id)]


def _shape_facts(shape: ModelShape) -> Facts:
    facts: Facts = [
        ("architecture", shape.architecture),
        ("attention family", shape.family.value),
        ("parameters", f"{shape.parameters.total:,}"),
        ("active parameters per token", f"{shape.active_parameters:,}"),
        ("weights stored as", shape.native_weight_dtype),
        ("longest context", f"{shape.max_position_embeddings:,} tokens"),
    ]
    for layers in shape.cache_layers:
        per_token = layers.kv_heads * (layers.key_dim + layers.value_dim) * BYTES_PER_ELEMENT_16_BIT * layers.count
        window = f", the last {layers.window_tokens:,} tokens" if layers.kind is CacheKind.SLIDING else ""
        kib = per_token / units.BYTES_PER_KIB
        facts.append(
            (f"cache of {layers.count} layers ({layers.kind.value}{window})", f"{kib:g} KiB per token, 16 bit")
        )
    if shape.is_moe:
        facts.append(("experts", f"{shape.num_experts}, {shape.experts_per_token} per token"))
    facts.extend(("note", note) for note in shape.notes)
    return facts


def _provenance(catalog: Catalog, model_id: str) -> Facts:
    facts: Facts = []
    alias = catalog.aliases.get(model_id)
    model_id = alias.hf_id if alias else model_id
    for label, sources in (("config", catalog.model_sources), ("quantisation", catalog.quant_sources)):
        row = sources.get(model_id)
        if row is not None:
            commit = f" at {row.commit}" if row.commit else ""
            facts.append((f"{label} from", f"{row.source}{commit}, read {row.as_of} ({row.notes})"))
    return facts


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list | tuple) else str(value)
