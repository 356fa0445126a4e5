"""Engine facts by version: what a release does that changes the pool.

``catalogs/engines/<engine>.toml`` lists the versions and dated facts. A fact holds from the version in ``since`` until
a newer entry of the same name replaces it; so a rule that did not change is written once.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from planner.catalog.engine_rules.sglang import SglangRules
from planner.catalog.engine_rules.shared import Frozen
from planner.catalog.engine_rules.vllm import VllmRules
from planner.catalog.registry import Registry, read_registry
from planner.catalog.versions import VERSION, is_development, version_key
from planner.errors import InputError, Problem, Problems
from planner.origin import Origin


class FactSource(Frozen):
    """Where a fact comes from."""

    since: str
    source: str = Field(min_length=1)
    as_of: dt.date
    origin: Origin = Origin.CATALOGUE

    def __str__(self) -> str:
        return f"{self.source} ({self.as_of.isoformat()})"


class EngineFacts(Frozen):
    """One release of one engine."""

    name: Literal["vllm", "sglang"]
    version: str
    note: str = ""
    rules: VllmRules | SglangRules
    sources: Mapping[str, FactSource]
    registry: Registry | None = None
    """Architectures of all releases, where the catalogue lists them."""
    successor: str = ""
    """For a development build after this release: the next one listed, whose architectures it may have already."""

    def knows(self, architecture: str, tp: int) -> bool:
        """Whether this release has a class for an architecture; also where the catalogue, or the config, is silent."""
        if self.registry is None or not architecture:
            return True
        versions = (self.version, self.successor) if self.successor else (self.version,)
        return any(self.registry.knows(architecture, version, tp) for version in versions)

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
    newer = [facts for facts in known if version_key(facts.version) > wanted]
    if newer and is_development(version) and version_key(older[-1].version) < wanted:
        return older[-1].model_copy(update={"successor": newer[0].version})
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
    registry = read_registry(path.with_name(f"{name}_architectures.csv"), problems)
    for entry in raw.get("version", ()):
        version = str(entry.get("id", ""))
        if not _is_version(path, version, "version", problems):
            continue
        values, sources = _facts_at(path, facts, version, problems, str(entry.get("older_as", "")))
        try:
            found.append(
                EngineFacts.model_validate(
                    {
                        "name": name,
                        "version": version,
                        "note": entry.get("note", ""),
                        "rules": rules.model_validate(values),
                        "sources": sources,
                        "registry": None if entry.get("older_as") else registry,
                    }
                )
            )
        except ValidationError as error:
            for item in error.errors():
                field = ".".join(str(part) for part in item["loc"])
                problems.add(str(path), str(item["msg"]), row=f"version {version}", field=field)
    return found


def _is_version(path: Path, text: str, row: str, problems: Problems) -> bool:
    if VERSION.fullmatch(text):
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
    path: Path, facts: list[Mapping[str, Any]], version: str, problems: Problems, older_as: str = ""
) -> tuple[dict[str, Any], dict[str, FactSource]]:
    """Value and source of each fact that holds at ``version``.

    A version older than the first that was read takes what it lacks from that one (``older_as``), as guesses; its
    registry was not read, so that no architecture is refused.
    """
    chosen = _newest_until(facts, version)
    if older_as and _is_version(path, older_as, f"version {version}", problems):
        first = _newest_until(facts, older_as)
        chosen |= {name: {**fact, "origin": Origin.GUESS} for name, fact in first.items() if name not in chosen}
    sources = {}
    for name, fact in chosen.items():
        try:
            sources[name] = FactSource.model_validate({k: v for k, v in fact.items() if k not in ("name", "value")})
        except ValidationError as error:
            problems.add(str(path), str(error.errors()[0]["msg"]), row=f"fact {name}")
    return {name: fact.get("value") for name, fact in chosen.items()}, sources


def _newest_until(facts: list[Mapping[str, Any]], version: str) -> dict[str, Mapping[str, Any]]:
    """The newest entry of each fact that is not newer than ``version``."""
    chosen: dict[str, Mapping[str, Any]] = {}
    for fact in facts:
        name, since = str(fact.get("name")), str(fact.get("since"))
        if version_key(since) > version_key(version):
            continue
        if name not in chosen or version_key(since) >= version_key(str(chosen[name]["since"])):
            chosen[name] = fact
    return chosen
