"""The byte form: what was packed comes back, and nothing else is ever believed."""

from __future__ import annotations

import hashlib
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.summaries.envelope import VERSION, pack, unpack
from nile.summaries.errors import EnvelopeError

PREFIX = struct.Struct("<8sIIQ8x32s")
ARRAYS = {
    "counts": np.arange(-3, 4, dtype=np.int64).reshape(7, 1),
    "mask": np.array([True, False, True]),
    "ratio": np.array(0.5),
    "none": np.zeros((0, 4), np.float32),
}
SAMPLE = pack("sample", {"rows": 5, "name": "häuser", "flag": True, "nothing": None}, ARRAYS)
DTYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64]


def sealed(header: bytes, body: bytes, version: int = VERSION, magic: bytes = SAMPLE[:8]) -> bytes:
    """An envelope with a good checksum around anything: what one who means harm would write."""
    open_prefix = PREFIX.pack(magic, version, len(header), len(body), bytes(32))[:32]
    digest = hashlib.blake2b(open_prefix + header + body, digest_size=32).digest()
    return open_prefix + digest + header + body


def sealed_json(arrays: Any, body: bytes = b"", **others: Any) -> bytes:
    return sealed(json.dumps({"kind": "sample", "params": {}, "arrays": arrays, **others}).encode(), body)


def one(dtype: Any = "<i8", shape: Any = (1,), name: Any = "a") -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape}


def test_what_was_packed_comes_back() -> None:
    envelope = unpack(SAMPLE)
    assert envelope.kind == "sample"
    assert envelope.params == {"rows": 5, "name": "häuser", "flag": True, "nothing": None}
    assert list(envelope.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert envelope.arrays[name].dtype == array.dtype
        assert envelope.arrays[name].shape == array.shape
        assert np.array_equal(envelope.arrays[name], array)


@settings(deadline=None, max_examples=40)
@given(
    params=st.dictionaries(st.text(max_size=5), st.integers() | st.booleans() | st.text(max_size=5), max_size=3),
    shape=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from(DTYPES),
    fill=st.integers(0, 100),
)
def test_any_params_and_arrays_survive(params: dict[str, Any], shape: list[int], dtype: type, fill: int) -> None:
    array = np.full(shape, fill, dtype)
    envelope = unpack(pack("k", params, {"a": array, "b": array.T}))
    assert envelope.params == params
    assert np.array_equal(envelope.arrays["a"], array)
    assert np.array_equal(envelope.arrays["b"], array.T)
    assert envelope.arrays["a"].dtype == array.dtype


def test_equal_content_gives_equal_bytes_whatever_the_memory_looked_like() -> None:
    plain = np.arange(6, dtype=np.int64).reshape(2, 3)
    forms = (plain, np.asfortranarray(plain), plain.astype(">i8"), np.repeat(plain, 2, axis=1)[:, ::2])
    assert len({pack("k", {"b": 1, "a": 2}, {"x": form}) for form in forms}) == 1
    assert pack("k", {"a": 2, "b": 1}, {"x": plain}) == pack("k", {"b": 1, "a": 2}, {"x": plain})


def test_arrays_are_read_only_views_of_the_bytes() -> None:
    data = bytearray(SAMPLE)
    counts = unpack(data).arrays["counts"]
    assert np.shares_memory(counts, np.frombuffer(data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        counts[0] = 1


def test_bytes_may_come_as_any_buffer() -> None:
    for data in (SAMPLE, bytearray(SAMPLE), memoryview(SAMPLE)):
        assert unpack(data).params["rows"] == 5


def test_every_truncation_is_refused() -> None:
    for size in range(len(SAMPLE)):
        with pytest.raises(EnvelopeError, match=r"envelope: needed .*; got "):
            unpack(SAMPLE[:size])


def test_bytes_too_many_are_refused() -> None:
    with pytest.raises(EnvelopeError, match="cut short or written over"):
        unpack(SAMPLE + b"\0")


def test_every_flipped_bit_is_refused() -> None:
    for at in range(len(SAMPLE)):
        for bit in range(8):
            data = bytearray(SAMPLE)
            data[at] ^= 1 << bit
            with pytest.raises(EnvelopeError):
                unpack(data)


def test_the_checksum_is_looked_at_before_the_header() -> None:
    broken = bytearray(sealed(b"{" * 5_000, b""))
    with pytest.raises(EnvelopeError, match="JSON header"):
        unpack(broken)
    broken[-1] ^= 1
    with pytest.raises(EnvelopeError, match="checksum"):
        unpack(broken)


def test_a_newer_version_asks_for_an_upgrade_and_names_the_place() -> None:
    with pytest.raises(EnvelopeError, match=f"zone-3.nile: needed version {VERSION} or older; got version 9; upgrade"):
        unpack(sealed(b"{}", b"", version=9), where="zone-3.nile")
    with pytest.raises(EnvelopeError, match="version 0"):
        unpack(sealed(b"{}", b"", version=0))


def test_a_file_of_another_kind_is_refused_by_its_first_bytes() -> None:
    with pytest.raises(EnvelopeError, match="not a file of Nile"):
        unpack(b"PAR1" + bytes(100))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"kind": "k", "params": {}}',
        b'{"kind": "k", "params": {}, "arrays": [], "more": 1}',
        b'{"kind": 3, "params": {}, "arrays": []}',
        b'{"kind": "k", "params": [], "arrays": []}',
        b'{"kind": "k", "params": {}, "arrays": {}}',
        b'{"kind": "k", "params": {"x": NaN}, "arrays": []}',
        b'{"kind": "k", "params": {"x": -Infinity}, "arrays": []}',
        b'{"kind": "k", "params": {"x": 1, "x": 2}, "arrays": []}',
        b'{"kind": "k", "params": {"x": ' + b"9" * 5_000 + b'}, "arrays": []}',
        b'{"kind": "k", "params": {"x": ' + b"[" * 200_000 + b'}, "arrays": []}',
        b'{"kind": "k", "params": {}, "arrays": [' + b"3," * 5_000 + b"3]}",
        b" " * (1 << 20) + b'{"kind": "k", "params": {}, "arrays": []}',
    ],
    ids=lambda header: header[:24].decode("latin-1").strip() + f"~{len(header)}",
)
def test_a_hostile_header_is_refused_even_under_a_good_checksum(header: bytes) -> None:
    with pytest.raises(EnvelopeError, match="the writer was not Nile"):
        unpack(sealed(header, b""))


@pytest.mark.parametrize(
    "entries",
    [
        [3],
        [{"name": "a"}],
        [one(name=3)],
        [one(name=None)],
        [one("|O", (1,))],
        [one(">i8")],
        [one("<M8[ns]")],
        [one("<U4")],
        [one("float64")],
        [one(["<i8"])],
        [one(shape=8)],
        [one(shape=(-1,))],
        [one(shape=(1.0,))],
        [one(shape=(True,))],
        [one(shape=("1",))],
        [one(shape=(1,) * 9)],
        [one(shape=(2**62, 2**62, 2**62))],
        [one(shape=(2**61,))],
        [one(shape=(0, 2**62))],
        [one(shape=(2**64,))],
        [one(shape=(2,))],
        [],
        [one(), one()],
        [one(), one(name="b")],
        [one("|b1", (8,))],
    ],
    ids=lambda entries: json.dumps(entries)[:70],
)
def test_an_array_that_is_not_in_the_bytes_is_refused_without_allocating(entries: Any) -> None:
    data = sealed_json(entries, bytes([2]) * 8)
    tracemalloc.start()
    try:
        with pytest.raises(EnvelopeError, match="the writer was not Nile"):
            unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_padded_array_and_a_scalar_are_read() -> None:
    envelope = unpack(sealed_json([one("|u1", (3,)), one("<f8", (), "b")], bytes(16)))
    assert envelope.arrays["a"].tolist() == [0, 0, 0]
    assert envelope.arrays["b"].shape == ()


@pytest.mark.parametrize(
    ("params", "arrays"),
    [
        ({"x": float("nan")}, {}),
        ({"x": object()}, {}),
        ({"x": np.int64(3)}, {}),
        ({}, {"a": np.array(["text"])}),
        ({}, {"a": np.array([None])}),
        ({}, {"a": np.zeros(2, "M8[ns]")}),
        ({}, {"a": np.zeros(2, np.complex128)}),
        ({}, {"a": np.zeros((1,) * 9)}),
        ({"x": "y" * (1 << 20)}, {}),
    ],
    ids=["NaN", "object", "numpy scalar", "text", "objects", "datetime", "complex", "9 dimensions", "bulk"],
)
def test_what_has_no_byte_form_is_refused_when_packing(params: Any, arrays: Any) -> None:
    with pytest.raises(EnvelopeError, match=r"packing 'k': .*; got "):
        pack("k", params, arrays)


def test_a_reader_asks_for_what_it_needs_and_is_told_what_came() -> None:
    envelope = unpack(SAMPLE, where="here")
    assert envelope.integer("rows", 1, 5) == 5
    assert envelope.flag("flag") is True
    assert envelope.array("counts", "<i8", (None, 1)).shape == (7, 1)
    for ask, message in (
        (lambda: envelope.integer("rows", 1, 4), "here: parameter 'rows' must be an integer from 1 to 4; got 5"),
        (lambda: envelope.integer("flag", 0, 1), "got True"),
        (lambda: envelope.integer("missing", 0, 1), "got None"),
        (lambda: envelope.flag("rows"), "must be true or false; got 5"),
        (lambda: envelope.array("counts", "<i4", (7, 1)), "must be <i4 of shape"),
        (lambda: envelope.array("counts", "<i8", (7,)), "got int64 of shape"),
        (lambda: envelope.array("counts", "<i8", (6, 1)), "got int64 of shape"),
        (lambda: envelope.array("missing", "<i8", (6, 1)), "no such array"),
    ):
        with pytest.raises(EnvelopeError, match=message):
            ask()  # type: ignore[no-untyped-call]
