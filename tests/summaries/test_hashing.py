"""Keys of every column type: one hash, one code, one way back."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_hash import mixed

from nile.summaries import hash_kernels
from nile.summaries.errors import ConfigError, KeyTypeError
from nile.summaries.hashing import KeyHasher, KeyTable, hash_keys
from nile.summaries.key_types import key_family

Array = np.ndarray[Any, Any]
MASK = 2**64 - 1
law = settings(deadline=None, max_examples=40)

DAY = dt.date(2011, 12, 9)
NOON = dt.datetime(2011, 12, 9, 12)
NUMBERS = [3, None, 1, 3, 0, None, 127]
TEXTS = ["b", None, "", "b", "äß", "a" * 40]
BLOBS = [b"xy", None, b"\0\0", b"xy"]
COLUMNS: dict[str, pa.Array] = {
    **{
        str(kind): pa.array(NUMBERS, kind)
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float32(), pa.float64()),
            *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")),
            pa.timestamp("us", "Europe/Paris"),
            *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
            *(pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns")),
            *(pa.date32(),),
        )
    },
    "float16": pa.array(np.array([1.5, 0.0, 1.5], np.float16)),
    "boolean": pa.array([True, None, False, True]),
    "date64": pa.array([DAY, None, dt.date(9999, 12, 31), DAY, dt.date(1, 1, 1)], pa.date64()),
    "far date32": pa.array([dt.date(9999, 12, 31), dt.date(1, 1, 1)], pa.date32()),
    **{str(kind): pa.array(TEXTS, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{str(kind): pa.array(BLOBS, kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2))},
    **{
        str(kind): pa.array([Decimal("1.25"), None, Decimal("-7.00"), Decimal("1.25")], kind)
        for kind in (pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(30, 2), pa.decimal256(60, 2))
    },
    "null": pa.nulls(3),
    "dictionary of text": pa.array(TEXTS).dictionary_encode(),
    "dictionary of int": pa.array(NUMBERS).dictionary_encode(),
    "dictionary of timestamp": pa.array([NOON, None, NOON]).dictionary_encode(),
    "dictionary with a null": pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), pa.array([None, "x"])),
    "dictionary with repeats": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["x", "x", "y"])),
    "dictionary of nothing": pa.DictionaryArray.from_arrays(pa.nulls(2, pa.int32()), pa.nulls(0, pa.string())),
    "no text": pa.array([], pa.string()),
    "no numbers": pa.array([], pa.int64()),
    "only nulls": pa.nulls(2, pa.string()),
}
every_column = pytest.mark.parametrize("name", sorted(COLUMNS))


def codes_twin(values: list[Any], known: dict[Any, int]) -> list[int]:
    """-1 for null, else the place of the value among the distinct values in order of first appearance."""
    return [-1 if value is None else known.setdefault(value, len(known)) for value in values]


def plain(column: pa.Array) -> list[Any]:
    """The values as Python ones that compare like keys; Python's time would lose the nanoseconds."""
    if pa.types.is_time(column.type):
        column = column.cast(pa.time64("ns")).cast(pa.int64())
    return [value.as_py() for value in column]


@pytest.mark.parametrize("seed", [0, 1, 0x7F4A7C15, 0xFFFFFFFF])
@pytest.mark.parametrize("behind", [0, 1, 15, 16, 100])
def test_text_hashes_are_those_of_mmh3_at_every_length_and_place(seed: int, behind: int) -> None:
    data = np.random.default_rng(2).integers(0, 256, 65 * 32 + behind, dtype=np.uint8)
    offsets = np.concatenate([[0], np.cumsum(np.arange(65))]).astype(np.int64)
    out = np.empty(65, np.uint64)
    hash_kernels.murmur_all(data, offsets, np.uint64(seed), out)
    raw = data.tobytes()
    expected = [mmh3.hash64(raw[offsets[i] : offsets[i + 1]], seed, signed=False)[0] for i in range(65)]
    assert expected == out.tolist()
    last = np.empty(65, np.uint64)  # each at the very end, but for what is behind it
    ends = np.full(2, 65 * 32)
    for length in range(65):
        ends[0] = ends[1] - length
        hash_kernels.murmur_all(data, ends, np.uint64(seed), last[length : length + 1])
    expected = [mmh3.hash64(raw[65 * 32 - length : 65 * 32], seed, signed=False)[0] for length in range(65)]
    assert expected == last.tolist()


def test_the_hash_of_whole_bytes_is_that_of_mmh3() -> None:
    data = np.random.default_rng(5).integers(0, 256, 4_099, dtype=np.uint8)
    out = np.empty(2, np.uint64)
    for length in (*range(49), 4_096, 4_099):
        hash_kernels.murmur_whole(data[:length], out)
        assert tuple(out.tolist()) == mmh3.hash64(data[:length].tobytes(), 0, signed=False)


@law
@given(texts=st.lists(st.text(max_size=40) | st.none(), max_size=20))
def test_a_text_column_hashes_its_utf8_bytes_like_mmh3(texts: list[str | None]) -> None:
    seed = KeyHasher().seed & 0xFFFFFFFF
    expected = [0 if text is None else mmh3.hash64(text.encode(), seed, signed=False)[0] for text in texts]
    assert expected == hash_keys(pa.array(texts, pa.string())).tolist()


@law
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), seed=st.integers(0, MASK))
def test_numbers_are_mixed_like_the_twin_says(values: list[int], seed: int) -> None:
    assert KeyHasher(seed).words(np.array(values, np.int64)).tolist() == [mixed(value, seed) for value in values]


@every_column
def test_equal_keys_have_equal_codes_and_hashes_and_unequal_ones_do_not(name: str) -> None:
    column = COLUMNS[name]
    encoded = KeyTable().encode(column)
    expected = codes_twin(plain(column), {})
    assert encoded.codes.dtype == np.int32
    assert encoded.hashes.dtype == np.uint64
    assert expected == encoded.codes.tolist()
    assert np.array_equal(encoded.hashes == 0, encoded.codes == -1)
    by_code = {(int(c), int(h)) for c, h in zip(encoded.codes, encoded.hashes, strict=True)}
    assert len(by_code) == len({c for c, _ in by_code}) == len({h for _, h in by_code})
    assert np.array_equal(hash_keys(column), encoded.hashes)


@every_column
def test_codes_decode_to_the_column_and_its_type(name: str) -> None:
    column = COLUMNS[name]
    table = KeyTable()
    back = table.decode(table.encode(column).codes)
    assert plain(column) == plain(back)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    assert back.type == views.get(kind, kind)


@every_column
def test_a_slice_and_chunks_are_read_like_a_fresh_column(name: str) -> None:
    column = COLUMNS[name]
    whole = KeyTable().encode(column)
    middle = column.slice(1, max(len(column) - 2, 0))
    assert np.array_equal(hash_keys(middle), whole.hashes[1 : 1 + len(middle)])
    chunked = pa.chunked_array([column.slice(0, 1), column.slice(1)], column.type)
    encoded = KeyTable().encode(chunked)
    assert np.array_equal(encoded.codes, whole.codes)
    assert np.array_equal(encoded.hashes, whole.hashes)


@every_column
def test_one_batch_or_many_give_the_same_codes(name: str) -> None:
    column = COLUMNS[name]
    table = KeyTable()
    parts = [table.encode(column.slice(at, 1)).codes.tolist() for at in range(len(column))]
    assert [code for part in parts for code in part] == KeyTable().encode(column).codes.tolist()


@pytest.mark.parametrize(
    "columns",
    [
        [pa.array([5, 7], kind) for kind in (pa.int8(), pa.uint16(), pa.int64())],
        [pa.array([0.5, 7.0], kind) for kind in (pa.float32(), pa.float64())],
        [pa.array([5, 7], pa.timestamp("s")), pa.array([5 * 10**9, 7 * 10**9], pa.timestamp("ns"))],
        [pa.array([5, 7], pa.timestamp("s", "UTC")), pa.array([5, 7], pa.timestamp("s", "Asia/Tokyo"))],
        [pa.array([5, 7], pa.time32("s")), pa.array([5_000, 7_000], pa.time32("ms"))],
        [pa.array([5, 7], pa.duration("s")), pa.array([5_000, 7_000], pa.duration("ms"))],
        [pa.array([DAY, dt.date(9999, 1, 1)], kind) for kind in (pa.date32(), pa.date64())],
        [pa.array(["a", "b"], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())],
        [pa.array(["a", "b"]), pa.array(["a", "b"]).dictionary_encode()],
        [pa.array([b"aa", b"b "], kind) for kind in (pa.binary(2), pa.binary(), pa.large_binary())],
        [pa.array([Decimal("1.5"), Decimal("2.5")], kind) for kind in (pa.decimal128(3, 1), pa.decimal256(50, 1))],
    ],
    ids=lambda columns: " and ".join(str(column.type) for column in columns),
)
def test_keys_of_one_family_meet_across_widths_units_and_layouts(columns: list[pa.Array]) -> None:
    table = KeyTable()
    first = table.encode(columns[0])
    for column in columns[1:]:
        other = table.encode(column)
        assert np.array_equal(first.codes, other.codes)
        assert np.array_equal(first.hashes, other.hashes)
    assert table.known == 2
    for expected, got in zip(plain(columns[0]), plain(table.values()), strict=True):
        assert expected == got


def test_a_narrow_column_does_not_clip_the_keys_of_a_wider_one() -> None:
    for narrow, wide in (
        (pa.array([1], pa.int8()), pa.array([300], pa.int64())),
        (pa.array([1.0], pa.float32()), pa.array([0.1], pa.float64())),
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("ns"))),
        (pa.array([b"ab"], pa.binary(2)), pa.array([b"abc"], pa.binary())),
        (pa.array([Decimal("1.5")], pa.decimal128(2, 1)), pa.array([Decimal("123456.5")], pa.decimal128(9, 1))),
    ):
        table = KeyTable()
        table.encode(narrow)
        assert plain(table.decode(table.encode(wide).codes)) == plain(wide)


def test_minus_zero_is_zero_and_every_nan_is_one_key() -> None:
    quiet = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    encoded = KeyTable().encode(pa.array(np.concatenate([[0.0, -0.0], quiet, [np.inf, -np.inf]])))
    assert encoded.codes.tolist() == [0, 0, 1, 1, 1, 2, 3]
    assert len(set(encoded.hashes.tolist())) == 4


def test_nan_is_not_null() -> None:
    encoded = KeyTable().encode(pa.array([np.nan, None, 0.0]))
    assert encoded.codes.tolist() == [0, -1, 1]


def test_text_is_compared_by_bytes_without_normalising() -> None:
    encoded = KeyTable().encode(pa.array(["é", "e\u0301", "É", "a", "a ", "a\0"]))
    assert encoded.codes.tolist() == [0, 1, 2, 3, 4, 5]


SCRIPT = """
import pyarrow as pa
from nile.summaries.hashing import hash_keys
for column in (pa.array([1, -1, 2**40]), pa.array(["a", "", "20685"]), pa.array([0.5, -0.0])):
    print(*hash_keys(column).tolist())
"""


def test_hashes_are_the_same_in_every_process() -> None:
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = "".join(
        " ".join(map(str, hash_keys(column).tolist())) + "\n"
        for column in (pa.array([1, -1, 2**40]), pa.array(["a", "", "20685"]), pa.array([0.5, -0.0]))
    )
    assert there == here
    assert hash_keys(pa.array([1])).item() == mixed(1, KeyHasher().seed)


@pytest.mark.parametrize("name", ["int64", "double", "string", "binary", "dictionary of text", "decimal128(30, 2)"])
def test_keys_whose_hashes_collide_stay_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyHasher, "words", lambda _, values: np.full(len(values), 7, np.uint64))
    monkeypatch.setattr(KeyHasher, "strings", lambda _, __, offsets: np.full(len(offsets) - 1, 7, np.uint64))
    column = COLUMNS[name]
    table = KeyTable()
    encoded = table.encode(column)
    assert set(encoded.hashes.tolist()) <= {0, 7}
    assert codes_twin(plain(column), {}) == encoded.codes.tolist()
    assert plain(column) == plain(table.decode(encoded.codes))


def test_colliding_keys_stay_apart_while_the_table_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyHasher, "words", lambda _, values: np.full(len(values), 2**64 - 1, np.uint64))
    table = KeyTable()
    assert table.encode(pa.array(range(1_500))).codes.tolist() == list(range(1_500))
    assert table.encode(pa.array(range(1_500))).codes.tolist() == list(range(1_500))


def test_a_keyed_hasher_needs_its_secret() -> None:
    secret, other = b"s" * 16, b"t" * 64
    numbers, texts = pa.array([1, 2, None]), pa.array(["a", "bc", None])
    for column, raw in ((numbers, (1).to_bytes(8, "little")), (texts, b"a")):
        keyed = hash_keys(column, KeyHasher.keyed(secret))
        assert np.array_equal(keyed, hash_keys(column, KeyHasher.keyed(secret)))
        assert keyed[2] == 0
        assert not np.any(keyed[:2] == hash_keys(column)[:2])
        assert not np.any(keyed[:2] == hash_keys(column, KeyHasher.keyed(other))[:2])
        digest = hashlib.blake2b(raw, digest_size=8, key=secret).digest()
        assert keyed[0] == int.from_bytes(digest, "little")
    assert KeyHasher.keyed() != KeyHasher.keyed()
    table = KeyTable(KeyHasher.keyed(secret))
    assert plain(table.decode(table.encode(texts).codes)) == plain(texts)


@pytest.mark.parametrize("secret", [b"", b"short", b"x" * 65])
def test_a_secret_of_the_wrong_length_is_refused(secret: bytes) -> None:
    with pytest.raises(ConfigError, match=f"16 to 64 bytes; got {len(secret)}"):
        KeyHasher.keyed(secret)


def test_the_table_grows_with_distinct_keys_only() -> None:
    table = KeyTable()
    numbers = np.arange(20_000, dtype=np.int64) * 2**40
    codes = table.encode(pa.array(numbers)).codes
    assert codes.tolist() == list(range(20_000))
    held = table.nbytes
    for _ in range(3):
        assert np.array_equal(table.encode(pa.array(numbers[::-1])).codes, codes[::-1])
    assert (table.known, table.nbytes) == (20_000, held)
    assert np.array_equal(table.hashes(), KeyHasher().words(numbers))
    assert held <= 28 * 2 * 2 * 20_000  # 28 bytes per key, in a table at most half full that doubles


def test_text_grows_the_arena_even_by_one_key_larger_than_it() -> None:
    texts = [f"item {i}" for i in range(3_000)] + ["x" * 50_000, "", "y" * 100_000] + ["item 7"]
    table = KeyTable()
    codes = table.encode(pa.array(texts)).codes
    assert codes_twin(texts, {}) == codes.tolist()
    assert plain(table.decode(codes)) == texts
    assert np.array_equal(table.hashes(), hash_keys(pa.array(list(dict.fromkeys(texts)))))


any_key_column = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=40).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.none() | st.integers(0, MASK), max_size=20).map(lambda v: pa.array(v, pa.uint64())),
    st.lists(st.none() | st.floats(allow_nan=False), max_size=40).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | st.text(max_size=20), max_size=40).map(lambda v: pa.array(v, pa.string())),
    st.lists(st.none() | st.binary(max_size=20), max_size=40).map(lambda v: pa.array(v, pa.binary())),
    st.lists(st.none() | st.dates(), max_size=20).map(lambda v: pa.array(v, pa.date32())),
    st.lists(st.none() | st.decimals(-(10**6), 10**6, places=3), max_size=20).map(
        lambda v: pa.array(v, pa.decimal128(12, 3))
    ),
)


@settings(deadline=None, max_examples=150)
@given(column=any_key_column)
def test_any_column_decodes_to_itself(column: pa.Array) -> None:
    table, known = KeyTable(), {}
    for part in (column, column[::-1] if len(column) else column):
        encoded = table.encode(part)
        assert codes_twin(plain(part), known) == encoded.codes.tolist()
        assert plain(table.decode(encoded.codes)) == plain(part)
    assert table.known == len(known)


@pytest.mark.parametrize(
    "column",
    [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([(1, 2, 3)], pa.month_day_nano_interval())],
    ids=["list", "struct", "interval"],
)
def test_a_type_that_is_no_key_is_refused_by_name(column: pa.Array) -> None:
    with pytest.raises(KeyTypeError, match="left: a join key must be a number, text"):
        hash_keys(column, where="left")


def test_keys_that_never_equal_are_refused_with_both_types() -> None:
    table = KeyTable()
    table.encode(pa.array([1]))
    with pytest.raises(KeyTypeError, match=r"right: keys here are integer; got string \(text\).*cast one side"):
        table.encode(pa.array(["1"]), where="right")
    assert table.encode(pa.nulls(2)).codes.tolist() == [-1, -1]
    assert key_family(pa.timestamp("s"), where="") != key_family(pa.timestamp("s", "UTC"), where="")


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.duration("s")], ids=str)
def test_times_that_nanoseconds_cannot_hold_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(KeyTypeError, match="key: keys of this type need to fit int64 nanoseconds"):
        hash_keys(pa.array([1, 10**16], kind))
