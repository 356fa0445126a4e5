"""GPUs, engines and models under the names that tables of speeds use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from planner.catalog.gpu import Gpu
from planner.catalog.lookup.lookup import Lookup
from planner.catalog.lookup.names import Named
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, Problem

ENGINES = {"tensorrtllm": "trtllm", "trtllm": "trtllm", "tensorrt": "trtllm", "trt": "trtllm", "vllm": "vllm"}
ENGINES |= {"sglang": "sglang", "sgl": "sglang"}
"""Engines by their names without what is no letter."""
KNOWN_ENGINES = frozenset({*ENGINES.values(), "trtllm-bench"})
STAND_IN = "vllm"
"""The engine that others are read as, with a note."""
_FORMAT = re.compile(
    r"[-_. ](?:nvfp4|mxfp4|mxfp8|fp4|fp8|int4|int8|awq|gptq|w\d+a\d+|bf16|fp16|quantized|dynamic|static|block|kv)+$",
    re.IGNORECASE,
)
_TUNING = re.compile(
    r"-(?:instruct|it|chat|base|hf|thinking|preview|pt|v?\d{4}|v0\.[123])(?=-|$)|^meta-|^nvidia-", re.IGNORECASE
)
_MEMORY = re.compile(r"(\d+)G(?![A-Za-z0-9])", re.IGNORECASE)
_FORM = re.compile(r"[- ]?(?:SXM\d?|OAM|NVL72|HGX)(?=[- ]|$)", re.IGNORECASE)


def engine_name(text: str) -> str:
    """``vllm``, ``sglang`` or ``trtllm`` for their spellings (``TensorRT-LLM``); anything else as it is written."""
    bare = re.sub(r"[^a-z]", "", text.casefold())
    return ENGINES.get(bare, text.strip().casefold())


@dataclass
class Names:
    """A `Lookup` that also reads the spellings of benchmark tables; remembers what it found."""

    lookup: Lookup
    _gpus: dict[str, Named[Gpu] | InputError] = field(default_factory=dict)
    _models: dict[str, Named[ModelShape] | InputError] = field(default_factory=dict)
    _shapes: dict[str, ModelShape] = field(default_factory=dict)

    def shape(self, model_id: str) -> ModelShape:
        """A model of the catalogue by its id.

        Raises
        ------
        InputError
            If its config cannot be used.
        """
        if model_id not in self._shapes:
            self._shapes[model_id] = self.lookup.catalog.model_shape(model_id)
        return self._shapes[model_id]

    def gpu(self, name: str) -> Named[Gpu]:
        """The GPU that is meant: by `Lookup.gpu`, else by the first of `_gpu_spellings` that it knows.

        A card that would only stand in for another (known by its memory alone) is refused: its bandwidth would be that
        of a different card. The A800, for one, is an A100 with a slower link, and is not read as one.

        Raises
        ------
        InputError
            If the catalogue has no such GPU.
        """
        if name not in self._gpus:
            self._gpus[name] = self._find_gpu(name)
        return _taken(self._gpus[name])

    def _find_gpu(self, name: str) -> Named[Gpu] | InputError:
        for text in (*_gpu_spellings(name), *self._extended(name)):
            try:
                found = self.lookup.gpu(text)
            except InputError:
                continue
            if not found.sibling:
                note = (f"GPU {name!r:.40} is read as {found.found.id}",) if text != name else ()
                return Named(found.found, notes=note)
        return InputError(Problem("row", f"GPU {name!r:.40} is not in the catalogue", field="gpu"))

    def _extended(self, name: str) -> Iterator[str]:
        """The one GPU whose id goes on after the name (``GH200`` is the GH200 of 96 GB)."""
        start = name.strip().replace("_", "-").casefold() + "-"
        known = [gpu for gpu in self.lookup.catalog.gpus if gpu.casefold().startswith(start)]
        if len(known) == 1:
            yield known[0]

    def model(self, name: str) -> Named[ModelShape]:
        """The model that is meant; ``weights`` is the format that its name states.

        By `Lookup.model`; else without the format that ends the name (``-FP4``); else the one whose name is the same
        apart from organisation, separators and tuning (``llama3-70b``); else one whose name goes on after it
        (``Mixtral-8x7B``), where all that do have the same sizes.

        Raises
        ------
        InputError
            If no rule finds it.
        """
        if name not in self._models:
            self._models[name] = self._find_model(name)
        return _taken(self._models[name])

    def _find_model(self, name: str) -> Named[ModelShape] | InputError:
        bare = name.strip().strip("/")
        stem = _FORMAT.sub("", bare)
        while stem != (shorter := _FORMAT.sub("", stem)):
            stem = shorter
        stated = bare[len(stem) :].strip("-_. ")
        for text in dict.fromkeys((bare, bare.replace("_", "-"), stem, stem.replace("_", "-"))):
            try:
                found = self.lookup.model(text)
            except InputError:
                continue
            weights = found.weights if text.startswith(bare[: len(stem) + 1]) and found.weights else ""
            return Named(found.found, weights or (stated if len(text) < len(bare) else ""), found.sibling, found.notes)
        known = self._squashed.get(_squash(stem)) or self._continued(stem)
        if not known:
            return InputError(Problem("row", f"model {name!r:.60} is not in the catalogue", field="model"))
        try:
            shape = self.shape(known)
        except InputError as error:
            return error
        return Named(shape, stated, sibling=True, notes=(f"model {name!r:.60} is read as {known}",))

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        catalog = self.lookup.catalog
        return (*catalog.model_ids(), *catalog.aliases)

    @cached_property
    def _squashed(self) -> dict[str, str]:
        """Ids by their squashed names, checkpoints whose names state no format first."""
        ordered = sorted(self._ids, key=lambda known: (bool(_FORMAT.search(known)), known.casefold()))
        names: dict[str, str] = {}
        for known in ordered:
            names.setdefault(_squash(_FORMAT.sub("", known)), known)
        return names

    def _continued(self, name: str) -> str:
        """A checkpoint whose name continues this one at a hyphen; empty where they differ in size or there is none."""
        start = name.rsplit("/", 1)[-1].replace("_", "-").casefold() + "-"
        known = sorted(
            (k for k in self._ids if k.rsplit("/", 1)[-1].casefold().startswith(start)),
            key=lambda k: (bool(_FORMAT.search(k)), len(k), k),
        )
        if not known or len(start) < len("x-1b-"):
            return ""
        sizes = {dimensions(self.shape(k)) for k in known}
        return known[0] if len(sizes) == 1 else ""


def dimensions(shape: ModelShape) -> tuple[object, ...]:
    """What two checkpoints of one architecture share, however they are stored and whatever their context."""
    cache = tuple(
        (g.kind, g.role, g.count, g.kv_heads, g.key_dim, g.value_dim, g.window_tokens) for g in shape.cache_layers
    )
    return (
        cache,
        shape.hidden_size,
        shape.num_layers,
        shape.attention_heads,
        shape.kv_heads,
        shape.intermediate_size,
        shape.num_experts,
        shape.experts_per_token,
        shape.moe_intermediate_size,
    )


def _gpu_spellings(name: str) -> Iterator[str]:
    """The name, with its memory in GB (``A100-80G``), without its form (``b200_sxm``), with or without ``RTX``."""
    plain = name.strip().replace("_", "-")
    sized = _MEMORY.sub(r"\1GB", plain)
    yield name
    for text in dict.fromkeys((plain, sized, _FORM.sub("", sized).strip(), plain.removeprefix("Tesla").strip(" -"))):
        yield text
        if re.match(r"(?:A[2-6]000|[2-5]0[5-9]0)\b", text, re.IGNORECASE):
            yield f"RTX {text}"
        if re.match(r"A100-PCIe$", text, re.IGNORECASE):
            yield "A100-80GB-PCIe"


def _squash(name: str) -> str:
    """Letters and digits of a name without organisation and tuning."""
    bare = name.rsplit("/", 1)[-1].replace("_", "-").casefold()
    while bare != (shorter := _TUNING.sub("", bare)):
        bare = shorter
    return re.sub(r"[^a-z0-9]", "", bare)


def _taken(outcome: Named | InputError) -> Named:  # type: ignore[type-arg]
    if isinstance(outcome, InputError):
        raise outcome
    return outcome
