"""How many bytes a checkpoint's weights take, from the headers of its files; no tensor is read.

A file starts with the length of its header (8 bytes, little endian); the header is a JSON object of tensors, each with
dtype, shape and its range in the rest of the file. Source: safetensors 0.8, ``safetensors/src/tensor.rs``
(``read_metadata``, ``Metadata::validate``, ``Dtype::bitsize``, ``MAX_HEADER_SIZE``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from planner.catalog.hf.fields import is_whole
from planner.catalog.untrusted_json import object_of
from planner.errors import InputError, Problem

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000
"""What safetensors itself reads at most."""
METADATA = "__metadata__"
MOST_DIMENSIONS = 64
"""Of a tensor: PyTorch's own limit."""
FIRST_AND_END = 2
MOST = 2**63
"""Above every size and offset that a file can have."""
CUT_OFF = "The file is cut off or damaged: download it again"
BITS: Mapping[str, int] = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of an element."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, most: int, /) -> bytes:
        """So many bytes, or all that are left."""


@dataclass(frozen=True)
class CheckpointBytes:
    """What the files of a checkpoint hold.

    Attributes
    ----------
    total_bytes
        Of all tensors.
    by_dtype
        The same by dtype, the largest first; empty where only an index was read.
    source
        What was read.
    """

    total_bytes: int
    by_dtype: Mapping[str, int]
    source: str


def read_header(file: Readable, file_bytes: int | None, where: str) -> Counter[str]:
    """Bytes of the tensors of one file by dtype.

    Parameters
    ----------
    file
        Read from its start to the end of its header.
    file_bytes
        Length of the whole file, which the tensors must fill; ``None`` where it is unknown.
    where
        The file's name, for problems.

    Raises
    ------
    InputError
        If the header is longer than the file or than safetensors reads, no JSON, or does not describe the file.
    """
    start = file.read(LENGTH_BYTES)
    if len(start) < LENGTH_BYTES:
        raise InputError(Problem(where, "is shorter than 8 bytes", CUT_OFF))
    length = int.from_bytes(start, "little")
    if length > MOST_HEADER_BYTES:
        message = f"states a header of {length:,} bytes; safetensors reads {MOST_HEADER_BYTES:,} at most"
        raise InputError(Problem(where, message, "Give a file in the safetensors format"))
    if file_bytes is not None and LENGTH_BYTES + length > file_bytes:
        raise InputError(Problem(where, f"states a header of {length:,} bytes and has {file_bytes:,} in all", CUT_OFF))
    text = file.read(length)
    if len(text) < length:
        raise InputError(Problem(where, "ends inside its header", CUT_OFF))
    header = object_of(text, f"{where}, header", most_bytes=MOST_HEADER_BYTES)
    sizes = _sizes(header, where)
    data_bytes = sizes.total()
    if file_bytes is not None and LENGTH_BYTES + length + data_bytes != file_bytes:
        there = file_bytes - LENGTH_BYTES - length
        raise InputError(Problem(where, f"describes {data_bytes:,} bytes of tensors and has {there:,}", CUT_OFF))
    return sizes


def _sizes(header: Mapping[str, Any], where: str) -> Counter[str]:
    """Bytes by dtype of tensors that lie one after the other, without gaps."""
    ranges: list[tuple[int, int]] = [(0, 0)]
    sizes: Counter[str] = Counter()
    for name, tensor in header.items():
        if name == METADATA:
            continue
        dtype, first, end = _tensor(name, tensor, where)
        ranges.append((first, end))
        sizes[dtype] += end - first
    ranges.sort()
    if any(one[1] != other[0] for one, other in pairwise(ranges)):
        raise InputError(Problem(where, "its tensors overlap or leave gaps", CUT_OFF))
    return sizes


def _tensor(name: str, tensor: object, where: str) -> tuple[str, int, int]:
    """Dtype and range of a tensor: ``end - first = product of the shape x bits / 8``."""
    place = f"{where}, tensor {name!r:.80}"
    if not isinstance(tensor, Mapping):
        raise InputError(Problem(place, "is no object"))
    dtype, shape, offsets = tensor.get("dtype"), tensor.get("shape"), tensor.get("data_offsets")
    bits = BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise InputError(Problem(place, f"has no dtype of safetensors (got {dtype!r:.40})", field="dtype"))
    sizes, ends = _counts(shape), _counts(offsets)
    if sizes is None:
        raise InputError(Problem(place, "has no shape of whole numbers", field="shape"))
    if ends is None or len(ends) != FIRST_AND_END or ends[0] > ends[1]:
        raise InputError(Problem(place, "has no range of bytes", field="data_offsets"))
    first, end = ends
    if math.prod(sizes) * bits != 8 * (end - first):
        raise InputError(Problem(place, "its range is not what shape and dtype take", CUT_OFF, field="data_offsets"))
    return str(dtype), first, end


def _counts(values: object) -> list[int] | None:
    """A short list of whole numbers, none negative."""
    if not isinstance(values, list) or len(values) > MOST_DIMENSIONS:
        return None
    whole = all(isinstance(value, int) and is_whole(value) and 0 <= value < MOST for value in values)
    return values if whole else None


def checkpoint_bytes(sizes: Sequence[Counter[str]], source: str) -> CheckpointBytes:
    """The files of a checkpoint together."""
    found: Counter[str] = Counter()
    for each in sizes:
        found.update(each)
    return CheckpointBytes(found.total(), dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))), source)


@dataclass(frozen=True)
class WeightIndex:
    """``model.safetensors.index.json``: the files of a checkpoint and the bytes of their tensors."""

    files: tuple[str, ...]
    total_bytes: int | None
    """As the index states it."""


def read_index(text: bytes, where: str) -> WeightIndex:
    """Files and total size of an index.

    Raises
    ------
    InputError
        If it is no index, or names a file outside its own folder.
    """
    index = object_of(text, where)
    named = index.get("weight_map")
    if not isinstance(named, Mapping) or not named:
        raise InputError(
            Problem(where, "maps no tensors to files", "Give the index of a checkpoint", field="weight_map")
        )
    files = sorted({str(name) for name in named.values()})
    for name in files:
        if not _plain(name):
            fix = "An index names files beside it only"
            raise InputError(Problem(where, f"names {name!r:.80}", fix, field="weight_map"))
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if total is not None and not (is_whole(total) and 0 < total < MOST):
        message = f"is no number of bytes (got {total!r:.40})"
        raise InputError(Problem(where, message, field="metadata.total_size"))
    return WeightIndex(tuple(files), None if total is None else int(total))


def _plain(name: str) -> bool:
    """Whether it is the name of a safetensors file, not a path."""
    return name.endswith(".safetensors") and name.isprintable() and not set(name) & set("/\\:") and name[0] != "."
