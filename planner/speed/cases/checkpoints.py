"""Which checkpoint and which formats a row was served with.

A table names a model and a precision (``deepseek-ai/DeepSeek-R1`` at ``fp4``), which need not be one checkpoint. The
rules, in this order:

1. A format that the model's name states wins over the column, as the checkpoint's own name is more exact.
2. Without a precision the checkpoint is loaded as stored.
3. Stored in the format asked for, or in another of as many bits (``fp4`` of gpt-oss is its mxfp4, ``int4`` of Kimi-K2.5
   its packed int4): as stored.
4. Else a checkpoint of the catalogue with the same sizes, the same family name and this format, the nearest name first
   (DeepSeek-R1 at fp4 is DeepSeek-V3.1-NVFP4; GLM-5 at fp8 is GLM-5-FP8).
5. Else a 16-bit checkpoint is converted when it is loaded.
6. Else, and for 16 bits asked of a quantised checkpoint: as stored, with a note.

Load points and the command line speak the planner's own terms, where a 16-bit checkpoint with another format is that
checkpoint converted: rule 5 comes before rule 4 there (``exact``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from planner.catalog.engine import EngineFacts
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, Problem
from planner.memory.kv import auto_kv
from planner.memory.size import stored_dtype
from planner.memory.starts.case_texts import kv_format, weight_format
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.cases.names import Names, dimensions

BITS = {
    WeightDtype.BF16: 16,
    WeightDtype.FP8: 8,
    WeightDtype.MXFP8: 8,
    WeightDtype.INT8: 8,
    WeightDtype.INT8_GPTQ: 8,
    WeightDtype.W8A16: 8,
    WeightDtype.BNB_INT8: 8,
    WeightDtype.INT4_AWQ: 4,
    WeightDtype.INT4_GPTQ: 4,
    WeightDtype.MXFP4: 4,
    WeightDtype.NVFP4: 4,
    WeightDtype.W4A16: 4,
    WeightDtype.BNB_4BIT: 4,
}
FORMAT_IN_NAME = {
    WeightDtype.FP8: re.compile(r"fp8", re.IGNORECASE),
    WeightDtype.NVFP4: re.compile(r"nvfp4", re.IGNORECASE),
    WeightDtype.INT8: re.compile(r"w8a8|int8", re.IGNORECASE),
    WeightDtype.INT4_GPTQ: re.compile(r"gptq|int4|w4a16", re.IGNORECASE),
    WeightDtype.INT4_AWQ: re.compile(r"awq", re.IGNORECASE),
}
"""Words in a checkpoint's name that say how it is stored: only such checkpoints are looked at by rule 4."""
UNSTATED = frozenset({"", "auto", "default", "native", "unknown", "?", "-"})
"""Words for the format that the checkpoint is stored in."""
INT4 = re.compile(r"^int4(?:[_-]?wo)?$|^w4$", re.IGNORECASE)


@dataclass(frozen=True)
class Stored:
    """A checkpoint and the format that it is served in."""

    shape: ModelShape
    weights: WeightDtype
    notes: tuple[str, ...] = ()


@dataclass
class Checkpoints:
    """Finds the checkpoint of a model at a precision; remembers what it found."""

    names: Names
    _found: dict[tuple[str, str, bool], Stored | InputError] = field(default_factory=dict)

    def find(self, model: str, precision: str, *, exact: bool = False) -> Stored:
        """The checkpoint, by the rules of the module.

        Raises
        ------
        InputError
            If the model is not in the catalogue, or its bytes or the format are not modelled.
        """
        key = (model, precision, exact)
        if key not in self._found:
            try:
                self._found[key] = self._find(model, precision, exact)
            except InputError as error:
                self._found[key] = error
        outcome = self._found[key]
        if isinstance(outcome, InputError):
            raise outcome
        return outcome

    def _find(self, model: str, precision: str, exact: bool) -> Stored:
        named = self.names.model(model)
        shape, notes = named.found, named.notes
        wanted = asked_format(named.weights) or asked_format(precision)
        native = None if shape.native_weight_dtype.startswith("unsupported") else stored_dtype(shape)
        if wanted is None or wanted is native:
            return Stored(shape, stored_dtype(shape), notes)
        if native is not None and native is not WeightDtype.BF16 and BITS.get(native) == BITS.get(wanted, 0):
            return Stored(shape, native, notes)
        twin = None if exact and native is WeightDtype.BF16 else self._twin(shape, wanted)
        if twin is not None:
            return Stored(twin, stored_dtype(twin), (*notes, f"{shape.id} as {wanted} is read as {twin.id}"))
        if native is WeightDtype.BF16:
            return Stored(shape, wanted, (*notes, f"{shape.id} converted to {wanted}"))
        stored = stored_dtype(shape)
        return Stored(shape, stored, (*notes, f"{shape.id} is stored as {stored}, not as {wanted}: taken as stored"))

    def _twin(self, shape: ModelShape, wanted: WeightDtype) -> ModelShape | None:
        """The checkpoint of rule 4."""
        pattern = FORMAT_IN_NAME.get(wanted)
        if pattern is None:
            return None
        catalog = self.names.lookup.catalog
        family = _family_word(shape.id)
        ids = [known for known in catalog.model_ids() if _family_word(known) == family and pattern.search(known)]
        twins = [twin for known in ids if dimensions(twin := self.names.shape(known)) == dimensions(shape)]
        twins = [twin for twin in twins if twin.native_weight_dtype == wanted]
        return max(twins, key=lambda twin: (_likeness(twin.id, shape.id), twin.id), default=None)


def asked_format(text: str) -> WeightDtype | None:
    """The weight format that a cell names; ``None`` where it names none.

    The planner's own names are those formats; ``fp4`` is NVFP4, ``fp8_block`` FP8, ``int4_wo`` packed int4 (weights
    only), ``fp16`` 16 bits.

    Raises
    ------
    InputError
        If no checkpoint is served in that format (fp32).
    """
    word = text.strip().casefold()
    if word in UNSTATED:
        return None
    if word in list(WeightDtype):
        return WeightDtype(word)
    if INT4.match(word):
        return WeightDtype.W4A16
    stated, dtype = weight_format(text)
    if not stated or dtype is None:
        raise InputError(Problem("row", f"weight format {text!r:.40} is not modelled", field="precision"))
    return dtype


def kv_dtype(text: str, engine: str, checkpoint: Stored, facts: EngineFacts) -> tuple[KvDtype, str]:
    """The format of the KV cache, and a note where it is a guess.

    As stated. Else, for TensorRT-LLM, FP8 with quantised weights: the checkpoints that it is benchmarked with are
    quantised by ModelOpt, which quantises the cache with them (tensorrt_llm ``QuantConfig.kv_cache_quant_algo``). Else
    what ``auto`` of vLLM and SGLang does: 16 bits unless the checkpoint declares FP8 and the version follows.

    Raises
    ------
    InputError
        If the format stated is none that is known.
    """
    asked, _ = kv_format(text)
    if asked is not None:
        return asked, ""
    if engine.startswith("trtllm"):
        found = KvDtype.BF16 if BITS.get(checkpoint.weights, 16) == 16 else KvDtype.FP8
    else:
        found = auto_kv(checkpoint.shape, facts)
    return found, f"KV cache assumed {found}"


def _family_word(model_id: str) -> str:
    """The first word of letters of a checkpoint's name, without Meta's prefix (``deepseek``, ``qwen``)."""
    name = model_id.rsplit("/", 1)[-1].casefold().removeprefix("meta-").removeprefix("nvidia-")
    found = re.match(r"[a-z]+", name)
    return found.group() if found else name


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one.rsplit("/", 1)[-1].casefold(), other.rsplit("/", 1)[-1].casefold()).ratio()
