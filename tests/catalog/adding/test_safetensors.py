"""Headers of safetensors files: exact bytes of good ones, and every kind of bad one refused without being believed."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.safetensors import BITS, checkpoint_bytes, read_header, read_index
from planner.errors import InputError
from tests.catalog.adding.checkpoints import header_of

ONE = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def file_of(header: bytes, data_bytes: int = 0) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(data_bytes)


def read(content: bytes, length: int | None = None) -> dict[str, int]:
    return dict(read_header(io.BytesIO(content), len(content) if length is None else length, "w.safetensors"))


def problem_of(content: bytes, length: int | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read(content, length)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_bytes_by_dtype_of_a_hand_made_file():
    """4 floats of 32 bits, 6 of 16, 10 of 8 and 4 of 4 bits: 16 + 12 + 10 + 2 bytes."""
    tensors = {"a": ("F32", [2, 2]), "b": ("BF16", [3, 2]), "c": ("F8_E4M3", [10]), "d": ("F4", [4])}
    header, size = header_of(tensors)
    assert size == 40
    assert read(file_of(header, size)) == {"F32": 16, "BF16": 12, "F8_E4M3": 10, "F4": 2}


def test_a_scalar_and_an_empty_tensor():
    header, size = header_of({"s": ("F32", []), "e": ("BF16", [0, 7])})
    assert read(file_of(header, size)) == {"F32": 4, "BF16": 0}


def test_no_tensor_is_read():
    """The data of a file may be of any size: only the header is read."""
    header, size = header_of({"w": ("BF16", [10**6, 10**6])})
    stream = io.BytesIO(file_of(header))
    assert dict(read_header(stream, 8 + len(header) + size, "w")) == {"BF16": 2 * 10**12}
    assert stream.tell() == 8 + len(header)


@given(st.lists(st.tuples(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 40), max_size=3)), max_size=8))
def test_the_bytes_of_a_file_are_those_of_its_tensors(shapes):
    tensors = {
        f"t{i}": (dtype, [8, *shape] if BITS[dtype] % 8 else list(shape)) for i, (dtype, shape) in enumerate(shapes)
    }
    header, size = header_of(tensors)
    assert sum(read(file_of(header, size)).values()) == size


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content):
    with contextlib.suppress(InputError):
        assert sum(read(content).values()) <= len(content)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "shorter than 8 bytes"),
        (b"\x10\0\0", "shorter than 8 bytes"),
        ((2**63).to_bytes(8, "little") + b"{}", "states a header of 9,223,372,036,854,775,808 bytes"),
        ((2**64 - 1).to_bytes(8, "little"), "safetensors reads 100,000,000 at most"),
        ((100_000_001).to_bytes(8, "little"), "safetensors reads 100,000,000 at most"),
        ((50).to_bytes(8, "little") + b"{}", "states a header of 50 bytes and has 10 in all"),
        (file_of(b"[]"), "holds a list"),
        (file_of(b"7"), "holds no object"),
        (file_of(b"\xff\xfe"), "is not JSON"),
        (file_of(b"[" * 100_000), "nested too deeply"),
        (file_of(b'{"a": {}, "a": {}}'), "the key 'a' occurs twice"),
        (file_of(json.dumps({"a": ONE}).encode(), 15), "describes 16 bytes of tensors and has 15"),
        (file_of(json.dumps({"a": ONE}).encode(), 17), "describes 16 bytes of tensors and has 17"),
        (file_of(json.dumps({"a": []}).encode()), "is no object"),
        (file_of(json.dumps({"a": {**ONE, "dtype": "F33"}}).encode(), 16), "no dtype of safetensors (got 'F33')"),
        (file_of(json.dumps({"a": {**ONE, "dtype": ["F32"]}}).encode(), 16), "no dtype"),
        (file_of(json.dumps({"a": {**ONE, "shape": [-2, -2]}}).encode(), 16), "no shape"),
        (file_of(json.dumps({"a": {**ONE, "shape": [2, 2.0]}}).encode(), 16), "no shape"),
        (file_of(json.dumps({"a": {**ONE, "shape": [True, 4]}}).encode(), 16), "no shape"),
        (file_of(json.dumps({"a": {**ONE, "shape": [2**62] * 65}}).encode(), 16), "no shape"),
        (file_of(json.dumps({"a": {**ONE, "shape": [2**40, 2**40]}}).encode(), 16), "not what shape and dtype take"),
        (file_of(json.dumps({"a": {**ONE, "shape": "22"}}).encode(), 16), "no shape"),
        (file_of(json.dumps({"a": {**ONE, "data_offsets": [0, 12]}}).encode(), 12), "not what shape and dtype take"),
        (file_of(json.dumps({"a": {**ONE, "data_offsets": [16, 0]}}).encode(), 16), "no range"),
        (file_of(json.dumps({"a": {**ONE, "data_offsets": [0]}}).encode(), 16), "no range"),
        (file_of(json.dumps({"a": {**ONE, "data_offsets": [4, 20]}}).encode(), 20), "overlap or leave gaps"),
        (file_of(json.dumps({"a": ONE, "b": ONE}).encode(), 32), "overlap or leave gaps"),
    ],
)
def test_hostile_headers_are_refused(content, words):
    assert words in problem_of(content)


def test_a_file_that_ends_inside_its_header():
    """Where the length of the file is not known before, as over a network."""
    header, _ = header_of({"a": ("F32", [2])})
    with pytest.raises(InputError, match="ends inside its header"):
        read_header(io.BytesIO(file_of(header)[:-3]), None, "w")


def test_files_add_up_with_the_largest_dtype_first():
    a, b = read_header(io.BytesIO(file_of(*header_of({"a": ("F32", [4])}))), None, "a"), {"BF16": 100, "F32": 4}
    found = checkpoint_bytes([a, type(a)(b)], "two files")
    assert (found.total_bytes, list(found.by_dtype.items())) == (120, [("BF16", 100), ("F32", 20)])


def test_an_index_names_files_and_total():
    text = json.dumps(
        {"metadata": {"total_size": 123.0}, "weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors"}}
    )
    index = read_index(text.encode(), "i")
    assert (index.files, index.total_bytes) == (("m-1.safetensors", "m-2.safetensors"), 123)
    assert read_index(b'{"weight_map": {"a": "m.safetensors"}}', "i").total_bytes is None


@pytest.mark.parametrize(
    ("index", "field"),
    [
        ({}, "weight_map"),
        ({"weight_map": []}, "weight_map"),
        ({"weight_map": {}}, "weight_map"),
        *(
            ({"weight_map": {"a": name}}, "weight_map")
            for name in (
                "../../etc/passwd", "/etc/x.safetensors", "..\\x.safetensors", "C:x.safetensors", ".x.safetensors",
                "a/b.safetensors", "x.bin", "x\n.safetensors", 7, None,
            )
        ),
        *(
            ({"weight_map": {"a": "m.safetensors"}, "metadata": {"total_size": size}}, "metadata.total_size")
            for size in (-1, 0, "12", 1.5, True, 2**63)
        ),
    ],
)  # fmt: skip
def test_hostile_indexes_are_refused(index, field):
    with pytest.raises(InputError) as caught:
        read_index(json.dumps(index).encode(), "i")
    assert [problem.field for problem in caught.value.problems] == [field]
