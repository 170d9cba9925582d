"""Nile's working types: encodings, views and extension types become plain columns when a source is opened.

    string_view, binary_view        string, binary
    float16                         float32
    decimal32, decimal64            decimal128
    dictionary of one of these, run-end-encoded    their values
    uuid                            text as it is written, "123e4567-e89b-12d3-a456-426614174000", in the same order
    bool8                           boolean
    other extension types           what they are stored as

Every value has one in the other type, and the order of values stays.  So it is inside of lists and structs.  A
dictionary of plain values stays one, as an encoding.
"""

from __future__ import annotations

import numpy as np

from nile.summaries.heavy import pa, pc

__all__ = [
    "can_be_equal",
    "can_be_ordered",
    "decoded_schema",
    "decoded_type",
    "plain_array",
    "plain_schema",
    "plain_type",
]

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_LENGTH = 36
_UUID_DASHES = (8, 13, 18, 23)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column of `kind` is worked with in."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.UuidType):
            return pa.string()
        return pa.bool_() if isinstance(kind, pa.Bool8Type) else plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        value = plain_type(kind.value_type)
        return kind if value == kind.value_type else value
    if types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_float16(kind):
        return pa.float32()
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    return _plain_nested(kind) if types.is_nested(kind) else kind


def _plain_nested(kind: pa.DataType) -> pa.DataType:
    """Lists and structs of what is plain; the type itself where all of it is."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        inner = plain_type(kind.value_type)
        make = pa.list_ if types.is_list(kind) else pa.large_list
        return kind if inner == kind.value_type else make(inner)
    if types.is_struct(kind):
        inner = [plain_type(kind.field(k).type) for k in range(kind.num_fields)]
        if any(new != kind.field(k).type for k, new in enumerate(inner)):
            return pa.struct([(kind.field(k).name, new) for k, new in enumerate(inner)])
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema of plain types, without metadata; the schema itself where all are."""
    if schema.metadata is None and all(plain_type(field.type) == field.type for field in schema):
        return schema
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def plain_array(array: pa.Array) -> pa.Array:
    """The same values in `plain_type`; the array itself where that is its type.  O(values) otherwise."""
    kind, types = array.type, pa.types
    wanted = plain_type(kind)
    if wanted == kind:
        return array
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.UuidType):
            return _written(array.storage)
        return array.storage.cast(pa.bool_()) if isinstance(kind, pa.Bool8Type) else plain_array(array.storage)
    if types.is_dictionary(kind):
        return plain_array(array.dictionary).take(array.indices)
    if types.is_run_end_encoded(kind):
        ends = array.run_ends.to_numpy(zero_copy_only=False)
        places = np.searchsorted(ends, np.arange(array.offset, array.offset + len(array)), side="right")
        return plain_array(array.values).take(pa.array(places))
    if types.is_struct(kind):
        children = [plain_array(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if types.is_list(kind) or types.is_large_list(kind):
        make = pa.ListArray if types.is_list(kind) else pa.LargeListArray
        offsets = pa.array(array.offsets.to_numpy())
        return make.from_arrays(offsets, plain_array(array.values), mask=array.is_null())
    return array.cast(wanted)


def _written(storage: pa.Array) -> pa.Array:
    """UUIDs, 16 bytes each, as text."""
    n = len(storage)
    valid = storage.is_valid().to_numpy(zero_copy_only=False)
    raw = np.frombuffer(b"".join(pc.fill_null(storage, bytes(16)).to_pylist()), np.uint8).reshape(n, 16)
    digits = np.stack([_HEX[raw >> 4], _HEX[raw & 15]], axis=2).reshape(n, 32)
    text = np.full((n, _UUID_LENGTH), ord("-"), np.uint8)
    text[:, [at for at in range(_UUID_LENGTH) if at not in _UUID_DASHES]] = digits
    offsets = np.arange(0, _UUID_LENGTH * (n + 1), _UUID_LENGTH, dtype=np.int32)
    made = pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text.tobytes()))
    return made if valid.all() else pc.if_else(pa.array(valid), made, pa.scalar(None, pa.string()))


def decoded_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values: a dictionary's, or the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decoded(array: pa.Array) -> pa.Array:
    """The values without dictionary encoding."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def decoded_schema(schema: pa.Schema) -> pa.Schema:
    """Names and `decoded_type` of the columns: dictionaries are an encoding, which differs from batch to batch."""
    return pa.schema([(field.name, decoded_type(field.type)) for field in schema])


def can_be_equal(kind: pa.DataType) -> bool:
    """Whether values of a plain type can be told equal: to be grouped by, DISTINCT, and counted apart."""
    kind = decoded_type(kind)
    return not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType)


def can_be_ordered(kind: pa.DataType) -> bool:
    """Whether values of a plain type have an order: ORDER BY, min, max, <, and keys of joins."""
    return can_be_equal(kind) and not pa.types.is_interval(kind)
