"""Every type of Arrow with a few values of it, and what those must come out as."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from nile.summaries.heavy import pa

__all__ = ["ArrowType", "arrow_types"]


@dataclass(frozen=True, slots=True)
class ArrowType:
    """One type.  name: as people write it; column: eight values, the sixth null; values: what they must come out as."""

    name: str
    column: pa.Array
    values: list[Any]

    @property
    def type(self) -> pa.DataType:
        """The type of the column."""
        return self.column.type


@cache
def arrow_types() -> tuple[ArrowType, ...]:
    """All of them, as this pyarrow has them."""
    made = [_of(kind, values) for kind, values in _plain()]
    made += [_of(kind, values) for kind, values in _nested()]
    numbers = _repeated(3, 1, 2)
    texts = _repeated("b", "", "z\u00e9")
    floats = _repeated(1.5, -2.25, 0.0)
    made += [
        ArrowType("float16", pa.array(floats, pa.float64()).cast(pa.float16()), floats),
        *(_encoded(kind, values) for kind, values in ((pa.string(), texts), (pa.int64(), numbers))),
        ArrowType("dictionary of string_view", _indexed(pa.array(texts[:4], pa.string_view())), texts),
        *(
            ArrowType(f"run_end_encoded of {kind}", _runs(pa.array(values, kind)), values)
            for kind, values in ((pa.string(), texts), (pa.int64(), numbers), (pa.float64(), floats))
        ),
        _of(pa.list_(pa.string_view()), _repeated(["a", None], [], ["b"]), "list of string_view"),
        ArrowType("struct of float16", _half_structs(floats), [None if f is None else {"a": f} for f in floats]),
        _of(pa.int64(), _repeated(2**62, -(2**62) - 1, 2**53 + 1), "int64 near 2^62"),
        _of(pa.uint64(), _repeated(2**63 + 1, 0, 2**53 + 1), "uint64 near 2^63"),
        _union("dense_union"),
        _union("sparse_union"),
        *_extensions(texts),
    ]
    return tuple(made)


def _repeated(*values: Any) -> list[Any]:
    """Eight values out of three, with a null: groups of several rows, and an order that is not that of arrival."""
    a, b, c = values
    return [a, b, c, a, b, None, c, a]


def _of(kind: pa.DataType, values: list[Any], name: str | None = None) -> ArrowType:
    plain = str(kind) if not pa.types.is_nested(kind) else str(kind).split("<", maxsplit=1)[0]
    return ArrowType(name or plain, pa.array(values, kind), values)


def _half_structs(floats: list[Any]) -> pa.Array:
    halves = pa.array(floats).cast(pa.float16())
    return pa.StructArray.from_arrays([halves], names=["a"], mask=halves.is_null())


def _plain() -> list[tuple[pa.DataType, list[Any]]]:
    at = dt.datetime
    days = _repeated(dt.date(2020, 2, 29), dt.date(1969, 12, 31), dt.date(2001, 1, 1))
    moments = _repeated(at(2020, 2, 29, 1), at(1969, 12, 31, 23), at(2001, 1, 1))
    aware = [None if m is None else m.replace(tzinfo=dt.UTC) for m in moments]
    clock = _repeated(dt.time(1, 2, 3), dt.time(0, 0), dt.time(23, 59, 59))
    long = _repeated(dt.timedelta(seconds=5), dt.timedelta(days=-1), dt.timedelta(0))
    narrow = (pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(20, 2), pa.decimal256(50, 2))
    money = _repeated(Decimal("3.25"), Decimal("-1.50"), Decimal("0.00"))
    whole = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    unsigned = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    text = [pa.string(), pa.large_string(), pa.string_view()]
    raw = [pa.binary(), pa.large_binary(), pa.binary_view()]
    return [
        (pa.null(), [None] * 8),
        (pa.bool_(), _repeated(True, False, True)),
        *((kind, _repeated(3, -1, 2)) for kind in whole),
        *((kind, _repeated(3, 1, 2)) for kind in unsigned),
        (pa.float32(), _repeated(1.5, -2.25, 0.0)),
        (pa.float64(), _repeated(1.5, -2.25, 0.0)),
        *((kind, money) for kind in narrow),
        *((kind, _repeated("b", "", "z\u00e9")) for kind in text),
        *((kind, _repeated(b"b", b"", b"\xff\0")) for kind in raw),
        (pa.binary(2), _repeated(b"bb", b"\0\0", b"\xff\0")),
        (pa.date32(), days),
        (pa.date64(), days),
        *((pa.timestamp(unit), moments) for unit in ("s", "ms", "us", "ns")),
        (pa.timestamp("us", "UTC"), aware),
        (pa.timestamp("ns", "Europe/Zurich"), aware),
        (pa.time32("s"), clock),
        (pa.time32("ms"), clock),
        (pa.time64("us"), clock),
        (pa.time64("ns"), clock),
        *((pa.duration(unit), long) for unit in ("s", "ms", "us", "ns")),
        (pa.month_day_nano_interval(), _repeated((1, 2, 3), (0, 0, 0), (0, -1, 5))),
    ]  # fmt: skip


def _nested() -> list[tuple[pa.DataType, list[Any]]]:
    lists = _repeated([1, 2], [], [3])
    kinds = [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_view(pa.int64()), pa.large_list_view(pa.int64())]
    return [
        *((kind, lists) for kind in kinds),
        (pa.list_(pa.int64(), 2), _repeated([1, 2], [0, 0], [3, None])),
        (
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            _repeated({"a": 1, "b": "x"}, {"a": 0, "b": ""}, {"a": None, "b": "y"}),
        ),
        (pa.map_(pa.string(), pa.int64()), _repeated([("k", 1)], [], [("a", 2), ("b", None)])),
    ]  # fmt: skip


def _indexed(values: pa.Array) -> pa.Array:
    """Values 0, 1, 2, 0, 1, null, 2, 0 of three."""
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0, 1, None, 2, 0], pa.uint32()), values.slice(0, 3))


def _encoded(kind: pa.DataType, values: list[Any]) -> ArrowType:
    return ArrowType(f"dictionary of {kind}", _indexed(pa.array(values, kind)), values)


def _runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(list(range(1, len(values) + 1)), values)


def _union(mode: str) -> ArrowType:
    kinds = pa.array([0, 1, 0, 1, 0, 1, 0, 1], pa.int8())
    numbers, texts = [1, 2, 3, 4], ["a", "b", "c", "d"]
    if mode == "dense_union":
        places = pa.array([0, 0, 1, 1, 2, 2, 3, 3], pa.int32())
        made = pa.UnionArray.from_dense(kinds, places, [pa.array(numbers), pa.array(texts)])
    else:
        wide = [pa.array(np_each) for np_each in ([1, 0, 2, 0, 3, 0, 4, 0], ["", "a", "", "b", "", "c", "", "d"])]
        made = pa.UnionArray.from_sparse(kinds, wide)
    return ArrowType(mode, made, [1, "a", 2, "b", 3, "c", 4, "d"])


@cache
def _tagged() -> Callable[[], pa.ExtensionType]:
    class Tagged(pa.ExtensionType):  # type: ignore[misc]
        """A type of somebody's own."""

        def __init__(self) -> None:
            super().__init__(pa.int64(), "nile.faults.tagged")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Any:
            return cls()

    return Tagged


def _extensions(texts: list[Any]) -> list[ArrowType]:
    ids = [uuid.UUID(int=k) for k in (7, 1, 1 << 127)]
    known = _repeated(*ids)
    storage = pa.array([None if each is None else each.bytes for each in known], pa.binary(16))
    flags = _repeated(1, 0, 1)
    tensor = pa.fixed_shape_tensor(pa.int64(), [2])
    pairs = _repeated([1, 2], [0, 0], [3, 4])
    own = _repeated(3, 1, 2)
    made = (
        ("uuid", pa.uuid(), storage, [None if each is None else str(each) for each in known]),
        ("json", pa.json_(), pa.array(texts), texts),
        ("bool8", pa.bool8(), pa.array(flags, pa.int8()), [None if flag is None else bool(flag) for flag in flags]),
        ("opaque", pa.opaque(pa.string(), "thing", "maker"), pa.array(texts), texts),
        ("fixed_shape_tensor", tensor, pa.array(pairs, tensor.storage_type), pairs),
        ("extension of int64", _tagged()(), pa.array(own), own),
    )
    return [ArrowType(name, pa.ExtensionArray.from_storage(kind, held), values) for name, kind, held, values in made]
