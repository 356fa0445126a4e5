"""The optional package aiconfigurator-core behind one small interface: found once, quiet, off the network.

Only its stable facade is called (``aiconfigurator_core.sdk``: ``compile_engine``, ``EngineHandle``). Beside that two of
its data files are read: the bundled configs and the list of versions that its databases answer for.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from packaging.specifiers import SpecifierSet

from planner.speed.facts import version_of
from planner.speed.silicon_fit import Engine

PACKAGE, DISTRIBUTION = "aiconfigurator_core", "aiconfigurator-core"
SUPPORTED = SpecifierSet(">=0.12,<0.13")


class LabelledEngine(Engine, Protocol):
    """An engine that also says where its figures come from."""

    def decode_step_per_op(self, gen_tokens: int, isl: int, osl: int) -> list[tuple[str, float, float, str]]:
        """Name, milliseconds, energy and source of every operation of a decode step."""


class Facade(Protocol):
    """What the provider needs of the package."""

    @property
    def release(self) -> str:
        """Version of the package."""

    @property
    def models(self) -> Path:
        """Folder of the bundled configs."""

    def versions(self, system: str, backend: str) -> tuple[str, ...]:
        """Engine versions that a database answers for; empty where there is none."""

    def compile(
        self, config: str, companion: str | None, system: str, backend: str, version: str, options: Mapping[str, Any]
    ) -> LabelledEngine:
        """A compiled engine, or any exception of the package."""


@dataclass(frozen=True)
class NotAvailable:
    """Why the provider has no answer, in a few words."""

    reason: str


@dataclass(frozen=True)
class CoreFacade:
    """The installed package."""

    release: str
    root: Path

    @property
    def models(self) -> Path:
        """Folder of the bundled configs."""
        return self.root / "model_configs"

    def versions(self, system: str, backend: str) -> tuple[str, ...]:
        """Those that the package lists for the system, or for all, where the system has data of the backend."""
        return _listed(self.root / "systems", system, backend)

    def compile(
        self, config: str, companion: str | None, system: str, backend: str, version: str, options: Mapping[str, Any]
    ) -> LabelledEngine:
        """Compile a config from a folder of its own: a path is never looked up on the network."""
        with quiet(), tempfile.TemporaryDirectory(prefix="planner-") as folder:
            (Path(folder) / "config.json").write_text(config, encoding="utf-8")
            if companion is not None:
                (Path(folder) / "hf_quant_config.json").write_text(companion, encoding="utf-8")
            sdk = importlib.import_module(f"{PACKAGE}.sdk")
            compiled = sdk.compile_engine(folder, system, backend, version, **options)
            engine: LabelledEngine = sdk.EngineHandle(compiled)
            return engine


@cache
def _listed(systems: Path, system: str, backend: str) -> tuple[str, ...]:
    if not any(path.is_dir() for path in (systems / "data" / system).glob(f"*/{backend}")):
        return ()
    slots = importlib.import_module("yaml").safe_load((systems / "query_versions.yaml").read_text(encoding="utf-8"))
    own = slots.get("overrides", {}).get(system)
    named = (slots.get("defaults", {}) if own is None else own).get(backend, {})
    return tuple(str(named[slot]) for slot in ("current", "previous") if named.get(slot))


@cache
def find_facade() -> CoreFacade | NotAvailable:
    """Look for the package, once per process."""
    try:
        release = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return NotAvailable("not installed (pip install 'planner[silicon]')")
    found = version_of(release)
    if found is None or not SUPPORTED.contains(found, prereleases=True):
        return NotAvailable(f"{DISTRIBUTION} {release} is installed, {SUPPORTED} is supported")
    return _probed(release)


def _probed(release: str) -> CoreFacade | NotAvailable:
    """The package if it can be imported and has what is called."""
    try:
        with quiet():
            sdk = importlib.import_module(f"{PACKAGE}.sdk")
            missing = [name for name in ("compile_engine", "EngineHandle") if not callable(getattr(sdk, name, None))]
    except Exception as error:
        return NotAvailable(f"{DISTRIBUTION} {release} cannot be imported ({type(error).__name__})")
    spec = importlib.util.find_spec(PACKAGE)
    if missing or spec is None or spec.origin is None:
        return NotAvailable(f"{DISTRIBUTION} {release} lacks {', '.join(missing) or 'its files'}")
    return CoreFacade(release, Path(spec.origin).parent)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing of the package reaches the user: no output, no warning, no log line."""
    log = logging.getLogger(PACKAGE)
    propagate, handler = log.propagate, logging.NullHandler()
    log.addHandler(handler)
    log.propagate = False
    nowhere = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
