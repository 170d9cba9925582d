"""Arrow rows as plain arrays come back as they were, in one form only, and no bytes make the reader crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nile.summaries.columns import decode, encode
from nile.summaries.envelope import pack, unpack
from nile.summaries.errors import EnvelopeError
from nile.summaries.schemas import schema_from_json, schema_to_json

N = 9


def numbers(kind: pa.DataType) -> pa.Array:
    low, high = 0, 100
    plain = pa.array(np.linspace(low, high, N).astype(np.int64))
    wide = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    if pa.types.is_temporal(kind):
        return (plain if kind != pa.date64() else pc.multiply(plain, 86_400_000)).cast(wide[kind.bit_width]).view(kind)
    return plain.cast(kind)


LEAVES: list[pa.DataType] = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"),
    pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns"),
    pa.duration("ms"), pa.decimal32(7, 2), pa.decimal64(18, 3), pa.decimal128(38, 4), pa.decimal256(60, 5),
]  # fmt: skip
TEXT = ["", "a", "Nile", "ü", "日本語", "x" * 300, "\0", "a", ""]
TEXTS: list[pa.DataType] = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
]  # fmt: skip


def column(kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(i * 37 - 90).scaleb(-kind.scale) for i in range(N)], kind)
    return pa.array(TEXT, pa.string()).cast(kind) if kind in TEXTS else numbers(kind)


def holed(array: pa.Array) -> pa.Array:
    """Every third value null, with what stood there still in the buffers."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        return pa.array([None if i % 3 == 1 else each for i, each in enumerate(array.to_pylist())], array.type)
    bits = pa.array([i % 3 != 1 for i in range(len(array))]).buffers()[1]
    return pa.Array.from_buffers(array.type, len(array), [bits, *array.buffers()[1:]])


def special() -> list[pa.Array]:
    doubles = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, 1e308, 1.5])
    return [
        pa.nulls(N),
        pa.array(doubles),
        pa.array(np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-45, 3e38, 1.5, -2], np.float32)),
        pa.array([(i, -i, i * 10) for i in range(N)], pa.month_day_nano_interval()),
        pa.array([b"ab"] * N, pa.binary(2)),
        pa.array([b""] * N, pa.binary(0)),
        holed(pa.array(TEXT)).dictionary_encode(),
        pa.array(TEXT).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.large_string(), ordered=True)),
        pa.array([1.5, None, 1.5] * 3).dictionary_encode(),
        pc.run_end_encode(pa.array([1, 1, None, None, 2, 2, 2, 3, 3])),
        pa.array([[1, 2], None, []] * 3, pa.list_(pa.int32())),
        pa.array([["a"], None, [None, "b"]] * 3, pa.large_list(pa.string())),
        pa.array([["a"], None, [None, "b"]] * 3, pa.list_view(pa.string())),
        pa.array([[1], None, []] * 3, pa.large_list_view(pa.int8())),
        pa.array([[1, 2], None, [3, None]] * 3, pa.list_(pa.int16(), 2)),
        pa.array([[], None, []] * 3, pa.list_(pa.int16(), 0)),
        pa.array([[("a", 1)], None, [("b", None), ("c", 3)]] * 3, pa.map_(pa.string(), pa.float64())),
        pa.array(
            [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": None}] * 3,
            pa.struct([("a", pa.int64()), pa.field("b", pa.list_(pa.string()))]),
        ),
        pa.array([{}, None, {}] * 3, pa.struct([])),
    ]


COLUMNS = [column(kind) for kind in (*LEAVES, *TEXTS)]
COLUMNS += [holed(each) for each in COLUMNS] + special()


def batch_of(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), names=[f"c{i}" for i in range(len(columns))])


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return pack("rows", {}, a) == pack("rows", {}, b)


def through_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    envelope = unpack(pack("rows", {"schema": schema_to_json(batch.schema)}, encode(batch)))
    return decode(envelope.arrays, schema_from_json(envelope.params["schema"]))


def equal(a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    if a.schema != b.schema or a.num_rows != b.num_rows:
        return False
    return all(
        x.to_pylist() == y.to_pylist() or repr(x.to_pylist()) == repr(y.to_pylist())
        for x, y in zip(a.columns, b.columns, strict=True)
    )


@pytest.mark.parametrize("at", range(len(COLUMNS)))
def test_every_type_comes_back_from_every_slice(at: int) -> None:
    batch = batch_of(COLUMNS[at])
    for start in (0, 1, 4, N):
        for length in (0, 1, 3, N):
            piece = batch.slice(start, length)
            back = through_bytes(piece)
            back.validate(full=True)
            assert equal(back, piece)


@pytest.mark.parametrize("at", range(len(COLUMNS)))
def test_the_form_does_not_depend_on_offsets_dictionaries_or_what_lies_under_nulls(at: int) -> None:
    whole = batch_of(COLUMNS[at])
    for start, length in ((0, N), (2, 5)):
        piece = whole.slice(start, length)
        copied = pa.concat_arrays([piece.column(0).slice(0, 1), piece.column(0).slice(1)])
        assert same(encode(piece), encode(batch_of(copied)))
        kind, values = piece.column(0).type, piece.column(0).to_pylist()
        if kind != pa.time64("ns") and not pa.types.is_run_end_encoded(kind) and "nan" not in repr(values):
            assert same(encode(piece), encode(batch_of(pa.array(values, kind))))


def test_text_of_one_dictionary_or_another_is_the_same_text() -> None:
    one = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2]), ["a", "b", None])
    other = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0, 0]), [None, "b", "a"])
    assert same(encode(batch_of(one)), encode(batch_of(other)))


def test_bytes_that_are_no_text_come_back() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    (back,) = through_bytes(batch_of(broken)).columns
    assert back.cast(pa.binary()).to_pylist() == [b"\xff\xfe"]


def test_rows_without_columns_keep_their_number() -> None:
    none = pa.StructArray.from_buffers(pa.struct([]), 5, [None])
    assert through_bytes(pa.RecordBatch.from_struct_array(none)).num_rows == 5


leaves = st.sampled_from([*LEAVES, *TEXTS, pa.null(), pa.binary(3), pa.month_day_nano_interval()])
kinds: st.SearchStrategy[pa.DataType] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(pa.list_view),
        st.builds(lambda kind, width: pa.list_(kind, width), inner, st.integers(0, 3)),
        st.lists(inner, max_size=3).map(lambda each: pa.struct([(f"f{i}", kind) for i, kind in enumerate(each)])),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    ),
    max_leaves=5,
)


@given(kinds, st.booleans(), st.data())
def test_random_types_and_values_come_back(kind: pa.DataType, nullable: bool, data: Any) -> None:
    value = data.draw(st.lists(values_of(kind), max_size=6))
    if not nullable:
        value = [each for each in value if each is not None]
    batch = pa.RecordBatch.from_arrays([pa.array(value, kind)], schema=pa.schema([pa.field("x", kind, nullable)]))
    assert schema_from_json(json.loads(json.dumps(schema_to_json(batch.schema)))) == batch.schema
    back = through_bytes(batch)
    back.validate(full=True)
    assert equal(back, batch)
    assert same(encode(back), encode(batch))


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_struct(kind):
        some: st.SearchStrategy[Any] = st.fixed_dictionaries({each.name: values_of(each.type) for each in kind.fields})
    elif types.is_fixed_size_list(kind):
        some = st.lists(values_of(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    elif types.is_map(kind):
        some = st.lists(st.tuples(st.text(max_size=3), values_of(kind.item_type)), max_size=3)
    elif types.is_nested(kind):
        some = st.lists(values_of(kind.value_type), max_size=3)
    elif kind in TEXTS:
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        some = st.text(max_size=4) if text else st.binary(max_size=4)
    elif types.is_interval(kind):
        some = st.tuples(st.integers(0, 9), st.integers(-9, 9), st.integers(-9, 9))
    elif types.is_null(kind):
        some = st.none()
    else:
        some = st.sampled_from(pa.array([b"abc", b"xyz"], kind).to_pylist() if kind == pa.binary(3) else
                               column(kind).to_pylist())  # fmt: skip
    return st.none() | some


# --- what it refuses --------------------------------------------------------------------------------------


def test_types_without_a_byte_form_are_named() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    extension = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    for array in (union, extension):
        batch = batch_of(array)
        for form in (encode, lambda given: schema_to_json(given.schema)):
            with pytest.raises(EnvelopeError, match=r"column 'c0': needed a type that has a byte form .* cast it"):
                form(batch)
        with pytest.raises(EnvelopeError, match="byte form"):
            decode({"rows": np.array([1])}, batch.schema)


MIXED = batch_of(
    pa.array(["a", None, "bc"]),
    pa.array([[1], None, [2, 3]]),
    pa.array([True, None, False]),
    pa.array([Decimal(1), None, Decimal(3)], pa.decimal128(9)),
    pa.array(["x", "y", "x"]).dictionary_encode(),
)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows", lambda a: a - 4),
        ("rows", lambda a: a + 1),
        ("rows", lambda a: a.astype(np.int32)),
        ("0.offsets", lambda a: a + 1),
        ("0.offsets", lambda a: a[::-1].copy()),
        ("0.offsets", lambda a: a * 1000),
        ("0.offsets", lambda a: np.array([0, 2, 1, 3], np.int32)),
        ("0.offsets", lambda a: np.array([0, 0, 0, -1], np.int32)),
        ("0.offsets", lambda a: a.astype(np.int64)),
        ("0.bytes", lambda a: a[:-1]),
        ("0.valid", lambda a: np.zeros(0, np.uint8)),
        ("0.valid", lambda a: a | np.uint8(0x80)),
        ("1.offsets", lambda a: a * 1000),
        ("1.0.values", lambda a: a[1:]),
        ("2.values", lambda a: a + 2),
        ("3.values", lambda a: a.reshape(-1)),
        ("4.offsets", lambda a: a[:-1]),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    arrays = encode(MIXED)
    with pytest.raises(EnvelopeError, match=r"^state: needed .*; got .*; the bytes"):
        decode({**arrays, name: change(arrays[name])}, MIXED.schema, "state")


def test_missing_and_surplus_arrays_are_refused() -> None:
    arrays = encode(MIXED)
    for name in arrays:
        if not name.endswith("valid"):
            with pytest.raises(EnvelopeError, match="needed an array"):
                decode({k: v for k, v in arrays.items() if k != name}, MIXED.schema)
    with pytest.raises(EnvelopeError, match=r"only the arrays of its columns; got 9\.values"):
        decode({**arrays, "9.values": np.zeros(3)}, MIXED.schema)


def test_random_arrays_are_read_or_refused_and_never_crash() -> None:
    rng = np.random.default_rng(3)
    arrays = encode(MIXED)
    kinds = [np.uint8, np.int32, np.int64]
    refused = 0
    for _ in range(400):
        name = str(rng.choice(list(arrays)))
        made = {**arrays}
        if rng.random() < 0.5 and made[name].size:
            copy = made[name].copy()
            copy.reshape(-1)[rng.integers(copy.size)] = rng.integers(-100, 100) % (
                256 if copy.dtype == np.uint8 else 99
            )
            made[name] = copy
        else:
            made[name] = rng.integers(0, 4, rng.integers(0, 6)).astype(kinds[int(rng.integers(3))])
        try:
            back = decode(made, MIXED.schema)
        except EnvelopeError:
            refused += 1
        else:
            back.validate()
            assert encode(back).keys() >= {"rows"}
            assert back.num_rows == 3
    assert refused > 100


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [1],
        [{"name": "x"}],
        [{"name": 1, "type": "int8"}],
        [{"name": "x", "type": "int9"}],
        [{"name": "x", "type": "int8", "more": 1}],
        [{"name": "x", "type": {"is": "timestamp", "unit": "h", "zone": None}}],
        [{"name": "x", "type": {"is": "timestamp", "unit": "s", "zone": ""}}],
        [{"name": "x", "type": {"is": "timestamp"}}],
        [{"name": "x", "type": {"is": "decimal", "bits": 128, "precision": 39, "scale": 0}}],
        [{"name": "x", "type": {"is": "decimal", "bits": [], "precision": 3, "scale": 0}}],
        [{"name": "x", "type": {"is": "bytes", "width": -1}}],
        [{"name": "x", "type": {"is": "dictionary", "index": "double", "values": "string", "ordered": False}}],
        [{"name": "x", "type": {"is": "runs", "ends": "int8", "values": "string"}}],
        [{"name": "x", "type": {"is": "map", "fields": [], "sorted": False}}],
        [{"name": "x", "type": {"is": "list", "fields": "y"}}],
        [{"name": "x", "type": {"is": "exec"}}],
    ],
)
def test_a_schema_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(EnvelopeError, match="needed"):
        schema_from_json(value)


def test_a_schema_of_endless_depth_is_refused() -> None:
    kind: Any = "int8"
    for _ in range(500):
        kind = {"is": "list", "fields": [{"name": "item", "type": kind}]}
    with pytest.raises(EnvelopeError, match="at most 64 deep"):
        schema_from_json([{"name": "x", "type": kind}])
