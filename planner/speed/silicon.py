"""Kernel measurements put together by aiconfigurator-core, as step coefficients: an optional provider.

The package answers for one deployment with a surface of step times; coefficients are fitted to it, so that consumers
see the same model whatever the provider. It never raises: what it cannot answer is a `NotAvailable` with the reason.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.types import Deployment, Sizing
from planner.speed.facts import version_of
from planner.speed.silicon_facade import Facade, LabelledEngine, NotAvailable, find_facade, quiet
from planner.speed.silicon_facts import SiliconFacts, load_silicon_facts
from planner.speed.silicon_fit import Fit, FitShape, fit_surface
from planner.speed.silicon_models import DIMENSIONS, Ask, asks, same_speed
from planner.speed.types import Provider, SpeedModel
from planner.units import ms_to_s

FIT_MEDIAN = 0.10
"""Median error of the fit beyond which the source warns of it."""
LABEL_LOAD = (32, 2048, 2)
"""Sequences, context and outputs at which the sources of operations are weighed."""
MOST_REASON = 160

__all__ = ["NotAvailable", "SiliconProvider", "silicon_model", "silicon_source"]


@dataclass
class SiliconProvider:
    """The package with what was compiled and fitted so far; one per process is enough.

    Attributes
    ----------
    facade
        The package, or why there is none.
    """

    facade: Facade | NotAvailable
    _engines: dict[object, _Compiled | NotAvailable] = field(default_factory=dict)
    _fits: dict[object, Fit | NotAvailable] = field(default_factory=dict)

    def model(self, shape: ModelShape, gpu: Gpu, sizing: Sizing, facts: SiliconFacts) -> SpeedModel | NotAvailable:
        """See `silicon_model`."""
        if isinstance(self.facade, NotAvailable):
            return self.facade
        place = _place(self.facade, gpu, sizing, facts)
        if isinstance(place, NotAvailable):
            return place
        key = _key(shape, sizing.deployment, place)
        if key not in self._engines:
            self._engines[key] = _compiled(self.facade, shape, sizing.deployment, place)
        compiled = self._engines[key]
        fit = compiled if isinstance(compiled, NotAvailable) else self._fit(key, compiled, shape, sizing, facts)
        if isinstance(compiled, NotAvailable) or isinstance(fit, NotAvailable):
            return NotAvailable(f"no answer for {_asked(shape, gpu, sizing)}: {getattr(fit, 'reason', '')}")
        bands = facts.bands_of(gpu.id)
        return SpeedModel(
            coefficients=fit.coefficients,
            tpot_band=bands.tpot.band,
            ttft_band=bands.ttft.band,
            source=_source(self.facade.release, gpu, sizing, facts, place, compiled, fit),
            provider=Provider.SILICON,
        )

    def _fit(
        self, key: object, compiled: _Compiled, shape: ModelShape, sizing: Sizing, facts: SiliconFacts
    ) -> Fit | NotAvailable:
        """Coefficients for this pool and chunk; fitted once."""
        fit_shape = _fit_shape(shape, sizing, facts)
        if (key, fit_shape) not in self._fits:
            try:
                with quiet():
                    self._fits[key, fit_shape] = fit_surface(compiled.engine, fit_shape)
            except Exception as error:
                self._fits[key, fit_shape] = NotAvailable(_short(error))
        return self._fits[key, fit_shape]


@dataclass(frozen=True)
class _Compiled:
    """An engine that answers, how it was asked for, and where its figures come from."""

    engine: LabelledEngine
    ask: Ask
    sources: str


@dataclass(frozen=True)
class _Place:
    """Names of the database."""

    system: str
    backend: str
    version: str


_PROVIDERS: dict[str, SiliconProvider] = {}


def silicon_model(shape: ModelShape, gpu: Gpu, sizing: Sizing, facts: SiliconFacts) -> SpeedModel | NotAvailable:
    """Step-time coefficients of one replica from aiconfigurator-core.

    Parameters
    ----------
    shape, gpu, sizing
        The deployment.
    facts
        What the databases cover, and bands.

    Returns
    -------
    SpeedModel | NotAvailable
        The second where the package is not installed or of another version, has no data of the GPU, engine or
        formats, or no model of these dimensions.
    """
    provider = _PROVIDERS.setdefault("installed", SiliconProvider(find_facade()))
    return provider.model(shape, gpu, sizing, facts)


def silicon_source(root: Path) -> Callable[[ModelShape, Gpu, Sizing], SpeedModel | str]:
    """The provider for the chain: a model, or the reason why there is none.

    Raises
    ------
    InputError
        If ``<root>/speed/aiconfigurator.toml`` cannot be used.
    """
    facts = load_silicon_facts(root)

    def answer(shape: ModelShape, gpu: Gpu, sizing: Sizing) -> SpeedModel | str:
        found = silicon_model(shape, gpu, sizing, facts)
        return found if isinstance(found, SpeedModel) else found.reason

    return answer


def _place(facade: Facade, gpu: Gpu, sizing: Sizing, facts: SiliconFacts) -> _Place | NotAvailable:
    """System, backend and the nearest version of the database."""
    system, backend = facts.systems.get(gpu.id), facts.backends.get(sizing.engine)
    if system is None:
        return NotAvailable(f"{gpu.id} is not covered")
    if backend is None:
        return NotAvailable(f"engine {sizing.engine} is not covered")
    unmapped = _unmapped(sizing.deployment)
    if unmapped:
        return NotAvailable(f"{unmapped} is not put to it")
    try:
        versions = facade.versions(system, backend)
    except Exception as error:
        return NotAvailable(f"its list of versions cannot be read ({_short(error)})")
    if not versions:
        return NotAvailable(f"no data of {backend} on {system}")
    return _Place(system, backend, nearest(sizing.engine_version, versions))


def _unmapped(deployment: Deployment) -> str:
    """What a deployment has that no argument stands for."""
    given = {
        "pipeline parallelism": deployment.pp > 1,
        "attention data parallelism": deployment.attention_dp > 1,
        "decode context parallelism": deployment.dcp > 1,
        "eager execution": deployment.enforce_eager,
    }
    return ", ".join(name for name, there in given.items() if there)


def nearest(version: str, versions: tuple[str, ...]) -> str:
    """The listed version that is nearest below, else the oldest above; the first where none can be compared."""
    wanted = version_of(version)
    known = sorted((found, text) for text in versions for found in [version_of(text)] if found is not None)
    if wanted is None or not known:
        return versions[0]
    below = [text for found, text in known if found <= wanted]
    return below[-1] if below else known[0][1]


def _fit_shape(shape: ModelShape, sizing: Sizing, facts: SiliconFacts) -> FitShape:
    return FitShape(
        expert_hit_share=shape.experts_per_token / shape.num_experts if shape.is_moe else 0.0,
        window_tokens=float(sizing.window_tokens),
        chunk_tokens=float(sizing.max_num_batched_tokens),
        pool_tokens=float(sizing.pool_tokens),
        max_model_len=float(sizing.max_model_len),
        ttft_floor_s=ms_to_s(facts.ttft_floor_ms.value),
    )


def _key(shape: ModelShape, deployment: Deployment, place: _Place) -> object:
    """What an engine depends on; hashing whole shapes would take longer than fitting."""
    dimensions = tuple(getattr(shape, name) for name in DIMENSIONS)
    return (shape.id, dimensions, place, deployment.tp, deployment.expert_parallel, deployment.weight_dtype,
            deployment.kv_dtype)  # fmt: skip


def _asked(shape: ModelShape, gpu: Gpu, sizing: Sizing) -> str:
    deployment = sizing.deployment
    return f"{shape.id} in {deployment.weight_dtype} with {deployment.kv_dtype} cache, tp {deployment.tp} on {gpu.id}"


def _compiled(facade: Facade, shape: ModelShape, deployment: Deployment, place: _Place) -> _Compiled | NotAvailable:
    """The first way of putting the deployment that is answered; the reason is that of the first way."""
    try:
        candidates = same_speed(facade.models, shape)
    except Exception as error:
        return NotAvailable(f"its bundled configs cannot be read ({_short(error)})")
    if not candidates:
        return NotAvailable("no bundled model has its dimensions")
    reasons = []
    for ask in asks(candidates, deployment):
        options = _options(ask, deployment)
        try:
            config, companion = ask.bundled.text(with_formats=not ask.gemm)
            engine = facade.compile(config, companion, place.system, place.backend, place.version, options)
            with quiet():
                engine.predict_prefill_latency(1, LABEL_LOAD[1])
                return _Compiled(engine, ask, _sources(engine))
        except Exception as error:
            reasons.append(_short(error))
    return NotAvailable(reasons[0] if reasons else f"{deployment.weight_dtype} weights have no format there")


def _options(ask: Ask, deployment: Deployment) -> dict[str, str | int]:
    """Arguments of ``compile_engine``; experts are divided like everything else, or whole."""
    options: dict[str, str | int] = {"tp_size": deployment.tp, "kvcache_quant_mode": ask.kv}
    if ask.bundled.shape.is_moe:
        options["moe_ep_size" if deployment.expert_parallel else "moe_tp_size"] = deployment.tp
    named = {"gemm_quant_mode": ask.gemm, "moe_quant_mode": ask.moe, "fmha_quant_mode": ask.attention}
    return options | {name: mode for name, mode in named.items() if mode}


def _sources(engine: LabelledEngine) -> str:
    """Shares of a decode step's time by where the operations' figures come from."""
    by_source: dict[str, float] = defaultdict(float)
    for _, milliseconds, _, source in engine.decode_step_per_op(*LABEL_LOAD):
        by_source[source] += milliseconds
    total = sum(by_source.values()) or 1.0
    return ", ".join(
        f"{by_source[name] / total:.0%} {name}" for name in sorted(by_source, key=lambda n: (-by_source[n], n))
    )


def _source(
    release: str, gpu: Gpu, sizing: Sizing, facts: SiliconFacts, place: _Place, compiled: _Compiled, fit: Fit
) -> str:
    """What the prediction rests on, for the reader of the plan."""
    version = f"{place.backend} {place.version} on {place.system}"
    planned = "" if sizing.engine_version == place.version else f" (planned: {sizing.engine_version})"
    text = (
        f"aiconfigurator-core {release}, database {version}{planned}: {compiled.ask.label}; "
        f"time of a step {compiled.sources}; "
        f"fit of its surface: decode median {fit.decode_median:.1%}, worst {fit.decode_worst:.0%}, "
        f"prefill median {fit.prefill_median:.1%}, worst {fit.prefill_worst:.0%}"
    )
    if max(fit.decode_median, fit.prefill_median) > FIT_MEDIAN:
        text += " (the coefficients do not follow it well)"
    if gpu.id not in facts.bands:
        text += f"; no measurement of {gpu.id} (wide band)"
    return text


def _short(error: Exception) -> str:
    """The first line of a message without paths, which differ between machines."""
    text = re.sub(r"\s+at /\S+|/\S+/", " ", str(error).split("\n", 1)[0]).strip()
    return (text[:MOST_REASON].rstrip() + "…" if len(text) > MOST_REASON else text) or type(error).__name__
