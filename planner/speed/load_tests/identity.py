"""Which deployment a run was measured on: what its file says and what the user adds, in the catalogue's names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from planner.catalog.lookup.lookup import Lookup
from planner.catalog.lookup.names import Named
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, Problems
from planner.memory.starts.case_texts import kv_format, weight_format
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.cases.names import engine_name
from planner.speed.load_tests.types import Run
from planner.speed.points import Served

OPTIONS = {
    "model": "--model",
    "gpu": "--gpu",
    "engine": "--engine",
    "tp": "--tp",
    "weights": "--weights",
    "kv": "--kv",
}
"""What a point cannot be without, and the option that gives it."""
_WORDS = {
    "model": "the model",
    "gpu": "the GPU",
    "engine": "the engine",
    "tp": "the tensor-parallel degree",
    "weights": "the weight format",
    "kv": "the KV-cache format",
}
_DEGREES = ("tp", "pp", "ep", "attention_dp", "replicas")


@dataclass(frozen=True)
class Given:
    """What the user says of every run; ``None`` or empty where nothing is said."""

    model: str = ""
    gpu: str = ""
    engine: str = ""
    version: str = ""
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    attention_dp: int | None = None
    replicas: int | None = None
    weights: WeightDtype | None = None
    kv: KvDtype | None = None
    cached_share: float | None = None
    acceptance: float | None = None


def check_given(given: Given, problems: Problems) -> None:
    """Whether every figure is one that it can be, and every text says something."""
    for name in _DEGREES:
        value = getattr(given, name)
        if value is not None and value < 1:
            problems.add(f"--{name.replace('_', '-')}", f"must be at least 1, not {value}")
    if given.cached_share is not None and not 0 <= given.cached_share <= 1:
        problems.add("--cached-share", f"must be from 0 to 1, not {given.cached_share:g}")
    if given.acceptance is not None and not 1 <= given.acceptance < 100:
        problems.add("--acceptance", f"is tokens per step and sequence, at least 1, not {given.acceptance:g}")


@dataclass
class Identities:
    """Deployments of runs; whatever is missing or contradicts is noted, what is missing once for all.

    ``notes`` says which names were read as another's.
    """

    given: Given
    lookup: Lookup
    problems: Problems

    def __post_init__(self) -> None:
        self._missing: dict[str, str] = {}
        self.notes: dict[str, None] = {}

    def served(self, run: Run) -> Served | None:
        """The deployment of a run, or ``None`` with the problem noted."""
        before = len(self.problems.found) + len(self._missing)
        run = self._with_all_ranks(run)
        model = self._model(run)
        gpu = self._text(run, "gpu", self._gpu)
        engine = self._text(run, "engine", engine_name)
        version = self._text(run, "version", str)
        degrees = {name: self._degree(run, name) for name in _DEGREES}
        self._data_parallel(run)
        self._divides(run, degrees)
        weights, kv = self._weights(run, model), self._kv(run)
        wanted = {"model": model, "gpu": gpu, "engine": engine, "tp": degrees["tp"], "weights": weights, "kv": kv}
        for name, value in wanted.items():
            if not value and not run.stated.get(name):
                self._missing.setdefault(name, run.place)
        if len(self.problems.found) + len(self._missing) > before or not all(wanted.values()):
            return None
        assert model is not None
        assert weights is not None
        assert kv is not None
        return Served(
            engine=engine,
            version=version,
            model=model.found.id,
            gpu=gpu,
            tp=degrees["tp"] or 1,
            weight_dtype=weights,
            kv_dtype=kv,
            pp=degrees["pp"] or 1,
            ep=self._expert_parallel(run, degrees),
            attention_dp=degrees["attention_dp"] or 1,
            replicas=degrees["replicas"] or 1,
        )

    def say_missing(self) -> None:
        """Note everything that neither files nor options say, in one problem."""
        if not self._missing:
            return
        options = [option for name, option in OPTIONS.items() if name in self._missing]
        places = sorted({*self._missing.values()})
        lacks = [
            f"{place} does not say {', '.join(_WORDS[name] for name in OPTIONS if self._missing.get(name) == place)}"
            for place in places
        ]
        verb = "is" if len(options) == 1 else "are"
        self.problems.add(", ".join(options), f"{verb} missing: {'; '.join(lacks)}", "Give what no file says")

    def share(self, run: Run, name: str) -> float | None:
        """``cached_share`` or ``acceptance``: what the file measured, else what the user says."""
        measured: float | None = getattr(run, name)
        given: float | None = getattr(self.given, name)
        if measured is not None and given is not None and abs(measured - given) > 0.02 * max(given, 1):
            option = f"--{name.replace('_', '-')}"
            self.problems.add(run.place, f"says {measured:.3g}, {option} {given:g}", "Leave it out", field=name)
        return given if measured is None else measured

    def _text(self, run: Run, name: str, canonical: Callable[[str], str]) -> str:
        """A name in the catalogue's words; the user's and the file's must mean the same."""
        typed, stated = str(getattr(self.given, name) or ""), run.stated.get(name, "")
        option = f"--{name}"
        ours = self.problems.attempt(lambda: canonical(typed), option) if typed else ""
        if not typed:
            return (self.problems.attempt(lambda: canonical(stated), run.place) or "") if stated else ""
        theirs = ours
        with contextlib.suppress(InputError):
            theirs = canonical(stated) if stated else ours
        if ours and theirs != ours:
            self._conflict(run, name, stated, typed)
        return ours or ""

    def _model(self, run: Run) -> Named[ModelShape] | None:
        """A served name that the catalogue does not know gives way to the user's."""
        if not self._text(run, "model", lambda name: self.lookup.model(name).found.id):
            return None
        named = self.lookup.model(self.given.model or run.stated["model"])
        self.notes.update(dict.fromkeys(named.notes))
        return named

    def _gpu(self, name: str) -> str:
        named = self.lookup.gpu(name)
        self.notes.update(dict.fromkeys(named.notes))
        return named.found.id

    def _degree(self, run: Run, name: str) -> int | None:
        typed, stated = getattr(self.given, name), run.stated.get(name, "")
        if not stated:
            return typed  # type: ignore[no-any-return]
        if not re.fullmatch(r"[1-9][0-9]{0,5}(\.0)?", stated):
            self.problems.add(run.place, f"is {stated!r:.30}, not a whole number of at least 1", field=name)
            return None
        value = int(stated.removesuffix(".0"))
        if typed is not None and typed != value:
            self._conflict(run, name, stated, str(typed))
        return value

    def _data_parallel(self, run: Run) -> None:
        """Data-parallel ranks of vLLM share the experts of a MoE; of a dense model each is a replica: the user says."""
        degree = run.stated.get("data_parallel", "1")
        if degree not in ("1", "") and self.given.attention_dp is None and self.given.replicas is None:
            fix = (
                f"Give --attention-dp {degree} if ranks share the experts, --replicas {degree} if each is a whole model"
            )
            self.problems.add(run.place, f"was served with data_parallel_size {degree}", fix)

    def _with_all_ranks(self, run: Run) -> Run:
        """``tp`` counts all GPUs of a replica; vLLM states those of one of its data-parallel ranks."""
        tp, ranks = run.stated.get("tp", ""), run.stated.get("data_parallel", "")
        if self.given.attention_dp is None or not (tp.isdecimal() and ranks.isdecimal()):
            return run
        return replace(run, stated={**run.stated, "tp": str(int(tp) * int(ranks))})

    def _divides(self, run: Run, degrees: dict[str, int | None]) -> None:
        tp, attention_dp = degrees["tp"], degrees["attention_dp"]
        if tp and attention_dp and attention_dp > 0 and tp % attention_dp:
            fix = "--tp counts all GPUs of a replica, of which --attention-dp hold different requests"
            self.problems.add(run.place, f"attention-dp {attention_dp} does not divide tp {tp}", fix, field="tp")

    def _expert_parallel(self, run: Run, degrees: dict[str, int | None]) -> int:
        switched = run.stated.get("expert_parallel", "").lower() in ("true", "1")
        return degrees["ep"] or ((degrees["tp"] or 1) if switched else 1)

    def _weights(self, run: Run, model: Named[ModelShape] | None) -> WeightDtype | None:
        """The user's word, the file's, or that of a checkpoint that is stored quantised."""
        stated = run.stated.get("weights", "")
        found = weight_format(stated)[1] if stated else None
        if stated and found is None and self.given.weights is None:
            self.problems.add(run.place, f"{stated!r:.30} weights are not known", "Give --weights", field="weights")
        if (
            self.given.weights
            and found
            and self.given.weights != found
            and weight_format(self.given.weights)[1] != found
        ):
            self._conflict(run, "weights", stated, self.given.weights)
        if self.given.weights or found or model is None:
            return self.given.weights or found
        named = weight_format(model.weights)[1] if model.weights else None
        stored = model.found.native_weight_dtype
        return named or (None if stored == WeightDtype.BF16 else WeightDtype(stored))

    def _kv(self, run: Run) -> KvDtype | None:
        stated = run.stated.get("kv", "")
        found = self.problems.attempt(lambda: kv_format(stated), run.place) if stated else None
        theirs = found[0] if found else None
        if self.given.kv and theirs and theirs != self.given.kv:
            self._conflict(run, "kv", stated, self.given.kv)
        if stated and theirs is None and self.given.kv is None:
            self._missing.setdefault("kv", run.place)
        return self.given.kv or theirs

    def _conflict(self, run: Run, name: str, stated: str, typed: str) -> None:
        option = f"--{name.replace('_', '-')}"
        fix = f"Leave {option} out to take the file's, or import this file on its own"
        self.problems.add(run.place, f"says {stated:.40}, {option} {typed:.40}", fix, field=name)


GIVEN_FIELDS = tuple(field.name for field in fields(Given))
