"""Engine facts by version: what a release does that changes the pool.

``catalogs/engines/<engine>.toml`` lists the versions and dated facts. A fact holds from the version in ``since`` until
a newer entry of the same name replaces it; so a rule that did not change is written once.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import InputError, Problem, Problems
from planner.memory.types import Origin


class Frozen(BaseModel):
    """Immutable, and strict about keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FactSource(Frozen):
    """Where a fact comes from."""

    since: str
    source: str = Field(min_length=1)
    as_of: dt.date
    origin: Origin = Origin.CATALOGUE

    def __str__(self) -> str:
        return f"{self.source} ({self.as_of.isoformat()})"


class MemoryTier(Frozen):
    """A default that depends on the GPU's memory."""

    min_memory_gib: float = Field(ge=0)
    value: int = Field(gt=0)


class TpFigure(Frozen):
    """A figure that grows with the tensor-parallel degree: holds from ``min_tp`` on."""

    min_tp: int = Field(ge=1)
    gib: float = Field(ge=0)


class LatentBlocks(Frozen):
    """Block size of latent (MLA) caches by GPU generation, tokens."""

    hopper: int = Field(gt=0)
    blackwell: int = Field(gt=0)
    other: int = Field(gt=0)


class Mxfp4Padding(Frozen):
    """Multiples that an mxfp4 expert's two dimensions are padded to, elements."""

    width: int = Field(ge=1)
    hidden: int = Field(ge=1)


class VllmRules(Frozen):
    """How a vLLM release sizes the pool. Overheads are GiB per GPU."""

    default_utilization: float = Field(gt=0, le=1)
    batched_tokens: tuple[MemoryTier, ...]
    """Default ``max_num_batched_tokens`` of the API server by visible memory; the highest tier that fits."""
    max_num_seqs: tuple[MemoryTier, ...]
    small_tier_gpus: tuple[str, ...]
    """GPU names (lower case, part of the id) that take the smallest tier whatever their memory."""
    batched_tokens_capped_by_seqs: bool
    """Default batched tokens at most ``max_num_seqs x max_model_len``."""
    block_size_tokens: int = Field(gt=0)
    latent_block_16bit: LatentBlocks
    latent_block_fp8: LatentBlocks
    wide_head_fp8_block_hopper: int = Field(gt=0)
    """Block size of an fp8 cache with heads of 512 on Hopper (Gemma-4), tokens."""
    sparse_latent_always_fp8: bool
    """Latent caches with an indexer are stored in fp8 whatever is asked."""
    chunks_kept_apart: bool
    """Chunked layers get groups of their own; else every layer of the model is allocated at full length."""
    null_blocks: int = Field(ge=0)
    """Blocks that the start-up check keeps back."""
    batches_in_flight: int = Field(ge=1)
    """Batches of ``max_num_batched_tokens`` whose tokens a window must hold beside the window itself."""
    logged_tokens: Literal["pool", "concurrency"]
    """``pool``: blocks / groups x block size. ``concurrency``: maximum concurrency x max_model_len."""
    start_check: Literal["layers", "groups"]
    """Whether one request's need is summed over layers, or over groups padded to the group size."""
    group_size_rule: Literal["fewest", "fewest-or-most"]
    """Layers per group of a hybrid: the fewest of any kind; or the most when that is below 1.5 x the fewest."""
    uneven_pages: Literal["refuse", "scale"]
    """Layers of unequal page size: not supported, or unified by raising the smaller ones' block size."""
    cudagraph_deducted: bool
    fp8_moe_block_checked: bool
    """Whether an fp8 block that does not divide an expert's share refuses to start."""
    declared_fp8_kv_honoured: bool
    fp8_kv_min_capability: tuple[int, int]
    """CUDA compute capability from which a backend stores an fp8 cache."""
    gptq_activation_order: bool
    """Whether a GPTQ checkpoint quantised in order of activation is accepted."""
    longrope_serves_original: bool
    """Without ``max_model_len``, a LongRoPE model serves the length before extension."""
    mxfp4_padding: Mxfp4Padding
    """What the expert matrices of an mxfp4 checkpoint are padded to on loading."""
    missing_architectures: tuple[str, ...]
    """Architectures that are not in the registry of this version, of those that were tried."""
    sampler_copies: float = Field(ge=0)
    """Peak of the sampler's dummy run: copies of ``max_num_seqs x vocabulary x 4 B``."""
    sampler_constant_gib: float = Field(ge=0)
    hidden_copies: float = Field(ge=0)
    """Copies of ``batched tokens x hidden x 2 B`` beside the sampler's."""
    expert_workspace_kept: bool
    """Whether the buffers of routed experts stay allocated while the sampler runs."""
    forward_pass: Literal["one-layer"]
    """Peak of the forward pass, where it exceeds the sampler's: the tensors of one layer for every batched token."""
    non_torch_gib: tuple[TpFigure, ...]
    """Memory outside PyTorch (context, NCCL) by tensor-parallel degree."""
    cudagraph_gib: float = Field(ge=0)
    """Estimate that is deducted where ``cudagraph_deducted``."""


class SglangTier(Frozen):
    """SGLang's defaults for GPUs of up to ``below_mib`` (nvidia-smi total)."""

    below_mib: int = Field(gt=0)
    chunked_prefill_tokens: int = Field(gt=0)
    graph_max_batch: int = Field(gt=0)
    graph_max_batch_tp4: int = Field(gt=0)


class SglangRules(Frozen):
    """How an SGLang release derives ``mem_fraction_static`` and the pool. MB as in its source (1 MB = 1 MiB)."""

    tiers: tuple[SglangTier, ...]
    metadata_mb: float = Field(ge=0)
    mb_per_chunk_token: float = Field(ge=0)
    min_chunk_tokens: int = Field(ge=0)
    mb_per_rank: float = Field(ge=0)
    mb_per_graph_sequence: float = Field(ge=0)
    large_gpu_mib: int = Field(gt=0)
    large_gpu_floor_mb: float = Field(ge=0)
    prefill_graphs: bool
    """Prefill CUDA graphs are reserved for (multi-head models)."""
    latent_prefill_graphs: bool
    mb_per_prefill_graph: float = Field(ge=0)
    latent_prefill_graphs_mb: float = Field(ge=0)
    multimodal_share: float = Field(gt=0, le=1)
    """Share of the fraction that a multimodal model keeps, before its tower's size is weighed."""
    text_only_model_types: tuple[str, ...]
    """Model types with a tower that are served as text models by default."""
    multimodal_reserved_mib: float = Field(ge=0)
    """Kept back for images of a multimodal model."""
    multimodal_reserved_large_mib: float = Field(ge=0)
    """The same for the listed model types on GPUs above ``large_gpu_mib``."""
    multimodal_large_types: tuple[str, ...]
    page_size_tokens: int = Field(ge=1)
    sparse_page_size_tokens: int = Field(ge=1)
    """Page of latent caches with an indexer."""
    swa_full_tokens_ratio: float = Field(gt=0, le=1)
    swa_model_types: tuple[str, ...]
    """Model types whose sliding layers get their own pool; all others are charged at full length."""
    context_gib: float = Field(ge=0)
    """CUDA context and libraries held before weights load."""
    min_running: int = Field(ge=1)
    max_running: int = Field(ge=1)
    running_factor: int = Field(ge=1)


class EngineFacts(Frozen):
    """One release of one engine."""

    name: Literal["vllm", "sglang"]
    version: str
    note: str = ""
    rules: VllmRules | SglangRules
    sources: Mapping[str, FactSource]

    def source(self, fact: str) -> str:
        """Source text of a fact."""
        return f"{self.name} {self.version}: {self.sources[fact]}"

    def origin(self, fact: str) -> Origin:
        """Origin of a fact."""
        return self.sources[fact].origin

    @property
    def vllm(self) -> VllmRules:
        """Rules of vLLM."""
        assert isinstance(self.rules, VllmRules)
        return self.rules

    @property
    def sglang(self) -> SglangRules:
        """Rules of SGLang."""
        assert isinstance(self.rules, SglangRules)
        return self.rules


_VERSION = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,4})(?:\.?(?:a|b|rc|post|dev)\d{0,6})*(?:\+[\w.]{1,40})?", re.ASCII)


def version_key(version: str) -> tuple[int, ...]:
    """``0.11.0`` as numbers, for ordering; a suffix such as ``rc1`` or ``.post2`` is ignored.

    Raises
    ------
    InputError
        If the text is no version.
    """
    match = _VERSION.fullmatch(version.strip())
    if not match:
        raise InputError(
            Problem("engine", f"{version!r:.60} is not a version", "Write it like 0.33.0", field="version")
        )
    parts = [int(part) for part in match.group(1).split(".")]
    return tuple(parts + [0] * (3 - len(parts)))


def load_engines(root: Path) -> tuple[EngineFacts, ...]:
    """Every version in ``<root>/engines/*.toml``, by engine and version.

    Raises
    ------
    InputError
        Listing every problem of every file.
    """
    problems = Problems()
    engines: list[EngineFacts] = []
    for path in engine_files(root):
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            problems.add(str(path), f"cannot be read: {error}")
            continue
        engines.extend(_versions(path, raw, problems))
    problems.raise_if_any()
    return tuple(sorted(engines, key=lambda facts: (facts.name, version_key(facts.version))))


def engine_files(root: Path) -> tuple[Path, ...]:
    """The files that `load_engines` reads."""
    return tuple(sorted((root / "engines").glob("*.toml")))


def find_engine(engines: tuple[EngineFacts, ...], name: str, version: str = "") -> EngineFacts:
    """Facts of a version, or of the nearest older one that is listed; the newest where ``version`` is empty.

    Raises
    ------
    InputError
        If the engine is unknown or every listed version is newer.
    """
    known = [facts for facts in engines if facts.name == name]
    if not known:
        names = ", ".join(sorted({facts.name for facts in engines}))
        raise InputError(
            Problem("engine", f"{name!r} is not in the catalogue", f"Choose one of: {names}", field="name")
        )
    if not version:
        return known[-1]
    wanted = version_key(version)
    older = [facts for facts in known if version_key(facts.version) <= wanted]
    if not older:
        raise InputError(
            Problem(
                "engine",
                f"{name} {version} is older than every version in the catalogue",
                f"Choose {known[0].version} or newer",
                field="version",
            )
        )
    return older[-1]


def substitution(engines: tuple[EngineFacts, ...], facts: EngineFacts, asked: str) -> str:
    """What to tell a user whose version is not listed; empty where it is, or where none was asked for."""
    if not asked or version_key(asked) == version_key(facts.version):
        return ""
    newest = max(version_key(known.version) for known in engines if known.name == facts.name)
    why = "newer than every version in the catalogue" if version_key(asked) > newest else "not in the catalogue"
    return f"engine facts of {facts.name} {facts.version} are used for {asked}, which is {why}"


def _versions(path: Path, raw: Mapping[str, Any], problems: Problems) -> list[EngineFacts]:
    name = str(raw.get("engine", ""))
    kinds: dict[str, type[VllmRules] | type[SglangRules]] = {"vllm": VllmRules, "sglang": SglangRules}
    rules = kinds.get(name)
    if rules is None:
        problems.add(str(path), f"unknown engine {name!r}", "Write vllm or sglang", field="engine")
        return []
    found = []
    facts = _dated(path, raw, problems)
    for entry in raw.get("version", ()):
        version = str(entry.get("id", ""))
        if not _is_version(path, version, "version", problems):
            continue
        values, sources = _facts_at(path, facts, version, problems)
        try:
            found.append(
                EngineFacts.model_validate(
                    {
                        "name": name,
                        "version": version,
                        "note": entry.get("note", ""),
                        "rules": rules.model_validate(values),
                        "sources": sources,
                    }
                )
            )
        except ValidationError as error:
            for item in error.errors():
                field = ".".join(str(part) for part in item["loc"])
                problems.add(str(path), str(item["msg"]), row=f"version {version}", field=field)
    return found


def _is_version(path: Path, text: str, row: str, problems: Problems) -> bool:
    if _VERSION.fullmatch(text):
        return True
    problems.add(str(path), f"{text!r} is not a version", "Write it like 0.33.0", row=row)
    return False


def _dated(path: Path, raw: Mapping[str, Any], problems: Problems) -> list[Mapping[str, Any]]:
    """The facts of a file whose ``since`` is a version; the others are noted."""
    return [
        fact
        for fact in raw.get("fact", ())
        if _is_version(path, str(fact.get("since")), f"fact {fact.get('name')}", problems)
    ]


def _facts_at(
    path: Path, facts: list[Mapping[str, Any]], version: str, problems: Problems
) -> tuple[dict[str, Any], dict[str, FactSource]]:
    """Value and source of each fact that holds at ``version``."""
    chosen: dict[str, Mapping[str, Any]] = {}
    for fact in facts:
        name, since = str(fact.get("name")), str(fact.get("since"))
        if version_key(since) > version_key(version):
            continue
        if name not in chosen or version_key(since) >= version_key(str(chosen[name]["since"])):
            chosen[name] = fact
    sources = {}
    for name, fact in chosen.items():
        try:
            sources[name] = FactSource.model_validate({k: v for k, v in fact.items() if k not in ("name", "value")})
        except ValidationError as error:
            problems.add(str(path), str(error.errors()[0]["msg"]), row=f"fact {name}")
    return {name: fact.get("value") for name, fact in chosen.items()}, sources
