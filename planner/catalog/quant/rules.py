"""Which matrix a quantised checkpoint stores how: rules by module name, first match wins.

Names are compared below the decoder's root, since checkpoints and engines spell what is above differently
(``model.layers``, ``model.language_model.layers``, ``backbone.layers`` ...).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache

from planner.catalog.hf.matrices import Matrices
from planner.catalog.matrix import Matrix, Part, Stored

ROOTS = ("", "model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.", "transformer.")
"""What may stand before ``layers.0`` or ``lm_head`` in a module's name."""
_ROOT = re.compile(r"^(?:(?:model|language_model|backbone|transformer|thinker|text_model)\.)+")
_FOREIGN = re.compile(
    r"(?:^|\.)(?:visual|vision\w*|vit\w*|mtp|audio\w*|embed_vision|multi_modal_projector|mm_projector)\b"
)


def below_root(name: str) -> str:
    """A module's name without what stands before the decoder's layers."""
    return _ROOT.sub("", name)


@dataclass(frozen=True)
class Names:
    """Patterns of module names.

    Attributes
    ----------
    exact
        Whole names, below the root; a name of one expert stands for all of its layer.
    parts
        Text that occurs in the name.
    wildcards
        Shell patterns of the whole name.
    expressions
        Regular expressions that match from the name's beginning, whichever root it is spelled with.
    """

    exact: frozenset[str] = frozenset()
    parts: tuple[str, ...] = ()
    wildcards: tuple[str, ...] = ()
    expressions: tuple[re.Pattern[str], ...] = ()

    def match(self, name: str) -> bool:
        """Whether a name below the root is meant."""
        return (
            name in self.exact
            or self._has_part(name)
            or any(fnmatchcase(spelled, pattern) for pattern in self.wildcards for spelled in (name, f"model.{name}"))
            or any(pattern.match(root + name) for pattern in self.expressions for root in ROOTS)
        )

    def _has_part(self, name: str) -> bool:
        """A plain loop: half the time of ``any`` over hundreds of parts and ten thousands of names."""
        for part in self.parts:  # noqa: SIM110
            if part in name:
                return True
        return False


@dataclass(frozen=True)
class Rule:
    """How the matrices with these names are stored.

    Attributes
    ----------
    names
        ``None``: every matrix that a quantiser converts.
    stored
        ``None``: at the model's 16 bits.
    experts
        Only routed experts, or everything else; ``None``: both.
    outside
        The rule is for matrices of which no name matches.
    """

    names: Names | None
    stored: Stored | None
    experts: bool | None = None
    outside: bool = False


@dataclass(frozen=True)
class Rules:
    """A checkpoint's rules, in the order they are asked."""

    rules: tuple[Rule, ...] = field(default=())

    def stored(self, matrix: Matrix, layer: int | None) -> Stored | None:
        """How a matrix of a layer is stored."""
        expert = matrix.part is Part.EXPERTS
        names = module_names(matrix.module, matrix.fused, layer)
        for rule in self.rules:
            if rule.experts is not None and rule.experts is not expert:
                continue
            if rule.names is None:
                if matrix.linear:
                    return rule.stored
            elif any(rule.names.match(name) for name in names) is not rule.outside:
                return rule.stored
        return None


NO_RULES = Rules()
"""A checkpoint that no quantiser touched."""


@lru_cache(maxsize=65536)
def module_names(module: str, fused: str, layer: int | None) -> tuple[str, ...]:
    """Names that rules may call a matrix by: its own, its fused module's; for experts the first of them and the set."""
    own = {module.replace(".*.", ".0."), module.replace(".*.", "."), fused}
    prefix = "" if layer is None else f"layers.{layer}."
    return tuple(sorted(prefix + name for name in own if name))


def apply(rules: Rules, matrices: Matrices) -> Matrices:
    """The inventory with every matrix stored as its rule says, divided where layers differ."""
    return tuple(piece for matrix in matrices for piece in _pieces(rules, matrix)) if rules.rules else matrices


def _pieces(rules: Rules, matrix: Matrix) -> Iterable[Matrix]:
    if not (matrix.linear or matrix.part is Part.LM_HEAD):
        yield matrix
        return
    if not matrix.layers:
        yield replace(matrix, stored=rules.stored(matrix, None))
        return
    by_format: dict[Stored | None, list[int]] = {}
    for layer in matrix.layers:
        by_format.setdefault(rules.stored(matrix, layer), []).append(layer)
    for stored, layers in by_format.items():
        yield replace(matrix, layers=tuple(layers), stored=stored)


def names_below_root(names: Iterable[str]) -> tuple[str, ...]:
    """The names of the decoder's modules, below its root; those of towers and prediction layers are left out."""
    return tuple(below_root(name) for name in names if not _FOREIGN.search(name))
